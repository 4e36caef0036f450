package runner

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// How managers that share a database know of each other. A manager that was not
// heard of for so long has lost its runs.
const (
	aliveFor  = 15 * time.Second
	takePage  = 200
	deadAfter = time.Minute // of a worker at another manager
)

// takeUp takes the runs that an earlier life of this manager had; all that are
// open, where no other manager could have them.
func (r *Runner) takeUp(ctx context.Context) error {
	if !r.alone() {
		if err := r.attend(ctx, r.Now().Add(aliveFor)); err != nil {
			return err
		}
	}
	for after := ""; ; {
		var page []run.Run
		err := r.Store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.Runs().Open(ctx, after, takePage)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].ID
		for i := range page {
			if !r.alone() && page[i].Manager != r.ID {
				continue
			}
			if err := r.claim(ctx, &page[i]); err != nil {
				return err
			}
		}
	}
}

// claim makes a run ours, unless it changed since it was looked at, and sees to
// what it needs.
func (r *Runner) claim(ctx context.Context, seen *run.Run) error {
	var x run.Run
	var order run.Order
	err := r.Store.Update(ctx, func(tx store.Tx) (err error) {
		if x, err = r.own(ctx, tx, seen.ID, seen.Fence); err != nil {
			return err
		}
		x.Manager = r.ID
		x.Fence++
		if x.Sync {
			return r.abandon(ctx, tx, &x)
		}
		if order, err = tx.Runs().Order(ctx, x.ID); err != nil {
			return err
		}
		return tx.Runs().Put(ctx, &x, nil)
	})
	switch {
	case fault.Is(err, fault.Conflict), fault.Is(err, fault.NotFound):
		return nil
	case err != nil:
		return err
	case x.Sync:
		r.tellEnd(&x, 0)
		return nil
	}
	t := r.queued(&x, order.Driver) //nolint:contextcheck // a run goes on in the runner's life
	e := &entry{ticket: t, fence: x.Fence, done: make(chan struct{})}
	if x.State == run.Running {
		t.worker, e.back = x.Worker, r.Now().Add(r.Back)
	}
	r.mu.Lock()
	r.entries[x.ID] = e
	r.line.enter(t)
	r.mu.Unlock()
	return nil
}

// abandon ends a run whose caller has gone with the manager that it asked.
func (r *Runner) abandon(ctx context.Context, tx store.Tx, x *run.Run) error {
	if err := x.To(run.Failed); err != nil {
		return err
	}
	x.Reason, x.EndedAt = "the manager was restarted, and whoever waited has gone with it", r.Now()
	return putEnd(ctx, tx, x, nil)
}

// share says that this manager is alive, and takes runs that nobody has.
func (r *Runner) share(ctx context.Context) {
	if err := r.attend(ctx, r.Now().Add(aliveFor)); err != nil {
		r.Logger.Warn("could not say that this manager has its runs", "error", err)
		return
	}
	if len(r.Workers()) == 0 {
		r.handOver(ctx)
		return
	}
	if err := r.Adopt(ctx); err != nil && ctx.Err() == nil {
		r.Logger.Warn("could not look for runs that nobody has", "error", err)
	}
}

// attend writes until when this manager is alive.
func (r *Runner) attend(ctx context.Context, until time.Time) error {
	return r.Store.Update(ctx, func(tx store.Tx) error { return tx.Runs().Attend(ctx, r.ID, until) })
}

// depart lets others have our runs at once.
func (r *Runner) depart() {
	if r.alone() {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), cleanupTime, errStopped)
	defer cancel()
	if err := r.attend(ctx, time.Time{}); err != nil {
		r.Logger.Warn("could not leave the runs to the other managers; they take them by themselves soon", "error", err)
	}
}

// Adopt takes runs that nobody has and that a worker here can do. One that runs
// is taken by the manager that has its worker; where nobody has, by anybody.
func (r *Runner) Adopt(ctx context.Context) error {
	if r.alone() || len(r.Workers()) == 0 {
		return nil
	}
	var page []run.Run
	var mine []run.Run
	err := r.Store.View(ctx, func(tx store.Tx) (err error) {
		mine = nil
		if page, err = tx.Runs().Orphans(ctx, r.Now(), "", takePage); err != nil {
			return err
		}
		for i := range page {
			take, err := r.canDo(ctx, tx, &page[i])
			if err != nil {
				return err
			}
			if take {
				mine = append(mine, page[i])
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range mine {
		if err := r.claim(ctx, &mine[i]); err != nil {
			return err
		}
	}
	if len(mine) > 0 {
		r.pump()
	}
	return nil
}

// canDo reports whether a run that nobody has is ours to take.
func (r *Runner) canDo(ctx context.Context, tx store.Tx, x *run.Run) (bool, error) {
	if x.State != run.Running || x.Sync {
		return true, nil
	}
	for _, w := range r.Workers() {
		if w.ID == x.Worker {
			return true, nil
		}
	}
	w, err := tx.Workers().Get(ctx, x.Worker)
	if fault.Is(err, fault.NotFound) {
		return true, nil
	}
	return !w.Connected || r.Now().Sub(w.SeenAt) > deadAfter, err
}

// handOver lets others have the runs that wait here for a worker, since none is
// here any more.
func (r *Runner) handOver(ctx context.Context) {
	var idle []*entry
	r.mu.Lock()
	for _, e := range r.entries {
		if !e.sync && r.line.leave(e.ticket) {
			idle = append(idle, e)
		}
	}
	r.mu.Unlock()
	for _, e := range idle {
		err := r.insist(ctx, "leave a run to another manager", e.ticket.id, func() error {
			return r.Store.Update(ctx, func(tx store.Tx) error {
				x, err := r.own(ctx, tx, e.ticket.id, e.fence)
				if err != nil {
					return err
				}
				x.Manager = ""
				x.Fence++
				return tx.Runs().Put(ctx, &x, nil)
			})
		})
		if err == nil || ctx.Err() == nil {
			r.drop(e.ticket.id, e)
		}
	}
}
