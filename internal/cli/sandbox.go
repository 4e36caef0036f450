package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) sandboxCommand() *cobra.Command {
	cmd := group("sandbox", "Keep sandboxes: computers that live until you end them",
		inv.sandboxCreateCommand(), inv.sandboxExecCommand(), inv.sandboxShellCommand(), inv.sandboxCopyCommand(), inv.sandboxListCommand(),
		inv.sandboxRemoveCommand(), inv.sandboxLogsCommand(), inv.sandboxProcessesCommand(), inv.sandboxPauseCommand(), inv.sandboxResumeCommand(),
		inv.sandboxForkCommand(), inv.sandboxSnapshotCommand(), inv.sandboxRestoreCommand(), inv.sandboxDiffCommand(), inv.sandboxStatsCommand(), inv.sandboxUsageCommand())
	cmd.Aliases = []string{"sb"}
	cmd.Long = "Keeps sandboxes. Where an ID is asked for, the name of an open sandbox does as well."
	return cmd
}

// findSandbox returns the sandbox that has an id, or the open one of that name.
func findSandbox(ctx context.Context, c *client.Client, text string) (client.Sandbox, error) {
	s, err := c.Sandbox(ctx, text)
	var p *client.Problem
	if err == nil || !errors.As(err, &p) || p.Status != http.StatusNotFound {
		return s, err
	}
	for s, err := range c.Sandboxes(ctx, client.SandboxFilter{Open: true}) {
		if err != nil {
			return s, err
		}
		if or(s.Name, "") == text {
			return s, nil
		}
	}
	return client.Sandbox{}, &client.Problem{Status: http.StatusNotFound, Code: "not_found", Detail: fmt.Sprintf("no sandbox has the id %q, and no open one that name", text)}
}

// onSandbox makes a command about one sandbox, which is its first argument.
func (inv *invocation) onSandbox(cmd *cobra.Command, run func(ctx context.Context, c *client.Client, s client.Sandbox, args []string) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = exactly("sandbox")
	}
	return inv.asking(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		s, err := findSandbox(ctx, c, args[0])
		if err != nil {
			return err
		}
		return run(ctx, c, s, args[1:])
	})
}

// createFlags are what `aurea sandbox create` was told.
type createFlags struct {
	name, image, driver, memory, ttl, idle, onTimeout string
	cpu                                               float64
	labels, env, secrets                              []string
}

func (inv *invocation) sandboxCreateCommand() *cobra.Command {
	var f createFlags
	var asked client.NewSandbox
	cmd := inv.asking(&cobra.Command{
		Use: "create", Short: "Make a sandbox, and print its id", Args: noArgs,
		Long: "Makes a sandbox and prints its id when it runs. It lives until it is removed, or its time is over.\nWith the --name of an open sandbox it prints the id of that one.",
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		s, err := c.CreateSandbox(ctx, asked)
		if err != nil {
			return err
		}
		return inv.printSandbox(s, s.ID)
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		asked, err = f.request(cmd)
		return err
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "what it is called; unique among open sandboxes")
	flags.StringVar(&f.image, "image", "", "the image that it starts from")
	flags.StringVar(&f.driver, "driver", "", "how it is made")
	flags.StringVar(&f.memory, "memory", "", "how much memory it may use, such as 512m")
	flags.Float64Var(&f.cpu, "cpu", 0, "how many processors it may use, such as 0.5")
	flags.StringVar(&f.ttl, "ttl", "", "how long it may live, as seconds or 1h30m; 0 is for ever")
	flags.StringVar(&f.idle, "idle", "", "how long it may be of no use to anybody; 0 is for ever")
	flags.StringVar(&f.onTimeout, "on-timeout", "", "what happens then: kill or pause")
	flags.StringArrayVar(&f.labels, "label", nil, "a label, as NAME=VALUE; can be given again")
	flags.StringArrayVar(&f.env, "env", nil, "a variable of every command in it, as NAME=VALUE; can be given again")
	flags.StringArrayVar(&f.secrets, "secret", nil, "the name of such a variable that a fork does not inherit; can be given again")
	return cmd
}

func (f *createFlags) request(cmd *cobra.Command) (s client.NewSandbox, err error) {
	s = client.NewSandbox{Name: f.name, Image: f.image, Driver: f.driver, MemoryLimit: f.memory, CPULimit: f.cpu, OnTimeout: f.onTimeout, Secrets: f.secrets}
	if s.Labels, err = pairs(cmd, "label", f.labels); err != nil {
		return s, err
	}
	if s.Env, err = pairs(cmd, "env", f.env); err != nil {
		return s, err
	}
	if s.TTL, err = lasting(cmd, "ttl", f.ttl); err != nil {
		return s, err
	}
	s.IdleTimeout, err = lasting(cmd, "idle", f.idle)
	return s, err
}

// longest is how many seconds a server takes, about 31 years.
const longest = 1_000_000_000

// lasting reads a time as people write it; "" is none that was said.
func lasting(cmd *cobra.Command, flag, text string) (*float64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = d.Seconds()
	}
	switch {
	case err != nil || !(n >= 0):
		return nil, usage(cmd, "--%s must be seconds, or such as 1h30m, not %q", flag, text)
	case n > longest:
		return nil, usage(cmd, "--%s must be at most %d seconds, not %q; 0 is for ever", flag, longest, text)
	}
	return &n, nil
}

// printSandbox prints a sandbox as JSON, or a line about it.
func (inv *invocation) printSandbox(s client.Sandbox, line string) error {
	if inv.json {
		return inv.printJSON(s)
	}
	_, err := fmt.Fprintln(inv.Out, plain(line))
	return err
}

func (inv *invocation) sandboxListCommand() *cobra.Command {
	var all bool
	var state string
	var labels []string
	var filter client.SandboxFilter
	cmd := inv.asking(&cobra.Command{
		Use: "ls [ID:PATH]", Aliases: []string{"list"}, Short: "List sandboxes, newest first, or the files in one",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !strings.Contains(args[0], ":") {
				return usage(cmd, "name nothing, or files as ID:PATH")
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 1 {
			return inv.listFiles(ctx, c, args[0])
		}
		list := []client.Sandbox{}
		for s, err := range c.Sandboxes(ctx, filter) {
			if err != nil {
				return err
			}
			list = append(list, s)
		}
		if inv.json {
			return inv.printJSON(list)
		}
		return inv.printSandboxes(list)
	})
	cmd.Flags().BoolVarP(&all, "all", "a", false, "those that have ended too")
	cmd.Flags().StringVar(&state, "state", "", "only those in this state")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only those that have this label, as NAME=VALUE; can be given again")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		filter = client.SandboxFilter{State: client.SandboxState(strings.ToUpper(state)), Open: !all && state == ""}
		filter.Labels, err = pairs(cmd, "label", labels)
		return err
	}
	return cmd
}

func (inv *invocation) printSandboxes(list []client.Sandbox) error {
	now := time.Now()
	rows := [][]string{{"ID", "NAME", "STATE", "IMAGE", "CREATED", "EXPIRES"}}
	for _, s := range list {
		rows = append(rows, []string{s.ID, clip(or(s.Name, "-"), 40), standing(s), clip(orDash(s.Image), 40), inv.moment(&s.CreatedAt, now), inv.moment(s.ExpiresAt, now)})
	}
	return inv.printTable(rows)
}

// standing is the state of a sandbox, with what else there is to say about it.
func standing(s client.Sandbox) string {
	switch {
	case s.Paused != nil:
		return string(s.State) + " (" + *s.Paused + ")"
	case s.Outcome != nil:
		return string(s.State) + " (" + *s.Outcome + ")"
	}
	return string(s.State)
}

func (inv *invocation) sandboxRemoveCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "rm ID...", Aliases: []string{"remove"}, Short: "End sandboxes; their records and the output of their commands stay", Args: atLeastOne("sandbox"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		return inv.eachSandbox(args, func(text string) (client.Sandbox, error) {
			s, err := findSandbox(ctx, c, text)
			if err != nil {
				return s, err
			}
			return c.DeleteSandbox(ctx, s.ID)
		})
	})
}

// eachSandbox does one thing to many, as each does to jobs.
func (inv *invocation) eachSandbox(texts []string, do func(text string) (client.Sandbox, error)) error {
	var first error
	for _, text := range texts {
		s, err := do(text)
		if err == nil {
			err = inv.printSandbox(s, s.ID+" "+standing(s))
			if err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, errInterrupted) {
			return err
		}
		inv.printError(err)
		if first == nil {
			first = quietError{err}
		}
	}
	return first
}

func (inv *invocation) sandboxPauseCommand() *cobra.Command {
	var checkpoint bool
	cmd := inv.asking(&cobra.Command{
		Use: "pause ID...", Short: "Make sandboxes stand still; what runs in them goes on after resume", Args: atLeastOne("sandbox"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		mode := client.Freeze
		if checkpoint {
			mode = client.Checkpoint
		}
		return inv.eachSandbox(args, func(text string) (client.Sandbox, error) {
			s, err := findSandbox(ctx, c, text)
			if err != nil {
				return s, err
			}
			return c.PauseSandbox(ctx, s.ID, mode)
		})
	})
	cmd.Flags().BoolVar(&checkpoint, "checkpoint", false, "write the memory to disk and free it")
	return cmd
}

func (inv *invocation) sandboxResumeCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "resume ID...", Short: "Let sandboxes go on", Args: atLeastOne("sandbox")},
		func(ctx context.Context, c *client.Client, args []string) error {
			return inv.eachSandbox(args, func(text string) (client.Sandbox, error) {
				s, err := findSandbox(ctx, c, text)
				if err != nil {
					return s, err
				}
				return c.ResumeSandbox(ctx, s.ID)
			})
		})
}

func (inv *invocation) sandboxStatsCommand() *cobra.Command {
	return inv.onSandbox(&cobra.Command{Use: "stats ID", Short: "Measure a sandbox"},
		func(ctx context.Context, c *client.Client, s client.Sandbox, _ []string) error {
			stats, err := c.SandboxStats(ctx, s.ID)
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(stats)
			}
			cpu, memory, peak, disk, processes := "-", "-", "-", "-", "-"
			if stats.CPUSeconds != nil {
				cpu = fmt.Sprintf("%.2f s", *stats.CPUSeconds)
			}
			if stats.Memory != nil {
				memory = size(*stats.Memory)
			}
			if stats.PeakMemory != nil {
				peak = size(*stats.PeakMemory)
			}
			if stats.Disk != nil {
				disk = size(*stats.Disk)
			}
			if stats.Processes != nil {
				processes = strconv.FormatInt(*stats.Processes, 10)
			}
			return inv.printTable([][]string{{"CPU TIME", "MEMORY", "PEAK MEMORY", "DISK", "PROCESSES", "COMMANDS"}, {cpu, memory, peak, disk, processes, strconv.Itoa(stats.Execs)}})
		})
}

func (inv *invocation) sandboxUsageCommand() *cobra.Command {
	var since string
	var from time.Time
	cmd := inv.asking(&cobra.Command{Use: "usage", Short: "Add up what sandboxes have used", Args: noArgs},
		func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Usage(ctx, from)
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(list)
			}
			rows := [][]string{{"OWNER", "SESSION", "APP", "SANDBOXES", "LIVED", "CPU TIME", "GB-SECONDS", "DISK"}}
			for _, a := range list {
				rows = append(rows, []string{
					a.Owner, or(a.SessionID, "-"), or(a.App, "-"), strconv.FormatInt(a.Sandboxes, 10),
					fmt.Sprintf("%.0f s", a.SandboxSeconds), fmt.Sprintf("%.2f s", a.CPUSeconds), fmt.Sprintf("%.0f", a.GigabyteSeconds), size(a.Disk),
				})
			}
			return inv.printTable(rows)
		})
	cmd.Flags().StringVar(&since, "since", "", "only from so long ago on, such as 24h")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if since == "" {
			return nil
		}
		ago, err := time.ParseDuration(since)
		if err != nil || ago < 0 {
			return usage(cmd, "--since must be such as 24h, not %q", since)
		}
		from = time.Now().Add(-ago)
		return nil
	}
	return cmd
}
