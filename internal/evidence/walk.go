package evidence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
)

// kind is what an entry of a workspace is. Everything else is skipped.
type kind byte

const (
	folder kind = 'd'
	file   kind = 'f'
	link   kind = 'l'
)

// node is one entry of a workspace, reduced to what is kept of it.
type node struct {
	kind   kind
	path   string // relative to the workspace, with slashes
	mode   int64  // 0755 or 0644
	size   int64  // of a file
	target string // of a link: text, never followed
}

// visit takes one node; content holds the bytes of a file, from the first on,
// and is nil otherwise.
type visit func(n node, content io.ReadSeeker) error

// walker goes through a folder that hostile code has filled. It opens one
// folder at a time below an os.Root, asks what a name is before it opens it,
// and asks the open file again, so that nothing is followed, nothing blocks,
// and nothing that changes underneath makes it read something else.
type walker struct {
	ctx     context.Context // of this one walk
	meter   meter
	skipped skips
	visit   visit
	small   []byte // the bytes of the file that is visited, where they fit
}

// walk visits every folder, regular file and symbolic link below root in the
// byte order of their paths, folders counted with their closing slash. It
// returns what it skipped.
func walk(ctx context.Context, root *os.Root, b Bounds, v visit) ([]string, error) {
	w := &walker{ctx: ctx, meter: meter{bounds: b}, visit: v}
	err := w.folder(root, "", 0)
	return w.skipped.all(), err
}

func (w *walker) folder(root *os.Root, at string, depth int) error {
	names, err := w.names(root, depth)
	if err != nil {
		return fmt.Errorf("read folder %s: %w", printable(at), err)
	}
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return context.Cause(w.ctx)
		}
		if err := w.entry(root, name, path.Join(at, name), depth); err != nil {
			return err
		}
	}
	return nil
}

// names lists a folder in the order of the walk. It counts the entries as it
// reads, so that a folder with too many is given up before it fills memory.
func (w *walker) names(root *os.Root, depth int) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	type keyed struct{ name, key string }
	var all []keyed
	for {
		batch, err := dir.ReadDir(512)
		for _, e := range batch {
			if err := w.meter.entry(depth); err != nil {
				return nil, err
			}
			k := keyed{e.Name(), e.Name()}
			if e.IsDir() {
				k.key += "/"
			}
			all = append(all, k)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.name
	}
	return names, nil
}

func (w *walker) entry(root *os.Root, name, at string, depth int) error {
	if len(at) > maxPath {
		w.skipped.add(at, "the path is too long")
		return nil
	}
	info, err := root.Lstat(name)
	if err != nil {
		return w.vanished(at, err)
	}
	switch info.Mode().Type() { //nolint:exhaustive // every other type is hostile and left out below
	case fs.ModeDir:
		return w.subfolder(root, name, at, depth, info)
	case fs.ModeSymlink:
		target, err := root.Readlink(name)
		if err != nil {
			return w.vanished(at, err)
		}
		return w.visit(node{kind: link, path: at, target: target}, nil)
	case 0:
		return w.file(root, name, at, info)
	}
	w.skipped.add(at, kindWord(info.Mode()))
	return nil
}

func (w *walker) subfolder(root *os.Root, name, at string, depth int, seen fs.FileInfo) error {
	sub, err := root.OpenRoot(name)
	if err != nil {
		return w.vanished(at, err)
	}
	defer func() { _ = sub.Close() }()
	now, err := sub.Stat(".")
	if err != nil {
		return fmt.Errorf("look at %s: %w", printable(at), err)
	}
	if !os.SameFile(seen, now) {
		w.skipped.add(at, "changed while it was read")
		return nil
	}
	if err := w.visit(node{kind: folder, path: at, mode: 0o755}, nil); err != nil {
		return err
	}
	return w.folder(sub, at, depth+1)
}

func (w *walker) file(root *os.Root, name, at string, seen fs.FileInfo) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return w.vanished(at, err)
	}
	defer func() { _ = f.Close() }()
	now, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", printable(at), err)
	}
	if !now.Mode().IsRegular() || !os.SameFile(seen, now) {
		w.skipped.add(at, "changed while it was read")
		return nil
	}
	if err := w.meter.file(now.Size()); err != nil {
		return err
	}
	n := node{kind: file, path: at, mode: 0o644, size: now.Size()}
	if now.Mode()&0o100 != 0 {
		n.mode = 0o755
	}
	if n.size > smallFile {
		return w.visit(n, f)
	}
	if w.small == nil {
		w.small = make([]byte, smallFile)
	}
	read, err := io.ReadFull(f, w.small[:n.size])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull returns them bare
		return fmt.Errorf("read %s: %w", printable(at), err)
	}
	return w.visit(n, bytes.NewReader(w.small[:read]))
}

// smallFile is up to where a file is read once, whoever wants its bytes.
const smallFile = 32 << 10

// vanished turns a name that went away between two looks into a skip. Anything
// else is a broken machine, and evidence with a hole in it is none.
func (w *walker) vanished(at string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		w.skipped.add(at, "vanished while it was read")
		return nil
	}
	return fmt.Errorf("read %s: %w", printable(at), err)
}

func kindWord(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a file, a folder or a link"
}
