package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Allowance is a time that does not pass while a Brake freezes the one whose it
// is.
type Allowance struct {
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when nothing watches it any more

	mu    sync.Mutex
	left  time.Duration
	stood time.Duration
	since time.Time // of the last change
	still bool
}

// Allow gives a subject a time. The context ends with cause when that is over.
// stood, where it is not nil, is told after each standstill how long they were
// together; the caller ends the allowance with Stop.
func (b *Brake) Allow(ctx context.Context, x Subject, d time.Duration, cause error, stood func(time.Duration)) (context.Context, *Allowance) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, changed := b.watch(x)
	a := &Allowance{cancel: cancel, ended: make(chan struct{}), left: max(d, 1), since: time.Now(), still: stop.Freeze}
	go func() {
		defer close(a.ended)
		for {
			c := newClock(a.Left(), stop.Freeze)
			select {
			case <-changed:
				c.stop()
			case <-c.expired:
				cancel(cause)
				return
			case <-ctx.Done():
				c.stop()
				return
			}
			was := stop.Freeze
			stop, changed = b.watch(x)
			if all := a.turn(stop.Freeze); was && stood != nil {
				stood(all)
			}
		}
	}()
	return ctx, a
}

// watch is what holds for a subject now, and what tells of a change.
func (b *Brake) watch(x Subject) (Stop, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rule.of(x), b.changed
}

// turn notes whether it stands still from now on, and returns for how long it
// has so far.
func (a *Allowance) turn(still bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.still {
		a.stood += now.Sub(a.since)
	} else {
		a.left = max(a.left-now.Sub(a.since), 1)
	}
	a.since, a.still = now, still
	return a.stood
}

// Left is how much of the time is left.
func (a *Allowance) Left() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.still {
		return a.left
	}
	return max(a.left-time.Since(a.since), 1)
}

// Stop ends the context, and returns when nothing watches the time any more.
func (a *Allowance) Stop() {
	a.cancel(nil)
	<-a.ended
}

// AwaitResume waits until the sandbox does not stand still, or has ended: then
// whatever is asked of it says so.
func (s *Sandbox) AwaitResume(ctx context.Context) error {
	for {
		paused, changed := s.pausedNow()
		if !paused {
			return nil
		}
		select {
		case <-changed:
		case <-s.over:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait until the sandbox goes on: %w", context.Cause(ctx))
		}
	}
}
