package governor

import (
	"context"
	"log/slog"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
)

// Suspend freezes a worker until it is revived. It is no quarantine: nothing is
// put aside, and nobody has to decide about it. One that is suspended already
// stays so.
func (g *Governor) Suspend(ctx context.Context, id, reason string) (manifest.Worker, error) {
	w, err := g.Worker(ctx, id)
	if err != nil {
		return w, err
	}
	if w.State != manifest.Running {
		return w, fault.New(fault.Conflict, "The worker %s is %s; only one that runs can be suspended.", id, w.State).WithCode("wrong_state")
	}
	work, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer stop()
	if _, err := g.Sandboxes.PauseSandbox(asOwner(work, &w), w.Sandbox, live.Frozen); err != nil {
		return w, err
	}
	w, err = g.steered(work, id, "worker_suspended", reason, event.FleetSuspended, func(w *manifest.Worker) error {
		if w.State != manifest.Running {
			return fault.New(fault.Conflict, "The worker %s ended meanwhile.", id).WithCode("wrong_state")
		}
		if !w.Suspended() {
			w.SuspendedAt = g.now()
		}
		return nil
	})
	if err == nil {
		g.Logger.LogAttrs(ctx, slog.LevelWarn, "worker_suspended", slog.String("worker_id", id), slog.String("reason", clip(reason)))
	}
	return w, err
}

// Revive lets a worker go on that was suspended or is under quarantine, and lets
// all triggers begin anew with it. What has ended stays dead.
func (g *Governor) Revive(ctx context.Context, id, reason string) (manifest.Worker, error) {
	w, err := g.Worker(ctx, id)
	if err != nil {
		return w, err
	}
	if w.State != manifest.Running {
		return w, fault.New(fault.Conflict, "The worker %s is %s, and cannot be revived.", id, w.State).WithCode("wrong_state")
	}
	if w.Quarantined() {
		if w, err = g.Release(ctx, id, clip("revived: "+reason)); err != nil {
			return w, err
		}
	}
	if w.Suspended() {
		if _, err := g.Sandboxes.ResumeSandbox(asOwner(ctx, &w), w.Sandbox); err != nil {
			return w, err
		}
	}
	w, err = g.steered(ctx, id, "worker_revived", reason, event.FleetRevived, func(w *manifest.Worker) error {
		now := g.now()
		w.SuspendedAt, w.RevivedAt = time.Time{}, now
		w.HeartbeatAt = now // it could not speak
		return nil
	})
	if err == nil {
		g.Logger.LogAttrs(ctx, slog.LevelInfo, "worker_revived", slog.String("worker_id", id), slog.String("reason", clip(reason)))
	}
	return w, err
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
		return tx.Events().Append(ctx, happened(&w, t, actor(ctx), w.UpdatedAt, map[string]any{"reason": clip(reason)}))
	})
	return w, err
}
