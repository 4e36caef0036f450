package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) fleetCommand() *cobra.Command {
	return group("fleet", "Govern workers that may start workers: manifests, contracts, who started whom",
		inv.fleetListCommand(), inv.fleetManifestCommand(), inv.fleetLaunchCommand(), inv.fleetKillCommand(), inv.fleetLineageCommand(),
		inv.fleetContractsCommand(), inv.fleetKeysCommand(), inv.fleetQuarantineCommand(), inv.fleetReleaseCommand(), inv.fleetTerminateCommand(),
		inv.fleetReviveCommand(), inv.triggerCommand())
}

func (inv *invocation) fleetListCommand() *cobra.Command {
	var all bool
	var contract string
	cmd := inv.asking(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the workers of the fleet, newest first", Args: noArgs}, func(ctx context.Context, c *client.Client, _ []string) error {
		f, err := c.Fleet(ctx, contract, all)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(f)
		}
		now := time.Now()
		rows := [][]string{{"WORKER", "PARENT", "DEPTH", "CPU", "MEMORY", "NETWORK", "STARTED", "STANDING", "STATUS", "SIGNED", "REASON"}}
		for _, w := range f.Workers {
			signed := "yes"
			if !w.SignatureValid {
				signed = "no"
			}
			rows = append(rows, []string{
				w.WorkerID, or(w.Manifest.ParentID, "-"), fmt.Sprint(w.Manifest.Depth), fmt.Sprint(w.Resources.CPULimit), fmt.Sprint(w.Resources.MemoryLimitMB, "m"), w.Network,
				inv.moment(w.StartedAt, now), w.Standing, w.Status, signed, clip(or(w.Reason, "-"), 40),
			})
		}
		return inv.printTable(rows)
	})
	cmd.Flags().BoolVarP(&all, "all", "a", false, "those that have ended, and manifests that wait to be used, too")
	cmd.Flags().StringVar(&contract, "contract", "", "only those under this contract")
	return cmd
}

func (inv *invocation) fleetManifestCommand() *cobra.Command {
	var m client.ManifestRequest
	var state string
	var r client.FleetResources
	cmd := inv.asking(&cobra.Command{
		Use: "manifest", Short: "Ask for a signed manifest, and print it", Args: noArgs,
		Long: "Asks for a signed manifest and prints it as JSON, for `aurea fleet launch`. It can be used once, and not for long.",
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		if state != "" {
			m.StateSnapshot = json.RawMessage(state)
		}
		if r != (client.FleetResources{}) {
			m.Resources = &r
		}
		paper, err := c.IssueManifest(ctx, m)
		if err != nil {
			return err
		}
		return inv.printJSON(paper)
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if state != "" && !json.Valid([]byte(state)) {
			return usage(cmd, "--state must be a JSON object")
		}
		if (r.CPULimit > 0) != (r.MemoryLimitMB > 0) {
			return usage(cmd, "--cpu and --memory go together")
		}
		return nil
	}
	flags := cmd.Flags()
	flags.StringVar(&m.ParentID, "parent", "", "the worker whose child it is; without it a root")
	flags.StringVar(&m.Contract, "contract", "", "the contract that it is under")
	flags.StringVar(&state, "state", "", "what the worker is given along, as a JSON object")
	flags.Float64Var(&r.CPULimit, "cpu", 0, "how many processors it may use")
	flags.Int64Var(&r.MemoryLimitMB, "memory", 0, "how many megabytes it may use")
	return cmd
}

// maxPaper bounds what is read of a manifest.
const maxPaper = 1 << 20

func (inv *invocation) fleetLaunchCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "launch [FILE]", Short: "Show a manifest from a file, or from standard input, and have its worker launched",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "name one file, or none")
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, args []string) error {
		in := inv.In
		if len(args) == 1 && args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		text, err := io.ReadAll(io.LimitReader(in, maxPaper))
		if err != nil {
			return fmt.Errorf("read the manifest: %w", err)
		}
		var m client.Manifest
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("read the manifest: %w", err)
		}
		w, err := c.LaunchWorker(ctx, m)
		if err != nil {
			return err
		}
		return inv.printWorker(w)
	})
}

func (inv *invocation) printWorker(w client.FleetWorker) error {
	if inv.json {
		return inv.printJSON(w)
	}
	_, err := fmt.Fprintf(inv.Out, "%s %s sandbox %s\n", plain(w.WorkerID), plain(w.Status), plain(or(w.SandboxID, "-")))
	return err
}

func (inv *invocation) fleetKillCommand() *cobra.Command {
	var reason, contract string
	var all bool
	cmd := inv.asking(&cobra.Command{Use: "kill ID...", Short: "Kill workers of the fleet, with a reason"}, func(ctx context.Context, c *client.Client, args []string) error {
		if all {
			ids, err := c.KillFleet(ctx, contract, reason)
			if err != nil {
				return err
			}
			return inv.printKilled(ids, true)
		}
		for _, id := range args {
			killed, err := c.KillFleetWorker(ctx, id, reason)
			if err != nil {
				return err
			}
			if err := inv.printKilled([]string{id}, killed); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return usage(cmd, "name workers, or say --all")
		}
		return nil
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVar(&all, "all", false, "every worker, or every one under --contract")
	cmd.Flags().StringVar(&contract, "contract", "", "with --all: only those under this contract")
	return cmd
}

func (inv *invocation) printKilled(ids []string, killed bool) error {
	for _, id := range ids {
		var err error
		switch {
		case inv.json:
			err = inv.printJSON(map[string]any{"worker_id": id, "killed": killed})
		case killed:
			_, err = fmt.Fprintf(inv.Out, "%s killed\n", plain(id))
		default:
			_, err = fmt.Fprintf(inv.Out, "%s was not there\n", plain(id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (inv *invocation) fleetLineageCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "lineage", Short: "Show who started whom", Args: noArgs}, func(ctx context.Context, c *client.Client, _ []string) error {
		l, err := c.Lineage(ctx)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(l)
		}
		var b strings.Builder
		for _, n := range l.Roots {
			branch(&b, n, 0)
		}
		for _, odd := range []struct {
			what string
			ids  []string
		}{{"without a parent that is there", l.Orphans}, {"that come from themselves", l.Cycles}, {"with an impossible depth", l.BadDepths}} {
			if len(odd.ids) > 0 {
				fmt.Fprintf(&b, "workers %s: %s\n", odd.what, plain(strings.Join(odd.ids, " ")))
			}
		}
		_, err = io.WriteString(inv.Out, b.String())
		return err
	})
}

// branch prints a worker and those below it. The server bounds how deep it goes.
func branch(b *strings.Builder, n client.LineageNode, depth int) {
	fmt.Fprintf(b, "%s%s %s\n", strings.Repeat("  ", min(depth, 100)), plain(n.WorkerID), plain(n.State))
	for _, child := range n.Children {
		branch(b, child, depth+1)
	}
}

func (inv *invocation) fleetContractsCommand() *cobra.Command {
	var templates bool
	var put, template string
	var depth, replicas int
	var cooldown, expiration float64
	var cmd *cobra.Command
	cmd = inv.asking(&cobra.Command{
		Use: "contracts", Short: "List contracts and how much of each is used, or make one", Args: noArgs,
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		var list []client.Contract
		var err error
		switch {
		case put != "":
			body := map[string]any{"name": put}
			for flag, x := range map[string]struct {
				field string
				value any
			}{
				"template": {"template", template}, "max-depth": {"max_depth", depth}, "max-replicas": {"max_replicas", replicas},
				"cooldown": {"cooldown_seconds", cooldown}, "expiration": {"expiration_seconds", expiration},
			} {
				if cmd.Flags().Changed(flag) {
					body[x.field] = x.value
				}
			}
			var made client.Contract
			made, err = c.PutContract(ctx, body)
			list = []client.Contract{made}
		case templates:
			list, err = c.Templates(ctx)
		default:
			list, err = c.Contracts(ctx)
		}
		if err != nil {
			return err
		}
		return inv.printContracts(list)
	})
	flags := cmd.Flags()
	flags.BoolVar(&templates, "templates", false, "list the contracts to start from")
	flags.StringVar(&put, "put", "", "make or change the contract of this name")
	flags.StringVar(&template, "template", "", "with --put: what it starts from")
	flags.IntVar(&depth, "max-depth", 0, "with --put: how deep a worker may be")
	flags.IntVar(&replicas, "max-replicas", 0, "with --put: how many workers at the same time")
	flags.Float64Var(&cooldown, "cooldown", 0, "with --put: seconds between two children of a worker")
	flags.Float64Var(&expiration, "expiration", 0, "with --put: seconds that a worker lives; 0 is for ever")
	return cmd
}

func (inv *invocation) printContracts(list []client.Contract) error {
	if inv.json {
		return inv.printJSON(list)
	}
	rows := [][]string{{"CONTRACT", "DEPTH", "REPLICAS", "ACTIVE", "COOLDOWN", "EXPIRATION", "TEMPLATE"}}
	for _, c := range list {
		expires := "-"
		if c.ExpirationSeconds != nil {
			expires = fmt.Sprint(*c.ExpirationSeconds, "s")
		}
		rows = append(rows, []string{c.Name, fmt.Sprint(c.MaxDepth), fmt.Sprint(c.MaxReplicas), fmt.Sprint(c.Active), fmt.Sprint(c.CooldownSeconds, "s"), expires, or(c.Template, "-")})
	}
	return inv.printTable(rows)
}

func (inv *invocation) fleetKeysCommand() *cobra.Command {
	var rotate bool
	var revoke string
	cmd := inv.asking(&cobra.Command{
		Use: "keys", Short: "List the keys that manifests are checked against, make a new one, or revoke one", Args: noArgs,
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		if rotate {
			if _, err := c.RotateManifestKey(ctx); err != nil {
				return err
			}
		}
		if revoke != "" {
			if err := c.RevokeManifestKey(ctx, revoke); err != nil {
				return err
			}
		}
		list, err := c.ManifestKeys(ctx)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(list)
		}
		now := time.Now()
		rows := [][]string{{"KEY", "SIGNS", "CREATED", "REVOKED"}}
		for _, k := range list {
			signs := "-"
			if k.Signs {
				signs = "here"
			}
			rows = append(rows, []string{k.ID, signs, inv.moment(&k.CreatedAt, now), inv.moment(k.RevokedAt, now)})
		}
		return inv.printTable(rows)
	})
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make a new key, which signs from now on")
	cmd.Flags().StringVar(&revoke, "revoke", "", "make all manifests under this key worthless")
	return cmd
}
