package manager

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

// The leader's rhythm. A term outlives several missed renewals; polling is
// only the net below the wake-ups.
const (
	leaderTerm   = 15 * time.Second
	renewEvery   = 5 * time.Second
	reapEvery    = time.Second
	scheduleMost = 500 * time.Millisecond
	forgetEvery  = time.Hour
	replyLife    = 24 * time.Hour
)

// leader schedules and reaps while its fence is current. Every write that it
// makes checks the fence in the same transaction.
type leader struct {
	m      *Manager
	holder string
	fence  int64
	leads  bool
}

// campaign tries to lead, or to go on leading.
func (l *leader) campaign(ctx context.Context, force bool) error {
	err := l.m.Store.Update(ctx, func(tx store.Tx) (err error) {
		l.fence, l.leads, err = tx.Leaders().Acquire(ctx, l.holder, l.m.Now(), leaderTerm, force)
		return err
	})
	if err == nil && l.leads {
		l.m.Queue.Lead(l.fence)
	} else {
		l.m.Queue.Lead(0)
	}
	return err
}

// run leads until ctx ends.
func (l *leader) run(ctx context.Context) {
	renew, reap, forget := time.NewTicker(renewEvery), time.NewTicker(reapEvery), time.NewTicker(forgetEvery)
	defer renew.Stop()
	defer reap.Stop()
	defer forget.Stop()
	for {
		wake := l.m.work.wait() // before the pass: what comes during it must not be missed
		next := time.NewTimer(l.schedule(ctx))
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-wake:
		case <-next.C:
		case <-renew.C:
			l.try(ctx, "renew leadership", l.campaign(ctx, false))
		case <-reap.C:
			l.reap(ctx)
		case <-forget.C:
			l.forget(ctx)
		}
		next.Stop()
	}
}

// schedule assigns what is due and says when to look again.
func (l *leader) schedule(ctx context.Context) time.Duration {
	if !l.leads {
		return scheduleMost
	}
	for {
		assigned, next, err := l.m.Queue.Schedule(ctx, l.fence)
		l.try(ctx, "schedule jobs", err)
		if assigned > 0 {
			l.m.idle.wake()
			continue // there may be more than one batch
		}
		if err != nil || next.IsZero() {
			return scheduleMost
		}
		return min(max(next.Sub(l.m.Now()), time.Millisecond), scheduleMost)
	}
}

func (l *leader) reap(ctx context.Context) {
	if !l.leads {
		return
	}
	lost, err := l.m.Queue.Reap(ctx, l.fence)
	l.try(ctx, "reap leases", err)
	if len(lost) > 0 {
		l.m.Logger.Warn("leases ran out and went back to the queue", "jobs", len(lost))
	}
}

// forget drops replies whose idempotency keys are too old to come again.
func (l *leader) forget(ctx context.Context) {
	l.try(ctx, "forget old replies", l.m.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Leaders().Check(ctx, l.fence); err != nil {
			return err
		}
		_, err := tx.Replies().Forget(ctx, l.m.Now().Add(-replyLife))
		return err
	}))
}

// try logs what a pass could not do; the next pass tries again. A fence that
// is not ours any more means that another manager leads.
func (l *leader) try(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	if fault.Is(err, fault.Conflict) {
		l.leads = false
		l.m.Queue.Lead(0)
	}
	l.m.Logger.Error("could not "+what, "error", err)
}
