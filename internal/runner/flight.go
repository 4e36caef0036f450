package runner

import (
	"context"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// launch does a run that was queued, at a worker that has room for it.
func (r *Runner) launch(t *ticket, p seat) {
	r.mu.Lock()
	e, life := r.entries[t.id], r.life
	if r.stop == nil || e == nil || e.ticket != t {
		p.at.busy--
		r.mu.Unlock()
		return
	}
	r.tasks.Add(1)
	r.mu.Unlock()
	go func() {
		defer r.tasks.Done()
		r.fly(life, e, p)
	}()
}

// fly does one try of a run and sees to what follows from it.
func (r *Runner) fly(life context.Context, e *entry, p seat) {
	x, order, err := r.setOut(life, e, p)
	if err != nil {
		r.release(p, 0)
		r.gone(life, e)
		return
	}
	out := &output{most: order.OutputCap, attempt: x.Attempt}
	flight, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	bounded, over := context.WithTimeoutCause(flight, order.Timeout+slack, errOverdue)
	defer over()
	r.begun(e, out, cancel)
	if x.Reason != "" { // somebody wanted it stopped before this manager had it
		cancel(errCancelled)
	}
	at := r.Now()
	res, err := p.Runner.Run(bounded, order, func(c chunk) error { return r.take(life, &x, out, c) })
	took := r.Now().Sub(at)
	switch {
	case err == nil:
		r.release(p, took)
		res.Inputs = order.Inputs()
		r.settleEnd(life, e, &x, run.Completed, "", &res, out)
		r.forget(life, p, x.ID)
	case errors.Is(context.Cause(flight), errCancelled):
		r.forget(life, p, x.ID)
		r.release(p, 0)
		part := partial(out)
		if part != nil {
			part.Inputs = order.Inputs()
		}
		r.settleEnd(life, e, &x, run.Cancelled, r.why(life, x.ID), part, out)
	case life.Err() != nil: // the worker goes on, and is asked again by whoever comes next
		r.release(p, 0)
	case fault.Is(err, fault.Exhausted):
		r.full(p)
		r.back(life, e, false)
	case final(err):
		r.release(p, 0)
		r.settleEnd(life, e, &x, run.Failed, reasonOf(about(err, p.ID)), nil, out)
	default:
		r.release(p, 0)
		r.lost(life, e, &x, err)
	}
}

// setOut writes down that a run begins at a worker, or goes on at it, and
// returns it with its order.
func (r *Runner) setOut(ctx context.Context, e *entry, p seat) (x run.Run, order run.Order, err error) {
	id, goesOn := e.ticket.id, e.ticket.worker != ""
	begin := func(tx store.Tx) (err error) {
		if x, err = r.own(ctx, tx, id, e.fence); err != nil {
			return err
		}
		if order, err = tx.Runs().Order(ctx, id); err != nil || goesOn {
			return err
		}
		if err := x.To(run.Running); err != nil {
			return err
		}
		x.Worker, x.StartedAt = p.ID, r.Now()
		x.Attempt++
		if err := tx.Runs().Put(ctx, &x, nil); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&x, event.RunStarted, x.StartedAt, map[string]any{"worker": p.ID, "attempt": x.Attempt}))
	}
	err = r.insist(ctx, "begin a run", id, func() error {
		if goesOn {
			return r.Store.View(ctx, begin)
		}
		return r.Store.Update(ctx, begin)
	})
	return x, order, err
}

// insist does what must be done until it is, or ctx ends: the database may be
// away for a while. A run that is another's by now, or is gone, ends it too.
func (r *Runner) insist(ctx context.Context, what, id string, do func() error) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := do()
		if err == nil || fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) || ctx.Err() != nil {
			return err
		}
		r.Logger.Error("could not "+what+"; trying again", "run", id, "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// gone lets go of a run that is no longer ours. When we are stopping it still
// is, and waits for our next life.
func (r *Runner) gone(ctx context.Context, e *entry) {
	if ctx.Err() == nil {
		r.drop(e.ticket.id, e)
	}
}

// again gives a run another turn, at one worker or at any.
func (r *Runner) again(e *entry, worker string, urgent bool) {
	r.mu.Lock()
	e.out, e.cancel = nil, nil
	if r.stop != nil {
		e.ticket.worker, e.ticket.urgent = worker, urgent
		r.line.enter(e.ticket)
	}
	r.mu.Unlock()
	r.pump()
}

// settleEnd writes the end down, as often as it takes: an end that is known is
// never lost. When the run is another's by now, its end is that one's to write;
// when we are stopping, the worker keeps it for our next life.
func (r *Runner) settleEnd(life context.Context, e *entry, x *run.Run, state run.State, reason string, res *run.Result, out *output) {
	kept, was := settle(res, out), *x
	err := r.insist(life, "write the end of a run down", x.ID, func() error {
		*x = was
		x.Reason = reason
		_, err := r.finish(life, x, state, res, kept, x.StartedAt.Sub(x.CreatedAt))
		return err
	})
	if err == nil {
		r.drop(x.ID, e)
		return
	}
	r.gone(life, e)
}

// forget tells a worker that it need not keep a run.
func (r *Runner) forget(ctx context.Context, p seat, id string) {
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errOverdue)
	defer cancel()
	if err := p.Runner.Forget(bounded, id); err != nil {
		r.Logger.Warn("could not tell a worker to forget a run; it forgets it by itself after a while", "run", id, "worker", p.ID, "error", err)
	}
}

// lost waits for the worker of a run to come back to it.
func (r *Runner) lost(ctx context.Context, e *entry, x *run.Run, err error) {
	r.mu.Lock()
	e.losses++
	patient := e.losses < run.MaxTries
	e.back = r.Now().Add(r.Back)
	r.mu.Unlock()
	r.Logger.Warn("a run was lost sight of", "run", x.ID, "worker", x.Worker, "attempt", x.Attempt, "error", err)
	if !patient {
		r.back(ctx, e, true)
		return
	}
	r.tasks.Go(func() { // not at once: a stream that broke is about to be replaced
		select {
		case <-ctx.Done():
		case <-time.After(rhythm / 4):
			r.again(e, x.Worker, true)
		}
	})
}

// giveUpLost gives runs whose worker did not come back to others.
func (r *Runner) giveUpLost(ctx context.Context) {
	now := r.Now()
	var late []*entry
	r.mu.Lock()
	for _, e := range r.entries {
		if !e.back.IsZero() && now.After(e.back) && e.ticket.worker != "" && r.line.leave(e.ticket) {
			e.back = time.Time{}
			late = append(late, e)
		}
	}
	r.mu.Unlock()
	for _, e := range late {
		r.tasks.Go(func() { r.back(ctx, e, true) })
	}
}

// back puts a run back into the queue: its worker had no room, or was lost. One
// that was begun too often ends there.
func (r *Runner) back(ctx context.Context, e *entry, lost bool) {
	var x run.Run
	over := false
	err := r.insist(ctx, "give a run back to the queue", e.ticket.id, func() error {
		return r.Store.Update(ctx, func(tx store.Tx) (err error) {
			if x, err = r.own(ctx, tx, e.ticket.id, e.fence); err != nil {
				return err
			}
			if over = lost && (x.Reason != "" || x.Attempt >= run.MaxTries); over {
				return nil
			}
			return r.putBack(ctx, tx, x, lost)
		})
	})
	switch {
	case err != nil:
		r.gone(ctx, e)
		return
	case over && x.Reason != "":
		r.settleEnd(ctx, e, &x, run.Cancelled, x.Reason, nil, &output{})
		return
	case over:
		r.settleEnd(ctx, e, &x, run.Failed, "the worker was lost, and so were those that tried before", nil, &output{})
		return
	}
	r.mu.Lock()
	e.losses, e.back = 0, time.Time{}
	r.mu.Unlock()
	r.again(e, "", true)
}

// putBack stores a run as queued again. A worker that had no room leaves no
// trace: it never began.
func (r *Runner) putBack(ctx context.Context, tx store.Tx, x run.Run, lost bool) error {
	if err := x.To(run.Queued); err != nil {
		return err
	}
	worker := x.Worker
	x.Worker, x.StartedAt = "", time.Time{}
	if !lost {
		x.Attempt--
		return tx.Runs().Put(ctx, &x, nil)
	}
	if err := tx.Runs().Put(ctx, &x, nil); err != nil {
		return err
	}
	return tx.Events().Append(ctx, happened(&x, event.RunRequeued, r.Now(), map[string]any{"worker": worker, "attempt": x.Attempt}))
}

// why is the reason that somebody gave for a cancel.
func (r *Runner) why(ctx context.Context, id string) string {
	var x run.Run
	err := r.Store.View(context.WithoutCancel(ctx), func(tx store.Tx) (err error) {
		x, err = tx.Runs().Get(ctx, id)
		return err
	})
	if err != nil || x.Reason == "" {
		return "cancelled on request"
	}
	return x.Reason
}
