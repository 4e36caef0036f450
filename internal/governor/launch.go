package governor

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// The labels of a sandbox of the fleet. They are for people: what counts is
// which sandbox a worker's row names.
const (
	LabelWorker   = "aurea.fleet.worker"
	LabelContract = "aurea.fleet.contract"
	// LabelProject is the project of its contract, by which a kill switch finds
	// it.
	LabelProject = "project"
)

// boxName is the name of a worker's sandbox, by which it is found again when its
// id was not written down.
func boxName(id string) string { return live.FleetName + id }

// Register checks a manifest, registers its worker and launches it. It returns
// when the sandbox runs. A caller who hangs up does not stop it: the worker is
// registered, and can be killed.
func (g *Governor) Register(ctx context.Context, m manifest.Manifest) (manifest.Worker, error) {
	w, err := g.admit(ctx, m)
	if err != nil {
		return w, err
	}
	return g.launch(context.WithoutCancel(ctx), w)
}

// launch makes the sandbox of a worker that was registered.
func (g *Governor) launch(ctx context.Context, w manifest.Worker) (manifest.Worker, error) {
	leave, alone := g.take(w.ID())
	if !alone { // a sweep is at it: it was registered an age ago
		return w, fault.New(fault.Conflict, "the worker %s is being ended", w.ID()).WithCode("ending")
	}
	s, err := g.makeSandbox(asOwner(ctx, &w), &w)
	if err == nil {
		w, err = g.launched(ctx, w.ID(), s.ID)
	}
	leave()
	if err == nil { // a kill that came before could not end it
		w, err = g.Worker(asOwner(ctx, &w), w.ID())
	}
	if err != nil {
		if _, end := g.end(ctx, w.ID(), "launch_failed: "+err.Error(), sandbox.OutcomeLost); end != nil {
			g.Logger.Error("could not end a worker that could not be launched; the sweep will", "worker_id", w.ID(), "error", end)
		}
		return w, err
	}
	if w.State != manifest.Running { // it was killed while it was made
		w, err = g.end(ctx, w.ID(), w.Reason, sandbox.OutcomeKilled)
		if err == nil {
			err = fault.New(fault.Conflict, "The worker %s was ended while it was launched: %s.", w.ID(), w.Reason).WithCode("ended")
		}
		return w, err
	}
	r := w.Manifest.Resources
	g.Logger.LogAttrs(ctx, slog.LevelInfo, "container_launched", slog.String("worker_id", w.ID()), slog.String("parent_id", w.Manifest.ParentID),
		slog.Float64("cpu_limit", r.CPULimit), slog.Int64("memory_limit_mb", r.MemoryLimitMB), slog.Bool("allow_external", r.Network.AllowExternal), slog.String("sandbox_id", w.Sandbox))
	return w, nil
}

func (g *Governor) makeSandbox(ctx context.Context, w *manifest.Worker) (live.Sandbox, error) {
	var idle time.Duration
	ttl := g.MaxTTL // the law ends it, if nothing else does
	labels, err := g.labels(ctx, w)
	if err != nil {
		return live.Sandbox{}, err
	}
	s, made, err := g.Sandboxes.CreateSandbox(ctx, live.Request{
		Name: boxName(w.ID()), TTL: &ttl, Idle: &idle,
		Spec:  live.Spec{Limits: limits(w.Manifest.Resources), Network: sandbox.NetworkNone, Labels: labels},
		Files: map[string][]byte{".aurea/manifest.json": paperFile(w)},
	})
	if err == nil && !made { // somebody took the name; what they made has other limits
		err = fault.New(fault.Conflict, "A sandbox with the name %q is there already; end it first.", boxName(w.ID())).WithCode("name_taken")
	}
	return s, err
}

func (g *Governor) labels(ctx context.Context, w *manifest.Worker) (map[string]string, error) {
	labels := map[string]string{LabelWorker: w.ID(), LabelContract: w.Terms.Contract}
	err := g.Store.View(ctx, func(tx store.Tx) error {
		c, err := contract(ctx, tx, w.Terms.Contract)
		if err == nil && c.ProjectID != 0 {
			labels[LabelProject] = strconv.FormatInt(c.ProjectID, 10)
		}
		return err
	})
	return labels, err
}

// paperFile is the paper as the worker finds it in its sandbox: what it is, and
// what it was given along. The signature stays outside.
func paperFile(w *manifest.Worker) []byte {
	m := w.Manifest
	m.Signature = ""
	text, err := m.MarshalJSON()
	if err != nil {
		return []byte("{}")
	}
	return text
}

// launched writes down that a worker has its sandbox. One that was killed
// meanwhile stays so, and keeps the id of what must be ended.
func (g *Governor) launched(ctx context.Context, id, box string) (w manifest.Worker, err error) {
	err = g.Store.Update(ctx, func(tx store.Tx) (err error) {
		if w, err = tx.Fleet().Get(ctx, id); err != nil {
			return err
		}
		now := g.now()
		w.Sandbox, w.UpdatedAt, w.StartedAt = box, now, now
		if w.State == manifest.Ending {
			return tx.Fleet().Put(ctx, &w)
		}
		if w.State, err = w.State.To(manifest.Running); err != nil {
			return err
		}
		w.HeartbeatAt = now
		if err := tx.Fleet().Put(ctx, &w); err != nil {
			return err
		}
		if err := g.audit(ctx, tx, entry{action: "container_launched", target: id, outcome: outcomeDone, meta: map[string]string{"sandbox": box}}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&w, event.FleetLaunched, policy.ActorOf(ctx), now, map[string]any{"sandbox": box}))
	})
	return w, err
}

// Kill ends a worker and its sandbox, for a reason. killed is false where there
// is none to end.
func (g *Governor) Kill(ctx context.Context, id, reason string) (w manifest.Worker, killed bool, err error) {
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = visible(ctx, tx, id)
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return w, false, err
	}
	if err != nil || w.State == manifest.Ended {
		g.Logger.LogAttrs(ctx, slog.LevelInfo, "container_kill_skipped", slog.String("worker_id", clip(id)), slog.String("reason", clip(reason)))
		return w, false, nil
	}
	w, err = g.end(ctx, id, reason, sandbox.OutcomeKilled)
	return w, err == nil, err
}

// KillAll ends every worker that the caller sees, and returns their ids.
func (g *Governor) KillAll(ctx context.Context, contract, reason string) (ids []string, err error) {
	list, err := g.Workers(ctx, store.FleetFilter{Contract: contract, States: []manifest.State{manifest.Launching, manifest.Running, manifest.Ending}, Limit: manifest.MaxReplicas})
	if err != nil {
		return nil, err
	}
	if err := g.asked(ctx, "kill_all", cmp.Or(contract, everything), reason, len(list)); err != nil {
		return nil, err
	}
	return g.endAll(ctx, list, reason, sandbox.OutcomeKilled)
}

// everything stands for all contracts.
const everything = "fleet"

// asked writes down that somebody asked for what is done to many, before it is
// done. What the manager does by itself is written down where it does something.
func (g *Governor) asked(ctx context.Context, action, target, reason string, n int) error {
	if c, ok := policy.From(ctx); !ok || c == policy.System() {
		return nil
	}
	return g.Store.Update(ctx, func(tx store.Tx) error {
		return g.audit(ctx, tx, entry{action: action, target: target, outcome: outcomeDone, message: clip(reason), meta: map[string]string{"workers": strconv.Itoa(n)}})
	})
}

// endAll ends workers side by side, a bounded number at a time.
func (g *Governor) endAll(ctx context.Context, list []manifest.Worker, reason string, outcome sandbox.Outcome) (ids []string, err error) {
	const together = 16
	type result struct {
		id  string
		err error
	}
	results, turn := make(chan result), make(chan struct{}, together)
	for i := range list {
		go func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			_, err := g.end(ctx, list[i].ID(), reason, outcome)
			results <- result{list[i].ID(), err}
		}()
	}
	for range list {
		r := <-results
		if r.err != nil {
			err = r.err
			continue
		}
		ids = append(ids, r.id)
	}
	return ids, err
}

// end ends a worker: first it is written down, so that a restart goes on with
// it, then its sandbox is ended, then it has ended and counts no more. It
// returns the worker as it is then.
func (g *Governor) end(ctx context.Context, id, reason string, outcome sandbox.Outcome) (manifest.Worker, error) {
	work, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer stop()
	w, before, err := g.ending(work, id, reason)
	if err != nil || w.State == manifest.Ended {
		return w, err
	}
	leave, alone := g.take(id)
	if !alone {
		return w, nil // whoever is at it sees that it is to end
	}
	defer leave()
	if err := g.endSandbox(asOwner(work, &w), &w, outcome); err != nil {
		g.Logger.Error("could not end the sandbox of a worker; trying again", "worker_id", id, "error", err)
		return w, err
	}
	if w, err = g.ended(work, id); err == nil && before != manifest.Issued {
		g.Logger.LogAttrs(ctx, slog.LevelInfo, "container_killed", slog.String("worker_id", id), slog.String("reason", w.Reason))
	}
	return w, err
}

var errSlow = fault.New(fault.Unavailable, "ending a worker took too long")

// ending writes down that a worker is to end, and why. The first reason stays.
// A paper has ended with that.
func (g *Governor) ending(ctx context.Context, id, reason string) (w manifest.Worker, before manifest.State, err error) {
	err = g.Store.Update(ctx, func(tx store.Tx) (err error) {
		if w, err = tx.Fleet().Get(ctx, id); err != nil {
			return err
		}
		if before = w.State; before == manifest.Ended || before == manifest.Ending {
			return nil
		}
		w.Reason = clip(reason)
		if before == manifest.Issued {
			return g.over(ctx, tx, &w)
		}
		if w.State, err = w.State.To(manifest.Ending); err != nil {
			return err
		}
		w.UpdatedAt = g.now()
		if err := tx.Fleet().Put(ctx, &w); err != nil {
			return err
		}
		if err := g.audit(ctx, tx, entry{action: "container_killed", target: id, outcome: outcomeDone, message: w.Reason, about: string(before)}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&w, event.FleetEnding, policy.ActorOf(ctx), w.UpdatedAt, map[string]any{"reason": w.Reason}))
	})
	return w, before, err
}

// endSandbox ends what a worker has, whether its id was written down or not.
func (g *Governor) endSandbox(ctx context.Context, w *manifest.Worker, outcome sandbox.Outcome) error {
	id := w.Sandbox
	if id == "" {
		s, err := g.Sandboxes.SandboxByName(ctx, boxName(w.ID()))
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if s.Spec.Labels[LabelWorker] != w.ID() {
			return nil // somebody else's, who took the name
		}
		id = s.ID
	}
	_, err := g.Sandboxes.EndSandboxAs(ctx, id, outcome, w.Reason)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// ended writes down that nothing of a worker is left.
func (g *Governor) ended(ctx context.Context, id string) (w manifest.Worker, err error) {
	err = g.Store.Update(ctx, func(tx store.Tx) (err error) {
		if w, err = tx.Fleet().Get(ctx, id); err != nil || w.State == manifest.Ended {
			return err
		}
		return g.over(ctx, tx, &w)
	})
	return w, err
}

// over is the end of a worker, in a transaction.
func (g *Governor) over(ctx context.Context, tx store.Tx, w *manifest.Worker) (err error) {
	if w.State, err = w.State.To(manifest.Ended); err != nil {
		return err
	}
	now := g.now()
	w.EndedAt, w.UpdatedAt, w.SpawnedAt = now, now, time.Time{}
	if w.Quarantined() {
		w.Quarantine.Status, w.Quarantine.ResolvedAt, w.Quarantine.Resolution = manifest.Terminated, &now, w.Reason
	}
	if err := tx.Fleet().Put(ctx, w); err != nil {
		return err
	}
	return tx.Events().Append(ctx, happened(w, event.FleetEnded, policy.ActorOf(ctx), now, map[string]any{"reason": w.Reason}))
}
