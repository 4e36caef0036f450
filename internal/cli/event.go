package cli

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) eventsCommand() *cobra.Command {
	var follow bool
	var after int64
	var limit int
	var f client.EventFilter
	cmd := inv.asking(&cobra.Command{
		Use: "events", Short: "Print events", Args: noArgs,
		Long: "Prints the stored events, oldest first. With -f it prints what happens from now on, or from --after on, until it is interrupted.",
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		var events iter.Seq2[client.Event, error]
		if follow {
			events = c.Follow(ctx, f, after)
		} else {
			events = c.Events(ctx, f, max(after, 0))
		}
		n := 0
		for e, err := range events {
			if err != nil {
				return err
			}
			if err := inv.printEvent(e); err != nil {
				return err
			}
			if n++; limit > 0 && n >= limit {
				return nil
			}
		}
		if ctx.Err() != nil {
			return quietError{context.Cause(ctx)}
		}
		return nil
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events as they come")
	cmd.Flags().Int64Var(&after, "after", client.Now, "only events with a larger number; 0 is from the beginning")
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many; 0 is never")
	cmd.Flags().StringSliceVar(&f.Types, "type", nil, "only these types, such as job.completed")
	cmd.Flags().StringVar(&f.JobID, "job", "", "only of this job")
	cmd.Flags().StringVar(&f.RootJobID, "plan", "", "only of the jobs of this plan")
	cmd.Flags().Int64Var(&f.ProjectID, "project", 0, "only of this project")
	return cmd
}

func (inv *invocation) printEvent(e client.Event) error {
	if inv.json {
		return inv.printJSON(e)
	}
	_, err := fmt.Fprintln(inv.Out, eventLine(e))
	return err
}
