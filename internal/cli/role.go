package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/config"
)

// offer adds the flags of settings to a command.
func offer(cmd *cobra.Command, flags []config.Flag) {
	for _, f := range flags {
		cmd.Flags().String(f.Name, f.Default, f.Help)
	}
}

// load reads the settings of a role.
func (inv *invocation) load(cmd *cobra.Command, role config.Role) (*config.Config, error) {
	given := map[string]string{}
	for _, f := range config.AllFlags() {
		if flag := cmd.Flags().Lookup(f.Name); flag != nil && flag.Changed {
			given[f.Name] = flag.Value.String()
		}
	}
	return config.Load(config.FromProcess(role, inv.file, given))
}

func (inv *invocation) roleCommand(role config.Role, short string, start func(context.Context, Start) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: string(role), Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := inv.load(cmd, role)
			if err != nil {
				return err
			}
			return start(cmd.Context(), inv.start(cfg))
		},
	}
	offer(cmd, config.Flags(role))
	return cmd
}

func (inv *invocation) start(cfg *config.Config) Start {
	if inv.json {
		cfg.LogFormat = config.JSONLog
	}
	return Start{Config: cfg, Version: version, Stdout: inv.Out, Stderr: inv.Err, Hurry: inv.hurry}
}

func (inv *invocation) upCommand() *cobra.Command {
	var keep, end bool
	cmd := &cobra.Command{
		Use: "up", Short: "Start everything on this machine: manager, bridge and worker", Args: noArgs,
		Long: "Starts a manager, a bridge and a worker as processes of their own, and starts again what dies.\n" +
			"The first Ctrl-C stops them in order and lets running jobs finish; the second does not wait.\n" +
			"Started as root, the manager and the bridge run as the user aurea if there is one, else as nobody.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep && end {
				return usage(cmd, "--keep and --end cannot both be given")
			}
			cfg, err := inv.load(cmd, config.Up)
			if err != nil {
				return err
			}
			switch {
			case keep:
				cfg.OnStop = config.KeepSandboxes
			case end:
				cfg.OnStop = config.EndSandboxes
			}
			return inv.program.Up(cmd.Context(), inv.start(cfg))
		},
	}
	offer(cmd, config.Flags(config.Up))
	cmd.Flags().BoolVar(&keep, "keep", false, "keep live sandboxes on a stop, for the next start")
	cmd.Flags().BoolVar(&end, "end", false, "end live sandboxes on a stop (the default)")
	return cmd
}

// asking makes a command that asks the manager.
func (inv *invocation) asking(cmd *cobra.Command, run func(ctx context.Context, c *client.Client, args []string) error) *cobra.Command {
	offer(cmd, config.Flags(config.Client))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := inv.load(cmd, config.Client)
		if err != nil {
			return err
		}
		key, err := cfg.LoadKey()
		if err != nil {
			return err
		}
		director, err := cfg.LoadDirectorKey()
		if err != nil {
			return err
		}
		c, err := client.New(cfg.Server, client.Options{Key: key, Director: director})
		if err != nil {
			return usage(cmd, "%s", err)
		}
		defer c.Close()
		return run(cmd.Context(), c, args)
	}
	return cmd
}
