package evidence

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Unpacked says what came out of a sandbox.
type Unpacked struct {
	Entries int
	Bytes   int64
	Skipped []string
}

// Unpack writes a tar stream that came out of a sandbox into dir, which must be
// empty and nobody else's. Regular files, folders and symbolic links are taken;
// everything else, and every name that does not stay below dir, is skipped and
// listed. Links are kept as they are and never followed: an entry below a link
// is skipped. A broken stream is a fault of kind Invalid, one over the bounds of
// kind TooLarge; dir then holds the part that came before.
func Unpack(ctx context.Context, r io.Reader, dir string, b Bounds) (Unpacked, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Unpacked{}, fmt.Errorf("open workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	u := unpacker{ctx: ctx, root: root, meter: meter{bounds: b}, have: map[string]kind{".": folder}}
	stream := tar.NewReader(r)
	for {
		if ctx.Err() != nil {
			return u.result(), context.Cause(ctx)
		}
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return u.result(), nil
		}
		if err != nil {
			return u.result(), broken(err)
		}
		if err := u.entry(h, stream); err != nil {
			return u.result(), err
		}
	}
}

// broken keeps a fault of the stream's source and calls the rest malformed.
func broken(err error) error {
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("read files of the sandbox: %w", err)
	}
	return fault.New(fault.Invalid, "the files of the sandbox cannot be read: %w", err).WithCode("broken_tar")
}

// unpacker knows all that it has made, so it never asks the file system what a
// name is, and never goes through a link.
type unpacker struct {
	ctx     context.Context // of this one call
	root    *os.Root
	meter   meter
	have    map[string]kind
	skipped skips
}

func (u *unpacker) result() Unpacked {
	return Unpacked{Entries: u.meter.entries, Bytes: u.meter.bytes, Skipped: u.skipped.all()}
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	name, why := cleanName(h.Name)
	// Skipped entries count too: a stream of nothing else must end as well.
	if err := u.meter.entry(strings.Count(name, "/")); err != nil {
		return err
	}
	if why != "" {
		u.skipped.add(h.Name, why)
		return nil
	}
	if name == "." {
		return nil
	}
	if had, ok := u.have[name]; ok {
		if had != folder || h.Typeflag != tar.TypeDir {
			u.skipped.add(name, "a second entry of this name")
		}
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeSymlink:
	default:
		u.skipped.add(name, typeWord(h.Typeflag))
		return nil
	}
	if ok, err := u.parents(path.Dir(name)); !ok || err != nil {
		if err == nil {
			u.skipped.add(name, "below something that is not a folder")
		}
		return err
	}
	return u.make(name, h, content)
}

func (u *unpacker) make(name string, h *tar.Header, content io.Reader) error {
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		u.have[name] = folder
		err = u.root.Mkdir(name, 0o755)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxTarget || strings.ContainsRune(h.Linkname, 0) {
			u.skipped.add(name, "a link whose target cannot be one")
			return nil
		}
		u.have[name] = link
		err = u.root.Symlink(h.Linkname, name)
	default:
		u.have[name] = file
		return u.file(name, h, content)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", printable(name), err)
	}
	return nil
}

func (u *unpacker) file(name string, h *tar.Header, content io.Reader) error {
	if err := u.meter.file(h.Size); err != nil {
		return err
	}
	perm := os.FileMode(0o644)
	if h.Mode&0o100 != 0 {
		perm = 0o755
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("make %s: %w", printable(name), err)
	}
	_, err = io.Copy(f, io.LimitReader(&pausing{u.ctx, content}, h.Size))
	if cerr := f.Close(); cerr != nil && err == nil {
		return fmt.Errorf("write %s: %w", printable(name), cerr)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return broken(err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", printable(name), err)
	}
	return nil
}

// parents makes the folders above an entry. It reports false when one of them
// is there as something else.
func (u *unpacker) parents(dir string) (bool, error) {
	if k, ok := u.have[dir]; ok {
		return k == folder, nil
	}
	if ok, err := u.parents(path.Dir(dir)); !ok || err != nil {
		return ok, err
	}
	if err := u.meter.entry(strings.Count(dir, "/")); err != nil {
		return false, err
	}
	u.have[dir] = folder
	if err := u.root.Mkdir(dir, 0o755); err != nil {
		return false, fmt.Errorf("make %s: %w", printable(dir), err)
	}
	return true, nil
}

// cleanName returns the name as a path below the workspace, or why it is none.
func cleanName(name string) (clean, why string) {
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", "not a name"
	case len(name) > maxPath:
		return "", "the path is too long"
	case strings.HasPrefix(name, "/"):
		return "", "an absolute path"
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", "a path that leaves the workspace"
		}
		if len(part) > maxName {
			return "", "the name is too long"
		}
	}
	return path.Clean(name), ""
}

func typeWord(flag byte) string {
	switch flag {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a FIFO"
	}
	return "an entry of an unknown type"
}

// pausing ends a long copy soon after ctx has ended.
type pausing struct {
	ctx context.Context // of this one copy
	r   io.Reader
}

func (p *pausing) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	return p.r.Read(b)
}
