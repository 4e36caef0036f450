package governor

import (
	"context"
	"log/slog"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/store"
)

// Why workers end that nobody ended.
const (
	reasonSilent   = "heartbeat_timeout"
	reasonExpired  = "expired"
	reasonUnused   = "manifest_expired"
	reasonFallen   = "sandbox_ended"
	reasonCut      = "launch_interrupted"
	reasonShutdown = "deregistered"
)

// tend looks after the fleet until ctx ends.
func (g *Governor) tend(ctx context.Context) {
	begun, reaped := g.now(), g.now()
	var listening attention
	service.Every(ctx, rhythm, func() {
		if !g.Leads() {
			return
		}
		now := g.now()
		before := now.Add(-stuck)
		if g.Alone && before.Before(begun) {
			before = begun // what is older is an earlier life's
		}
		g.Sweep(ctx, before)
		listened := now.Sub(listening.at(now))
		if now.Sub(reaped) < reapEvery && !now.Before(reaped) {
			return
		}
		reaped = now
		if listened >= g.Silence {
			if _, err := g.Reap(ctx, 0); err != nil && ctx.Err() == nil {
				g.Logger.Error("could not reap silent workers", "error", err)
			}
		}
		g.forget(ctx)
	})
}

// attention is since when somebody listens without a break. Who does not cannot
// say that others were silent: after a start, a stall of the whole machine, or a
// clock that was set, everybody has all of their time to speak.
type attention struct{ since, last time.Time }

// gap is the longest time between two looks that is no break.
const gap = 10 * rhythm

// at notes that somebody listens at a time, and returns since when.
func (a *attention) at(now time.Time) time.Time {
	if a.last.IsZero() || now.Before(a.last) || now.Sub(a.last) > gap {
		a.since = now
	}
	a.last = now
	return a.since
}

// Sweep ends what has no right to be there any more: those whose time is over,
// whose sandbox is gone, and what was on its way before a time.
func (g *Governor) Sweep(ctx context.Context, before time.Time) {
	for _, s := range []struct {
		what string
		list func(tx store.Tx) ([]manifest.Worker, error)
		end  func(w *manifest.Worker) (reason string, outcome sandbox.Outcome)
	}{
		{"expired", func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Due(ctx, g.now(), sweepLimit) }, func(w *manifest.Worker) (string, sandbox.Outcome) {
			if w.State == manifest.Issued {
				return reasonUnused, sandbox.OutcomeExpired
			}
			return reasonExpired, sandbox.OutcomeExpired
		}},
		{"fallen", func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Fallen(ctx, sweepLimit) }, func(w *manifest.Worker) (string, sandbox.Outcome) {
			return g.fallen(ctx, w), sandbox.OutcomeLost
		}},
		{"half-done", func(tx store.Tx) ([]manifest.Worker, error) { return g.halfDone(ctx, tx, before) }, func(*manifest.Worker) (string, sandbox.Outcome) {
			return reasonCut, sandbox.OutcomeKilled
		}},
	} {
		var list []manifest.Worker
		err := g.Store.View(ctx, func(tx store.Tx) (err error) {
			list, err = s.list(tx)
			return err
		})
		for i := range list {
			if err != nil {
				break
			}
			reason, outcome := s.end(&list[i])
			_, err = g.end(ctx, list[i].ID(), reason, outcome)
			if fault.Is(err, fault.Unavailable) {
				err = nil // the next look tries again; the others must not wait
			}
		}
		if err != nil && ctx.Err() == nil {
			g.Logger.Error("could not look after the fleet", "those", s.what, "error", err)
		}
	}
}

// fallen is why a worker ends whose sandbox did: one that was killed says by whom.
func (g *Governor) fallen(ctx context.Context, w *manifest.Worker) string {
	s, err := g.Sandboxes.Sandbox(asOwner(ctx, w), w.Sandbox)
	if err == nil && s.Outcome == sandbox.OutcomeKilled && s.Reason != "" {
		return s.Reason
	}
	return reasonFallen
}

// halfDone lists launches that were begun before a time, and ends that did not
// come to one: these are tried again soon, whoever began them.
func (g *Governor) halfDone(ctx context.Context, tx store.Tx, before time.Time) (list []manifest.Worker, err error) {
	soon := g.now().Add(-retryAfter)
	if soon.Before(before) {
		soon = before
	}
	all, err := tx.Fleet().Passing(ctx, soon, 10*sweepLimit)
	for i := range all {
		if w := &all[i]; w.State == manifest.Ending || w.UpdatedAt.Before(before) {
			list = append(list, *w)
		}
	}
	return list, err
}

// Reap ends workers that were silent for longer than a time; 0 is the usual one.
// It returns their ids. Those whose work was paused cannot speak, and stay.
func (g *Governor) Reap(ctx context.Context, silent time.Duration) ([]string, error) {
	if silent <= 0 {
		silent = g.Silence
	}
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	before := g.now().Add(-silent)
	quiet, stale, err := g.silent(ctx, c, before, silent)
	if err == nil {
		err = g.spare(ctx, quiet)
	}
	if err == nil {
		err = g.asked(ctx, "reap", everything, "", len(stale))
	}
	if err != nil {
		return nil, err
	}
	if stale, err = g.condemn(ctx, stale, before); err != nil {
		return nil, err
	}
	return g.endAll(ctx, stale, reasonSilent, sandbox.OutcomeReaped)
}

// silent lists who was silent since before and has no reason for it, and who is
// quiet because a switch has stopped them: these for half of the time already, so
// that they have the other half to speak when it is released.
func (g *Governor) silent(ctx context.Context, c policy.Caller, before time.Time, silent time.Duration) (quiet, stale []manifest.Worker, err error) {
	err = g.Store.View(ctx, func(tx store.Tx) error {
		quiet, stale = nil, nil
		list, err := tx.Fleet().Stale(ctx, before.Add(silent/2), manifest.MaxReplicas)
		if err != nil {
			return err
		}
		for i := range list {
			w := &list[i]
			if !sees(c, w) || w.Still() {
				continue
			}
			stopped, err := g.stops(ctx, tx, w)
			if err != nil {
				return err
			}
			switch {
			case stopped:
				quiet = append(quiet, *w)
			case w.HeartbeatAt.Before(before):
				stale = append(stale, *w)
			}
		}
		return nil
	})
	return quiet, stale, err
}

// stops says whether a switch has stopped a worker.
func (g *Governor) stops(ctx context.Context, tx store.Tx, w *manifest.Worker) (bool, error) {
	if g.Stopped == nil {
		return false, nil
	}
	c, err := contract(ctx, tx, w.Terms.Contract)
	if err != nil {
		return false, err
	}
	above, err := ancestors(ctx, tx, w)
	if err != nil {
		return false, err
	}
	_, stopped, err := g.Stopped(ctx, tx, Subject{Worker: w.ID(), Sandbox: w.Sandbox, Contract: c.Name, ProjectID: c.ProjectID, Owner: w.Terms.Owner, Ancestors: above})
	return stopped, err
}

// SpareStopped gives workers that a switch stops all of their time to speak. It is
// for the transaction that releases the switch: however short that time is, nobody
// is reaped for a silence that was not theirs.
func (g *Governor) SpareStopped(ctx context.Context, tx store.Tx) error {
	now := g.now()
	list, err := tx.Fleet().Stale(ctx, now, manifest.MaxReplicas)
	for i := range list {
		if err != nil {
			break
		}
		if list[i].Still() {
			continue // its silence is not counted
		}
		stopped := false
		if stopped, err = g.stops(ctx, tx, &list[i]); stopped && err == nil {
			list[i].HeartbeatAt = now
			err = tx.Fleet().Put(ctx, &list[i])
		}
	}
	return err
}

// spare lets workers be that a switch has stopped: their silence counts from now.
func (g *Governor) spare(ctx context.Context, list []manifest.Worker) error {
	if len(list) == 0 {
		return nil
	}
	return g.Store.Update(ctx, func(tx store.Tx) error {
		for i := range list {
			w, err := tx.Fleet().Get(ctx, list[i].ID())
			if fault.Is(err, fault.NotFound) || err == nil && w.State != manifest.Running {
				continue
			}
			if err == nil {
				w.HeartbeatAt = g.now()
				err = tx.Fleet().Put(ctx, &w)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// condemn writes down who is reaped, after another look in the same transaction:
// neither a heartbeat that came in time nor a switch is overlooked.
func (g *Governor) condemn(ctx context.Context, list []manifest.Worker, before time.Time) (stale []manifest.Worker, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	err = g.Store.Update(ctx, func(tx store.Tx) error {
		stale = nil
		for i := range list {
			w, err := tx.Fleet().Get(ctx, list[i].ID())
			if fault.Is(err, fault.NotFound) || err == nil && (w.State != manifest.Running || !w.HeartbeatAt.Before(before) || w.Still()) {
				continue
			}
			stopped := false
			if err == nil {
				stopped, err = g.stops(ctx, tx, &w)
			}
			if err != nil {
				return err
			}
			if stopped {
				continue
			}
			w.State, w.Reason, w.UpdatedAt = manifest.Ending, reasonSilent, g.now()
			if err := tx.Fleet().Put(ctx, &w); err != nil {
				return err
			}
			if err := g.audit(ctx, tx, entry{action: "reap_stale", target: w.ID(), outcome: outcomeDone, message: reasonSilent}); err != nil {
				return err
			}
			stale = append(stale, w)
		}
		return nil
	})
	for i := range stale {
		g.Logger.LogAttrs(ctx, slog.LevelWarn, "reap_stale", slog.String("worker_id", stale[i].ID()), slog.Time("last_heartbeat", stale[i].HeartbeatAt))
	}
	return stale, err
}

// forget bounds the history.
func (g *Governor) forget(ctx context.Context) {
	err := g.Store.Update(ctx, func(tx store.Tx) error {
		_, err := tx.Fleet().Forget(ctx, time.Time{}, MaxHistory, sweepLimit)
		return err
	})
	if err != nil && ctx.Err() == nil {
		g.Logger.Error("could not shorten the history of the fleet", "error", err)
	}
}
