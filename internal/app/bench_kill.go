package app

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/bench"
)

func benchKill() *cobra.Command {
	var sizes []int
	var data string
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "kill",
		Short: "How long it takes to freeze, unfreeze and kill all sandboxes, to the last exit on the host",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := newSandboxBench(cmd.ErrOrStderr(), verbose)
			if err != nil {
				return err
			}
			result, err := measureKill(cmd.Context(), b, data, sizes)
			if err != nil {
				return err
			}
			return show(cmd, asJSON, result)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&sizes, "sandboxes", []int{10, 100, 200}, "how many live at once, a row for each")
	f.StringVar(&data, "data", "", "data folder whose images to use; the first run takes one of the host")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&verbose, "verbose", false, "show what the measured processes say")
	return cmd
}

func measureKill(ctx context.Context, b *bench.Bench, data string, sizes []int) (bench.Kills, error) {
	cfg, err := imagesOf(data)
	if err != nil {
		return bench.Kills{}, err
	}
	// What the limits come to together is not what is used: they sleep.
	s, err := b.Serve(ctx, cfg.ImageDir(), "AUREA_POOL=python=0", "AUREA_POOL_MAX=0", "SANDBOX_MEMORY_LIMIT=64m", "AUREA_MEMORY=64g")
	if err != nil {
		return bench.Kills{}, err
	}
	defer s.Close()
	return b.Kill(ctx, s, sizes)
}
