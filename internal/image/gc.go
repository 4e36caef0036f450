package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Collected is what a collection removed, or would remove.
type Collected struct {
	Images []string `json:"images"`
	Blobs  int      `json:"blobs"`
	Roots  int      `json:"roots"`
	Bytes  int64    `json:"bytes"`
	// InUse are roots that nothing but live sandboxes needs: they stay.
	InUse int `json:"in_use"`
}

// GC removes images that have no name, blobs that no image needs, roots of an
// earlier form, and what crashes left. Roots that are in keep, and those that
// any process has open, stay. With dry nothing is removed.
func (s *Store) GC(ctx context.Context, keep []string, dry bool) (Collected, error) {
	use, err := takeLock(ctx, filepath.Join(s.config.Dir, "locks", "use"), true)
	if err != nil {
		return Collected{}, err
	}
	defer use.release()
	got := Collected{Images: []string{}}
	i, err := s.readIndex()
	if err != nil {
		return got, err
	}
	needed := map[string]bool{}
	for _, digest := range i.Names {
		needed[digest] = true
	}
	for alias := range i.Aliases {
		if r, err := i.find(alias); err == nil {
			needed[r.Digest] = true
		}
	}
	for digest := range i.Images {
		if !needed[digest] {
			got.Images = append(got.Images, digest)
		}
	}
	slices.Sort(got.Images)
	if !dry && len(got.Images) > 0 {
		if err := s.change(ctx, func(i *index) error {
			for _, digest := range got.Images {
				delete(i.Images, digest)
			}
			return nil
		}); err != nil {
			return got, err
		}
	}
	blobs, roots := map[string]bool{}, map[string]bool{}
	for digest, r := range i.Images {
		if !needed[digest] {
			continue
		}
		blobs[hexOf(digest)], blobs[hexOf(r.Config)] = true, true
		for _, l := range r.Layers {
			blobs[hexOf(l.Digest)] = true
		}
		roots[filepath.Base(s.rootPath(digest))] = true
	}
	if err := s.collectBlobs(blobs, dry, &got); err != nil {
		return got, err
	}
	err = s.collectRoots(roots, keep, dry, &got)
	if !dry {
		s.sweep()
	}
	return got, err
}

func (s *Store) collectBlobs(needed map[string]bool, dry bool, got *Collected) error {
	return s.each("blobs/sha256", func(path string, info fs.FileInfo) error {
		if needed[info.Name()] {
			return nil
		}
		got.Blobs++
		got.Bytes += roomOf(info)
		return remove(path, dry)
	})
}

func (s *Store) collectRoots(needed map[string]bool, keep []string, dry bool, got *Collected) error {
	return s.each("roots", func(path string, info fs.FileInfo) error {
		if needed[info.Name()] {
			return nil
		}
		if slices.Contains(keep, path) || isOpen(path) {
			got.InUse++
			return nil
		}
		got.Roots++
		got.Bytes += roomOf(info)
		return remove(path, dry)
	})
}

// spare is how young a root of the host is left alone: two releases that share
// a store must not take each other's away.
const spare = time.Hour

// dropHosts removes earlier images of the host, each of which is as large as
// its programs. One that a sandbox still runs from goes with a later one, or
// with the next GC.
func (s *Store) dropHosts(ctx context.Context, but string) error {
	var old []string
	err := s.change(ctx, func(i *index) error {
		for digest, r := range i.Images {
			if r.Host != "" && digest != but {
				old = append(old, digest)
				delete(i.Images, digest)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, digest := range append(old, but) {
		roots, err := filepath.Glob(filepath.Join(s.config.Dir, "roots", hexOf(digest)+"-*.erofs"))
		if err != nil {
			return fmt.Errorf("list the image store: %w", err)
		}
		for _, root := range roots {
			info, err := os.Lstat(root)
			if err != nil || root == s.rootPath(but) || time.Since(info.ModTime()) < spare || isOpen(root) {
				continue
			}
			if err := remove(root, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) each(folder string, do func(path string, info fs.FileInfo) error) error {
	entries, err := os.ReadDir(filepath.Join(s.config.Dir, folder))
	if err != nil {
		return fmt.Errorf("list the image store: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list the image store: %w", err)
		}
		if err := do(filepath.Join(s.config.Dir, folder, e.Name()), info); err != nil {
			return err
		}
	}
	return nil
}

func remove(path string, dry bool) error {
	if dry {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Internal, "remove what is not needed: %w", err)
	}
	return nil
}

// isOpen reports whether any process has a file open, as every sandbox has its
// root: the kernel grants a lease for writing only to who is alone with a file.
// In doubt it is open.
func isOpen(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return true
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err != nil
}

// roomOf is the room that a file takes, without its holes.
func roomOf(info fs.FileInfo) int64 {
	const block = 512
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * block
	}
	return info.Size()
}
