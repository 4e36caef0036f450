package gvisor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// sentryName is what a kept sentry is called, in a folder named by its digest.
const sentryName = "aurea-sentry"

func keptSentry(state, digest string) string { return filepath.Join(state, digest, sentryName) }

// keepSentry links or copies the sentry into the state folder, under its digest, and
// returns where it is. Sandboxes are made from that one: the file that we were
// given may be replaced by an upgrade while they live, and each handle says of
// which digest its sandbox is.
func keepSentry(state, from string) (path, digest string, err error) {
	f, err := os.Open(from)
	if err != nil {
		return "", "", fmt.Errorf("open the sentry: %w", err)
	}
	defer func() { _ = f.Close() }()
	if digest, err = digestOf(f); err != nil {
		return "", "", err
	}
	path = keptSentry(state, digest)
	if kept, err := os.Open(path); err == nil {
		found, err := digestOf(kept)
		_ = kept.Close()
		if err == nil && found == digest {
			return path, digest, nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", "", fmt.Errorf("keep the sentry: %w", err)
	}
	_ = os.Remove(path) // what is not of this digest
	if os.Link(from, path) == nil {
		// A file that runs cannot be written to, and one spawner always does.
		return path, digest, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", "", fmt.Errorf("read the sentry: %w", err)
	}
	if err := copySentry(f, path, digest); err != nil {
		return "", "", fmt.Errorf("keep the sentry: %w", err)
	}
	return path, digest, nil
}

// copySentry writes aside and renames: what has the name is whole.
func copySentry(from io.Reader, to, digest string) error {
	// A child that is forked meanwhile would have it open for a moment, and
	// what is open for writing cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	aside, err := os.CreateTemp(filepath.Dir(to), "."+sentryName)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(aside.Name()) }()
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(aside, h), from)
	if err := errors.Join(err, aside.Chmod(0o755), aside.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != digest {
		return fault.New(fault.Unavailable, "the file changed while it was read")
	}
	return os.Rename(aside.Name(), to)
}

func digestOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", fmt.Errorf("read the sentry: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// guestName is what the guest is called in its image, and guestFile that image:
// apart from the roots, which are large, so that another guest does not mean
// other roots.
const (
	guestName = "guest"
	guestFile = guestName + ".erofs"
)

func keptGuest(state, digest string) string { return filepath.Join(state, digest, guestFile) }

// keepGuest writes the guest's image into the state folder, under the guest's
// digest, unless it is there.
func keepGuest(state, from string) (digest string, err error) {
	body, err := os.ReadFile(from)
	if err != nil {
		return "", fmt.Errorf("read the guest: %w", err)
	}
	sum := sha256.Sum256(body)
	digest = hex.EncodeToString(sum[:])
	image := keptGuest(state, digest)
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		return "", fmt.Errorf("keep the guest: %w", err)
	}
	if err := writeGuest(body, image); err != nil {
		return "", fmt.Errorf("keep the guest: %w", err)
	}
	return digest, nil
}

// writeGuest writes the image aside and renames it, unless what has the name is
// the same: live sandboxes share that one's memory.
func writeGuest(body []byte, to string) error {
	aside, err := os.CreateTemp(filepath.Dir(to), "."+guestName)
	if err != nil {
		return err
	}
	defer func() {
		_ = aside.Close()
		_ = os.Remove(aside.Name()) // fails if it was renamed
	}()
	w := erofs.NewWriter(aside)
	data, err := w.Append(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return err
	}
	root := erofs.NewFolder(0o755)
	root.Entries[guestName] = &erofs.Node{Mode: erofs.Regular | 0o555, Data: data}
	if err := errors.Join(w.Finish(root), aside.Chmod(0o444)); err != nil {
		return err
	}
	made, err := os.ReadFile(aside.Name())
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(to); err == nil && bytes.Equal(there, made) {
		return nil
	}
	return os.Rename(aside.Name(), to)
}

// sweepKept removes the kept binaries that no sandbox is of any more.
func (d *Driver) sweepKept() {
	used := []string{d.sentry, d.guest}
	folders, err := filepath.Glob(filepath.Join(d.config.StateDir, "box", "*"))
	for _, dir := range folders {
		r, readErr := readRecord(dir)
		if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
			err = readErr // it may be of any
		}
		used = append(used, r.State.Sentry, r.State.Guest)
	}
	kept, readErr := os.ReadDir(d.config.StateDir)
	if err := errors.Join(err, readErr); err != nil {
		d.config.Logger.Warn("old sentries and guests could not be swept", "error", err)
		return
	}
	for _, entry := range kept {
		digest, err := hex.DecodeString(entry.Name())
		if err != nil || len(digest) != sha256.Size || slices.Contains(used, entry.Name()) {
			continue
		}
		path := filepath.Join(d.config.StateDir, entry.Name())
		if err := os.RemoveAll(path); err != nil {
			d.config.Logger.Warn("an old sentry or guest is left", "path", path, "error", err)
		}
	}
}
