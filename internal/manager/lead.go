package manager

import (
	"context"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

// The leader's rhythm. A term outlives several missed renewals; polling is
// only the net below the wake-ups.
const (
	leaderTerm   = 6 * time.Second
	renewEvery   = 2 * time.Second
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
	since  time.Time // when it began to lead under this fence
}

// campaign tries to lead, or to go on leading.
func (l *leader) campaign(ctx context.Context, force bool) error {
	before, led := l.fence, l.leads
	err := l.m.Store.Update(ctx, func(tx store.Tx) (err error) {
		l.fence, l.leads, err = tx.Leaders().Acquire(ctx, l.holder, l.m.Now(), leaderTerm, force)
		return err
	})
	l.leads = l.leads && err == nil
	if l.leads {
		if !led || l.fence != before {
			l.since = l.m.Now()
			l.m.Logger.Info("this manager leads", "fence", l.fence)
		}
		l.lead(l.fence)
	} else {
		l.lead(0)
	}
	return err
}

// lead tells the rest of the manager under which fence it leads; 0 is not.
func (l *leader) lead(fence int64) {
	l.m.Queue.Lead(fence)
	l.m.fence.Store(fence)
}

// begin tries to lead for the first time. An earlier life of this manager is
// dead, and need not be waited for.
func (l *leader) begin(ctx context.Context) error {
	force := l.m.Alone
	err := l.m.Store.View(ctx, func(tx store.Tx) error {
		holder, err := tx.Leaders().Holder(ctx)
		force = force || strings.HasPrefix(holder, l.m.ID+".")
		return err
	})
	if err != nil {
		return err
	}
	return l.campaign(ctx, force)
}

// resign ends the term, so that another manager need not wait for its end.
func (l *leader) resign(ctx context.Context) {
	if !l.leads {
		return
	}
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 5*time.Second, errStopped)
	defer cancel()
	l.lead(0)
	err := l.m.Store.Update(bounded, func(tx store.Tx) error {
		if err := tx.Leaders().Check(bounded, l.fence); err != nil {
			return err
		}
		_, _, err := tx.Leaders().Acquire(bounded, l.holder, l.m.Now(), 0, false)
		return err
	})
	if err != nil && !fault.Is(err, fault.Conflict) {
		l.m.Logger.Warn("could not resign; another manager leads when the term is over", "error", err)
	}
}

// run leads until ctx ends.
func (l *leader) run(ctx context.Context) {
	defer l.resign(ctx)
	renew, reap, forget := time.NewTicker(renewEvery), time.NewTicker(reapEvery), time.NewTicker(forgetEvery)
	defer renew.Stop()
	defer reap.Stop()
	defer forget.Stop()
	for {
		wake := l.m.work.Wait() // before the pass: what comes during it must not be missed
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
			l.m.idle.Wake()
			continue // there may be more than one batch
		}
		if err != nil || next.IsZero() {
			return scheduleMost
		}
		return min(max(next.Sub(l.m.Now()), time.Millisecond), scheduleMost)
	}
}

// reap takes away leases that ran out. Who begins to lead has patience first:
// while no manager was there, no worker could renew anything.
func (l *leader) reap(ctx context.Context) {
	if !l.leads || l.m.Now().Sub(l.since) < l.m.Patience {
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
	if !l.leads {
		return
	}
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
		l.lead(0)
	}
	l.m.Logger.Error("could not "+what, "error", err)
}
