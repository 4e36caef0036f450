package filesync

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Following says how changes are followed. Zero durations are the defaults.
type Following struct {
	// Quiet is for how long nothing must change before a pass, 300 ms.
	Quiet time.Duration
	// AtMost is how long a change waits for that at most, 1 s.
	AtMost time.Duration
	// Stored is woken when somebody outside changed the files of the session.
	Stored <-chan struct{}
	// Report is told of every pass; nil is nobody.
	Report func(Result, error)
}

const (
	maxChanged = 1000 // paths that are remembered between two passes
	maxPause   = 30 * time.Second
)

// Follow syncs now, and whenever the watch of the sandbox's tree tells of a
// change, until the watch or ctx ends: nil is that the watch did. A pass that
// fails is tried again after a growing pause. It does not close the watch.
func (s *Syncer) Follow(ctx context.Context, side Side, w sandbox.Watch, req Request, o Following) error {
	if err := req.check(); err != nil {
		return err
	}
	if o.Quiet <= 0 {
		o.Quiet = 300 * time.Millisecond
	}
	if o.AtMost <= 0 {
		o.AtMost = time.Second
	}
	ctx, cancel := context.WithCancelCause(ctx)
	changes := make(chan sandbox.Change) // the watch bounds what waits in it
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel(errors.New("nobody follows any more"))
	var end error
	reader.Go(func() {
		defer close(changes)
		for {
			c, err := w.Next(ctx)
			if err != nil {
				end = err
				return
			}
			select {
			case changes <- c:
			case <-ctx.Done():
				end = context.Cause(ctx)
				return
			}
		}
	})
	f := &follower{Syncer: s, side: side, req: req, o: o, pause: o.AtMost}
	if f.loop(ctx, changes) {
		return context.Cause(ctx)
	}
	if errors.Is(end, io.EOF) { // the channel was closed after it was set
		return nil
	}
	return end
}

// follower gathers changes between passes.
type follower struct {
	*Syncer
	side Side
	req  Request
	o    Following

	changed map[string]bool
	all     bool      // more changed than is remembered
	first   time.Time // when the first of them was told
	timer   *time.Timer
	pause   time.Duration // before a pass that failed is tried again
}

// loop reports whether ctx ended it, rather than the end of the changes.
func (f *follower) loop(ctx context.Context, changes <-chan sandbox.Change) bool {
	f.timer = time.NewTimer(0)
	defer f.timer.Stop()
	f.reset()
	f.first = time.Now()
	for {
		select {
		case c, ok := <-changes:
			if !ok {
				return ctx.Err() != nil
			}
			f.note(c)
			f.wait()
		case <-f.o.Stored:
			f.wait()
		case <-f.timer.C:
			f.do(ctx)
		case <-ctx.Done():
			return true
		}
	}
}

func (f *follower) reset() {
	f.changed, f.all, f.first = map[string]bool{}, false, time.Time{}
}

// note remembers which path changed, so that it is read whatever its time says.
func (f *follower) note(c sandbox.Change) {
	for _, at := range []string{c.Path, c.From} {
		name, ok := strings.CutPrefix(at, strings.TrimSuffix(f.req.Root, "/")+"/")
		if ok && len(f.changed) < maxChanged {
			f.changed[name] = true
		} else if ok {
			f.all = true
		}
	}
	if c.Kind == sandbox.ChangeOverflow {
		f.all = true
	}
}

// wait puts the next pass off until it is quiet, but not for too long.
func (f *follower) wait() {
	now := time.Now()
	if f.first.IsZero() {
		f.first = now
	}
	f.timer.Reset(max(0, min(f.o.Quiet, f.first.Add(f.o.AtMost).Sub(now))))
}

// do makes a pass.
func (f *follower) do(ctx context.Context) {
	req, changed := f.req, f.changed
	req.Thorough = req.Thorough || f.all
	all := f.all
	f.reset()
	result, err := f.sync(ctx, f.side, req, changed, nil)
	if f.o.Report != nil {
		f.o.Report(result, err)
	}
	if err == nil || ctx.Err() != nil {
		f.pause = f.o.AtMost
		return
	}
	f.log.Warn("sync files", "session", req.Session, "sandbox", req.Sandbox, "error", err)
	f.changed, f.all = changed, all
	f.timer.Reset(f.pause)
	f.pause = min(2*f.pause, maxPause)
}
