package filesync

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

// clock is told what time it is.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) tick(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newClock() *clock { return &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

// box is the files of a sandbox, in memory.
type box struct {
	clock *clock
	mu    sync.Mutex
	files map[string]boxFile // by absolute path
	other map[string]sandbox.FileType
	lie   []sandbox.FileInfo // what a listing of the root says besides
	read  int                // files whose bytes were read
}

type boxFile struct {
	data []byte
	mode uint32
	at   time.Time
}

const root = "/workspace"

func newBox(c *clock) *box {
	return &box{clock: c, files: map[string]boxFile{}, other: map[string]sandbox.FileType{}}
}

func (b *box) put(name, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[path.Join(root, name)] = boxFile{[]byte(text), 0o644, b.clock.now()}
}

func (b *box) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.files, path.Join(root, name))
}

// texts returns all files, by path below the root.
func (b *box) texts() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]string{}
	for name, f := range b.files {
		all[strings.TrimPrefix(name, root+"/")] = string(f.data)
	}
	return all
}

func (b *box) info(at string, f boxFile) sandbox.FileInfo {
	return sandbox.FileInfo{Path: at, Name: path.Base(at), Type: sandbox.TypeFile, Size: int64(len(f.data)), Mode: f.mode, ModTime: f.at}
}

func (b *box) List(_ context.Context, dir string, _, _ int) ([]sandbox.FileInfo, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]sandbox.FileInfo{}
	for _, at := range slices.Concat(slices.Collect(maps.Keys(b.files)), slices.Collect(maps.Keys(b.other))) {
		rest, below := strings.CutPrefix(at, dir+"/")
		if !below {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		switch kind := b.other[at]; {
		case deeper:
			found[name] = sandbox.FileInfo{Path: path.Join(dir, name), Name: name, Type: sandbox.TypeDir}
		case kind != "":
			found[name] = sandbox.FileInfo{Path: at, Name: name, Type: kind}
		default:
			found[name] = b.info(at, b.files[at])
		}
	}
	var list []sandbox.FileInfo
	for _, name := range slices.Sorted(maps.Keys(found)) {
		list = append(list, found[name])
	}
	if dir == root {
		list = append(list, b.lie...)
	}
	return list, false, nil
}

func (b *box) ReadFile(_ context.Context, at string, offset, length int64, w io.Writer) (sandbox.FileInfo, error) {
	b.mu.Lock()
	f, ok := b.files[at]
	if length != 0 && ok {
		b.read++
	}
	b.mu.Unlock()
	if !ok {
		return sandbox.FileInfo{}, fault.New(fault.NotFound, "there is no %s", at)
	}
	data := f.data[min(offset, int64(len(f.data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	_, err := w.Write(data)
	return b.info(at, f), err
}

func (b *box) WriteFile(_ context.Context, at string, mode uint32, body io.Reader) (sandbox.FileInfo, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.files {
		if strings.HasPrefix(name, at+"/") {
			return sandbox.FileInfo{}, fault.New(fault.Conflict, "a folder").WithCode(sandbox.CodeIsDir)
		}
		if strings.HasPrefix(at, name+"/") {
			return sandbox.FileInfo{}, fault.New(fault.Conflict, "no folder").WithCode(sandbox.CodeNotDir)
		}
	}
	b.files[at] = boxFile{data, mode, b.clock.now()}
	return b.info(at, b.files[at]), nil
}

func (b *box) Remove(_ context.Context, at string, _ bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.files[at]; !ok {
		return fault.New(fault.NotFound, "there is no %s", at)
	}
	delete(b.files, at)
	return nil
}

// knife kills a pass: from some call on nothing is done any more. That call
// itself may have been done.
type knife struct {
	mu    sync.Mutex
	after int // calls that still go through
	done  bool
}

var errCut = errors.New("cut")

// cut does a call, unless it is too late.
func (k *knife) cut(do func() error) error {
	k.mu.Lock()
	k.after--
	now, gone := k.after == 0, k.after < 0
	k.mu.Unlock()
	if gone || now && !k.done {
		return errCut
	}
	err := do()
	if now {
		return errCut
	}
	return err
}

type cutSide struct {
	Side
	*knife
}

func (c cutSide) List(ctx context.Context, p string, depth, most int) (found []sandbox.FileInfo, more bool, err error) {
	err = c.cut(func() (err error) { found, more, err = c.Side.List(ctx, p, depth, most); return err })
	return found, more, err
}

func (c cutSide) ReadFile(ctx context.Context, p string, offset, length int64, w io.Writer) (info sandbox.FileInfo, err error) {
	err = c.cut(func() (err error) { info, err = c.Side.ReadFile(ctx, p, offset, length, w); return err })
	return info, err
}

func (c cutSide) WriteFile(ctx context.Context, p string, mode uint32, body io.Reader) (info sandbox.FileInfo, err error) {
	err = c.cut(func() (err error) { info, err = c.Side.WriteFile(ctx, p, mode, body); return err })
	return info, err
}

func (c cutSide) Remove(ctx context.Context, p string, recursive bool) error {
	return c.cut(func() error { return c.Side.Remove(ctx, p, recursive) })
}

type cutStore struct {
	store.Store
	*knife
}

func (c cutStore) Update(ctx context.Context, do func(store.Tx) error) error {
	return c.cut(func() error { return c.Store.Update(ctx, do) })
}

func (c cutStore) View(ctx context.Context, do func(store.Tx) error) error {
	return c.cut(func() error { return c.Store.View(ctx, do) })
}

type cutBlobs struct {
	blob.Store
	*knife
}

func (c cutBlobs) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	return c.cut(func() error { return c.Store.Put(ctx, digest, size, r) })
}

// world is a place to sync in.
type world struct {
	t     testing.TB
	clock *clock
	store store.Store
	blobs *blob.Local
	shelf *Shelf
	*Syncer
}

func newWorld(t testing.TB, limits Limits) *world {
	t.Helper()
	dir := t.TempDir()
	db, err := sqlite.Open(context.Background(), filepath.Join(dir, "db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenLocal(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Close(), blobs.Close()); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, clock: newClock(), store: db, blobs: blobs}
	w.shelf, w.Syncer = w.over(db, blobs, limits)
	return w
}

// over makes another syncer over the same, or over what cuts it.
func (w *world) over(s store.Store, blobs blob.Store, limits Limits) (*Shelf, *Syncer) {
	shelf := NewShelf(s, blobs, limits)
	shelf.now = w.clock.now
	syncer := New(shelf, slog.New(slog.DiscardHandler))
	syncer.now = w.clock.now
	return shelf, syncer
}

// must syncs, and wants no failure.
func (w *world) must(b *box, req Request) Result {
	w.t.Helper()
	w.clock.tick(time.Second)
	r, err := w.Sync(context.Background(), b, req)
	if err != nil || r.Failed > 0 {
		w.t.Fatalf("sync: %v, %+v", err, r.Errors)
	}
	return r
}

func (w *world) store1(session, name, text string) {
	w.t.Helper()
	w.clock.tick(time.Second)
	if _, err := w.shelf.Put(context.Background(), session, name, 0, -1, strings.NewReader(text)); err != nil {
		w.t.Fatal(err)
	}
}

// stored returns the texts of a session, by path.
func (w *world) stored(session string) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	list, err := w.shelf.List(context.Background(), session, "", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range list {
		all[f.Path] = w.text(f.SHA256)
	}
	return all
}

func (w *world) text(digest string) string {
	w.t.Helper()
	b, _, err := w.blobs.Open(context.Background(), digest)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	var out bytes.Buffer
	if _, err := io.Copy(&out, b); err != nil {
		w.t.Fatal(err)
	}
	return out.String()
}

func request() Request { return Request{Session: "s", Sandbox: "b1", Root: root} }
