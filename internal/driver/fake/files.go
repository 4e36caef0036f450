package fake

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/aurea-dev/aurea/internal/fault"
)

// unpack lays a tar stream below dir. Names that lead out of dir are refused;
// what is neither file, folder nor link is refused.
func (t *tree) unpack(dir string, r io.Reader) error {
	if err := t.mkdirAll(dir); err != nil {
		return treeFault(dir, err)
	}
	stream := tar.NewReader(r)
	for {
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.New(fault.Invalid, "read the tar stream: %w", err).WithCode("bad_tar")
		}
		if err := t.unpackOne(dir, h, stream); err != nil {
			return err
		}
	}
}

func (t *tree) unpackOne(dir string, h *tar.Header, r io.Reader) error {
	if !fs.ValidPath(strings.TrimSuffix(path.Clean(h.Name), "/")) || strings.ContainsRune(h.Name, 0) {
		return fault.New(fault.Invalid, "the tar stream names %q, which leads out of the folder", h.Name).WithCode("bad_tar")
	}
	name := path.Join(dir, h.Name)
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	if h.Typeflag != tar.TypeDir {
		if err := t.mkdirAll(path.Dir(name)); err != nil {
			return treeFault(name, err)
		}
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		err = t.mkdirAll(name)
	case tar.TypeReg:
		var data []byte
		if data, err = t.read(r, h.Size); err == nil {
			err = t.put(name, &node{mode: mode, data: data}, false)
		}
	case tar.TypeSymlink:
		err = t.put(name, &node{mode: fs.ModeSymlink | 0o777, target: h.Linkname}, false)
	case tar.TypeXGlobalHeader:
	default:
		return fault.New(fault.Invalid, "the tar stream holds %q, which is no file, folder or link", h.Name).WithCode("bad_tar")
	}
	return treeFault(name, err)
}

// read reads one file, without believing the size that the header gives.
func (t *tree) read(r io.Reader, size int64) ([]byte, error) {
	if size > t.limit {
		return nil, syscall.ENOSPC
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(r, t.limit+1)); err != nil {
		return nil, fault.New(fault.Invalid, "read the tar stream: %w", err).WithCode("bad_tar")
	}
	return b.Bytes(), nil
}

// pack writes a folder with names relative to it, or one file under its base
// name. Links are packed as links, also when name itself is one.
func (t *tree) pack(name string, w io.Writer) error {
	type entry struct {
		name string
		node *node
	}
	var entries []entry
	t.mu.Lock()
	at, n, err := t.resolve(name, false)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	if err == nil {
		for _, p := range t.below(at) {
			rel := strings.TrimPrefix(strings.TrimPrefix(p, at), "/")
			if p == at && n.isDir() {
				continue
			} else if p == at {
				rel = path.Base(at)
			}
			entries = append(entries, entry{rel, t.nodes[p]})
		}
	}
	t.mu.Unlock()
	if err != nil {
		return treeFault(name, err)
	}
	out := tar.NewWriter(w)
	for _, e := range entries {
		if err := packOne(out, e.name, e.node); err != nil {
			return err
		}
	}
	return out.Close()
}

func packOne(w *tar.Writer, name string, n *node) error {
	h := &tar.Header{Name: name, Mode: int64(n.mode.Perm()), Typeflag: tar.TypeReg, Size: int64(len(n.data))}
	switch {
	case n.isDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case n.isLink():
		h.Typeflag, h.Linkname = tar.TypeSymlink, n.target
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(n.data)
	return err
}

// treeFault gives a tree's error its kind.
func treeFault(name string, err error) error {
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%s does not exist in the sandbox", name)
	case errors.Is(err, syscall.ENOSPC):
		return fault.New(fault.TooLarge, "%s does not fit on the sandbox's disk", name).WithCode("disk_limit")
	default:
		return fault.New(fault.Invalid, "use %s: %w", name, err)
	}
}
