package app

import (
	"cmp"
	"log/slog"

	"github.com/aurea-dev/aurea/images"
	"github.com/aurea-dev/aurea/internal/build/engine"
	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/image"
)

// Builds makes images from Dockerfiles for the commands.
func Builds(cfg *config.Config) (cli.Builder, error) {
	store, err := Images(cfg)
	if err != nil {
		return nil, err
	}
	return builds(cfg, store), nil
}

// workerBuilder makes images on the worker's machine for its manager; a worker
// that cannot does its other work all the same.
func workerBuilder(cfg *config.Config, log *slog.Logger) dispatch.Builder {
	store, err := image.Open(imageConfig(cfg, log))
	if err != nil {
		log.Warn("this worker will build no images", "error", err)
		return nil
	}
	return builds(cfg, store)
}

// builds makes images from Dockerfiles into a store.
func builds(cfg *config.Config, store *image.Store) *engine.Engine {
	return engine.New(engine.Config{
		Host: cfg.DockerHost, Images: store, Default: cmp.Or(cfg.Image, defaultImage), Shipped: images.Files(), Folder: cfg.Dockerfiles,
	})
}
