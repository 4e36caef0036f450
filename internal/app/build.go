package app

import (
	"cmp"

	"github.com/aurea-dev/aurea/images"
	"github.com/aurea-dev/aurea/internal/build/engine"
	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
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

// builds makes images from Dockerfiles into a store.
func builds(cfg *config.Config, store *image.Store) *engine.Engine {
	return engine.New(engine.Config{
		Host: cfg.DockerHost, Images: store, Default: cmp.Or(cfg.Image, defaultImage), Shipped: images.Files(), Folder: cfg.Dockerfiles,
	})
}
