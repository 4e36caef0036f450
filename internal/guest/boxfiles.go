package guest

import (
	"context"
	"fmt"
	"io"
	"net"
	"path"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var (
	_ sandbox.Filer  = Box{}
	_ sandbox.Dialer = Box{}
)

// about says in an error what it is about.
func (b Box) about(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s in sandbox %s: %w", what, name, b.ID, err)
}

// Stat implements sandbox.Filer.
func (b Box) Stat(ctx context.Context, name string) (sandbox.FileInfo, error) {
	if err := sandbox.CheckPath("path", name); err != nil {
		return sandbox.FileInfo{}, err
	}
	info, err := b.Client.Stat(ctx, path.Clean(name))
	return info, b.about("look at", name, err)
}

// List implements sandbox.Filer.
func (b Box) List(ctx context.Context, name string, depth, most int) ([]sandbox.FileInfo, bool, error) {
	if err := sandbox.CheckPath("path", name); err != nil {
		return nil, false, err
	}
	if most <= 0 || most > sandbox.MaxListed {
		most = sandbox.MaxListed
	}
	found, more, err := b.Client.List(ctx, path.Clean(name), min(max(depth, 1), sandbox.MaxDepth), most)
	return found, more, b.about("list", name, err)
}

// ReadFile implements sandbox.Filer.
func (b Box) ReadFile(ctx context.Context, name string, offset, length int64, w io.Writer) (sandbox.FileInfo, error) {
	if err := sandbox.CheckPath("path", name); err != nil {
		return sandbox.FileInfo{}, err
	}
	if offset < 0 {
		return sandbox.FileInfo{}, fault.Field("offset", "%d is negative", offset)
	}
	info, err := b.Client.ReadFile(ctx, path.Clean(name), offset, length, w)
	return info, b.about("read", name, err)
}

// WriteFile implements sandbox.Filer.
func (b Box) WriteFile(ctx context.Context, name string, mode uint32, body io.Reader) (sandbox.FileInfo, error) {
	if err := sandbox.CheckPath("path", name); err != nil {
		return sandbox.FileInfo{}, err
	}
	if err := sandbox.CheckMode(mode); err != nil {
		return sandbox.FileInfo{}, err
	}
	info, err := b.Client.WriteFile(ctx, path.Clean(name), mode, body)
	return info, b.about("write", name, err)
}

// Mkdir implements sandbox.Filer.
func (b Box) Mkdir(ctx context.Context, name string, mode uint32) error {
	if err := sandbox.CheckMode(mode); err != nil {
		return err
	}
	return b.change(ctx, "make", wire.KindMkdir, name, wire.File{Mode: mode})
}

// Move implements sandbox.Filer.
func (b Box) Move(ctx context.Context, from, to string) error {
	if err := sandbox.CheckPath("to", to); err != nil {
		return err
	}
	return b.change(ctx, "move", wire.KindMove, from, wire.File{To: path.Clean(to)})
}

// Copy implements sandbox.Filer.
func (b Box) Copy(ctx context.Context, from, to string) error {
	if err := sandbox.CheckPath("to", to); err != nil {
		return err
	}
	return b.change(ctx, "copy", wire.KindCopy, from, wire.File{To: path.Clean(to)})
}

// Remove implements sandbox.Filer.
func (b Box) Remove(ctx context.Context, name string, recursive bool) error {
	return b.change(ctx, "remove", wire.KindRemove, name, wire.File{Recursive: recursive})
}

func (b Box) change(ctx context.Context, what string, kind wire.Kind, name string, file wire.File) error {
	if err := sandbox.CheckPath("path", name); err != nil {
		return err
	}
	file.Length = -1
	return b.about(what, name, b.Client.change(ctx, kind, path.Clean(name), file))
}

// Watch implements sandbox.Filer.
func (b Box) Watch(ctx context.Context, name string, recursive bool) (sandbox.Watch, error) {
	if err := sandbox.CheckPath("path", name); err != nil {
		return nil, err
	}
	w, err := b.Client.Watch(ctx, path.Clean(name), recursive)
	if err != nil {
		return nil, b.about("watch", name, err)
	}
	return w, nil
}

// Dial implements sandbox.Dialer.
func (b Box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	c, err := b.Client.Dial(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("connect to port %d of sandbox %s: %w", port, b.ID, err)
	}
	return c, nil
}
