// Package service is the small contract of everything that lives long: a
// server, a scheduler, a worker's loop, a child process. Whoever starts one
// stops it, and knows when it ended.
//
// It knows nothing of what the parts do; app puts them into a Group.
package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Service is a part that lives long.
//
// Start returns when the part serves, or with the reason why it cannot; ctx
// bounds the start and nothing after it. It is called once. After an error
// nothing is left running, and Stop need not be called.
//
// Stop asks the part to end and returns when it has ended. It may be called at
// any time, from several goroutines, and again; without a Start before it, it
// returns at once, and the part cannot be started any more. When ctx ends
// first, the part gives up what it still does, and Stop returns soon after
// with an error.
//
// Done is closed when the part has ended, by Stop or by itself. Err says why
// it ended by itself; it is nil while it runs and after a Stop.
type Service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
}

// ErrStopped is the cause with which a part's context ends when it is asked to
// stop, and what Start returns after a Stop.
var ErrStopped = errors.New("service is stopped")

// errEnded is what a part that must run until it is stopped has failed with
// when it returns without an error.
var errEnded = errors.New("ended by itself")

// Func is a service made of a function that runs until its context ends.
type Func struct {
	run func(ctx context.Context, ready func()) error

	mu      sync.Mutex
	started bool
	stopped bool
	cancel  context.CancelCauseFunc
	err     error

	ended chan struct{}
}

var _ Service = (*Func)(nil)

// NewFunc returns the service. run calls ready once it serves, at most once,
// and returns soon after its context ended.
func NewFunc(run func(ctx context.Context, ready func()) error) *Func {
	return &Func{run: run, ended: make(chan struct{})}
}

// Start begins the function and waits until it is ready.
func (f *Func) Start(ctx context.Context) error {
	f.mu.Lock()
	if f.started || f.stopped {
		f.mu.Unlock()
		return ErrStopped
	}
	f.started = true
	// The run's own context: it must outlive Start's, and only Stop ends it.
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f.cancel = cancel
	f.mu.Unlock()

	ready := make(chan struct{})
	go f.live(run, sync.OnceFunc(func() { close(ready) }))
	select {
	case <-ready:
		return nil
	case <-f.ended:
		if err := f.Err(); err != nil {
			return err
		}
		return ErrStopped
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		<-f.ended
		return fmt.Errorf("start: %w", context.Cause(ctx))
	}
}

func (f *Func) live(ctx context.Context, ready func()) {
	defer close(f.ended)
	err := f.run(ctx, ready)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.err = err
		if err == nil {
			f.err = errEnded
		}
	}
	f.cancel(ErrStopped)
}

// Stop ends the function's context and waits for it.
func (f *Func) Stop(ctx context.Context) error {
	f.mu.Lock()
	first := !f.stopped
	f.stopped = true
	if !f.started {
		if first {
			close(f.ended)
		}
		f.mu.Unlock()
		return nil
	}
	f.cancel(ErrStopped)
	f.mu.Unlock()
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop: %w", context.Cause(ctx))
	}
}

// Done is closed when the function has returned.
func (f *Func) Done() <-chan struct{} { return f.ended }

// Err says why the function returned by itself.
func (f *Func) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
