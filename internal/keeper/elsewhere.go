package keeper

import (
	"context"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// mine reports whether what has its time is this manager's to do for a sandbox:
// that of the manager that has its worker, or, where none has, of who leads.
func (k *Keeper) mine(ctx context.Context, s *live.Sandbox) bool {
	if k.here(s.Worker) {
		return k.Leads() || !k.Alone
	}
	if !k.Leads() {
		return false
	}
	var w job.Worker
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = tx.Workers().Get(ctx, s.Worker)
		return err
	})
	return err != nil || !k.hasElsewhere(&w)
}

// hasElsewhere reports whether another manager has the stream of a worker, as
// far as is known.
func (k *Keeper) hasElsewhere(w *job.Worker) bool {
	return !k.Alone && w.Connected && w.Manager != "" && w.Manager != k.ID && k.now().Sub(w.SeenAt) < heardWithin
}

// second is a worker that is reached by its second stream: what it tells goes to
// another manager, which knows only what is written down.
type second struct{ dispatch.Host }

func isSecond(h dispatch.Host) bool {
	_, is := h.(second)
	return is
}

// second finds a worker of another manager that can be reached from here. The
// session is that of the worker as it is written down, so that one that was
// replaced is not asked.
func (k *Keeper) second(w *job.Worker) (x Worker, there bool) {
	if k.Alone || k.Second == nil || w.Session == "" {
		return x, false
	}
	if x, there = k.Second(w.Session); there {
		x.Paused, x.Host = w.Paused != "", second{x.Host}
	}
	return x, there
}

// seconds lists the workers of other managers that can be reached from here.
func (k *Keeper) seconds(ctx context.Context) (list []Worker) {
	if k.Alone || k.Second == nil {
		return nil
	}
	var all []job.Worker
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		all, err = tx.Workers().List(ctx)
		return err
	})
	if err != nil {
		return nil // whoever asks has no worker then
	}
	for i := range all {
		if x, there := k.second(&all[i]); there && !k.here(x.ID) {
			list = append(list, x)
		}
	}
	return list
}

// LookAgain has everybody look again who waits for something to happen to a sandbox:
// another manager has written something down.
func (k *Keeper) LookAgain() { k.ended.Wake() }

// Tends reports whether what has its time is this manager's to do for a sandbox.
// Of the managers that share a database it is one's at a time, but for the moment
// in which a worker goes from one to another.
func (k *Keeper) Tends(ctx context.Context, s *live.Sandbox) bool { return k.mine(ctx, s) }

// endAsked ends the sandboxes of the workers here that another manager was
// asked to end, and could not itself. Managers do not talk: it is written down
// that they are to end.
func (k *Keeper) endAsked(ctx context.Context) error {
	if k.Alone {
		return nil
	}
	var list []live.Sandbox
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sandboxes().List(ctx, store.SandboxFilter{State: sandbox.StateCompleting, Limit: maxPage})
		return err
	})
	if err != nil {
		return err
	}
	for i := range list {
		s := &list[i]
		if !k.here(s.Worker) {
			continue
		}
		end, alone := k.beginAlone("end " + s.ID)
		if !alone {
			continue
		}
		k.tasks.Go(func() {
			defer end()
			work, stop := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
			defer stop()
			host, err := k.host(work, s)
			if err == nil {
				err = host.EndSandbox(work, live.Closing{ID: s.ID, Outcome: s.Outcome, Reason: s.Reason})
			}
			if err != nil && ctx.Err() == nil {
				k.Logger.Warn("a worker did not end a sandbox; it is asked again", "sandbox", s.ID, "worker", s.Worker, "error", err)
			}
		})
	}
	return nil
}
