package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// keeper keeps the bytes of files: the new root, or nothing in a test.
type keeper interface {
	Append(r io.Reader, size int64) (erofs.Data, error)
}

// What whiteouts are called.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	reserved = ".wh..wh."
)

// apply lays a layer, which is a tar stream, over the tree.
func (t *tree) apply(ctx context.Context, r io.Reader, into keeper) error {
	clear(t.touched)
	stream := &counter{r: r}
	archive := tar.NewReader(stream)
	content := &swelling{r: archive, stream: stream, slack: t.bounds.Slack}
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return tarError(err)
		}
		if err := t.add(h, content, into); err != nil {
			return err
		}
	}
}

// counter counts what was read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// swelling refuses sparse files that are much larger than what describes them:
// the holes of a file cost its layer nothing, and the host its disk.
type swelling struct {
	r      io.Reader
	stream *counter
	slack  int64
	n      int64
}

func (s *swelling) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.n += int64(n); s.n > s.stream.n+s.slack {
		return n, tooMuch("the layer's files have %d bytes more than the layer", s.slack)
	}
	return n, err
}

// tarError keeps the faults of the stream below, and calls the rest hostile.
func tarError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, tar.ErrInsecurePath) {
		return hostile("read the layer: %w", err)
	}
	return fmt.Errorf("read the layer: %w", err)
}

// add puts one entry of a layer into the tree.
func (t *tree) add(h *tar.Header, content io.Reader, into keeper) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return t.count(0)
	}
	if err := t.count(len(h.Name) + len(h.Linkname)); err != nil {
		return err
	}
	parts, err := split(h.Name)
	if err != nil {
		return err
	}
	owner, err := ownerOf(h)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if h.Typeflag == tar.TypeDir {
			setOwner(t.root, owner)
		}
		return nil // anything else in the place of the root means nothing
	}
	name := parts[len(parts)-1]
	if strings.HasPrefix(name, whiteout) {
		return t.hidden(parts[:len(parts)-1], name)
	}
	if len(parts) > t.bounds.Depth {
		return tooMuch("folders lie more than %d deep", t.bounds.Depth)
	}
	folder, err := t.folder(parts[:len(parts)-1], true)
	if err != nil {
		return err
	}
	return t.place(folder, name, h, owner, content, into)
}

// place puts a node in place by its type.
func (t *tree) place(folder *erofs.Node, name string, h *tar.Header, n *erofs.Node, content io.Reader, into keeper) error {
	switch h.Typeflag {
	case tar.TypeDir:
		n.Mode |= erofs.Folder
		n.Entries = map[string]*erofs.Node{}
		if old := folder.Entries[name]; old != nil && old.IsFolder() {
			setOwner(old, n)
			n = old
		}
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse: //nolint:staticcheck // old archives have the old type
		n.Mode |= erofs.Regular
		data, err := t.keep(h, content, into)
		if err != nil {
			return err
		}
		n.Data = data
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > erofs.MaxTarget || strings.ContainsRune(h.Linkname, 0) {
			return hostile("the link %q leads to %q", h.Name, h.Linkname)
		}
		n.Mode = erofs.Link | 0o777
		n.Target = h.Linkname
	case tar.TypeLink:
		target, err := t.linked(h)
		if err != nil {
			return err
		}
		n = target
	default:
		delete(folder.Entries, name)
		t.leave(h.Name, leftReason(h.Typeflag))
		return nil
	}
	t.put(folder, name, n)
	return nil
}

func leftReason(kind byte) string {
	switch kind {
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a named pipe"
	}
	return fmt.Sprintf("an entry of unknown type %q", kind)
}

// keep moves the bytes of a file into the root.
func (t *tree) keep(h *tar.Header, content io.Reader, into keeper) (erofs.Data, error) {
	if h.Size < 0 || h.Size > t.bounds.Bytes-t.bytes {
		return erofs.Data{}, tooMuch("the files of the image have more than %d bytes", t.bounds.Bytes)
	}
	t.bytes += h.Size
	data, err := into.Append(content, h.Size)
	if err != nil {
		return erofs.Data{}, tarError(err)
	}
	return data, nil
}

// linked finds what a hard link names. Links on the way are followed, one at
// the end is what is meant.
func (t *tree) linked(h *tar.Header) (*erofs.Node, error) {
	parts, err := split(h.Linkname)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, hostile("%q is a hard link to the root", h.Name)
	}
	folder, err := t.folder(parts[:len(parts)-1], false)
	if err != nil {
		return nil, err
	}
	if folder != nil {
		if n := folder.Entries[parts[len(parts)-1]]; n != nil && !n.IsFolder() {
			return n, nil
		}
	}
	return nil, hostile("%q is a hard link to %q, which is no file", h.Name, h.Linkname)
}

// hidden does what a whiteout says.
func (t *tree) hidden(parent []string, name string) error {
	folder, err := t.folder(parent, false)
	if err != nil || folder == nil {
		return err
	}
	switch gone := strings.TrimPrefix(name, whiteout); {
	case name == opaque:
		_, err = t.hideAll(folder)
	case strings.HasPrefix(name, reserved): // means something to one tool only
	case gone == "" || gone == "." || gone == "..":
		return hostile("the whiteout %q hides nothing", name)
	default:
		_, err = t.hide(folder, gone)
	}
	return err
}

// ownerOf is a node with everything but its type and content. The bits that
// give a program its owner's rights are dropped: nothing in a sandbox may gain
// any.
func ownerOf(h *tar.Header) (*erofs.Node, error) {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > math.MaxUint32 || int64(h.Gid) > math.MaxUint32 {
		return nil, hostile("%q belongs to %d:%d", h.Name, h.Uid, h.Gid)
	}
	n := &erofs.Node{Mode: uint16(h.Mode & 0o1777), UID: uint32(h.Uid), GID: uint32(h.Gid)}
	n.Mtime, n.MtimeNs = modified(h.ModTime)
	return n, nil
}

// modified keeps times that a file can have.
func modified(at time.Time) (int64, uint32) {
	if at.Unix() < 0 || at.Unix() > math.MaxUint32 {
		return 0, 0
	}
	return at.Unix(), uint32(at.Nanosecond())
}

// setOwner gives a folder new rights and leaves what it holds.
func setOwner(folder, as *erofs.Node) {
	folder.Mode = erofs.Folder | as.Mode&0o1777
	folder.UID, folder.GID = as.UID, as.GID
	folder.Mtime, folder.MtimeNs = as.Mtime, as.MtimeNs
}
