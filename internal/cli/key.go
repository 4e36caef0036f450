package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) keyCommand() *cobra.Command {
	return group("key", "Make, list and revoke keys", inv.keyCreateCommand(), inv.keyListCommand(), inv.keyRevokeCommand())
}

func (inv *invocation) keyCreateCommand() *cobra.Command {
	var ask client.NewKey
	var ttl time.Duration
	cmd := inv.asking(&cobra.Command{
		Use: "create KIND", Short: "Make a key and print its secret, this once", Args: exactly("kind"),
		Long: "Makes a key of a kind: admin, director, operator, auditor, viewer, bridge or worker. Its secret is printed this once; the server keeps only its hash.",
	}, func(ctx context.Context, c *client.Client, args []string) error {
		ask.Kind, ask.TTL = args[0], ttl.Seconds()
		k, err := c.CreateKey(ctx, ask)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(k)
		}
		_, err = fmt.Fprintf(inv.Out, "key     %s\nsecret  %s\n", k.ID, k.Secret)
		return err
	})
	cmd.Flags().StringVar(&ask.Name, "name", "", "what people call it")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long it is good, such as 24h; for ever where it is left out")
	cmd.Flags().StringSliceVar(&ask.Actions, "actions", nil, "the only actions that it may take, separated by commas, of those of its kind")
	cmd.Flags().StringVar(&ask.Owner, "owner", "", "for whom it acts: what it makes is theirs, and it sees nothing else")
	cmd.Flags().Int64Var(&ask.ProjectID, "project", 0, "the only project in which it sees, changes and makes things")
	return cmd
}

func (inv *invocation) keyListCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the keys, oldest first", Args: noArgs},
		func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Keys(ctx)
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(list)
			}
			rows, now := [][]string{{"ID", "KIND", "NAME", "OWNER", "PROJECT", "ACTIONS", "USED", "STATE"}}, time.Now()
			for i := range list {
				k := &list[i]
				rows = append(rows, []string{k.ID, k.Kind, orDash(k.Name), orDash(k.Owner), projectOf(k), strings.Join(k.Actions, ","), inv.moment(k.UsedAt, now), keyState(k)})
			}
			return inv.printTable(rows)
		})
}

// projectOf is the project that a key is narrowed to.
func projectOf(k *client.Key) string {
	if k.ProjectID == nil {
		return orDash("")
	}
	return strconv.FormatInt(*k.ProjectID, 10)
}

func keyState(k *client.Key) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case !k.Good:
		return "expired"
	case k.ExpiresAt != nil:
		return "good until " + k.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return "good"
}

func (inv *invocation) keyRevokeCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "revoke KEY", Short: "End a key, by its id", Args: exactly("key")},
		func(ctx context.Context, c *client.Client, args []string) error {
			k, err := c.RevokeKey(ctx, args[0])
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(k)
			}
			_, err = fmt.Fprintf(inv.Out, "revoked %s\n", k.ID)
			return err
		})
}

// pauseCommands pause the organisation and let it go on.
func (inv *invocation) pauseCommands() []*cobra.Command {
	change := func(use, short, long string, do func(c *client.Client, ctx context.Context, reason string) (client.Pause, error)) *cobra.Command {
		return inv.asking(&cobra.Command{Use: use + " REASON", Short: short, Long: long, Args: exactly("reason")},
			func(ctx context.Context, c *client.Client, args []string) error {
				p, err := do(c, ctx, args[0])
				if err != nil {
					return err
				}
				if inv.json {
					return inv.printJSON(p)
				}
				said := "the organisation goes on"
				if p.Paused {
					said = "the organisation is paused; aurea resume lets it go on"
				}
				_, err = fmt.Fprintln(inv.Out, said)
				return err
			})
	}
	return []*cobra.Command{
		change("pause", "Pause the organisation: nothing new is taken in or handed out",
			"Pauses the organisation, also over restarts: plans, runs, sandboxes, sessions, machines, builds and fleet workers are refused with ORG_PAUSED, and the queue hands out nothing. What runs goes on, and everything can be looked at.",
			(*client.Client).PauseOrganisation),
		change("resume", "Let a paused organisation go on", "Lets a paused organisation go on. It needs a director or an admin.", (*client.Client).ResumeOrganisation),
	}
}
