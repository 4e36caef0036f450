package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// A snapshot goes on only over the image that it was taken over, with the sentry
// and the guest that took it. The host's programs are upgraded, names of images
// move, and so do releases of ours: what a snapshot needs lies in a folder of its
// own, as links, which take no room for as long as others have the same files.
const (
	alongFolder = "along"
	imageLink   = "image.erofs"
)

// along links what a snapshot needs into its folder. Where that cannot be, above
// all because the images lie on another file system, the snapshot goes on for as
// long as what it needs is in its old place.
func (b *Box) along(folder string) {
	needs := map[string]string{
		sentryName: keptSentry(b.kept, b.state.Sentry),
		guestFile:  keptGuest(b.kept, b.state.Guest),
	}
	if b.env != nil { // else it is of a release that did not write down what it needs
		needs[imageLink] = b.root
	}
	to := filepath.Join(folder, alongFolder)
	err := os.Mkdir(to, 0o700)
	for name, from := range needs {
		err = errors.Join(err, os.Link(from, filepath.Join(to, name)))
	}
	if err := errors.Join(err, syncFolder(to)); err != nil {
		b.log.Warn("a snapshot may not outlive an upgrade", "sandbox", b.ID, "error", err)
	}
}

// imageOf is the image that a snapshot was taken over.
func (d *Driver) imageOf(ctx context.Context, spec sandbox.Spec, m manifest) (sandbox.Image, error) {
	root := filepath.Join(spec.Restore, alongFolder, imageLink)
	if _, err := os.Lstat(root); err == nil {
		return sandbox.Image{Name: m.ImageName, Digest: m.Image, Root: root, Env: m.Env}, nil
	}
	image, err := d.config.Images.Resolve(ctx, spec.Image)
	if err != nil {
		return sandbox.Image{}, fmt.Errorf("find the image: %w", err)
	}
	if image.Digest != m.Image {
		return sandbox.Image{}, mismatch("it was taken over another image")
	}
	return image, nil
}

// keepOlder sees to it that the sentry and the guest of a snapshot are kept as
// today's are.
func (d *Driver) keepOlder(folder string, m manifest) error {
	another := mismatch("it was taken by another release")
	if m.Sentry != d.sentry {
		_, digest, err := keepSentry(d.config.StateDir, filepath.Join(folder, alongFolder, sentryName))
		if errors.Is(err, fs.ErrNotExist) || err == nil && digest != m.Sentry {
			return another
		}
		if err != nil {
			return err
		}
	}
	if m.Guest == d.guest {
		return nil
	}
	kept := keptGuest(d.config.StateDir, m.Guest)
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return fmt.Errorf("keep the guest: %w", err)
	}
	err := os.Link(filepath.Join(folder, alongFolder, guestFile), kept)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return another
	case err != nil:
		return fmt.Errorf("keep the guest: %w", err)
	}
	return nil
}

// spawn has a sandbox started by the sentry that it is to run on.
func (d *Driver) spawn(ctx context.Context, sentry string, create spawn.Create) (spawn.Made, error) {
	if sentry == d.sentry {
		return d.pool.Create(ctx, create)
	}
	// Few come from before an upgrade, and each only once.
	older := spawn.NewPool(spawn.Config{Sentry: keptSentry(d.config.StateDir, sentry), Logger: d.config.Logger})
	made, err := older.Create(ctx, create)
	return made, errors.Join(err, older.Close())
}
