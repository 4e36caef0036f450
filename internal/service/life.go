package service

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Life is the time between the Start and the Stop of a part that has tasks of
// its own: they begin in it, learn of its end by their context, and are waited
// for. Its zero value has not begun; after its end it can begin again.
type Life struct {
	mu    sync.Mutex
	ctx   context.Context         //nolint:containedctx // of what outlives the calls that began it; ends with End
	end   context.CancelCauseFunc // nil outside of a life
	tasks sync.WaitGroup
}

// Begin begins it. It outlives ctx, whose values its tasks have.
func (l *Life) Begin(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
}

// Go begins a task. Outside of a life it begins none, and reports false.
func (l *Life) Go(task func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end == nil {
		return false
	}
	ctx := l.ctx
	l.tasks.Go(func() { task(ctx) })
	return true
}

// Detach returns a context for work that goes on when its caller hangs up, and
// ends with the life, which waits for it. done must be called. Outside of a life
// there is none, and ok is false.
func (l *Life) Detach(ctx context.Context) (work context.Context, done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end == nil {
		return nil, nil, false
	}
	l.tasks.Add(1)
	life := l.ctx
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return work, func() {
		unhook()
		cancel(nil)
		l.tasks.Done()
	}, true
}

// End ends it with a cause and waits for its tasks. Outside of a life there is
// nothing to end, and it reports false.
func (l *Life) End(cause error) bool {
	l.mu.Lock()
	end := l.end
	l.end = nil
	l.mu.Unlock()
	if end == nil {
		return false
	}
	end(cause)
	l.tasks.Wait()
	return true
}

// Every does something again and again until ctx ends, first when one interval
// has passed.
func Every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		do()
	}
}

// Supply fills in what a part of the manager was not given: the machine's clock,
// the lead, and a logger that says nothing.
func Supply(now *func() time.Time, leads *func() bool, logger **slog.Logger) {
	if *now == nil {
		*now = time.Now
	}
	if *leads == nil {
		*leads = func() bool { return true }
	}
	if *logger == nil {
		*logger = slog.New(slog.DiscardHandler)
	}
}
