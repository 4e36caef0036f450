package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/doctor"
)

func (inv *invocation) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what this machine can do, per driver, and what to do about what is missing", Args: noArgs,
		Long: "Looks at this machine and says for each driver whether it can work here: what was found, what a lack costs, and the remedy.\n" +
			"It changes nothing. The exit code is 0 when the driver that is set can work, and the bucket that AUREA_BLOBS names, if it does, can be reached; else 1.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := inv.load(cmd, config.Up)
			if err != nil {
				return err
			}
			report := inv.program.Doctor(cmd.Context(), inv.start(cfg))
			if err := inv.printReport(report); err != nil {
				return err
			}
			if !report.Healthy() {
				return quietError{errors.New("what is set cannot work here")}
			}
			return nil
		},
	}
	offer(cmd, config.Flags(config.Up))
	return cmd
}

func (inv *invocation) printReport(r doctor.Report) error {
	if inv.json {
		return inv.printJSON(r)
	}
	rows := [][]string{{"DRIVER", "LOOKED AT", "", "FOUND"}}
	var advice []string
	for _, d := range r.Drivers {
		name := d.Name
		if d.Chosen {
			name += " *"
		}
		verdict := "works"
		if !d.Works {
			verdict = "does not work here"
		}
		rows = append(rows, []string{name, verdict})
		for _, f := range d.Findings {
			rows = append(rows, []string{"", f.Name, string(f.Level), f.Found})
			if f.Level != doctor.OK {
				advice = append(advice, fmt.Sprintf("%s, %s: %s. Remedy: %s.", d.Name, f.Name, f.Cost, f.Remedy))
			}
		}
	}
	if f := r.Blobs; f != nil {
		rows = append(rows, []string{"blobs", f.Name, string(f.Level), f.Found})
		if f.Level != doctor.OK {
			advice = append(advice, fmt.Sprintf("blobs, %s: %s. Remedy: %s.", f.Name, f.Cost, f.Remedy))
		}
	}
	if err := inv.printTable(rows); err != nil {
		return err
	}
	for _, a := range advice {
		if _, err := fmt.Fprintln(inv.Out, plain(a)); err != nil {
			return err
		}
	}
	return nil
}

func (inv *invocation) diagnoseCommand() *cobra.Command {
	var to string
	var logs []string
	cmd := &cobra.Command{
		Use: "diagnose", Short: "Write a bundle for support: versions, settings, logs, what doctor says; no secrets", Args: noArgs,
		Long: "Writes a .tar.gz with versions, settings, the end of logs, last words of sandbox kernels, and what doctor says.\n" +
			"Secrets are hidden. It never holds the database, keys, workspaces or output of jobs. Look through it before you send it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := inv.load(cmd, config.Up)
			if err != nil {
				return err
			}
			if to == "" {
				to = "aurea-diagnose-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			err = writeNew(to, func(w io.Writer) error { return inv.program.Diagnose(cmd.Context(), inv.start(cfg), logs, w) })
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(map[string]string{"file": to})
			}
			_, err = fmt.Fprintln(inv.Out, plain(to))
			return err
		},
	}
	offer(cmd, config.Flags(config.Up))
	cmd.Flags().StringVarP(&to, "output", "o", "", "file to write; must not exist (default: aurea-diagnose-TIME.tar.gz)")
	cmd.Flags().StringArrayVar(&logs, "log", nil, "log file whose end is packed; may be given several times")
	return cmd
}

// writeNew writes a file of its owner's that did not exist, or nothing.
func writeNew(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	err = write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}
