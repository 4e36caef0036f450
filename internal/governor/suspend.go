package governor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Suspend freezes a worker until it is revived. It is no quarantine: nothing is
// put aside, and nobody has to decide about it. One that is suspended already
// stays so. The mark comes first: from there on nobody but Revive lets it go on.
// It goes again where the worker could not be frozen.
func (g *Governor) Suspend(ctx context.Context, id, reason string) (manifest.Worker, error) {
	already := false
	w, err := g.steered(ctx, id, "worker_suspended", reason, event.FleetSuspended, func(w *manifest.Worker) error {
		if w.State != manifest.Running {
			return fault.New(fault.Conflict, "The worker %s is %s; only one that runs can be suspended.", id, w.State).WithCode("wrong_state")
		}
		if already = w.Suspended(); !already {
			w.SuspendedAt = g.now()
		}
		return nil
	})
	if err != nil {
		return w, err
	}
	work, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer stop()
	if _, err := g.Sandboxes.HoldSandbox(asOwner(work, &w), w.Sandbox); err != nil {
		if already {
			return w, err
		}
		since := w.SuspendedAt
		w, again := g.steered(context.WithoutCancel(ctx), id, "suspension_failed", err.Error(), event.FleetRevived, func(w *manifest.Worker) error {
			if w.SuspendedAt.Equal(since) {
				w.SuspendedAt = time.Time{}
			}
			return nil
		})
		if again == nil && !w.Suspended() {
			// It may stand still all the same, when only the word of it was lost.
			_, again = g.Sandboxes.ResumeSandbox(asOwner(work, &w), w.Sandbox)
		}
		return w, errors.Join(err, again)
	}
	g.Logger.LogAttrs(ctx, slog.LevelWarn, "worker_suspended", slog.String("worker_id", id), slog.String("reason", clip(reason)))
	return w, nil
}

// HoldStill freezes a worker that the law holds and that goes on all the same:
// the manager was killed between the mark and the deed, or its host would not.
func (g *Governor) HoldStill(ctx context.Context, id string) error {
	w, err := g.Worker(ctx, id)
	if err != nil || w.State != manifest.Running {
		return err
	}
	q := w.Quarantine
	if w.Quarantined() && q.Bundle == nil && g.now().Sub(q.At) <= cleanupTime && !w.Suspended() {
		return nil // what there is of it is being put aside, which needs it awake
	}
	held, err := g.Sandboxes.HoldSandbox(asOwner(ctx, &w), w.Sandbox)
	if err != nil || !held || !w.Quarantined() || q.Restrictions.TaskExecutionPaused {
		return err
	}
	_, err = g.change(ctx, id, "quarantine_applied", event.FleetQuarantined, func(w *manifest.Worker) error {
		if w.Quarantined() {
			w.Quarantine.Restrictions.TaskExecutionPaused = true
		}
		return nil
	})
	return err
}

// Revive lets a worker go on that was suspended or is under quarantine, and lets
// all triggers begin anew with it. What has ended stays dead. The mark goes first:
// nobody lets a worker go on that is suspended, and it comes back where the worker
// could not go on.
func (g *Governor) Revive(ctx context.Context, id, reason string) (manifest.Worker, error) {
	w, err := g.Worker(ctx, id)
	if err == nil && w.State == manifest.Running && w.Quarantined() {
		w, err = g.Release(ctx, id, clip("revived: "+reason))
	}
	if err != nil {
		return w, err
	}
	var since time.Time
	w, err = g.steered(ctx, id, "worker_revived", reason, event.FleetRevived, func(w *manifest.Worker) error {
		if w.State != manifest.Running {
			return fault.New(fault.Conflict, "The worker %s is %s, and cannot be revived.", id, w.State).WithCode("wrong_state")
		}
		now := g.now()
		since, w.SuspendedAt, w.RevivedAt = w.SuspendedAt, time.Time{}, now
		w.HeartbeatAt = now // it could not speak
		return nil
	})
	if err != nil {
		return w, err
	}
	// Also where it bore no mark: a manager may have been killed between the two.
	if err := g.goOn(ctx, &w); err != nil {
		if heldAnew(err) || since.IsZero() {
			return w, err
		}
		return g.suspendAgain(context.WithoutCancel(ctx), id, since, err)
	}
	g.Logger.LogAttrs(ctx, slog.LevelInfo, "worker_revived", slog.String("worker_id", id), slog.String("reason", clip(reason)))
	return w, nil
}

// goOn lets a worker's sandbox go on. Who asked may hang up: a host that was told
// does it, and what came of it must be known.
func (g *Governor) goOn(ctx context.Context, w *manifest.Worker) error {
	work, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer stop()
	_, err := g.Sandboxes.ResumeSandbox(asOwner(work, w), w.Sandbox)
	return err
}

// stayStill freezes a worker that bears a mark once more: it may go on all the
// same, when only the word of it was lost.
func (g *Governor) stayStill(ctx context.Context, w *manifest.Worker) error {
	work, stop := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
	defer stop()
	_, err := g.Sandboxes.HoldSandbox(asOwner(work, w), w.Sandbox)
	return err
}

// heldAnew reports whether a worker could not go on because the law holds it once
// more: that mark counts, and not the one from before.
func heldAnew(err error) bool {
	code := fault.CodeOf(err)
	return code == "quarantined" || code == "suspended"
}

// suspendAgain puts the mark back on a worker that could not go on.
func (g *Governor) suspendAgain(ctx context.Context, id string, since time.Time, why error) (manifest.Worker, error) {
	w, err := g.steered(ctx, id, "suspension_kept", why.Error(), event.FleetSuspended, func(w *manifest.Worker) error {
		if w.State == manifest.Running && !w.Suspended() {
			w.SuspendedAt = since
		}
		return nil
	})
	if err == nil && w.Suspended() {
		err = g.stayStill(ctx, &w)
	}
	return w, errors.Join(why, err)
}

// Preserve puts aside what there is of a worker, for who looks at it after its
// end. What could not be had is said in the bundle.
func (g *Governor) Preserve(ctx context.Context, id string) (manifest.Worker, error) {
	w, err := g.Worker(ctx, id)
	if err != nil {
		return w, err
	}
	work, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer stop()
	bundle := g.putAside(work, &w)
	return g.steered(work, id, "worker_preserved", "", event.FleetPreserved, func(w *manifest.Worker) error {
		w.Bundle = bundle
		return nil
	})
}

// steered changes a worker that the caller sees, with its event and its record.
func (g *Governor) steered(ctx context.Context, id, action, reason string, t event.Type, change func(w *manifest.Worker) error) (w manifest.Worker, err error) {
	err = g.Store.Update(ctx, func(tx store.Tx) (err error) {
		if w, err = visible(ctx, tx, id); err != nil {
			return err
		}
		if err := change(&w); err != nil {
			return err
		}
		w.UpdatedAt = g.now()
		if err := tx.Fleet().Put(ctx, &w); err != nil {
			return err
		}
		if err := g.audit(ctx, tx, entry{action: action, target: id, outcome: outcomeDone, message: clip(reason)}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&w, t, policy.ActorOf(ctx), w.UpdatedAt, map[string]any{"reason": clip(reason)}))
	})
	return w, err
}
