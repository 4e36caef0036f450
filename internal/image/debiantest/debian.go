// Package debiantest makes roots from Debian packages, for tests and
// measurements: as an archive, as an image of ours, and as a plain folder. What
// it made is kept between runs, in the user's cache folder.
package debiantest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image"
)

// Languages are the packages of a root that has every language that comes with
// Aurea.
const Languages = "python3,nodejs,ruby,perl,gcc,libc6-dev"

// Missing says why no root can be made here; "" is no reason.
func Missing() string {
	if os.Geteuid() != 0 {
		return "a root of Debian packages needs root"
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return "mmdebstrap is missing; install mmdebstrap"
	}
	return ""
}

// Tarball returns an archive of a root with packages, separated by commas. The
// first run on a machine makes it, which takes a minute or two.
func Tarball(ctx context.Context, packages string) (string, error) {
	var tarball string
	err := once(packages, ".tar", func(aside string) error {
		make := exec.CommandContext(ctx, "mmdebstrap", "--variant=minbase", "--include="+packages,
			"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
			"--dpkgopt=path-exclude=/usr/share/locale/*", "--format=tar", "bookworm", aside)
		if out, err := make.CombinedOutput(); err != nil {
			return fmt.Errorf("make a root with mmdebstrap: %w: %s", err, out)
		}
		return nil
	}, &tarball)
	return tarball, err
}

// Store returns a store of images whose default is a root with packages. It is
// shared with everybody who asks for the same.
func Store(ctx context.Context, packages string) (*image.Store, error) {
	tarball, err := Tarball(ctx, packages)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(packages))
	name := "debian-test:" + hex.EncodeToString(sum[:6])
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	store, err := image.Open(image.Config{Dir: filepath.Join(dir, "images"), Default: name})
	if err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(dir, "images.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := store.Find(name); fault.Is(err, fault.NotFound) {
		_, err = store.Import(ctx, tarball, name, nil)
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if _, err := store.Resolve(ctx, ""); err != nil {
		return nil, err
	}
	return store, nil
}

// Tree returns a folder with the files of a root with packages, furnished as
// our images are: with a workspace and the user of sandboxes. Whoever works in
// it leaves it as it was.
func Tree(ctx context.Context, packages string) (string, error) {
	tarball, err := Tarball(ctx, packages)
	if err != nil {
		return "", err
	}
	var tree string
	err = once(packages, ".tree", func(aside string) error {
		if err := os.Mkdir(aside, 0o755); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "tar", "-C", aside, "--numeric-owner", "-xpf", tarball).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack a root: %w: %s", err, out)
		}
		return furnish(aside)
	}, &tree)
	return tree, err
}

func furnish(tree string) error {
	for name, line := range map[string]string{
		"etc/passwd": "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n",
		"etc/group":  "sandbox:x:1000:\n",
	} {
		f, err := os.OpenFile(filepath.Join(tree, name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(line)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(tree, "workspace"), 0o755); err != nil {
		return err
	}
	return os.Chown(filepath.Join(tree, "workspace"), 1000, 1000)
}

// once has something made aside and put in its place, by one process of all.
func once(packages, ending string, do func(aside string) error, made *string) error {
	dir, err := folder()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "bookworm-"+strings.ReplaceAll(packages, ",", "-")+ending)
	unlock, err := lock(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	*made = path
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	aside := path + ".new"
	if err := os.RemoveAll(aside); err != nil { // of one that was killed
		return fmt.Errorf("make way: %w", err)
	}
	if err := do(aside); err != nil {
		return errors.Join(err, os.RemoveAll(aside))
	}
	if err := os.Rename(aside, path); err != nil {
		return fmt.Errorf("keep what was made: %w", err)
	}
	return nil
}

// folder is where things are kept between runs.
func folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	dir := filepath.Join(cache, "aurea-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	return dir, nil
}

// lock waits for its turn, and returns what ends it.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the cache folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock the cache folder: %w", err)
	}
	return func() { _ = f.Close() }, nil // which unlocks
}
