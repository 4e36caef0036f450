package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) sandboxSnapshotCommand() *cobra.Command {
	var full, list bool
	var label, remove string
	cmd := inv.onSandbox(&cobra.Command{
		Use: "snapshot ID", Short: "Take a snapshot of a sandbox, and print its id; or list or remove those it has",
	}, func(ctx context.Context, c *client.Client, s client.Sandbox, _ []string) error {
		switch {
		case remove != "":
			return c.DeleteSnapshot(ctx, remove)
		case list:
			return inv.listSnapshots(ctx, c, s.ID)
		}
		kind := client.FilesSnapshot
		if full {
			kind = client.FullSnapshot
		}
		snap, err := c.TakeSnapshot(ctx, s.ID, kind, label)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(snap)
		}
		_, err = fmt.Fprintln(inv.Out, plain(snap.ID))
		return err
	})
	cmd.Flags().BoolVar(&full, "full", false, "with the memory: to restore and to fork from")
	cmd.Flags().StringVar(&label, "label", "", "a word of yours")
	cmd.Flags().BoolVar(&list, "list", false, "list those that it has, newest first")
	cmd.Flags().StringVar(&remove, "rm", "", "remove the one with this id")
	return cmd
}

func (inv *invocation) listSnapshots(ctx context.Context, c *client.Client, id string) error {
	list, now := []client.SandboxSnapshot{}, time.Now()
	rows := [][]string{{"ID", "KIND", "GENERATION", "SIZE", "CREATED", "LABEL"}}
	for s, err := range c.Snapshots(ctx, id) {
		if err != nil {
			return err
		}
		list = append(list, s)
		rows = append(rows, []string{s.ID, s.Kind, strconv.FormatInt(s.Generation, 10), size(s.Bytes), inv.moment(&s.CreatedAt, now), or(s.Label, "-")})
	}
	if inv.json {
		return inv.printJSON(list)
	}
	return inv.printTable(rows)
}

func (inv *invocation) sandboxRestoreCommand() *cobra.Command {
	return inv.onSandbox(&cobra.Command{Use: "restore ID SNAPSHOT", Short: "Set a sandbox back to a full snapshot of it", Args: both("a sandbox and a snapshot")},
		func(ctx context.Context, c *client.Client, s client.Sandbox, args []string) error {
			s, err := c.RestoreSandbox(ctx, s.ID, args[0])
			if err != nil {
				return err
			}
			return inv.printSandbox(s, fmt.Sprintf("%s %s, generation %d", s.ID, standing(s), s.Generation))
		})
}

func (inv *invocation) sandboxForkCommand() *cobra.Command {
	var count int
	var snapshot string
	var secrets bool
	cmd := inv.onSandbox(&cobra.Command{
		Use: "fork ID", Short: "Make sandboxes that go on from the same moment, and print their ids",
		Long: "Makes sandboxes that go on from the same moment: all of them, or none. What runs goes on in each.",
	}, func(ctx context.Context, c *client.Client, s client.Sandbox, _ []string) error {
		forks, err := c.ForkSandbox(ctx, s.ID, client.Fork{Count: count, Snapshot: snapshot, Secrets: secrets})
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(forks)
		}
		for _, f := range forks {
			if _, err := fmt.Fprintln(inv.Out, plain(f.ID)); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if count < 1 { // 0 would be sent as nothing said, which is one
			return usage(cmd, "--count must be at least 1, not %d", count)
		}
		return nil
	}
	cmd.Flags().IntVarP(&count, "count", "n", 1, "how many")
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "a full snapshot to fork from; one of now by default")
	cmd.Flags().BoolVar(&secrets, "secrets", false, "let them have what was named a secret")
	return cmd
}
