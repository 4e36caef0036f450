// Package roster knows which sandboxes a local driver has, and which it is
// making: what of the driver contract is the same for every driver that keeps a
// folder for each sandbox. How a sandbox is made and ended is the driver's.
package roster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Box is what the roster asks of a sandbox.
type Box interface {
	// Alive reports whether the sandbox can still be reached.
	Alive() bool
	// Detach lets go of the sandbox, which lives on.
	Detach()
}

// Roster is the list. Make it with New.
type Roster[B Box] struct {
	driver  string
	version int
	folder  string

	mu     sync.Mutex
	closed bool
	boxes  map[string]B
	making map[string]*Making
}

// Making is a Create under way.
type Making struct {
	finish func()
	cancel context.CancelCauseFunc
	once   sync.Once     // closes still
	still  chan struct{} // closed when nothing of it runs or will
	ended  chan struct{}
}

var (
	errClosed    = fault.New(fault.Conflict, "the driver was closed")
	errDestroyed = fault.New(fault.Conflict, "the sandbox was destroyed while it was made")
)

// New returns the roster of a driver that writes handles of a version, and
// keeps the folders of its sandboxes in a folder.
func New[B Box](driver string, version int, folder string) *Roster[B] {
	return &Roster[B]{
		driver: driver, version: version, folder: folder,
		boxes: map[string]B{}, making: map[string]*Making{},
	}
}

// Dir is the folder of a sandbox.
func (r *Roster[B]) Dir(id string) string { return filepath.Join(r.folder, id) }

// Begin reserves the id, and returns a ctx that an Interrupt of the id ends.
// The making must be finished.
func (r *Roster[B]) Begin(ctx context.Context, id string) (context.Context, *Making, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, errClosed
	}
	_, err := os.Lstat(r.Dir(id))
	if _, known := r.boxes[id]; known || r.making[id] != nil || err == nil {
		return nil, nil, fault.New(fault.Conflict, "sandbox %s exists", id)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("look for the sandbox: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	m := &Making{cancel: cancel, still: make(chan struct{}), ended: make(chan struct{})}
	m.finish = func() {
		r.mu.Lock()
		delete(r.making, id)
		r.mu.Unlock()
	}
	r.making[id] = m
	return ctx, m, nil
}

// Finish ends the making, whatever came of it.
func (m *Making) Finish() {
	m.cancel(nil)
	m.finish()
	m.Still()
	close(m.ended)
}

// Still says that the making has failed and nothing runs of the sandbox any more,
// nor will: who halts it need not wait until it is cleared away.
func (m *Making) Still() { m.once.Do(func() { close(m.still) }) }

// IsStill reports whether a making of the sandbox has failed and is not finished
// yet, while nothing of it runs any more.
func (r *Roster[B]) IsStill(id string) bool {
	r.mu.Lock()
	m := r.making[id]
	r.mu.Unlock()
	if m == nil {
		return false
	}
	select {
	case <-m.still:
		return true
	default:
		return false
	}
}

// Adopt makes the driver answerable for the box.
func (r *Roster[B]) Adopt(id string, b B) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		b.Detach()
		return errClosed
	}
	r.boxes[id] = b
	return nil
}

// Get returns the box with the id, if there is one.
func (r *Roster[B]) Get(id string) (b B, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok = r.boxes[id]
	return b, ok
}

// Live returns the box with the id if it can still be reached.
func (r *Roster[B]) Live(id string) (b B, ok bool, err error) {
	r.mu.Lock()
	b, ok = r.boxes[id]
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return b, false, errClosed
	}
	return b, ok && b.Alive(), nil
}

// Drop forgets the box with the id and returns it.
func (r *Roster[B]) Drop(id string) (b B, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok = r.boxes[id]
	delete(r.boxes, id)
	return b, ok
}

// Interrupt ends the making of the sandbox, if it is being made, and waits for
// that.
func (r *Roster[B]) Interrupt(ctx context.Context, id string) error {
	r.mu.Lock()
	m := r.making[id]
	r.mu.Unlock()
	if m == nil {
		return nil
	}
	m.cancel(errDestroyed)
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "wait for the sandbox's making to end: %w", context.Cause(ctx))
	}
}

// Boxes returns the boxes with these ids; nil is all of them.
func (r *Roster[B]) Boxes(ids []string) map[string]B {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ids == nil {
		return maps.Clone(r.boxes)
	}
	found := make(map[string]B, len(ids))
	for _, id := range ids {
		if b, ok := r.boxes[id]; ok {
			found[id] = b
		}
	}
	return found
}

// Halt ends the making of the sandboxes with these ids, nil is of all, without
// waiting for that. What it returns waits until each was made after all, or
// nothing of it runs any more.
func (r *Roster[B]) Halt(ids []string) (wait func(ctx context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var halted []*Making
	for id, m := range r.making {
		if ids == nil || slices.Contains(ids, id) {
			m.cancel(errDestroyed)
			halted = append(halted, m)
		}
	}
	return func(ctx context.Context) error {
		for _, m := range halted {
			select {
			case <-m.still:
			case <-ctx.Done():
				return fault.New(fault.Unavailable, "wait for the making of sandboxes to end: %w", context.Cause(ctx))
			}
		}
		return nil
	}
}

// Left returns the ids of the folders that have no box here; given ids, only
// those of them.
func (r *Roster[B]) Left(ids []string) ([]string, error) {
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []string
	for _, entry := range entries {
		id := entry.Name()
		_, here := r.boxes[id]
		if here || ids != nil && !slices.Contains(ids, id) || (sandbox.Spec{ID: id}).Validate() != nil {
			continue
		}
		left = append(left, id)
	}
	return left, nil
}

// Close ends every making and lets go of every box. It reports whether this was
// the first time.
func (r *Roster[B]) Close() (first bool) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	r.closed = true
	boxes := r.boxes
	r.boxes = map[string]B{}
	creates := make([]*Making, 0, len(r.making))
	for _, m := range r.making {
		creates = append(creates, m)
	}
	r.mu.Unlock()
	for _, m := range creates {
		m.cancel(errClosed)
		<-m.ended
	}
	for _, b := range boxes {
		b.Detach()
	}
	return true
}

// Owns refuses a handle that is not of this driver.
func (r *Roster[B]) Owns(h sandbox.Handle) error {
	switch {
	case h.Driver != r.driver:
		return fault.Field("driver", "the handle is of driver %q, this is %q", h.Driver, r.driver)
	case h.Version < 1 || h.Version > r.version:
		return fault.Field("version", "the handle has version %d, this driver knows up to %d", h.Version, r.version)
	}
	// The id becomes a path, and more: nothing but an id may.
	return sandbox.Spec{ID: h.ID}.Validate()
}

// Handles returns the handles of the sandboxes that have a folder, and of those
// that the caller knows of besides. read reads the handle in a folder.
func (r *Roster[B]) Handles(read func(dir string) (sandbox.Handle, error), more ...string) ([]sandbox.Handle, error) {
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	ids := map[string]bool{}
	for _, entry := range entries {
		ids[entry.Name()] = true
	}
	for _, id := range more {
		ids[id] = true
	}
	handles := make([]sandbox.Handle, 0, len(ids))
	for id := range ids {
		h := sandbox.Handle{Version: r.version, Driver: r.driver, ID: id}
		if found, err := read(r.Dir(id)); err == nil && found.ID == id {
			h = found
		}
		if r.Owns(h) == nil {
			handles = append(handles, h)
		}
	}
	return handles, nil
}
