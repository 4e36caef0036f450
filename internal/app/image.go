package app

import (
	"cmp"
	"log/slog"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/image"
)

// defaultImage is what requests get that name no image, where it is there.
const defaultImage = "aurea-sandbox:latest"

// imageConfig is how the images of this machine are kept.
func imageConfig(cfg *config.Config, log *slog.Logger) image.Config {
	host := image.DefaultHost()
	host.Most = int64(cfg.HostLimit)
	return image.Config{
		Dir: cfg.ImageDir(), Default: cmp.Or(cfg.Image, defaultImage), Host: host,
		Aliases: cfg.ImageAliases, Insecure: cfg.InsecureRegistries, Logger: log,
	}
}

// namedDefault says which image a job gets that names none, so that its
// evidence does: that can change while the worker runs.
func namedDefault(cfg *config.Config, log *slog.Logger) func() string {
	if cfg.Driver != gvisor.Name {
		return nil
	}
	store, err := image.Open(imageConfig(cfg, log))
	if err != nil {
		log.Warn("evidence will not name the default image", "error", err)
		return nil
	}
	return store.DefaultName
}

// imageDigest says what an image stands for at this moment, so that no sandbox
// of an image that was replaced is used.
func imageDigest(cfg *config.Config, log *slog.Logger) func(string) string {
	if cfg.Driver != gvisor.Name {
		return nil
	}
	store, err := image.Open(imageConfig(cfg, log))
	if err != nil {
		return nil // said by namedDefault
	}
	return func(name string) string {
		found, err := store.Find(name)
		if err != nil {
			return ""
		}
		return found.Digest
	}
}

// Images opens the images of this machine for the commands.
func Images(cfg *config.Config) (*image.Store, error) {
	state := filepath.Join(cfg.SandboxBase, "driver", gvisor.Name)
	if err := makeState(cfg, state); err != nil {
		return nil, err
	}
	c := imageConfig(cfg, slog.New(slog.DiscardHandler))
	c.Keychain = authn.DefaultKeychain // what `docker login` wrote
	return image.Open(c)
}
