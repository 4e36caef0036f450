package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) sandboxDiffCommand() *cobra.Command {
	var patch bool
	cmd := inv.onSandbox(&cobra.Command{
		Use: "diff ID FROM [TO]", Short: "Show what changed in the files from one snapshot to another, or until now", Args: diffArgs,
		Long: "Shows what was added (A), modified (M) and deleted (D) below /workspace, from a snapshot to another, or until now.\nWith --patch it shows the texts line by line, in a form that git apply takes.",
	}, func(ctx context.Context, c *client.Client, s client.Sandbox, args []string) error {
		to := ""
		if len(args) > 1 {
			to = args[1]
		}
		d, err := c.DiffSandbox(ctx, s.ID, args[0], to)
		switch {
		case err != nil:
			return err
		case inv.json:
			return inv.printJSON(d)
		case patch:
			return inv.printPatch(d)
		}
		return inv.printChanges(d)
	})
	cmd.Flags().BoolVarP(&patch, "patch", "p", false, "show the texts line by line")
	return cmd
}

// diffArgs demands a sandbox and one snapshot, or two.
func diffArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 2 || len(args) == 3 {
		return nil
	}
	return usage(cmd, "name a sandbox, and the snapshot of its files to begin with; take one with aurea sandbox snapshot")
}

func (inv *invocation) printChanges(d client.SandboxDiff) error {
	var out strings.Builder
	for _, x := range d.Changes {
		letter := strings.ToUpper(x.Change)
		if letter != "" {
			letter = letter[:1]
		}
		end := ""
		if x.Type == "dir" {
			end = "/"
		}
		fmt.Fprintf(&out, "%s %s%s\n", plain(letter), plain(x.Path), end)
	}
	if d.Truncated {
		fmt.Fprintf(&out, "and more: %d added, %d modified, %d deleted\n", d.Added, d.Modified, d.Deleted)
	}
	_, err := fmt.Fprint(inv.Out, out.String())
	return err
}

// printPatch prints what git apply takes. What cannot be shown is named above
// it, where git lets it pass.
func (inv *invocation) printPatch(d client.SandboxDiff) error {
	var named, out strings.Builder
	for _, x := range d.Changes {
		if x.Diff != nil {
			out.WriteString(*x.Diff)
		} else if why := unshown(x); why != "" {
			fmt.Fprintf(&named, "Not shown (%s): %s was %s\n", plain(why), plain(x.Path), plain(x.Change))
		}
	}
	if d.Truncated {
		fmt.Fprintf(&named, "Not shown (cut): there are more; %d were added, %d modified, %d deleted\n", d.Added, d.Modified, d.Deleted)
	}
	var turn sync.Mutex
	_, err := fmt.Fprint(inv.logWriter(&turn, client.Stdout, false), named.String(), out.String())
	return err
}

// unshown is why a change is not in a patch; "" is that none misses it there, as
// git knows no folders.
func unshown(x client.Difference) string {
	switch {
	case x.Omitted != nil:
		return *x.Omitted
	case x.Type == "link":
		return "link"
	case x.Change == "modified":
		return "type" // what was a link or a folder is a file now, or the other way round
	}
	return ""
}
