package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/driver/docker"
	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/embedded"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// drivers is every way to make sandboxes that is linked in. Only the one that
// is chosen is opened; stateDir is its own folder.
// What takes long and can wait it hands to later.
func drivers(cfg *config.Config, later func(string, func(context.Context) error)) map[string]func(ctx context.Context, stateDir string, log *slog.Logger) (sandbox.Driver, error) {
	return map[string]func(context.Context, string, *slog.Logger) (sandbox.Driver, error){
		"docker": func(ctx context.Context, stateDir string, log *slog.Logger) (sandbox.Driver, error) {
			bin, err := embedded.Find(stateDir)
			if err != nil {
				return nil, err
			}
			return docker.New(ctx, docker.Config{
				StateDir: stateDir, Guest: bin.Guest, Host: cfg.DockerHost, Runtime: cfg.DockerRuntime, Image: cfg.Image, Aliases: cfg.ImageAliases, Logger: log,
			})
		},
		"fake": func(context.Context, string, *slog.Logger) (sandbox.Driver, error) {
			return fake.New(fake.Options{})
		},
		"gvisor": func(ctx context.Context, stateDir string, log *slog.Logger) (sandbox.Driver, error) {
			if err := gvisor.Possible(); err != nil {
				return nil, err
			}
			bin, err := embedded.Find(stateDir)
			if err != nil {
				return nil, err
			}
			images, err := image.Open(imageConfig(cfg, log))
			if err != nil {
				return nil, fmt.Errorf("open the images: %w", err)
			}
			d, err := gvisor.New(ctx, gvisor.Config{StateDir: stateDir, Sentry: bin.Sentry, Guest: bin.Guest, Images: images, Logger: log})
			if err != nil {
				return nil, err
			}
			// The image takes longest, so what can refuse the start comes first.
			_, err = defaultLimits(cfg, d)
			if err == nil {
				err = prepareImage(ctx, images, later)
			}
			if err != nil {
				return nil, errors.Join(err, d.Close())
			}
			return d, nil
		},
	}
}

// prepareImage makes the image ready that sandboxes have which name none, so
// that the first of them does not wait for it. When only the host's programs
// have changed since it was taken, it is used for a little longer and taken anew
// later: a worker that comes back has leases to keep, which would run out.
func prepareImage(ctx context.Context, images *image.Store, later func(string, func(context.Context) error)) error {
	prepare := func(ctx context.Context) error {
		if err := images.Prepare(ctx, nil, ""); err != nil {
			return fmt.Errorf("make the image %s ready: %w", images.DefaultName(), err)
		}
		return nil
	}
	stale, err := images.Stale()
	if err != nil {
		return fmt.Errorf("look at the image %s: %w", images.DefaultName(), err)
	}
	if stale {
		later("the host's image", prepare)
		return nil
	}
	return prepare(ctx)
}

// chores is work that a start leaves for later. It ends with the driver.
type chores struct {
	log    *slog.Logger
	cancel context.CancelCauseFunc
	ctx    context.Context //nolint:containedctx // its life is that of the struct
	group  sync.WaitGroup
}

func newChores(ctx context.Context, log *slog.Logger) *chores {
	c := &chores{log: log}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return c
}

func (c *chores) add(what string, do func(context.Context) error) {
	c.group.Go(func() {
		if err := do(c.ctx); err != nil && c.ctx.Err() == nil {
			c.log.Error("could not do what was left for later", "what", what, "error", err)
		}
	})
}

var errDriverCloses = errors.New("the driver is closed")

func (c *chores) end() {
	c.cancel(errDriverCloses)
	c.group.Wait()
}

// makeState makes a driver's folder. Where it lies in the data folder, the
// manager's user must get through that, whoever is here first.
func makeState(cfg *config.Config, state string) error {
	if below, err := filepath.Rel(cfg.Data, state); err == nil && filepath.IsLocal(below) {
		if err := os.MkdirAll(cfg.Data, 0o711); err != nil {
			return fmt.Errorf("make the data folder: %w", err)
		}
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("make the driver's folder: %w", err)
	}
	return nil
}

func stateDir(cfg *config.Config, driver string) string {
	return filepath.Join(cfg.SandboxBase, "driver", driver)
}

// KillLeft ends every sandbox that workers of this folder have left, whichever
// driver made it: that of the settings may be another by now.
func KillLeft(ctx context.Context, cfg *config.Config) error {
	return errors.Join(gvisor.KillLeft(ctx, stateDir(cfg, gvisor.Name)), docker.KillLeft(ctx, stateDir(cfg, docker.Name), cfg.DockerHost))
}

// openDrivers opens the driver that is asked for.
func openDrivers(ctx context.Context, cfg *config.Config, log *slog.Logger) (map[string]sandbox.Driver, func(), error) {
	left := newChores(ctx, log)
	all := drivers(cfg, left.add)
	open, ok := all[cfg.Driver]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
		return nil, nil, fault.Field("--driver/AUREA_DRIVER", "%q is not a driver; the drivers are %s", cfg.Driver, known).WithCode("bad_setting")
	}
	state := stateDir(cfg, cfg.Driver)
	if err := makeState(cfg, state); err != nil {
		return nil, nil, err
	}
	d, err := open(ctx, state, log)
	if err != nil {
		left.end()
		return nil, nil, fmt.Errorf("open the driver %s: %w", cfg.Driver, err)
	}
	return map[string]sandbox.Driver{cfg.Driver: d}, func() {
		left.end()
		if err := d.Close(); err != nil {
			log.Error("cannot close in good order", "part", "driver", "error", err)
		}
	}, nil
}
