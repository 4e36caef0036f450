package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func stringReader(text string) io.Reader { return strings.NewReader(text) }

// told is a watch that a test tells of changes.
type told chan sandbox.Change

func (w told) Next(ctx context.Context) (sandbox.Change, error) {
	select {
	case c, ok := <-w:
		if !ok {
			return c, io.EOF
		}
		return c, nil
	case <-ctx.Done():
		return sandbox.Change{}, context.Cause(ctx)
	}
}

func (told) Close() error { return nil }

// flaky fails to be listed a few times.
type flaky struct {
	*box
	fails int
}

func (f *flaky) List(ctx context.Context, p string, depth, most int) ([]sandbox.FileInfo, bool, error) {
	if f.fails > 0 {
		f.fails--
		return nil, false, fault.New(fault.Unavailable, "not now")
	}
	return f.box.List(ctx, p, depth, most)
}

func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := &flaky{box: newBox(w.clock), fails: 2}
	b.put("a", "1")
	changes, stored := make(told), make(chan struct{})
	passes, ended := make(chan Result), make(chan error, 1)
	go func() {
		ended <- w.Follow(t.Context(), b, changes, request(), Following{
			Quiet: time.Millisecond, AtMost: 5 * time.Millisecond, Stored: stored,
			Report: func(r Result, err error) {
				if err == nil {
					passes <- r
				}
			},
		})
	}()
	until := func(what string, seen func(Result) bool) {
		t.Helper()
		for r := range passes {
			if seen(r) {
				return
			}
		}
	}
	until("the first pass, after two that failed", func(r Result) bool { return slices.Contains(r.Uploaded, "a") })
	b.put("b", "2")
	changes <- sandbox.Change{Kind: sandbox.ChangeCreated, Path: root + "/b"}
	until("a file that came", func(r Result) bool { return slices.Contains(r.Uploaded, "b") })
	w.store1("s", "c", "3")
	stored <- struct{}{}
	until("a file from outside", func(r Result) bool { return slices.Contains(r.Downloaded, "c") })

	// More changes than are remembered, while passes go on.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3 * maxChanged {
			changes <- sandbox.Change{Kind: sandbox.ChangeModified, Path: fmt.Sprint(root, "/x", i)}
		}
		b.put("d", "4")
		changes <- sandbox.Change{Kind: sandbox.ChangeOverflow}
	}()
	until("what came behind an overflow", func(r Result) bool { return slices.Contains(r.Uploaded, "d") })
	<-done
	go func() {
		for range passes { // one may be under way
		}
	}()
	close(changes)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(passes)
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	err := w.Follow(ctx, newBox(w.clock), make(told), request(), Following{Report: func(Result, error) { cancel(stop) }})
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}
