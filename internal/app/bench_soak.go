package app

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/bench"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
)

// benchSoak does runs for long and looks what they leave behind.
func benchSoak() *cobra.Command {
	var plan bench.SoakPlan
	var data string
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Thousands of runs in a row, one in ten hostile; fails when anything leaks",
		Long: "Does thousands of runs in a row, one in ten of them a bomb, a flood or a program that does not end,\n" +
			"and counts before and after: memory and descriptors of manager and worker, processes, control\n" +
			"groups, files. What is more afterwards is a leak, and the command fails. Needs root.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := soak(cmd.Context(), cmd.ErrOrStderr(), data, verbose, plan)
			if err == nil {
				err = show(cmd, asJSON, result)
			}
			if err == nil && len(result.Leaks) > 0 {
				err = fault.New(fault.Internal, "%d kinds of things leak", len(result.Leaks))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&plan.Runs, "runs", 10000, "how many")
	f.IntVar(&plan.Clients, "clients", 4, "how many ask at once")
	f.IntVar(&plan.Every, "hostile", 10, "one in so many is hostile; 0 is none")
	f.StringVar(&data, "data", "", "data folder whose images to use; the first run takes one of the host")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&verbose, "verbose", false, "show what the measured processes say")
	return cmd
}

func soak(ctx context.Context, progress io.Writer, data string, verbose bool, plan bench.SoakPlan) (result bench.Soak, err error) {
	if os.Geteuid() != 0 {
		return bench.Soak{}, fault.New(fault.Invalid, "counting what sandboxes leave needs root")
	}
	b, err := newBench(progress, verbose)
	if err != nil {
		return bench.Soak{}, err
	}
	cfg, err := imagesOf(data)
	if err != nil {
		return bench.Soak{}, err
	}
	group, err := bench.OpenGroup()
	if err != nil {
		return bench.Soak{}, err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	b.Progress("starting a manager and a worker")
	// With the collector of garbage as eager as it usually is, and a pool that
	// does not grow, more is a leak.
	s, err := b.Serve(ctx, cfg.ImageDir(), "AUREA_CONCURRENCY=8", "GOGC=100", "AUREA_POOL=python=2", "AUREA_POOL_MAX=2")
	if err != nil {
		return bench.Soak{}, err
	}
	defer s.Close()
	return b.Soak(ctx, s, group, plan)
}

// imagesOf are the settings of the data folder whose images a measurement uses,
// which is made where it is missing.
func imagesOf(data string) (*config.Config, error) {
	flags := map[string]string{}
	if data != "" {
		flags["data"] = data
	}
	cfg, err := config.Load(config.FromProcess(config.Worker, "", flags))
	if err != nil {
		return nil, err
	}
	_, err = Images(cfg)
	return cfg, err
}
