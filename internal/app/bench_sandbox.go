package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/bench"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/driver/docker"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
)

// reference is what sandboxes are compared with.
const reference = "runsc run"

// benchSandboxOptions are the flags of `bench sandbox`.
type benchSandboxOptions struct {
	lives       bench.Lives
	only        []string
	data, runsc string
	json        bool
	kept        int
}

func benchSandbox() *cobra.Command {
	var o benchSandboxOptions
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Time, processor time and memory of sandboxes, beside runc, runsc and Docker",
		Long: "Measure how long a sandbox takes to make, use and end, what that costs in processor time, and\n" +
			"what one that waits takes in memory: for each of our drivers, and beside them for a bare\n" +
			"process, runc, runsc and Docker, in turns. Needs root.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.kept > 0 && len(o.only) == 0 || slices.Contains(o.only, "kept") {
				if err := o.keep(cmd); err != nil || len(o.only) == 1 {
					return err
				}
			}
			result, err := o.measure(cmd.Context(), cmd.ErrOrStderr())
			if len(result.Rows) == 0 {
				return err
			}
			// What was found is shown, even if cleaning up failed.
			return errors.Join(show(cmd, o.json, result), err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.lives.Rounds, "rounds", 20, "lives of each, one after the other")
	f.IntVar(&o.lives.Idle, "idle", 50, "sandboxes that wait at once, for their memory")
	f.IntVar(&o.lives.Rate, "rate", 40, "lives of each, several at once, for the rate")
	f.IntVar(&o.kept, "kept", 20, "rounds of calls about kept sandboxes over HTTP; 0 leaves them out")
	f.StringSliceVar(&o.only, "only", nil, "measure only these, such as kept, gvisor, runsc, bare")
	f.StringVar(&o.runsc, "runsc", "", "gVisor's own program; by default runsc beside this binary")
	f.StringVar(&o.data, "data", "", "data folder whose images to use; the first run takes one of the host")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// keep measures sandboxes that are kept, over HTTP.
func (o *benchSandboxOptions) keep(cmd *cobra.Command) error {
	ctx := cmd.Context()
	b, err := newSandboxBench(cmd.ErrOrStderr(), false)
	if err != nil {
		return err
	}
	cfg, err := imagesOf(o.data)
	if err != nil {
		return err
	}
	var servers []*bench.Server
	for _, env := range [][]string{nil, {"AUREA_POOL=python=0", "AUREA_POOL_MAX=0"}} {
		b.Progress("starting a manager and a worker")
		s, err := b.Serve(ctx, cfg.ImageDir(), append(env, "AUREA_CONCURRENCY=16")...)
		if err != nil {
			return err
		}
		defer s.Close()
		servers = append(servers, s)
	}
	result, err := b.Kept(ctx, servers[0], servers[1], max(o.kept, 1))
	if err != nil {
		return err
	}
	if err := show(cmd, o.json, result); err != nil || o.json {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout())
	return err
}

func (o *benchSandboxOptions) measure(ctx context.Context, progress io.Writer) (result bench.Sandboxes, err error) {
	b, err := newSandboxBench(progress, false)
	if err != nil {
		return bench.Sandboxes{}, err
	}
	err = o.inField(b, func(field *benchField, group *bench.Group) error {
		err := field.open(ctx)
		if err == nil {
			result, err = b.Sandboxes(ctx, group, field.contenders, reference, o.lives)
		}
		return err
	})
	return result, err
}

// inField measures with a folder and a control group for all who take part, and
// leaves nothing of them behind.
func (o *benchSandboxOptions) inField(b *bench.Bench, measure func(field *benchField, group *bench.Group) error) (err error) {
	folder, err := os.MkdirTemp("", "aurea-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		// runsc keeps a network namespace mounted in its folder.
		_ = unix.Unmount(filepath.Join(folder, "runsc", "null-netns"), unix.MNT_DETACH)
		err = errors.Join(err, os.RemoveAll(folder))
	}()
	group, err := bench.OpenGroup()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	field := &benchField{options: o, folder: folder, binary: b.Binary, group: group.Path, progress: b.Progress}
	defer func() { err = errors.Join(err, field.close()) }()
	return measure(field, group)
}

// benchField is everybody who takes part in `bench sandbox` or `bench run`.
type benchField struct {
	options        *benchSandboxOptions
	folder, binary string
	group          string
	progress       func(format string, args ...any)

	contenders []bench.Contender
	closers    []func() error
}

// open gets everybody ready who was asked for.
func (f *benchField) open(ctx context.Context) error {
	f.programs()
	engine := f.engine(ctx)
	flags := map[string]string{}
	if f.options.data != "" {
		flags["data"] = f.options.data
	}
	if engine != "" {
		flags["docker-host"] = engine
	}
	cfg, err := config.Load(config.FromProcess(config.Worker, "", flags))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(drivers(cfg, nil))) {
		if !f.asked(name) || name == docker.Name && engine == "" {
			continue
		}
		if err := f.driver(ctx, cfg, name); err != nil {
			return err
		}
	}
	return nil
}

// programs adds those of others that are programs.
func (f *benchField) programs() {
	if f.asked("bare") {
		f.contenders = append(f.contenders, bench.Bare())
	}
	if f.asked("runc") {
		f.program("runc run", "runc", "it comes with Docker", bench.Runc)
	}
	if f.asked("runsc") {
		runsc := f.options.runsc
		if runsc == "" {
			runsc = filepath.Join(filepath.Dir(f.binary), "runsc")
		}
		f.program(reference, runsc, "make bench builds it", func(program, folder string) bench.Contender {
			return bench.Runsc(program, folder, f.group)
		})
		f.program("runsc run, no groups", runsc, "make bench builds it", bench.RunscBare)
	}
}

func (f *benchField) asked(name string) bool {
	return len(f.options.only) == 0 || slices.Contains(f.options.only, name)
}

// program adds one that makes sandboxes from its command line.
func (f *benchField) program(name, program, hint string, contender func(program, folder string) bench.Contender) {
	path, err := exec.LookPath(program)
	if err != nil {
		f.contenders = append(f.contenders, bench.Left(name, fmt.Sprintf("%v (%s)", err, hint)))
		return
	}
	f.contenders = append(f.contenders, contender(path, f.folder))
}

// engine starts a Docker Engine of its own, because only of that can be told
// what it uses, and returns its address.
func (f *benchField) engine(ctx context.Context) string {
	if !f.asked(docker.Name) {
		return ""
	}
	const name = "docker run"
	leave := func(why string) string {
		f.contenders = append(f.contenders, bench.Left(name, why), bench.Left("aurea "+docker.Name, why))
		return ""
	}
	if why := dockertest.Missing(); why != "" {
		return leave(why)
	}
	f.progress("starting a Docker Engine; its image is made on the first run")
	engine, err := dockertest.StartIn(ctx, f.group)
	if err != nil {
		return leave(err.Error())
	}
	f.closers = append(f.closers, engine.Stop)
	f.program(name, "docker", "it comes with Docker", func(program, _ string) bench.Contender {
		return bench.DockerRun(program, engine.Host, dockertest.Image)
	})
	return engine.Host
}

// driver adds one of ours, with a state folder of its own.
func (f *benchField) driver(ctx context.Context, cfg *config.Config, name string) error {
	state := filepath.Join(f.folder, name)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("make the driver's folder: %w", err)
	}
	if name == gvisor.Name {
		f.progress("making the image ready")
		if err := makeState(cfg, filepath.Join(cfg.SandboxBase, "driver", name)); err != nil {
			return err
		}
	}
	image := ""
	if name == docker.Name {
		image = dockertest.Image
	}
	atOnce := func(_ string, do func(context.Context) error) { _ = do(ctx) } // or the older image is measured
	d, err := drivers(cfg, atOnce)[name](ctx, state, slog.New(slog.DiscardHandler))
	if err != nil {
		f.contenders = append(f.contenders, bench.Left("aurea "+name, err.Error()))
		return nil //nolint:nilerr // the others can be measured all the same
	}
	f.closers = append(f.closers, d.Close)
	f.contenders = append(f.contenders, bench.Driver(d, image))
	return nil
}

// close ends what was opened, the last first.
func (f *benchField) close() error {
	var err error
	for _, c := range slices.Backward(f.closers) {
		err = errors.Join(err, c())
	}
	return err
}
