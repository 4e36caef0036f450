package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) triggerCommand() *cobra.Command {
	return group("trigger", "Watch the fleet by rules that act by themselves",
		inv.triggerListCommand(), inv.triggerAddCommand(), inv.triggerRemoveCommand(), inv.triggerPresetCommand(), inv.triggerFiringsCommand(), inv.triggerFireCommand())
}

func (inv *invocation) triggerListCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the triggers, oldest first", Args: noArgs}, func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Triggers(ctx)
		if err != nil {
			return err
		}
		return inv.printTriggers(list)
	})
}

func (inv *invocation) printTriggers(list []client.Trigger) error {
	if inv.json {
		return inv.printJSON(list)
	}
	rows := [][]string{{"TRIGGER", "KIND", "THRESHOLD", "SUSTAINED", "STRATEGY", "COOLDOWN", "SEVERITY", "CONTRACT", "ENABLED", "LABEL"}}
	for _, t := range list {
		enabled := "yes"
		if !t.Enabled {
			enabled = "no"
		}
		rows = append(rows, []string{
			t.ID, t.Kind, fmt.Sprint(t.Threshold), fmt.Sprint(t.SustainedSeconds, "s"), t.Strategy, fmt.Sprint(t.CooldownSeconds, "s"), t.Severity,
			or(t.Contract, "-"), enabled, clip(t.Label, 40),
		})
	}
	return inv.printTable(rows)
}

func (inv *invocation) triggerAddCommand() *cobra.Command {
	var t client.TriggerRequest
	var threshold, sustained, timeout, cooldown float64
	var escalate, preserve, disabled bool
	var hooks triggerHooks
	var cmd *cobra.Command
	cmd = inv.asking(&cobra.Command{
		Use: "add KIND", Short: "Make a trigger",
		Long: "Makes a trigger. KIND is resource_cpu (percent of what a worker may use), resource_memory and resource_disk (megabytes), time_limit (seconds),\n" +
			"request_rate (commands within a minute), error_rate (share of those that failed, 0 to 1), manual or custom.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "name one kind")
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, args []string) error {
		t.Kind = args[0]
		for flag, x := range map[string]struct {
			into **float64
			from *float64
		}{"threshold": {&t.Threshold, &threshold}, "sustained": {&t.SustainedSeconds, &sustained}, "timeout": {&t.TimeoutSeconds, &timeout}, "cooldown": {&t.CooldownSeconds, &cooldown}} {
			if cmd.Flags().Changed(flag) {
				*x.into = x.from
			}
		}
		enabled := !disabled
		t.Enabled, t.Escalate, t.PreserveState, t.Hooks = &enabled, &escalate, &preserve, hooks.asked(cmd)
		made, err := c.AddTrigger(ctx, t)
		if err != nil {
			return err
		}
		return inv.printTriggers([]client.Trigger{made})
	})
	flags := cmd.Flags()
	flags.Float64Var(&threshold, "threshold", 0, "from which value on a worker is in breach")
	flags.Float64Var(&sustained, "sustained", 0, "seconds that a worker must be in breach without a break")
	flags.StringVar(&t.Strategy, "strategy", "", "graceful (the default), forceful, quarantine or suspend")
	flags.Float64Var(&timeout, "timeout", 0, "with graceful: seconds that its work may take to stop; 30 without it")
	flags.Float64Var(&cooldown, "cooldown", 0, "seconds after a firing in which nothing more is done to a worker; 60 without it")
	flags.BoolVar(&escalate, "escalate", true, "kill a worker that does not stop")
	flags.BoolVar(&preserve, "preserve", false, "put aside what there is of a worker before it is ended")
	flags.BoolVar(&disabled, "disabled", false, "make it, and let it do nothing yet")
	flags.StringVar(&t.Severity, "severity", "", "low, medium (the default), high or critical")
	flags.StringVar(&t.Label, "label", "", "what people call it")
	flags.StringVar(&t.Contract, "contract", "", "only for workers under this contract")
	hooks.flags(cmd)
	return cmd
}

// triggerHooks are the addresses that are called when a trigger fires.
type triggerHooks struct {
	preKill, cleanup, notify string
	timeout                  float64
}

func (h *triggerHooks) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&h.preKill, "pre-kill", "", "URL that is asked before anything is done, and may abort it")
	flags.StringVar(&h.cleanup, "cleanup", "", "URL that is told when a worker was killed")
	flags.StringVar(&h.notify, "notify", "", "URL that is told of every firing, and what came of it")
	flags.Float64Var(&h.timeout, "hook-timeout", 0, "seconds that pre-kill may take; 5 without it")
}

// asked is what was said of them, or nil.
func (h *triggerHooks) asked(cmd *cobra.Command) *client.TriggerHooks {
	var out client.TriggerHooks
	some := false
	for flag, x := range map[string]struct {
		into **string
		from *string
	}{"pre-kill": {&out.PreKill, &h.preKill}, "cleanup": {&out.Cleanup, &h.cleanup}, "notify": {&out.Notify, &h.notify}} {
		if cmd.Flags().Changed(flag) {
			*x.into, some = x.from, true
		}
	}
	if cmd.Flags().Changed("hook-timeout") {
		out.TimeoutSeconds, some = &h.timeout, true
	}
	if !some {
		return nil
	}
	return &out
}

func (inv *invocation) triggerRemoveCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "rm ID...", Short: "Remove triggers",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "name triggers")
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, args []string) error {
		for _, id := range args {
			if err := c.RemoveTrigger(ctx, id); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(inv.Out, "%s removed\n", plain(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (inv *invocation) triggerPresetCommand() *cobra.Command {
	var contract string
	cmd := inv.asking(&cobra.Command{
		Use: "preset NAME", Short: "Make the triggers of a preset: conservative, aggressive or quarantine",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "name conservative, aggressive or quarantine")
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, args []string) error {
		made, err := c.ApplyPreset(ctx, args[0], contract)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(made)
		}
		if err := inv.printTriggers(made.Triggers); err != nil {
			return err
		}
		for _, x := range made.LeftOut {
			if _, err := fmt.Fprintf(inv.Err, "left out: %s from %g on: %s\n", plain(x.Kind), x.Threshold, plain(x.Why)); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().StringVar(&contract, "contract", "", "only for workers under this contract")
	return cmd
}

func (inv *invocation) triggerFiringsCommand() *cobra.Command {
	var worker, before string
	var limit int
	cmd := inv.asking(&cobra.Command{Use: "firings", Short: "List what triggers did, newest first", Args: noArgs}, func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Firings(ctx, worker, before, limit)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(list)
		}
		now := time.Now()
		rows := [][]string{{"FIRING", "FIRED", "WORKER", "STRATEGY", "OUTCOME", "REASON"}}
		for _, f := range list {
			outcome := or(f.Outcome, "under way")
			if f.Escalated {
				outcome += " (escalated)"
			}
			rows = append(rows, []string{f.ID, inv.moment(&f.FiredAt, now), f.WorkerID, f.Strategy, outcome, clip(f.Reason, 80)})
		}
		return inv.printTable(rows)
	})
	cmd.Flags().StringVar(&worker, "worker", "", "only those at this worker")
	cmd.Flags().StringVar(&before, "before", "", "only older ones than this, for the next page")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many")
	return cmd
}

func (inv *invocation) triggerFireCommand() *cobra.Command {
	var value float64
	var reason string
	var cmd *cobra.Command
	cmd = inv.asking(&cobra.Command{
		Use: "fire TRIGGER WORKER", Short: "Fire a trigger of the kind manual at a worker, or report a value to one of the kind custom",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage(cmd, "name a trigger and a worker")
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, args []string) error {
		var v *float64
		if cmd.Flags().Changed("value") {
			v = &value
		}
		r, err := c.FireTrigger(ctx, args[1], args[0], v, reason)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(r)
		}
		said := "not fired"
		switch {
		case r.Fired:
			said = "fired"
		case r.Firing != nil:
			said = "not fired: " + or(r.Firing.Outcome, "-")
		case r.InBreach:
			said = "not fired yet: in breach"
		}
		_, err = fmt.Fprintf(inv.Out, "%s %s\n", plain(args[1]), plain(said))
		return err
	})
	cmd.Flags().Float64Var(&value, "value", 0, "for custom: the figure")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (inv *invocation) fleetReviveCommand() *cobra.Command {
	var reason string
	cmd := inv.asking(&cobra.Command{
		Use: "revive ID", Short: "Let a worker go on that is suspended or under quarantine", Args: oneWorker,
	}, func(ctx context.Context, c *client.Client, args []string) error {
		w, err := c.ReviveWorker(ctx, args[0], reason)
		if err != nil {
			return err
		}
		return inv.printWorker(w)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}
