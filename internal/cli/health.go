package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

// healthCommand is also the health check of a container: the image of the
// manager has no other program that could ask.
func (inv *invocation) healthCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "health", Short: "Ask whether the manager answers, and what it can do", Args: noArgs,
		Long: "Asks the manager how it is doing. The exit code is 0 when it can take requests, also while no worker is there.",
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		if err := c.Ready(ctx); err != nil {
			return err
		}
		h, err := c.Health(ctx)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(h)
		}
		drivers := "none"
		if len(h.Drivers) > 0 {
			drivers = strings.Join(h.Drivers, ", ")
		}
		_, err = fmt.Fprintf(inv.Out, "%s: version %s, workers: %d, drivers: %s\n", h.Status, h.Version, h.Workers, drivers)
		return err
	})
}
