package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
func drivers(cfg *config.Config) map[string]func(ctx context.Context, stateDir string, log *slog.Logger) (sandbox.Driver, error) {
	return map[string]func(context.Context, string, *slog.Logger) (sandbox.Driver, error){
		"docker": func(ctx context.Context, stateDir string, log *slog.Logger) (sandbox.Driver, error) {
			bin, err := embedded.Find(stateDir)
			if err != nil {
				return nil, err
			}
			return docker.New(ctx, docker.Config{
				StateDir: stateDir, Guest: bin.Guest, Host: cfg.DockerHost, Runtime: cfg.DockerRuntime, Image: cfg.Image, Logger: log,
			})
		},
		"fake": func(context.Context, string, *slog.Logger) (sandbox.Driver, error) {
			return fake.New(fake.Options{})
		},
		"gvisor": func(ctx context.Context, stateDir string, log *slog.Logger) (sandbox.Driver, error) {
			bin, err := embedded.Find(stateDir)
			if err != nil {
				return nil, err
			}
			images, err := openImages(ctx, cfg, bin.Guest, log)
			if err != nil {
				return nil, err
			}
			return gvisor.New(ctx, gvisor.Config{StateDir: stateDir, Sentry: bin.Sentry, Images: images, Logger: log})
		},
	}
}

// openImages opens the worker's images and makes the one ready that sandboxes
// have which name none, so that the first of them does not wait for it.
func openImages(ctx context.Context, cfg *config.Config, guest string, log *slog.Logger) (*image.Store, error) {
	store, err := image.Open(imageConfig(cfg, guest, log))
	if err != nil {
		return nil, fmt.Errorf("open the images: %w", err)
	}
	if err := store.Prepare(ctx, nil, ""); err != nil {
		return nil, fmt.Errorf("make the image %s ready: %w", store.DefaultName(), err)
	}
	return store, nil
}

// openDrivers opens the driver that is asked for.
func openDrivers(ctx context.Context, cfg *config.Config, log *slog.Logger) (map[string]sandbox.Driver, func(), error) {
	open, ok := drivers(cfg)[cfg.Driver]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(drivers(cfg))), ", ")
		return nil, nil, fault.Field("--driver/AUREA_DRIVER", "%q is not a driver; the drivers are %s", cfg.Driver, known).WithCode("bad_setting")
	}
	state := filepath.Join(cfg.SandboxBase, "driver", cfg.Driver)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the driver's folder: %w", err)
	}
	d, err := open(ctx, state, log)
	if err != nil {
		return nil, nil, fmt.Errorf("open the driver %s: %w", cfg.Driver, err)
	}
	return map[string]sandbox.Driver{cfg.Driver: d}, func() {
		if err := d.Close(); err != nil {
			log.Error("cannot close in good order", "part", "driver", "error", err)
		}
	}, nil
}
