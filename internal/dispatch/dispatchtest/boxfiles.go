package dispatchtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Files are the files of a sandbox in memory: a flat list of paths.
func (b *Boxes) Files(id string) sandbox.Filer { return memoryFiles{boxes: b, id: id} }

type memoryFiles struct {
	boxes *Boxes
	id    string
}

type memoryFile struct {
	data []byte
	mode uint32
	dir  bool
}

func (f memoryFile) info(name string) sandbox.FileInfo {
	i := sandbox.FileInfo{Path: name, Name: path.Base(name), Type: sandbox.TypeFile, Size: int64(len(f.data)), Mode: f.mode, ModTime: time.Unix(1_700_000_000, 0).UTC()}
	if f.dir {
		i.Type = sandbox.TypeDir
	}
	return i
}

// with calls fn with the box, locked.
func (m memoryFiles) with(fn func(*memoryBox) error) error {
	m.boxes.mu.Lock()
	defer m.boxes.mu.Unlock()
	box, err := m.boxes.box(m.id)
	if err != nil {
		return err
	}
	return fn(box)
}

func noFile(name string) error { return fault.New(fault.NotFound, "there is no %s", name) }

func (m memoryFiles) find(name string) (f memoryFile, err error) {
	err = m.with(func(box *memoryBox) error {
		var ok bool
		if f, ok = box.single[name]; !ok {
			return noFile(name)
		}
		return nil
	})
	return f, err
}

func (b *memoryBox) happen(kind, name, from string) {
	for _, w := range b.watches {
		if name == w.path || strings.HasPrefix(name, w.path+"/") {
			w.changes <- sandbox.Change{Kind: kind, Path: name, From: from, Type: sandbox.TypeFile}
		}
	}
}

// Stat implements sandbox.Filer.
func (m memoryFiles) Stat(_ context.Context, name string) (sandbox.FileInfo, error) {
	f, err := m.find(name)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return f.info(name), nil
}

// List implements sandbox.Filer.
func (m memoryFiles) List(_ context.Context, name string, _, most int) (found []sandbox.FileInfo, more bool, err error) {
	err = m.with(func(box *memoryBox) error {
		for at, f := range box.single {
			if strings.HasPrefix(at, strings.TrimSuffix(name, "/")+"/") {
				found = append(found, f.info(at))
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b sandbox.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	if most > 0 && len(found) > most {
		found, more = found[:most], true
	}
	return found, more, err
}

// ReadFile implements sandbox.Filer.
func (m memoryFiles) ReadFile(_ context.Context, name string, offset, length int64, w io.Writer) (sandbox.FileInfo, error) {
	f, err := m.find(name)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	rest := f.data[min(offset, int64(len(f.data))):]
	if length >= 0 {
		rest = rest[:min(length, int64(len(rest)))]
	}
	_, err = w.Write(rest)
	return f.info(name), err
}

// WriteFile implements sandbox.Filer.
func (m memoryFiles) WriteFile(_ context.Context, name string, mode uint32, body io.Reader) (info sandbox.FileInfo, err error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return info, fault.New(fault.Unavailable, "read the file: %w", err)
	}
	err = m.with(func(box *memoryBox) error {
		f := memoryFile{data: data, mode: mode}
		box.single[name] = f
		info = f.info(name)
		box.happen(sandbox.ChangeModified, name, "")
		return nil
	})
	return info, err
}

// Mkdir implements sandbox.Filer.
func (m memoryFiles) Mkdir(_ context.Context, name string, mode uint32) error {
	return m.with(func(box *memoryBox) error {
		box.single[name] = memoryFile{mode: mode, dir: true}
		return nil
	})
}

// Move implements sandbox.Filer.
func (m memoryFiles) Move(_ context.Context, from, to string) error {
	return m.transfer(from, to, true)
}

// Copy implements sandbox.Filer.
func (m memoryFiles) Copy(_ context.Context, from, to string) error {
	return m.transfer(from, to, false)
}

func (m memoryFiles) transfer(from, to string, away bool) error {
	return m.with(func(box *memoryBox) error {
		f, ok := box.single[from]
		if !ok {
			return noFile(from)
		}
		if _, taken := box.single[to]; taken {
			return fault.New(fault.Conflict, "%s is there", to).WithCode(sandbox.CodeExists)
		}
		f.data = bytes.Clone(f.data)
		box.single[to] = f
		if away {
			delete(box.single, from)
			box.happen(sandbox.ChangeRenamed, to, from)
		}
		return nil
	})
}

// Remove implements sandbox.Filer.
func (m memoryFiles) Remove(_ context.Context, name string, recursive bool) error {
	return m.with(func(box *memoryBox) error {
		if _, ok := box.single[name]; !ok {
			return noFile(name)
		}
		for at := range box.single {
			if at == name || recursive && strings.HasPrefix(at, name+"/") {
				delete(box.single, at)
			}
		}
		return nil
	})
}

// Watch implements sandbox.Filer.
func (m memoryFiles) Watch(_ context.Context, name string, _ bool) (sandbox.Watch, error) {
	w := &memoryWatch{path: name, changes: make(chan sandbox.Change, 100), closed: make(chan struct{})}
	return w, m.with(func(box *memoryBox) error {
		box.watches = append(box.watches, w)
		return nil
	})
}

type memoryWatch struct {
	path    string
	changes chan sandbox.Change
	closed  chan struct{}
	once    sync.Once // the end of a sandbox may close it too
}

// Next implements sandbox.Watch.
func (w *memoryWatch) Next(ctx context.Context) (sandbox.Change, error) {
	select {
	case c := <-w.changes:
		return c, nil
	case <-w.closed:
		return sandbox.Change{}, io.EOF
	case <-ctx.Done():
		return sandbox.Change{}, context.Cause(ctx)
	}
}

// Close implements sandbox.Watch.
func (w *memoryWatch) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

// DialSandbox connects as Dial does.
func (b *Boxes) DialSandbox(ctx context.Context, id string, port uint16) (net.Conn, error) {
	b.mu.Lock()
	_, err := b.box(id)
	dial := b.Dial
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if dial == nil {
		return nil, fault.New(fault.Unavailable, "nobody listens at %d", port).WithCode(sandbox.CodePortClosed)
	}
	return dial(ctx, port)
}
