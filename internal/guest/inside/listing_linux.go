package inside

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// maxNames bounds how many entries of one folder are looked at, maxListing how
// many bytes a listing has.
const (
	maxNames   = 1 << 17
	maxListing = 4 << 20
)

// listing is a listing in the making.
type listing struct {
	task task
	root string
	said int // entries
	size int // bytes
	more bool
	b    []byte
}

func (t task) list(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "list", Path: name, Err: unix.ENOTDIR}
	}
	l := &listing{task: t, root: name}
	if err := l.folder("", int(t.open.File.Depth)); err != nil {
		return err
	}
	l.b = wire.AppendListEnd(l.b, l.more)
	_, err = t.out[0].Write(l.b)
	return err
}

// folder lists what is below a folder in the order of bytes: what stands in it
// where it is called so, and what is below that where it is called so with a
// slash behind it.
func (l *listing) folder(rel string, depth int) error {
	names, folders, err := l.names(path.Join(l.root, rel))
	if err != nil {
		return err
	}
	if depth > 1 {
		for _, name := range folders {
			names = append(names, name+"/")
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if l.more || l.task.stopped() {
			return nil
		}
		below, isFolder := strings.CutSuffix(name, "/")
		at := path.Join(rel, below)
		if !isFolder {
			err = l.entry(at)
		} else if err = l.folder(at, depth-1); errors.Is(err, fs.ErrPermission) {
			err = nil
		}
		// What is gone or another thing by now is not listed: the sandbox is alive.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
	return nil
}

// names returns the names in a folder, and again those of folders.
func (l *listing) names(dir string) (names, folders []string, err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	for len(names) < maxNames {
		entries, err := f.ReadDir(1024)
		for _, e := range entries {
			names = append(names, e.Name())
			if e.IsDir() {
				folders = append(folders, e.Name())
			}
		}
		if errors.Is(err, io.EOF) {
			return names, folders, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	l.more = l.more || len(names) > maxNames
	return names, folders, nil
}

func (l *listing) entry(rel string) error {
	e, err := lookAt(path.Join(l.root, rel), rel)
	if err != nil {
		return err
	}
	before := len(l.b)
	l.b = wire.AppendListed(l.b, e)
	l.size += len(l.b) - before
	if l.said++; l.said > int(l.task.open.File.Most) || l.size > maxListing {
		l.b, l.more = l.b[:before], true
	}
	if len(l.b) > chunk {
		if _, err := l.task.out[0].Write(l.b); err != nil {
			return err
		}
		l.b = l.b[:0]
	}
	return nil
}
