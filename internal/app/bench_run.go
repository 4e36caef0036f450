package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/bench"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
)

// benchRunOptions are the flags of `bench run`.
type benchRunOptions struct {
	benchSandboxOptions
	plan    bench.RunPlan
	seconds int
	verbose bool
}

func benchRun() *cobra.Command {
	var o benchRunOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "How long a run takes over HTTP, cold and warm, beside a bare process, runc, runsc and Docker",
		Long: "Measure how long the smallest program in Python, Node and bash takes from asking to the answer:\n" +
			"as a bare process, by runc, runsc and Docker, and by ours over HTTP, with the pool and without,\n" +
			"in turns; then how many runs a second each gets through. Needs root.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.plan.Sustain = time.Duration(o.seconds) * time.Second
			result, err := o.measure(cmd.Context(), cmd.ErrOrStderr())
			if len(result.Rows) == 0 {
				return err
			}
			return errors.Join(show(cmd, o.json, result), err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.plan.Rounds, "rounds", 40, "runs of each, per language and number of clients")
	f.IntSliceVar(&o.plan.Clients, "clients", []int{1, 4}, "how many ask at once, a row for each")
	f.IntVar(&o.seconds, "seconds", 30, "how long each goes on for the rate; 0 leaves that out")
	f.StringSliceVar(&o.only, "only", nil, "measure only these: bare, runc, runsc, docker, cold, warm")
	f.StringVar(&o.runsc, "runsc", "", "gVisor's own program; by default runsc beside this binary")
	f.StringVar(&o.data, "data", "", "data folder whose images to use; the first run takes one of the host")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.verbose, "verbose", false, "show what the measured processes say")
	return cmd
}

func (o *benchRunOptions) measure(ctx context.Context, progress io.Writer) (result bench.Runs, err error) {
	b, err := newSandboxBench(progress, o.verbose)
	if err != nil {
		return bench.Runs{}, err
	}
	err = o.inField(b, func(field *benchField, group *bench.Group) error {
		runners, err := o.runners(ctx, b, field)
		if err == nil {
			result, err = b.Runs(ctx, group, runners, o.plan)
		}
		return err
	})
	return result, err
}

// runners gets everybody ready who was asked for.
func (o *benchRunOptions) runners(ctx context.Context, b *bench.Bench, field *benchField) ([]bench.Runner, error) {
	field.programs()
	o.docker(ctx, field)
	var runners []bench.Runner
	for _, c := range field.contenders {
		runners = append(runners, bench.Plain(c))
	}
	cfg, err := imagesOf(o.data)
	if err != nil {
		return nil, err
	}
	for _, ours := range []struct {
		name, called string
		env          []string
	}{{"cold", "aurea run, cold", []string{"AUREA_POOL=python=0", "AUREA_POOL_MAX=0"}}, {"warm", "aurea run, warm", nil}} {
		if !field.asked(ours.name) {
			continue
		}
		field.progress("starting a manager and a worker for %s", ours.called)
		s, err := b.Serve(ctx, cfg.ImageDir(), append(ours.env, "AUREA_CONCURRENCY=8")...)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", ours.called, err)
		}
		field.closers = append(field.closers, func() error { s.Close(); return nil })
		runners = append(runners, s.Runner(ours.called))
	}
	return runners, nil
}

// docker adds an engine of its own whose image has all the languages.
func (o *benchRunOptions) docker(ctx context.Context, field *benchField) {
	if !field.asked("docker") {
		return
	}
	const name = "docker run"
	if why := dockertest.Missing(); why != "" {
		field.contenders = append(field.contenders, bench.Left(name, why))
		return
	}
	field.progress("starting a Docker Engine; its image is made on the first run")
	engine, err := dockertest.StartWithBase(ctx, field.group)
	if err != nil {
		field.contenders = append(field.contenders, bench.Left(name, err.Error()))
		return
	}
	field.closers = append(field.closers, engine.Stop)
	field.program(name, "docker", "it comes with Docker", func(program, _ string) bench.Contender {
		return bench.DockerRun(program, engine.Host, dockertest.WorkerBase)
	})
}
