package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/bench"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// benchCommands are the commands that measure.
func benchCommands() []*cobra.Command {
	all := &cobra.Command{
		Use:   "bench",
		Short: "Measure this binary on this machine",
		Long:  "Measure this binary on this machine, with processes and data folders of its own on loopback.\nNumbers move with the machine; compare those of one run.",
	}
	all.AddCommand(benchQueue(), benchSandbox(), benchRun(), benchSoak(), benchKill())
	return []*cobra.Command{all}
}

func benchQueue() *cobra.Command {
	var sizes bench.Sizes
	var asJSON, verbose bool
	var snapshots, database string
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Jobs per second from submit to finish, and submit → start latency",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := newBench(cmd.ErrOrStderr(), verbose)
			if err != nil {
				return err
			}
			switch snapshots {
			case "on", "off":
				sizes.Snapshots = []bool{snapshots == "on"}
			case "both":
				sizes.Snapshots = []bool{true, false}
			default:
				return fault.Field("snapshots", "must be on, off or both")
			}
			seeds := &seeds{address: database}
			defer seeds.close()
			b.Seed = seeds.fill
			q, err := b.Queue(cmd.Context(), sizes)
			if err != nil {
				return err
			}
			return show(cmd, asJSON, q)
		},
	}
	f := cmd.Flags()
	f.IntVar(&sizes.Few, "few", 10, "stored events of the small history")
	f.IntVar(&sizes.Many, "many", 1_000_000, "stored events of the large history")
	f.IntVar(&sizes.Jobs, "jobs", 3000, "jobs per row of throughput")
	f.IntVar(&sizes.Samples, "samples", 300, "samples per latency")
	f.StringVar(&sizes.Below, "data", "", "folder on the disk to measure; by default that for temporary files")
	f.IntSliceVar(&sizes.Clients, "clients", []int{1, 4, 16}, "how many clients submit at once, a row for each")
	f.StringVar(&snapshots, "snapshots", "both", "with snapshots: on, off or both")
	f.StringSliceVar(&sizes.Stores, "store", []string{sqliteStore}, "stores to measure side by side: sqlite, postgres")
	f.StringVar(&database, "database-url", "", "server to make schemas on for the store postgres; without it one is started where PostgreSQL is installed")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&verbose, "verbose", false, "show what the measured processes say")
	return cmd
}

// show writes a result as it was asked for.
func show(cmd *cobra.Command, asJSON bool, result interface{ Print(w io.Writer) error }) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
	}
	return result.Print(cmd.OutOrStdout())
}

// newSandboxBench is for what makes real sandboxes.
func newSandboxBench(progress io.Writer, verbose bool) (*bench.Bench, error) {
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Invalid, "measuring sandboxes needs root")
	}
	return newBench(progress, verbose)
}

func newBench(progress io.Writer, verbose bool) (*bench.Bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	b := &bench.Bench{Binary: self, Log: io.Discard, Progress: func(format string, args ...any) {
		_, _ = fmt.Fprintf(progress, "… "+format+"\n", args...)
	}}
	if verbose {
		b.Log = progress
	}
	return b, nil
}

func seedBatch(ctx context.Context, tx store.Tx, n int) error {
	types := []event.Type{event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobStarted, event.JobCompleted}
	at := time.Now().UTC()
	for i := 0; i < n; i += len(types) {
		j := job.Job{
			ID: job.NewID(), Owner: "local", ProjectID: 1, Title: "history", Role: job.DefaultRole, Payload: json.RawMessage(`{"action":"create file"}`),
			State: job.Completed, Outcome: job.OutcomeOK, Timeout: job.DefaultTimeout, MaxRetries: job.DefaultMaxRetries,
			Attempt: 1, Fence: 1, Worker: "bench", CreatedAt: at, StartedAt: at, CompletedAt: at, UpdatedAt: at, ReadyAt: at,
		}
		j.RootID = job.NewID()
		if err := tx.Jobs().Add(ctx, &j); err != nil {
			return err
		}
		for _, typ := range types[:min(len(types), n-i)] {
			e := event.Event{
				Type: typ, Version: 1, Entity: "job", EntityID: j.ID, JobID: j.ID, RootID: j.RootID, ProjectID: 1,
				Actor: "bench", Owner: "local", At: at, Data: json.RawMessage(`{"from":"","to":""}`),
			}
			if err := tx.Events().Append(ctx, &e); err != nil {
				return err
			}
		}
	}
	return nil
}
