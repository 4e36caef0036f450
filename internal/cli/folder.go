package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
)

// packFolder writes a folder of this machine as a tar whose names are relative
// to it. Links are packed as links; what a sandbox has no use for is skipped.
func packFolder(folder string, w io.Writer) (skipped []string, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", folder, err)
	}
	defer func() { _ = root.Close() }()
	out := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		about, err := entry.Info()
		if err != nil {
			return err
		}
		if !about.Mode().IsRegular() && !about.IsDir() && about.Mode().Type() != fs.ModeSymlink {
			skipped = append(skipped, name)
			return nil
		}
		return packEntry(root, out, name, about)
	})
	if err = errors.Join(err, out.Close()); err != nil {
		return skipped, fmt.Errorf("pack %s: %w", folder, err)
	}
	return skipped, nil
}

func packEntry(root *os.Root, out *tar.Writer, name string, about fs.FileInfo) error {
	h := &tar.Header{Name: name, Mode: int64(about.Mode().Perm()), ModTime: about.ModTime(), Typeflag: tar.TypeReg, Size: about.Size()}
	switch {
	case about.IsDir():
		h.Typeflag, h.Name, h.Size = tar.TypeDir, name+"/", 0
		return out.WriteHeader(h)
	case about.Mode().Type() == fs.ModeSymlink:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		return out.WriteHeader(h)
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(f, h.Size)) // it may grow meanwhile
	if err == nil && n < h.Size {
		err = fault.New(fault.Conflict, "%s became shorter while it was read", plain(name))
	}
	return err
}

// unpackFolder makes a folder of a tar that came out of a sandbox. It is there
// whole or not at all, and never put over something: it is unpacked beside its
// place, where nobody else is, and its links are looked at before it goes there.
func unpackFolder(ctx context.Context, r io.Reader, folder string) (left []string, err error) {
	if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", folder, err)
		}
		return nil, fault.New(fault.Conflict, "%s is there already; name a folder that is not", folder)
	}
	beside, err := os.MkdirTemp(filepath.Dir(filepath.Clean(folder)), ".aurea-*")
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", folder, err)
	}
	defer func() { _ = os.RemoveAll(beside) }() // gone where it was put in its place
	// How large it may be is for the disk to say.
	got, err := evidence.Unpack(ctx, r, beside, evidence.Bounds{Entries: math.MaxInt, Depth: math.MaxInt, Bytes: math.MaxInt64})
	if err != nil {
		return got.Skipped, err
	}
	dropped, err := dropLinksOut(beside)
	left = append(got.Skipped, dropped...)
	if err != nil {
		return left, fmt.Errorf("look at links: %w", err)
	}
	if err := errors.Join(os.Chmod(beside, 0o755), os.Rename(beside, folder)); err != nil { //nolint:gosec // as folders are
		return left, fmt.Errorf("make %s: %w", folder, err)
	}
	return left, nil
}

// dropLinksOut removes the links that lead out of a folder, and those that
// could once what they name is there.
func dropLinksOut(folder string) (dropped []string, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() != fs.ModeSymlink {
			return err
		}
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		_, err = root.Stat(name) // follows it, and refuses to leave
		stays := err == nil || errors.Is(err, fs.ErrNotExist)
		if stays && !filepath.IsAbs(target) && filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) {
			return nil
		}
		dropped = append(dropped, name+": a link that leads out of the folder")
		return root.Remove(name)
	})
	return dropped, err
}
