package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/config"
)

func (inv *invocation) configCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "Print every setting, its value, and where that came from; secrets are hidden", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := inv.load(cmd, "")
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(cfg.Show())
			}
			rows := [][]string{{"KEY", "VALUE", "FROM"}}
			for _, e := range cfg.Show() {
				value := e.Value
				if value == "" {
					value = "-"
				}
				rows = append(rows, []string{e.Key, value, string(e.Origin)})
			}
			return inv.printTable(rows)
		},
	}
	offer(show, config.AllFlags())
	return group("config", "Explain the settings", show)
}

func (inv *invocation) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if inv.json {
				return inv.printJSON(map[string]string{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(inv.Out, "aurea %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func (inv *invocation) openAPICommand() *cobra.Command {
	return &cobra.Command{
		Use: "openapi", Short: "Print the OpenAPI description", Args: noArgs, Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			spec, err := inv.program.OpenAPI()
			if err != nil {
				return err
			}
			_, err = inv.Out.Write(spec)
			return err
		},
	}
}
