package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) killSwitchCommand() *cobra.Command {
	return group("kill-switch", "Stop everything, or a part of it, at once; and let it go on",
		inv.stopCommand("kill", "End what it covers, and let nothing new begin until it is re-armed"),
		inv.stopCommand("freeze", "Make what it covers stand still, and let nothing new begin until it is unfrozen"),
		inv.releaseCommand("rearm", "Let new work begin after a kill; a director's act", (*client.Client).Rearm),
		inv.releaseCommand("unfreeze", "Let go on what was frozen", (*client.Client).Unfreeze),
		inv.switchStatusCommand(), inv.tripCommand())
}

func (inv *invocation) stopCommand(level, short string) *cobra.Command {
	stop := client.Stop{Level: level}
	var cmd *cobra.Command
	cmd = inv.asking(&cobra.Command{
		Use: level + " REASON", Short: short, Args: atLeast("the reason"),
		Long: short + ". Without a flag it covers everything.",
	}, func(ctx context.Context, c *client.Client, args []string) error {
		asked := stop
		asked.Reason = strings.Join(args, " ")
		switch {
		case scopes(asked) > 1:
			return usage(cmd, "say one of --project, --label and --subtree")
		case asked.ProjectID != 0:
			asked.Scope = "project"
		case asked.Label != "":
			asked.Scope = "label"
		case asked.Root != "":
			asked.Scope = "subtree"
		default:
			asked.Scope = "all"
		}
		got, err := c.Stop(ctx, asked)
		if err != nil {
			return err
		}
		return inv.printStopped(got)
	})
	cmd.Flags().Int64Var(&stop.ProjectID, "project", 0, "only the jobs of this project, and sandboxes with the label project")
	cmd.Flags().StringVar(&stop.Label, "label", "", "only sandboxes with this label, as key=value")
	cmd.Flags().StringVar(&stop.Root, "subtree", "", "only this sandbox, or member of the fleet, and all below it")
	return cmd
}

// scopes is how many parts of everything a stop names.
func scopes(s client.Stop) (n int) {
	for _, named := range []bool{s.ProjectID != 0, s.Label != "", s.Root != ""} {
		if named {
			n++
		}
	}
	return n
}

func (inv *invocation) releaseCommand(verb, short string, release func(c *client.Client, ctx context.Context, id, reason string) (client.Stopped, error)) *cobra.Command {
	var id string
	cmd := inv.asking(&cobra.Command{
		Use: verb + " REASON", Short: short, Args: atLeast("the reason"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		got, err := release(c, ctx, id, strings.Join(args, " "))
		if err != nil {
			return err
		}
		return inv.printStopped(got)
	})
	cmd.Flags().StringVar(&id, "id", "", "only this switch; all of them where it is left out")
	return cmd
}

func (inv *invocation) printStopped(got client.Stopped) error {
	if inv.json {
		return inv.printJSON(got)
	}
	if _, err := fmt.Fprintf(inv.Out, "killed %d, frozen %d, resumed %d sandboxes at %d workers\n", got.Killed, got.Frozen, got.Resumed, len(got.Workers)); err != nil {
		return err
	}
	if got.Failed > 0 {
		fmt.Fprintf(inv.Err, "%d sandboxes could not be brought to it; it is tried again\n", got.Failed)
	}
	for _, w := range got.Unreachable {
		fmt.Fprintf(inv.Err, "worker %s did not answer; it learns it with its next word\n", plain(w))
	}
	if !got.Persisted {
		fmt.Fprintf(inv.Err, "it holds, and is not written down yet: %s\n", plain(or(got.Problem, "-")))
	}
	return nil
}

func (inv *invocation) switchStatusCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "status", Short: "Say what is stopped, and what was", Args: noArgs,
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		got, err := c.KillSwitches(ctx)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(got)
		}
		if !got.Engaged {
			if _, err := fmt.Fprintln(inv.Out, "nothing is stopped"); err != nil {
				return err
			}
		}
		rows, now := [][]string{{"ID", "LEVEL", "SCOPE", "ENGAGED", "RELEASED", "BY", "REASON"}}, time.Now()
		for i := range got.History {
			s := &got.History[i]
			rows = append(rows, []string{s.ID, s.Level, scopeOf(s), inv.moment(&s.EngagedAt, now), inv.moment(s.ReleasedAt, now), s.By, s.Reason})
		}
		return inv.printTable(rows)
	})
}

func scopeOf(s *client.KillSwitch) string {
	switch {
	case s.ProjectID != nil:
		return fmt.Sprintf("project %d", *s.ProjectID)
	case s.Label != nil:
		return "label " + *s.Label
	case s.Root != nil:
		return "subtree " + *s.Root
	}
	return s.Scope
}
