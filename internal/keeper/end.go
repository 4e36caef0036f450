package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// EndSandbox ends a sandbox on request and returns it when it is gone. One that
// has ended stays as it is.
func (k *Keeper) EndSandbox(ctx context.Context, id, reason string) (live.Sandbox, error) {
	s, err := k.Sandbox(ctx, id)
	if err != nil || s.State.Ended() {
		return s, err
	}
	return k.end(ctx, id, sandbox.OutcomeCancelled, reason)
}

// EndSandboxAs is EndSandbox for those who decide about sandboxes: it says what
// the end counts as.
func (k *Keeper) EndSandboxAs(ctx context.Context, id string, outcome sandbox.Outcome, reason string) (live.Sandbox, error) {
	s, err := k.Sandbox(ctx, id)
	if err != nil || s.State.Ended() {
		return s, err
	}
	return k.end(ctx, id, outcome, reason)
}

// end has the worker end a sandbox. It is over when the worker has told so, or
// when that takes too long: a worker that comes back later is told that it is a
// stranger.
func (k *Keeper) end(ctx context.Context, id string, outcome sandbox.Outcome, reason string) (live.Sandbox, error) {
	k.syncLast(ctx, id)
	s, err := k.completing(ctx, id, outcome, reason)
	if err != nil || s.State.Ended() {
		return s, err
	}
	work, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer stop()
	host, err := k.host(work, &s)
	if fault.CodeOf(err) == CodeElsewhere { // it does so as soon as it reads it
		if s, err := k.WaitSandbox(work, id, func(s *live.Sandbox) bool { return s.State.Ended() }); err == nil {
			return s, nil
		}
	}
	if err == nil {
		if err = host.EndSandbox(work, live.Closing{ID: id, Outcome: outcome, Reason: reason}); err == nil {
			if s, err = k.WaitSandbox(work, id, func(s *live.Sandbox) bool { return s.State.Ended() }); err == nil {
				return s, nil
			}
		}
		k.Logger.Warn("a worker did not end a sandbox in time; it will when it registers", "sandbox", id, "worker", s.Worker, "error", err)
	}
	if err := k.finish(context.WithoutCancel(ctx), id, outcome, reason, nil); err != nil {
		return s, err
	}
	return k.Sandbox(context.WithoutCancel(ctx), id)
}

var errSlow = fault.New(fault.Unavailable, "the worker did not answer in time")

// completing writes down that a sandbox is being ended, and why. One that is
// not made yet has ended with that.
func (k *Keeper) completing(ctx context.Context, id string, outcome sandbox.Outcome, reason string) (s live.Sandbox, err error) {
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		if s, err = tx.Sandboxes().Get(ctx, id); err != nil || s.State.Ended() || s.State == sandbox.StateCompleting {
			return err
		}
		if err := acted(ctx, tx, &s, "sandbox.end", reason, map[string]any{"outcome": outcome}); err != nil {
			return err
		}
		if s.State != sandbox.StateRunning {
			return k.finishIn(ctx, tx, &s, outcome, reason, nil)
		}
		if s.State, err = s.State.To(sandbox.StateCompleting); err != nil {
			return err
		}
		s.Outcome, s.Reason = outcome, clip(reason)
		if err := tx.Sandboxes().Put(ctx, &s); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&s, event.SandboxCompleting, policy.ActorOf(ctx), k.now(), map[string]any{"outcome": outcome, "reason": s.Reason}))
	})
	k.ended.Wake()
	return s, err
}

// finish writes the end of a sandbox down.
func (k *Keeper) finish(ctx context.Context, id string, outcome sandbox.Outcome, reason string, usage *sandbox.Usage) error {
	err := k.Store.Update(ctx, func(tx store.Tx) error {
		s, err := tx.Sandboxes().Get(ctx, id)
		if err != nil || s.State.Ended() {
			return err
		}
		return k.finishIn(ctx, tx, &s, outcome, reason, usage)
	})
	k.ended.Wake()
	return err
}

// finishIn is finish in a transaction. Execs whose end was not told are lost
// with it.
func (k *Keeper) finishIn(ctx context.Context, tx store.Tx, s *live.Sandbox, outcome sandbox.Outcome, reason string, usage *sandbox.Usage) (err error) {
	if s.State == sandbox.StateCompleting && s.Outcome != "" {
		outcome, reason = s.Outcome, s.Reason // why it was asked for says more than how it died
	}
	if s.State, err = s.State.To(outcome.State()); err != nil {
		return err
	}
	s.Outcome, s.Reason, s.EndedAt, s.ExpiresAt, s.Paused = outcome, clip(reason), k.now(), time.Time{}, ""
	if usage != nil {
		s.Usage = lastKnown(s.Usage, *usage)
	}
	k.unfollow(s.ID)
	if err := k.loseExecs(ctx, tx, s, nil, "the sandbox ended"); err != nil {
		return err
	}
	if err := tx.Sandboxes().Put(ctx, s); err != nil {
		return err
	}
	t := event.SandboxCompleted
	if s.State == sandbox.StateFailed {
		t = event.SandboxFailed
	}
	return tx.Events().Append(ctx, happened(s, t, policy.ActorOf(ctx), s.EndedAt, map[string]any{"outcome": outcome, "reason": s.Reason}))
}

// loseExecs ends the execs of a sandbox that nobody knows any more, but for
// those that are kept.
func (k *Keeper) loseExecs(ctx context.Context, tx store.Tx, s *live.Sandbox, keep func(id string) bool, why string) error {
	open, err := tx.Execs().Open(ctx, s.ID)
	if err != nil {
		return err
	}
	for i := range open {
		e := &open[i]
		if keep != nil && (keep(e.Inside()) || keep(e.ID)) {
			continue
		}
		none := emptyOutput()
		res := live.ExecResult{Verdict: sandbox.Lost, Cause: why, ExitCode: -1, Stdout: none, Stderr: none, Started: e.StartedAt, Ended: k.now()}
		if err := k.endExec(ctx, tx, e, res, nil); err != nil {
			return err
		}
	}
	return nil
}

// maxReason bounds what is kept of a reason.
const maxReason = 1000

func clip(s string) string { return s[:min(len(s), maxReason)] }

// failLate ends sandboxes that are being made for too long.
func (k *Keeper) failLate(ctx context.Context) error {
	return k.failUnmade(ctx, k.now().Add(-k.Provision-cleanupTime), func(s *live.Sandbox) bool { return k.mine(ctx, s) })
}

// failUnmade ends sandboxes that nobody makes any more, of those that are this
// manager's to look after.
func (k *Keeper) failUnmade(ctx context.Context, before time.Time, mine func(*live.Sandbox) bool) error {
	var list []live.Sandbox
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sandboxes().List(ctx, store.SandboxFilter{State: sandbox.StateCreating, Limit: maxPage})
		return err
	})
	for i := range list {
		s := &list[i]
		if err != nil || !s.CreatedAt.Before(before) || k.isBegun(s.ID) || !mine(s) {
			continue
		}
		if err = k.finish(ctx, s.ID, sandbox.OutcomeLost, "it was not made in time, or the manager was restarted meanwhile", nil); err == nil {
			k.tasks.Go(func() { k.endAt(ctx, s.Worker, s.ID) }) // it may have been made after all
		}
	}
	return err
}

// maxPage is how many sandboxes are looked at in one go.
const maxPage = 1000

// expire ends or pauses sandboxes whose time is over. One whose execs run is
// not idle.
func (k *Keeper) expire(ctx context.Context) error {
	var list []live.Sandbox
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sandboxes().Due(ctx, k.now(), maxPage)
		return err
	})
	if err != nil {
		return err
	}
	for i := range list {
		s := &list[i]
		if s.State != sandbox.StateRunning || k.isBegun("expire "+s.ID) || !k.mine(ctx, s) {
			continue
		}
		if busy, err := k.busy(ctx, s); err != nil || busy {
			if err != nil {
				return err
			}
			continue
		}
		end := k.begin("expire " + s.ID)
		k.tasks.Go(func() {
			defer end()
			k.timeOver(ctx, s)
		})
	}
	return nil
}

// busy puts off the end of a sandbox that was idle as far as was written down,
// and is not.
func (k *Keeper) busy(ctx context.Context, s *live.Sandbox) (bool, error) {
	now := k.now()
	if !s.Deadline.IsZero() && !s.Deadline.After(now) {
		return false, nil
	}
	active := s.ActiveAt
	if at, there := k.touch(s.ID, false); there && at.After(active) {
		active = at
	}
	var open []live.Exec
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		open, err = tx.Execs().Open(ctx, s.ID)
		return err
	})
	if err != nil {
		return false, err
	}
	if len(open) > 0 {
		active = now
	}
	if !active.After(s.ActiveAt) || !active.Add(s.Spec.Idle).After(now) {
		return false, nil
	}
	return true, k.Store.Update(ctx, func(tx store.Tx) error {
		x, err := tx.Sandboxes().Get(ctx, s.ID)
		if err != nil || x.State.Ended() {
			return err
		}
		x.ActiveAt = active
		x.ExpiresAt = due(&x)
		return tx.Sandboxes().Put(ctx, &x)
	})
}

// timeOver does what was asked for when the time of a sandbox is over.
func (k *Keeper) timeOver(ctx context.Context, s *live.Sandbox) {
	ctx = policy.With(ctx, policy.System())
	if s.Spec.OnTimeout == live.Pause {
		_, err := k.PauseSandbox(ctx, s.ID, live.Checkpointed)
		if err != nil && !fault.Is(err, fault.Unavailable) { // the driver cannot
			_, err = k.PauseSandbox(ctx, s.ID, live.Frozen)
		}
		if err == nil || ctx.Err() != nil || fault.Is(err, fault.Unavailable) {
			return
		}
		k.Logger.Warn("a sandbox whose time is over could not be paused and is ended", "sandbox", s.ID, "error", err)
	}
	if _, err := k.end(ctx, s.ID, sandbox.OutcomeExpired, "its time was over"); err != nil && ctx.Err() == nil {
		k.Logger.Error("could not end a sandbox whose time is over", "sandbox", s.ID, "error", err)
	}
}

// giveUpLost ends the sandboxes of workers that have been away for too long.
func (k *Keeper) giveUpLost(ctx context.Context) error {
	var workers []job.Worker
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		workers, err = tx.Workers().List(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, w := range workers {
		if w.Connected || k.now().Sub(w.SeenAt) < k.Back || k.here(w.ID) {
			continue
		}
		var held []live.Sandbox
		err := k.Store.View(ctx, func(tx store.Tx) (err error) {
			held, err = tx.Sandboxes().Held(ctx, w.ID)
			return err
		})
		for i := range held {
			err = errors.Join(err, k.finish(ctx, held[i].ID, sandbox.OutcomeLost, "its worker "+w.ID+" has been away for too long", nil))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) here(worker string) bool {
	for _, w := range k.Workers() {
		if w.ID == worker {
			return true
		}
	}
	return false
}
