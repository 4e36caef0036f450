package fake

import (
	"context"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxChanges is how many changes wait to be taken before some are missed.
const maxChanges = 4096

// watch is a sandbox.Watch on a tree.
type watch struct {
	tree      *tree
	dead      <-chan struct{}
	name, at  string // as it was asked for, and without links
	file      bool
	recursive bool
	ready     chan struct{} // has one when there may be something
	closed    chan struct{}
	once      sync.Once

	mu      sync.Mutex
	changes []sandbox.Change
}

// hear takes a change that concerns the watch, in the words of who watches.
func (w *watch) hear(c sandbox.Change) {
	to, in := w.inside(c.Path)
	from, before := w.inside(c.From)
	switch {
	case c.Kind != sandbox.ChangeRenamed:
	case before && !in:
		to, in, c.Kind = from, true, sandbox.ChangeDeleted
	case !before:
		c.Kind = sandbox.ChangeCreated
	}
	if !in {
		return
	}
	c.Path, c.From = to, ""
	if c.Kind == sandbox.ChangeRenamed {
		c.From = from
	}
	w.mu.Lock()
	if n := len(w.changes); n == maxChanges {
		w.changes[n-1] = sandbox.Change{Kind: sandbox.ChangeOverflow, Path: w.name}
	} else {
		w.changes = append(w.changes, c)
	}
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// inside reports whether a path is watched, and what it is called there.
func (w *watch) inside(p string) (string, bool) {
	if p == "" {
		return "", false
	}
	if p == w.at {
		return w.name, true
	}
	rel, below := strings.CutPrefix(p, strings.TrimSuffix(w.at, "/")+"/")
	if w.file || !below || !w.recursive && strings.Contains(rel, "/") {
		return "", false
	}
	return path.Join(w.name, rel), true
}

// Next implements sandbox.Watch.
func (w *watch) Next(ctx context.Context) (sandbox.Change, error) {
	for {
		select {
		case <-w.closed:
			return sandbox.Change{}, io.EOF
		default:
		}
		w.mu.Lock()
		if len(w.changes) > 0 {
			c := w.changes[0]
			w.changes = w.changes[1:]
			w.mu.Unlock()
			return c, nil
		}
		w.mu.Unlock()
		select {
		case <-w.ready:
		case <-w.closed:
			return sandbox.Change{}, io.EOF
		case <-w.dead:
			return sandbox.Change{}, io.EOF
		case <-ctx.Done():
			return sandbox.Change{}, context.Cause(ctx)
		}
	}
}

// Close implements sandbox.Watch.
func (w *watch) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.tree.unwatch(w)
	})
	return nil
}
