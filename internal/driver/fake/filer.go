package fake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"syscall"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var (
	_ sandbox.Filer  = (*box)(nil)
	_ sandbox.Dialer = (*box)(nil)
)

// fileEntry is a change of files that was asked for, for the journal.
type fileEntry struct {
	Do        string `json:"do"` // write, mkdir, move, copy, remove
	Path      string `json:"path"`
	To        string `json:"to,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
	Data      []byte `json:"data,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
}

// apply does a change of files, the first time and again from the journal.
func (t *tree) apply(e fileEntry) (sandbox.FileInfo, error) {
	switch e.Do {
	case "write":
		return t.replace(e.Path, fs.FileMode(e.Mode), e.Data)
	case "mkdir":
		return sandbox.FileInfo{}, t.mkdir(e.Path, fs.FileMode(e.Mode))
	case "move":
		return sandbox.FileInfo{}, t.move(e.Path, e.To)
	case "copy":
		return sandbox.FileInfo{}, t.copy(e.Path, e.To)
	case "remove":
		return sandbox.FileInfo{}, t.removeFile(e.Path, e.Recursive)
	}
	return sandbox.FileInfo{}, syscall.EINVAL
}

// change does a change of files and writes it down.
func (b *box) change(ctx context.Context, e fileEntry) (sandbox.FileInfo, error) {
	if err := b.reach(ctx, e.Path); err != nil {
		return sandbox.FileInfo{}, err
	}
	if err := sandbox.CheckMode(e.Mode); err != nil {
		return sandbox.FileInfo{}, err
	}
	done, err := b.tree.apply(e)
	if err == nil {
		b.record(entry{File: &e})
	}
	return done, fileFault(e.Path, err)
}

// reach checks that files can be reached, at this path.
func (b *box) reach(ctx context.Context, name string) error {
	if err := b.at(ctx, script{}, stepOther); err != nil {
		return err
	}
	if err := b.awake(); err != nil {
		return err
	}
	return sandbox.CheckPath("path", name)
}

// Stat implements sandbox.Filer.
func (b *box) Stat(ctx context.Context, name string) (sandbox.FileInfo, error) {
	if err := b.reach(ctx, name); err != nil {
		return sandbox.FileInfo{}, err
	}
	i, err := b.tree.look(path.Clean(name))
	return i, fileFault(name, err)
}

// List implements sandbox.Filer.
func (b *box) List(ctx context.Context, name string, depth, most int) (found []sandbox.FileInfo, more bool, err error) {
	if err := b.reach(ctx, name); err != nil {
		return nil, false, err
	}
	if most <= 0 || most > sandbox.MaxListed {
		most = sandbox.MaxListed
	}
	found, more, err = b.tree.list(name, min(max(depth, 1), sandbox.MaxDepth), most)
	return found, more, fileFault(name, err)
}

// ReadFile implements sandbox.Filer.
func (b *box) ReadFile(ctx context.Context, name string, offset, length int64, w io.Writer) (sandbox.FileInfo, error) {
	if err := b.reach(ctx, name); err != nil {
		return sandbox.FileInfo{}, err
	}
	if offset < 0 {
		return sandbox.FileInfo{}, fault.Field("offset", "%d is negative", offset)
	}
	n, err := b.tree.stat(name)
	if err == nil && n.isDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		return sandbox.FileInfo{}, fileFault(name, err)
	}
	data := n.data[min(offset, int64(len(n.data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	_, err = w.Write(data)
	return info(name, n), err
}

// WriteFile implements sandbox.Filer.
func (b *box) WriteFile(ctx context.Context, name string, mode uint32, body io.Reader) (sandbox.FileInfo, error) {
	if err := b.reach(ctx, name); err != nil {
		return sandbox.FileInfo{}, err
	}
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.LimitReader(body, b.tree.limit+1)); err != nil {
		return sandbox.FileInfo{}, err
	}
	return b.change(ctx, fileEntry{Do: "write", Path: name, Mode: mode, Data: data.Bytes()})
}

// Mkdir implements sandbox.Filer.
func (b *box) Mkdir(ctx context.Context, name string, mode uint32) error {
	_, err := b.change(ctx, fileEntry{Do: "mkdir", Path: name, Mode: mode})
	return err
}

// Move implements sandbox.Filer.
func (b *box) Move(ctx context.Context, from, to string) error {
	if err := sandbox.CheckPath("to", to); err != nil {
		return err
	}
	_, err := b.change(ctx, fileEntry{Do: "move", Path: from, To: to})
	return err
}

// Copy implements sandbox.Filer.
func (b *box) Copy(ctx context.Context, from, to string) error {
	if err := sandbox.CheckPath("to", to); err != nil {
		return err
	}
	_, err := b.change(ctx, fileEntry{Do: "copy", Path: from, To: to})
	return err
}

// Remove implements sandbox.Filer.
func (b *box) Remove(ctx context.Context, name string, recursive bool) error {
	_, err := b.change(ctx, fileEntry{Do: "remove", Path: name, Recursive: recursive})
	return err
}

// Watch implements sandbox.Filer.
func (b *box) Watch(ctx context.Context, name string, recursive bool) (sandbox.Watch, error) {
	if err := b.reach(ctx, name); err != nil {
		return nil, err
	}
	w, err := b.tree.watch(name, recursive)
	if err != nil {
		return nil, fileFault(name, err)
	}
	w.dead = b.dead
	return w, nil
}

// fileFault gives an error of a Filer its kind and code.
func fileFault(name string, err error) error {
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%s does not exist in the sandbox", name)
	case errors.Is(err, syscall.ENOTEMPTY): // before the next, which means it too
		return fault.New(fault.Conflict, "%s is not empty", name).WithCode(sandbox.CodeNotEmpty)
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.Conflict, "there is something already where %s would be", name).WithCode(sandbox.CodeExists)
	case errors.Is(err, syscall.EISDIR):
		return fault.New(fault.Conflict, "%s is a folder", name).WithCode(sandbox.CodeIsDir)
	case errors.Is(err, syscall.ENOTDIR):
		return fault.New(fault.Conflict, "%s is not a folder, or not in one", name).WithCode(sandbox.CodeNotDir)
	case errors.Is(err, syscall.ENOSPC):
		return fault.New(fault.Exhausted, "%s does not fit on the sandbox's disk", name).WithCode(sandbox.CodeDiskFull)
	case errors.Is(err, syscall.EMFILE):
		return fault.New(fault.Exhausted, "the sandbox has as many watches as it may")
	}
	return fault.New(fault.Invalid, "use %s: %w", name, err)
}
