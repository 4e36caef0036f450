package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
)

// tripTime bounds how long the worker may take to have stopped everything.
const tripTime = 40 * time.Second

func (inv *invocation) tripCommand() *cobra.Command {
	var freeze bool
	cmd := &cobra.Command{
		Use: "trip [REASON]", Short: "Stop everything on this machine, without asking a manager",
		Long: "Puts the file named trip into the worker's folder and signals the worker, which kills every sandbox here and tells the manager when it can be reached. It works while manager and database are away. Where no worker runs, the command itself kills what one has left, and the next that is started begins nothing.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := inv.load(cmd, config.Worker)
			if err != nil {
				return err
			}
			level := "kill"
			if freeze {
				level = "freeze"
			}
			return inv.trip(cmd, cfg, level, strings.Join(args, " "))
		},
	}
	offer(cmd, config.Flags(config.Worker))
	cmd.Flags().BoolVar(&freeze, "freeze", false, "make it stand still in place of ending it")
	return cmd
}

func (inv *invocation) trip(cmd *cobra.Command, cfg *config.Config, level, reason string) error {
	base := cfg.SandboxBase
	by := "machine"
	if u, err := user.Current(); err == nil {
		by = u.Username + " at the machine"
	}
	body, err := json.Marshal(map[string]string{"level": level, "reason": reason, "by": by})
	if err != nil {
		return fmt.Errorf("write down the trip: %w", err)
	}
	path := filepath.Join(base, "trip")
	if err := os.WriteFile(path+".new", body, 0o600); err != nil {
		return fault.New(fault.Denied, "put the trip into the worker's folder: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fault.New(fault.Denied, "put the trip into the worker's folder: %w", err)
	}
	runs, err := signalWorker(base)
	if err != nil {
		return err
	}
	if !runs {
		return inv.tripAlone(cmd.Context(), cfg, level)
	}
	return inv.awaitTripped(cmd, path)
}

// tripAlone stops what a worker has left that does not run any more. The file
// stays for the next one, which tells the managers.
func (inv *invocation) tripAlone(ctx context.Context, cfg *config.Config, level string) error {
	if level != "kill" {
		return fault.New(fault.Unavailable, "no worker runs here that could freeze anything; the next that is started does so first. Without --freeze, what is left is killed now")
	}
	began := time.Now()
	bounded, cancel := context.WithTimeoutCause(ctx, tripTime, errSlowTrip)
	defer cancel()
	if err := inv.program.KillLeft(bounded, cfg); err != nil {
		return fmt.Errorf("kill what a worker has left: %w", err)
	}
	_, err := fmt.Fprintf(inv.Out, "no worker runs here; everything that one has left has ended (%s), and the next that is started begins nothing\n", time.Since(began).Round(time.Millisecond))
	return err
}

var errSlowTrip = fault.New(fault.Unavailable, "not everything has ended within %s", tripTime)

// signalWorker signals the worker that holds the lock of the folder, if one does:
// then the number in it is that of a process that lives.
func signalWorker(base string) (runs bool, err error) {
	f, err := os.Open(filepath.Join(base, "worker.lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the worker: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(f, 20))
	if err != nil {
		return false, fmt.Errorf("look for the worker: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return true, nil //nolint:nilerr // it finds the file by itself
	}
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		return true, fmt.Errorf("signal the worker: %w", err)
	}
	return true, nil
}

// awaitTripped waits until the worker has taken the file away, which it does when
// everything has stopped.
func (inv *invocation) awaitTripped(cmd *cobra.Command, path string) error {
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < tripTime {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			_, err := fmt.Fprintf(inv.Out, "everything on this machine has stopped (%s)\n", time.Since(began).Round(time.Millisecond))
			return err
		}
		select {
		case <-tick.C:
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
	}
	return fault.New(fault.Unavailable, "the worker has not stopped everything within %s", tripTime)
}
