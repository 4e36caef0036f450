package inside

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// place makes ready for something to go from one path to another.
func place(from, to string) (fs.FileInfo, error) {
	info, err := os.Lstat(from)
	if err != nil {
		return nil, err
	}
	if path.Clean(from) == "/" {
		return nil, invalid("the root stays where it is")
	}
	if _, err := os.Lstat(to); err == nil {
		return nil, &fs.PathError{Op: "make", Path: to, Err: unix.EEXIST}
	}
	if info.IsDir() && strings.HasPrefix(to, from+"/") {
		return nil, invalid("a folder cannot go below itself: " + to)
	}
	if err := os.MkdirAll(parent(to), 0o755); err != nil {
		return nil, err
	}
	if info.IsDir() {
		return info, notBelow(parent(to), info)
	}
	return info, nil
}

// notBelow says that a folder lies below another, whatever links lead there.
func notBelow(dir string, other fs.FileInfo) error {
	const most = 1024
	for range most {
		here, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if os.SameFile(here, other) {
			return invalid("a folder cannot go below itself")
		}
		up, err := os.Stat(dir + "/..")
		if err != nil {
			return err
		}
		if os.SameFile(here, up) {
			return nil
		}
		dir += "/.."
	}
	return invalid("the path is too deep")
}

func (t task) move(from, to string) error {
	if _, err := place(from, to); err != nil {
		return err
	}
	err := rename(from, to)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := mayChange(parent(from)); err != nil {
		return err
	}
	if err := t.copy(from, to); err != nil {
		return err
	}
	return os.RemoveAll(from)
}

// rename renames without replacing anything.
func rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system that cannot promise it: place has just looked.
		err = unix.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (t task) copy(from, to string) error {
	info, err := place(from, to)
	if err != nil {
		return err
	}
	if typeOf(info.Mode()) == wire.FileOther {
		return notFile(from)
	}
	draft := besides(to, newPrefix)
	err = t.copyTree(from, draft, 0)
	if err == nil {
		err = rename(draft, to)
	}
	if err != nil {
		_ = os.RemoveAll(draft)
	}
	return err
}

// copyTree copies what is at a path, but for special files in a tree.
func (t task) copyTree(from, to string, depth int) error {
	if t.stopped() {
		return errAborted
	}
	if depth > maxDepth {
		return invalid("the tree is too deep")
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch typeOf(info.Mode()) { //nolint:exhaustive // the rest is below
	case wire.FileRegular:
		return t.copyFile(from, to)
	case wire.FileLink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case wire.FileFolder:
		return t.copyFolder(from, to, info.Mode().Perm(), depth)
	}
	return nil
}

func (t task) copyFolder(from, to string, mode fs.FileMode, depth int) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(from, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			err := t.copyTree(path.Join(from, e.Name()), path.Join(to, e.Name()), depth+1)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return os.Chmod(to, mode)
		}
		if err != nil {
			return err
		}
	}
}

func (t task) copyFile(from, to string) error {
	in, info, err := openFile(from, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	t.in = &stoppable{r: in, stopped: t.stopped}
	_, err = t.draft(to, info.Mode().Perm())
	return err
}

// stoppable is a reader that ends when nobody waits for it any more.
type stoppable struct {
	r       io.Reader
	stopped func() bool
}

func (s *stoppable) Read(p []byte) (int, error) {
	if s.stopped() {
		return 0, errAborted
	}
	return s.r.Read(p)
}
