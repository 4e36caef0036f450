package watchman

import (
	"context"
	"errors"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// sigterm is what asks work to stop.
const sigterm = 15

// act does the next step of a firing. It may be called again at any time, by
// another manager too: each step looks at how things stand.
func (w *Watchman) act(ctx context.Context, id string) error {
	ctx = policy.With(ctx, policy.System())
	f, x, box, err := w.stands(ctx, id)
	if err != nil || !f.Open() || !w.Sandboxes.Tends(ctx, &box) {
		return err
	}
	if x.State == manifest.Ended || x.State == "" {
		if f.Did(x.Reason) {
			return w.finish(ctx, f.ID, trigger.Killed, "")
		}
		return w.finish(ctx, f.ID, trigger.AlreadyDead, "it had ended: "+x.Reason)
	}
	if x.State == manifest.Ending && !f.Did(x.Reason) {
		return w.finish(ctx, f.ID, trigger.AlreadyDead, "it was being ended: "+x.Reason)
	}
	if f.By == policy.System().ID && w.Sandboxes.Halted(&box) {
		return w.putOff(ctx, &f)
	}
	if over, err := w.askFirst(ctx, &f); err != nil || over {
		return err
	}
	switch f.Plan.Strategy {
	case trigger.Quarantine:
		return w.quarantine(ctx, &f)
	case trigger.Suspend:
		return w.suspend(ctx, &f)
	case trigger.Graceful:
		return w.askToStop(ctx, &f, &x)
	case trigger.Forceful:
	}
	return w.kill(ctx, &f, "")
}

// putOff leaves a worker alone that a kill switch has stopped: what is frozen is
// there to be looked at, and its work cannot stop by itself meanwhile.
func (w *Watchman) putOff(ctx context.Context, f *trigger.Firing) error {
	now := w.now()
	if f.AskedAt.IsZero() || f.Deadline.Sub(now) > f.Plan.Timeout/2 {
		return nil
	}
	return w.change(ctx, f.ID, func(f *trigger.Firing) { f.Deadline = now.Add(f.Plan.Timeout) })
}

// stands reads how a firing, its worker and its sandbox stand. A worker that was
// forgotten has no state.
func (w *Watchman) stands(ctx context.Context, id string) (f trigger.Firing, x manifest.Worker, box live.Sandbox, err error) {
	err = w.Store.View(ctx, func(tx store.Tx) (err error) {
		if f, err = tx.Firings().Get(ctx, id); err != nil {
			return err
		}
		x, err = tx.Fleet().Get(ctx, f.Worker)
		if err == nil && x.Sandbox != "" {
			box, err = tx.Sandboxes().Get(ctx, x.Sandbox)
		}
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		return err
	})
	return f, x, box, err
}

// kill ends a worker. What could not be ended is tried again with the next look,
// for a while.
func (w *Watchman) kill(ctx context.Context, f *trigger.Firing, why string) error {
	if err := w.preserve(ctx, f); err != nil {
		return err
	}
	if why != "" && !f.Escalated {
		if err := w.change(ctx, f.ID, func(f *trigger.Firing) { f.Escalated, f.Detail = true, trigger.Clip(why) }); err != nil {
			return err
		}
	}
	x, killed, err := w.Fleet.Kill(ctx, f.Worker, f.Because())
	switch {
	case err != nil && w.now().Sub(f.At) < patience+f.Plan.Timeout:
		return err
	case err != nil:
		return w.finish(ctx, f.ID, trigger.Failed, "it could not be ended: "+err.Error())
	case !killed && !f.Did(x.Reason):
		return w.finish(ctx, f.ID, trigger.AlreadyDead, "")
	case x.State != manifest.Ended && killed:
		return nil // somebody is at it, and the next look sees its end
	}
	return w.finish(ctx, f.ID, trigger.Killed, "")
}

// preserve puts aside what there is of a worker, once. That it cannot be done
// keeps nobody alive.
func (w *Watchman) preserve(ctx context.Context, f *trigger.Firing) error {
	if !f.Plan.Preserve || f.Preserved {
		return nil
	}
	if _, err := w.Fleet.Preserve(ctx, f.Worker); err != nil {
		w.Logger.Error("could not put aside what there is of a worker; it is ended all the same", "worker_id", f.Worker, "firing", f.ID, "error", err)
	}
	f.Preserved = true
	return w.change(ctx, f.ID, func(f *trigger.Firing) { f.Preserved = true })
}

// askToStop asks the work of a worker to stop, and ends the worker when it has,
// or when its time for that is over.
func (w *Watchman) askToStop(ctx context.Context, f *trigger.Firing, x *manifest.Worker) error {
	var running []live.Exec
	err := w.Store.View(ctx, func(tx store.Tx) (err error) {
		running, err = tx.Execs().Open(ctx, x.Sandbox)
		return err
	})
	switch {
	case err != nil:
		return err
	case len(running) == 0 || x.State == manifest.Ending:
		return w.kill(ctx, f, "")
	case f.AskedAt.IsZero():
		return w.ask(ctx, f, running)
	case w.now().Before(f.Deadline):
		return nil
	case f.Plan.Escalate:
		return w.kill(ctx, f, "its work did not stop in time")
	}
	return w.finish(ctx, f.ID, trigger.Failed, "its work did not stop in time, and the trigger does not escalate")
}

// ask sends SIGTERM to all that runs. Its time begins before that: what is not
// reached has no more of it.
func (w *Watchman) ask(ctx context.Context, f *trigger.Firing, running []live.Exec) error {
	if err := w.preserve(ctx, f); err != nil {
		return err
	}
	now := w.now()
	first := false
	err := w.change(ctx, f.ID, func(f *trigger.Firing) {
		if first = f.AskedAt.IsZero(); first {
			f.AskedAt, f.Deadline = now, now.Add(f.Plan.Timeout)
		}
	})
	if err != nil || !first { // another manager was sooner
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, signalTime)
	defer cancel()
	var failed error
	for i := range running {
		if err := w.Sandboxes.SignalExec(bounded, running[i].ID, sigterm, true); err != nil && fault.CodeOf(err) != "exec_ended" {
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		w.Logger.Warn("could not ask all work of a worker to stop", "worker_id", f.Worker, "firing", f.ID, "error", failed)
	}
	return nil
}

func (w *Watchman) quarantine(ctx context.Context, f *trigger.Firing) error {
	x, err := w.Fleet.Quarantine(ctx, f.Worker, governor.Suspicion{Reason: f.Because(), Source: "trigger " + f.Trigger, Severity: f.Severity, Note: f.Label})
	if fault.CodeOf(err) == "already_quarantined" {
		if x, err = w.Fleet.Worker(ctx, f.Worker); err == nil && !x.Still() {
			err = errNotStill
		}
	}
	return w.held(ctx, f, trigger.Quarantined, err)
}

var errNotStill = fault.New(fault.Unavailable, "it is under quarantine, and its work goes on")

func (w *Watchman) suspend(ctx context.Context, f *trigger.Firing) error {
	_, err := w.Fleet.Suspend(ctx, f.Worker, f.Because())
	return w.held(ctx, f, trigger.Suspended, err)
}

// held ends a firing that was to bring a worker to a stand. One that goes on is
// ended where the trigger escalates.
func (w *Watchman) held(ctx context.Context, f *trigger.Firing, done trigger.Outcome, err error) error {
	switch {
	case err == nil:
		return w.finish(ctx, f.ID, done, "")
	case fault.CodeOf(err) == "wrong_state": // it ended meanwhile, or is not there yet
		if x, look := w.Fleet.Worker(ctx, f.Worker); look != nil || x.State == manifest.Running || x.State == manifest.Launching {
			return err
		}
		return w.finish(ctx, f.ID, trigger.AlreadyDead, err.Error())
	case f.Plan.Escalate:
		return w.kill(ctx, f, err.Error())
	}
	return w.finish(ctx, f.ID, trigger.Failed, err.Error())
}

// change changes a firing that is under way.
func (w *Watchman) change(ctx context.Context, id string, change func(f *trigger.Firing)) error {
	return w.Store.Update(ctx, func(tx store.Tx) error {
		f, err := tx.Firings().Get(ctx, id)
		if err != nil || !f.Open() {
			return err
		}
		change(&f)
		return tx.Firings().Put(ctx, &f)
	})
}

// finish writes down what came of a firing. One that failed lets its breach fire
// again after the cooldown.
func (w *Watchman) finish(ctx context.Context, id string, outcome trigger.Outcome, detail string) error {
	var f trigger.Firing
	done := false
	err := w.Store.Update(ctx, func(tx store.Tx) (err error) {
		done = false
		if f, err = tx.Firings().Get(ctx, id); err != nil || !f.Open() {
			return err
		}
		done = true
		f.Outcome, f.EndedAt = outcome, w.now()
		if detail != "" {
			f.Detail = trigger.Clip(detail)
		}
		if err := tx.Firings().Put(ctx, &f); err != nil {
			return err
		}
		if outcome == trigger.Failed {
			if err := w.renew(ctx, tx, &f); err != nil {
				return err
			}
		}
		if err := w.tell(ctx, tx, &f); err != nil {
			return err
		}
		return w.note(ctx, tx, &f, "trigger_"+string(outcome), f.EndedAt)
	})
	if err == nil && done {
		w.told(ctx, &f)
	}
	return err
}

func (w *Watchman) renew(ctx context.Context, tx store.Tx, f *trigger.Firing) error {
	list, err := tx.Triggers().Breaches(ctx, f.Worker)
	for i := range list {
		if b := &list[i]; err == nil && b.Trigger == f.Trigger {
			b.Renew(f.EndedAt)
			err = tx.Triggers().PutBreach(ctx, b)
		}
	}
	return err
}
