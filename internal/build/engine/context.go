package engine

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	ours "github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/fault"
)

// maxDockerfile bounds the Dockerfile itself.
const maxDockerfile = 1 << 20

// buildContext is what the engine gets to build from: an archive that we wrote
// ourselves.
type buildContext struct {
	file       *os.File // has no name any more, so that nothing of it can stay
	size       int64
	dockerfile string // its path in the archive
	lines      []instruction
}

func (c *buildContext) reader() io.Reader { return io.NewSectionReader(c.file, 0, c.size) }

func (c *buildContext) close() { _ = c.file.Close() }

// assemble makes the context of an order.
func (e *Engine) assemble(order ours.Order, upload io.Reader) (*buildContext, error) {
	f, err := os.CreateTemp("", "aurea-context-")
	if err != nil {
		return nil, fmt.Errorf("keep the context: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("keep the context: %w", err), f.Close())
	}
	w := &contextWriter{out: tar.NewWriter(f), dockerfile: "Dockerfile"}
	if order.Uploaded {
		if order.Dockerfile != "" {
			w.dockerfile = order.Dockerfile
		}
		err = w.copyUpload(upload)
	} else {
		err = e.copyNamed(w, order.Name)
	}
	if err == nil {
		err = w.out.Close()
	}
	if err == nil && w.recipe == nil {
		err = fault.New(fault.NotFound, "there is no %s in the context", w.dockerfile).WithCode("no_dockerfile")
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &buildContext{file: f, size: size, dockerfile: w.dockerfile, lines: instructions(w.recipe)}, nil
}

// copyNamed takes the folder of a Dockerfile that we have.
func (e *Engine) copyNamed(w *contextWriter, name string) error {
	if name == "" {
		name = ours.Default
	}
	if e.config.Folder != "" {
		root, err := os.OpenRoot(e.config.Folder)
		if err != nil {
			return fmt.Errorf("open the folder of Dockerfiles: %w", err)
		}
		defer func() { _ = root.Close() }()
		if found, err := w.copyFolder(root.FS(), name); found || err != nil {
			return err
		}
	}
	found, err := w.copyFolder(e.config.Shipped, name)
	if err == nil && !found {
		err = fault.New(fault.NotFound, "there is no Dockerfile named %q; there are %s", name, strings.Join(e.Names(), ", ")).WithCode("no_dockerfile")
	}
	return err
}

// Names lists the Dockerfiles that can be named.
func (e *Engine) Names() []string {
	seen, names := map[string]bool{}, []string{}
	add := func(files fs.FS) {
		found, _ := fs.Glob(files, "*/Dockerfile")
		for _, f := range found {
			if n := path.Dir(f); !seen[n] && (ours.Order{Name: n}).Check() == nil {
				seen[n], names = true, append(names, n)
			}
		}
	}
	if e.config.Folder != "" {
		if root, err := os.OpenRoot(e.config.Folder); err == nil {
			defer func() { _ = root.Close() }()
			add(root.FS())
		}
	}
	add(e.config.Shipped)
	return names
}

// contextWriter writes a context, and keeps the Dockerfile that it meets.
type contextWriter struct {
	out        *tar.Writer
	dockerfile string
	recipe     []byte
	entries    int
	bytes      int64
}

// add writes one entry. Everything but its name, its kind and whether it can be
// executed is ours.
func (w *contextWriter) add(h *tar.Header, r io.Reader) error {
	if w.entries++; w.entries > ours.MaxEntries {
		return fault.New(fault.TooLarge, "the context has more than %d entries", ours.MaxEntries)
	}
	if w.bytes += h.Size; h.Size < 0 || w.bytes > ours.MaxContext {
		return fault.New(fault.TooLarge, "the context has more than %d bytes", int64(ours.MaxContext))
	}
	clean := &tar.Header{Name: h.Name, Typeflag: h.Typeflag, Linkname: h.Linkname, Size: h.Size, Mode: 0o644, ModTime: h.ModTime, Format: tar.FormatPAX}
	if h.Mode&0o111 != 0 || h.Typeflag == tar.TypeDir {
		clean.Mode = 0o755
	}
	if err := w.out.WriteHeader(clean); err != nil {
		return fault.New(fault.Invalid, "the context has an entry that cannot be kept: %w", err).WithCode("bad_context")
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	if h.Name == w.dockerfile {
		if h.Size > maxDockerfile {
			return fault.New(fault.TooLarge, "the Dockerfile has more than %d bytes", maxDockerfile)
		}
		body, err := io.ReadAll(io.LimitReader(r, h.Size))
		if err != nil {
			return badContext(err)
		}
		w.recipe, r = body, bytes.NewReader(body)
	}
	if _, err := io.CopyN(w.out, r, h.Size); err != nil {
		return badContext(err)
	}
	return nil
}

func badContext(err error) error {
	return fault.New(fault.Invalid, "read the context: %w", err).WithCode("bad_context")
}

// copyFolder takes a folder of files; links and everything else that is no file
// is left out.
func (w *contextWriter) copyFolder(files fs.FS, name string) (found bool, err error) {
	if info, err := fs.Stat(files, name+"/Dockerfile"); err != nil || !info.Mode().IsRegular() {
		return false, nil //nolint:nilerr // it is not there, which is an answer
	}
	folder, err := fs.Sub(files, name)
	if err != nil {
		return false, err
	}
	return true, fs.WalkDir(folder, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read the folder of the Dockerfile: %w", err)
		}
		if p == "." || !d.IsDir() && !d.Type().IsRegular() {
			return nil
		}
		return w.copyEntry(folder, p, d)
	})
}

func (w *contextWriter) copyEntry(folder fs.FS, p string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("read the folder of the Dockerfile: %w", err)
	}
	h := &tar.Header{Name: p, Typeflag: tar.TypeReg, Size: info.Size(), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	if d.IsDir() {
		h.Name, h.Typeflag, h.Size = p+"/", tar.TypeDir, 0
		return w.add(h, nil)
	}
	f, err := folder.Open(p)
	if err != nil {
		return fmt.Errorf("read the folder of the Dockerfile: %w", err)
	}
	defer func() { _ = f.Close() }()
	return w.add(h, f)
}

// copyUpload takes an archive from outside.
func (w *contextWriter) copyUpload(r io.Reader) error {
	r, err := unpacked(r)
	if err != nil {
		return badContext(err)
	}
	// Headers and padding count too: an archive of nothing but names ends here.
	t := tar.NewReader(io.LimitReader(r, 2*ours.MaxContext))
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return badContext(err)
		}
		name, err := insideName(h.Name)
		if err != nil {
			return err
		}
		if h.Name = name; name == "" {
			continue
		}
		if err := w.take(h, t); err != nil {
			return err
		}
	}
}

// take copies one entry of an upload.
func (w *contextWriter) take(h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeReg:
		h.Linkname = ""
	case tar.TypeDir:
		h.Name, h.Size, h.Linkname = h.Name+"/", 0, ""
	case tar.TypeSymlink:
		if path.IsAbs(h.Linkname) || !within(path.Join(path.Dir(h.Name), h.Linkname)) {
			return fault.New(fault.Invalid, "the context has a link that leads out of it: %.80q", h.Name).WithCode("bad_context")
		}
		h.Size = 0
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return fault.New(fault.Invalid, "the context has something that is no file, folder or link: %.80q", h.Name).WithCode("bad_context")
	}
	return w.add(h, r)
}

// insideName is the one form of a name; "" is the context itself.
func insideName(name string) (string, error) {
	clean := path.Clean(name)
	if path.IsAbs(name) || !within(clean) || strings.ContainsAny(name, "\x00\\") {
		return "", fault.New(fault.Invalid, "the context has a name that leads out of it: %.80q", name).WithCode("bad_context")
	}
	if clean == "." {
		return "", nil
	}
	return clean, nil
}

func within(clean string) bool { return clean != ".." && !strings.HasPrefix(clean, "../") }

// unpacked reads gzip where it is, and everything else as it is.
func unpacked(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if mark, err := b.Peek(2); err != nil || mark[0] != 0x1f || mark[1] != 0x8b {
		return b, nil //nolint:nilerr // what is too short is no archive, and is told so
	}
	return gzip.NewReader(b)
}
