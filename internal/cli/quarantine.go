package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

// oneWorker takes one argument.
func oneWorker(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(cmd, "name one worker")
	}
	return nil
}

func (inv *invocation) fleetQuarantineCommand() *cobra.Command {
	var q client.Quarantine
	cmd := inv.asking(&cobra.Command{
		Use: "quarantine ID", Short: "Put a worker under quarantine", Args: oneWorker,
		Long: "Puts a worker under quarantine: it has no children any more, what there is of it is put aside, and then it stands still\n" +
			"until it is released or terminated.",
	}, func(ctx context.Context, c *client.Client, args []string) error {
		w, err := c.QuarantineWorker(ctx, args[0], q)
		if err != nil {
			return err
		}
		return inv.printWorker(w)
	})
	cmd.Flags().StringVar(&q.Reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&q.Severity, "severity", "", "low, medium, high or critical (default medium)")
	cmd.Flags().StringVar(&q.Note, "note", "", "a first note on it")
	return cmd
}

func (inv *invocation) fleetReleaseCommand() *cobra.Command {
	return inv.resolving("release ID", "End a quarantine, and let the worker go on", (*client.Client).ReleaseWorker)
}

func (inv *invocation) fleetTerminateCommand() *cobra.Command {
	return inv.resolving("terminate ID", "End a quarantine, and the worker", (*client.Client).TerminateWorker)
}

// resolving is a command that ends a quarantine.
func (inv *invocation) resolving(use, short string, end func(c *client.Client, ctx context.Context, id, resolution string) (client.FleetWorker, error)) *cobra.Command {
	var resolution string
	cmd := inv.asking(&cobra.Command{Use: use, Short: short, Args: oneWorker}, func(ctx context.Context, c *client.Client, args []string) error {
		w, err := end(c, ctx, args[0], resolution)
		if err != nil {
			return err
		}
		return inv.printWorker(w)
	})
	cmd.Flags().StringVar(&resolution, "resolution", "", "what was found, for the record")
	return cmd
}
