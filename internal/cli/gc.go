package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) gcCommand() *cobra.Command {
	var dry bool
	cmd := inv.asking(&cobra.Command{
		Use: "gc", Short: "Remove what is older than its retention", Args: noArgs,
		Long: "Removes at once what the manager would remove within the hour: plans, events, output and snapshots that are older than the settings keep_… say, and blobs that nothing refers to. What a record refers to within its retention is never removed.",
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		got, err := c.Collect(ctx, dry)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(got)
		}
		did := "removed"
		if got.DryRun {
			did = "would remove"
		}
		_, err = fmt.Fprintf(inv.Out, "%s %d plans, %d runs, %d sandboxes, %d events, %d workers, %d live outputs, %d blobs (%d bytes, and %d of small ones)\nkept %d blobs (%d bytes)\n",
			did, got.Plans, got.Runs, got.Sandboxes, got.Events, got.Workers, got.Outputs, got.Blobs, got.BlobBytes, got.SmallBytes, got.KeptBlobs, got.KeptBytes)
		return err
	})
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return cmd
}
