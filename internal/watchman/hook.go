package watchman

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// demandHooks refuses a trigger whose hooks no call may go to.
func (w *Watchman) demandHooks(t *trigger.Trigger) error {
	for field, address := range t.Plan.Hooks.Each() {
		if address == "" {
			continue
		}
		if err := w.Hooks.Check(field, address); err != nil {
			return err
		}
	}
	return nil
}

// waits reports whether the hook is still to be asked that goes before all.
func waits(f *trigger.Firing) bool { return f.Plan.Hooks.PreKill != "" && f.PreKill == "" }

// askFirst asks the hook that goes before all, once, whether something is to be
// done at all; over says that it is not. Only a plain answer in time does so: who
// is away, or slow, or answers nonsense keeps nobody alive. Its time counts from
// the firing, so that many of them together put nothing off for longer.
func (w *Watchman) askFirst(ctx context.Context, f *trigger.Firing) (over bool, err error) {
	const aborted = "the pre_kill hook aborted it"
	if f.PreKill == trigger.Aborted { // whoever asked did not come to write its end down
		return true, w.finish(ctx, f.ID, trigger.Failed, aborted)
	}
	if !waits(f) {
		return false, nil
	}
	answer, why := trigger.Unanswered, "there was no time left for it"
	if left := f.At.Add(f.Plan.Hooks.Timeout).Sub(w.now()); left > 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, min(left, f.Plan.Hooks.Timeout), errSlowHook)
		defer cancel()
		reply, err := w.Hooks.Post(bounded, w.client, webhook.Call{
			URL: f.Plan.Hooks.PreKill, Event: trigger.EventPreKill, Delivery: f.ID, Body: f.Tell(trigger.EventPreKill),
		}, w.now())
		if ctx.Err() != nil {
			return false, context.Cause(ctx) // the manager stops, and the next asks again
		}
		if answer, why = trigger.ReadAnswer(reply); err != nil {
			answer, why = trigger.Unanswered, err.Error()
		}
	}
	if answer == trigger.Unanswered {
		w.Logger.Warn("the pre_kill hook of a trigger did not answer; what it says is done", "firing", f.ID, "worker_id", f.Worker, "error", why)
	}
	err = w.change(ctx, f.ID, func(f *trigger.Firing) {
		if f.PreKill != "" { // another manager has asked too, and its answer counts
			answer, why = f.PreKill, ""
		}
		f.PreKill = answer
	})
	if err != nil {
		return false, err
	}
	f.PreKill = answer
	if answer != trigger.Aborted {
		return false, nil
	}
	detail := aborted
	if why != "" {
		detail += ": " + why
	}
	return true, w.finish(ctx, f.ID, trigger.Failed, detail)
}

var errSlowHook = errors.New("it did not answer in time")

// tell writes down what hooks are to be told of a firing, in the transaction of
// what they are told of.
func (w *Watchman) tell(ctx context.Context, tx store.Tx, f *trigger.Firing) error {
	list := f.Notices()
	for i := range list {
		list[i].ID, list[i].NextAt = job.NewID(), w.now()
		if err := tx.Notices().Put(ctx, &list[i]); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return nil
	}
	_, err := tx.Notices().Trim(ctx, trigger.MaxNotices, batch)
	return err
}

// deliver tells hooks what they are to be told, while this manager leads, until
// ctx ends.
func (w *Watchman) deliver(ctx context.Context) {
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	for {
		for full := w.Leads(); full && ctx.Err() == nil; {
			full = w.Deliver(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.news:
		}
	}
}

// Deliver tells some hooks together what they are to be told by now, and reports
// whether there may be more.
func (w *Watchman) Deliver(ctx context.Context) (more bool) {
	var due []trigger.Notice
	err := w.Store.View(ctx, func(tx store.Tx) (err error) {
		due, err = tx.Notices().Due(ctx, w.now(), webhook.Batch)
		return err
	})
	var calls sync.WaitGroup
	for i := range due {
		calls.Go(func() {
			if err := w.call(ctx, &due[i]); err != nil && ctx.Err() == nil {
				w.Logger.Warn("could not settle what a hook was told; it is told again", "firing", due[i].Firing, "error", err)
			}
		})
	}
	calls.Wait()
	return err == nil && len(due) == webhook.Batch
}

// call tells one hook, and writes down what comes of it. A crash between the two
// has it told again: its receiver knows it by the id of the notice.
func (w *Watchman) call(ctx context.Context, n *trigger.Notice) error {
	_, err := w.Hooks.Post(ctx, w.client, webhook.Call{URL: n.URL, Event: n.Event, Delivery: n.ID, Body: n.Body}, w.now())
	if ctx.Err() != nil {
		return err
	}
	n.Tries++
	done := err == nil
	if err != nil && n.Tries >= webhook.Tries {
		w.Logger.Warn("a hook of a trigger was called in vain for the last time", "firing", n.Firing, "event", n.Event, "tries", n.Tries, "error", err)
		done = true
	}
	n.NextAt = w.now().Add(webhook.Again(n.Tries))
	return w.Store.Update(ctx, func(tx store.Tx) error {
		if done {
			return tx.Notices().Drop(ctx, n.ID)
		}
		return tx.Notices().Put(ctx, n)
	})
}
