package governor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Heartbeat takes a sign of life. One of a worker that is not there is not
// accepted, and no error; one of a worker under quarantine, or whose time is
// over, is denied.
func (g *Governor) Heartbeat(ctx context.Context, id string) (accepted bool, err error) {
	over := false
	err = g.decide(ctx, "heartbeat", id, func(tx store.Tx) error {
		accepted, over = false, false
		w, err := visible(ctx, tx, id)
		if fault.Is(err, fault.NotFound) || err == nil && !w.State.Registered() {
			return g.audit(ctx, tx, entry{action: "heartbeat_unknown", target: clip(id), outcome: outcomeDenied})
		}
		if err != nil {
			return err
		}
		now := g.now()
		switch {
		case w.Quarantined():
			if err := g.audit(ctx, tx, entry{action: "heartbeat_quarantined", target: id, outcome: outcomeDenied}); err != nil {
				return err
			}
			return deny(DenyQuarantined, "The worker %s is under quarantine.", id)
		case !w.ExpiresAt.IsZero() && !w.ExpiresAt.After(now):
			over = true
			return deny(DenyExpired, "The time of the worker %s was over at %s.", id, w.ExpiresAt.Format(time.RFC3339))
		case w.State == manifest.Ending:
			return nil
		}
		accepted, w.HeartbeatAt = true, now
		return tx.Fleet().Put(ctx, &w)
	})
	if over {
		if _, end := g.end(ctx, id, reasonExpired, sandbox.OutcomeExpired); end != nil {
			g.Logger.Error("could not end a worker whose time is over; the sweep will", "worker_id", id, "error", end)
		}
	}
	if err == nil {
		event := "heartbeat"
		if !accepted {
			event = "heartbeat_unknown"
		}
		g.Logger.LogAttrs(ctx, slog.LevelDebug, event, slog.String("worker_id", clip(id)))
	}
	return accepted, err
}

// Replicate starts a child of a worker, with the worker's own resources.
func (g *Governor) Replicate(ctx context.Context, id, reason string, state json.RawMessage) (manifest.Worker, error) {
	m, err := g.Issue(ctx, Asked{ParentID: id, State: state})
	if err == nil {
		var w manifest.Worker
		if w, err = g.Register(ctx, m); err == nil {
			err = g.Store.Update(ctx, func(tx store.Tx) error {
				return g.audit(ctx, tx, entry{action: "replication_requested", target: w.ID(), outcome: outcomeDone, message: clip(reason), meta: map[string]string{"parent_id": id}})
			})
			g.Logger.LogAttrs(ctx, slog.LevelInfo, "replication_requested", slog.String("parent_id", id), slog.String("worker_id", w.ID()), slog.String("reason", clip(reason)))
			return w, err
		}
	}
	if fault.Is(err, fault.Denied) {
		g.Logger.LogAttrs(ctx, slog.LevelWarn, "replication_denied", slog.String("parent_id", clip(id)), slog.String("code", fault.CodeOf(err)), slog.String("reason", clip(reason)))
	}
	return manifest.Worker{}, err
}

// Deregister ends a worker in good order. Its sandbox ends with it: nobody lives
// outside of the law. It is idempotent.
func (g *Governor) Deregister(ctx context.Context, id string) (done bool, err error) {
	var w manifest.Worker
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = visible(ctx, tx, id)
		return err
	})
	if fault.Is(err, fault.NotFound) || err == nil && w.State == manifest.Ended {
		return false, nil
	}
	if err == nil {
		_, err = g.end(ctx, id, reasonShutdown, sandbox.OutcomeDone)
	}
	if err == nil {
		g.Logger.LogAttrs(ctx, slog.LevelInfo, "worker_shutdown", slog.String("worker_id", id), slog.String("reason", reasonShutdown))
	}
	return err == nil, err
}

// Enforce measures a worker and ends it where it exceeds its resources. ok is
// false where there is none to measure.
//
// The sandbox holds the limits in every moment: processors are given out no
// faster, and what would take more memory is killed. What is found here anyway
// means that this does not work, so the worker ends.
func (g *Governor) Enforce(ctx context.Context, id string) (e manifest.Enforcement, ok bool, err error) {
	var w manifest.Worker
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = visible(ctx, tx, id)
		return err
	})
	if fault.Is(err, fault.NotFound) || err == nil && w.State != manifest.Running {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	stats, err := g.Sandboxes.SandboxStats(asOwner(ctx, &w), w.Sandbox)
	if err != nil {
		return e, false, err
	}
	e = measured(&w, stats.Usage, g.now())
	if e.Breach != "" {
		err = g.breached(ctx, &w, e.Breach)
	}
	g.Logger.LogAttrs(ctx, slog.LevelInfo, "metric", slog.String("name", e.Name), slog.Float64("value", e.Value), slog.Any("labels", e.Labels))
	if g.Observe != nil {
		g.Observe(e)
	}
	return e, true, err
}

// measured compares what a worker uses with what it may. The mean over its life
// may be a little over the limit: the sandbox's own start counts too.
func measured(w *manifest.Worker, u sandbox.Usage, now time.Time) manifest.Enforcement {
	const start, slack = 2 * time.Second, 1.1
	r := w.Manifest.Resources
	lived := now.Sub(w.StartedAt)
	mean := 0.0
	if lived > 0 {
		mean = u.CPU.Seconds() / lived.Seconds()
	}
	e := manifest.Enforcement{Name: manifest.ResourceEnforced, Value: 1, Labels: map[string]string{
		"worker_id": w.ID(), "cpu": strconv.FormatFloat(r.CPULimit, 'g', -1, 64), "memory": strconv.FormatInt(r.MemoryLimitMB, 10),
		"measured_cpu": strconv.FormatFloat(mean, 'f', 3, 64), "measured_memory": strconv.FormatInt((u.PeakMemory+1<<20-1)>>20, 10),
	}}
	switch {
	case u.PeakMemory > r.Memory():
		e.Breach = fmt.Sprintf("memory: %d bytes where %d are allowed", u.PeakMemory, r.Memory())
	case u.CPU > start && u.CPU.Seconds() > (lived.Seconds()*r.CPULimit+start.Seconds())*slack:
		e.Breach = fmt.Sprintf("cpu: %.3f processors where %.3f are allowed", mean, r.CPULimit)
	}
	return e
}

// breached ends a worker that used more than it may.
func (g *Governor) breached(ctx context.Context, w *manifest.Worker, what string) error {
	err := g.Store.Update(ctx, func(tx store.Tx) error {
		return g.audit(ctx, tx, entry{action: "resource_breach", target: w.ID(), outcome: outcomeDone, message: what})
	})
	if err == nil {
		_, err = g.end(ctx, w.ID(), "resource_exceeded: "+what, sandbox.OutcomeKilled)
	}
	return err
}
