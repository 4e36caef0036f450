package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Snapshotter = (*Box)(nil)

// The files of a checkpoint, by gVisor's names and in the order in which it takes
// them.
func checkpointFiles() []string { return []string{"checkpoint.img", "pages_meta.img", "pages.img"} }

// saveTime bounds how long a sandbox may stand still to be saved.
const saveTime = 10 * time.Minute

// Snapshot implements sandbox.Snapshotter. The sentry saves itself, and what is
// written over the image with it, into files that we give it.
func (b *Box) Snapshot(ctx context.Context, folder string, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
	if !filepath.IsAbs(folder) || o.Generation < 0 {
		return sandbox.Snapshot{}, fault.Field("folder", "a snapshot needs an absolute path and a generation that is not negative")
	}
	leave, err := b.enter(ctx)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer leave()
	if err := os.Mkdir(folder, 0o700); errors.Is(err, fs.ErrExist) {
		return sandbox.Snapshot{}, fault.New(fault.Conflict, "the folder of the snapshot exists")
	} else if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("make the snapshot's folder: %w", err)
	}
	before := b.paused
	made, err := b.snapshot(ctx, folder, o)
	if err != nil {
		err = fmt.Errorf("snapshot of sandbox %s: %w", b.ID, errors.Join(err, os.RemoveAll(folder)))
		if b.paused && !before {
			err = errors.Join(err, b.goOn(context.WithoutCancel(ctx)))
		}
		return sandbox.Snapshot{}, err
	}
	return made, nil
}

func (b *Box) snapshot(ctx context.Context, folder string, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
	offsets, err := b.save(ctx, folder, b.paused || o.Aside)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	b.along(folder)
	m := b.manifest(o.Generation)
	if err := m.seal(ctx, folder, b.verified); err != nil {
		return sandbox.Snapshot{}, err
	}
	return sandbox.Snapshot{Generation: o.Generation, Bytes: m.bytes(), Offsets: offsets}, nil
}

// save has the sentry write a checkpoint, while nobody speaks with the guest. With
// still set the sandbox is paused afterwards, and stays so after an error if it
// was before.
func (b *Box) save(ctx context.Context, folder string, still bool) (offsets map[string]sandbox.Offsets, err error) {
	files, err := openCheckpoint(folder)
	defer closeAll(files)
	if err != nil {
		return nil, err
	}
	before := b.paused
	if before {
		if err := b.letRun(ctx); err != nil {
			return nil, err
		}
	}
	hold, cancel := context.WithTimeoutCause(ctx, helloTime, errSilent)
	defer cancel()
	release, err := b.Client.Hold(hold)
	if err == nil {
		offsets = b.Client.Offsets()
		err = b.checkpoint(ctx, files)
	}
	if (still && err == nil) || before {
		err = errors.Join(err, b.quiet(ctx))
	}
	if release != nil {
		release()
	}
	return offsets, err
}

// quiet pauses the sandbox behind a snapshot. The guest is silent, so that
// nothing was seen of it since.
func (b *Box) quiet(ctx context.Context) error {
	b.Client.Refuse()
	return b.stop(ctx)
}

func (b *Box) checkpoint(ctx context.Context, files []*os.File) error {
	// Whoever finds it silent now must be more patient than usual.
	if err := writePause(b.dir, stateSaving); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, saveTime, errStuck)
	defer cancel()
	err := control(ctx, b.dir, controlCheckpoint, saveOptions{
		Metadata:      map[string]string{"compression": "none"},
		HavePagesFile: true,
		Resume:        true,
	}, files...)
	if err != nil {
		err = fmt.Errorf("save: %w", err)
	}
	return errors.Join(err, removePause(b.dir))
}

// saveOptions is gVisor's control.SaveOpts as far as we use it.
type saveOptions struct {
	Metadata      map[string]string `json:"metadata"`
	HavePagesFile bool              `json:"have_pages_file"`
	// Resume has the sandbox go on afterwards, and also when saving failed.
	Resume bool
}

func openCheckpoint(folder string) (files []*os.File, err error) {
	for _, name := range checkpointFiles() {
		f, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return files, fmt.Errorf("make the snapshot's files: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // what matters is synced later
	}
}
