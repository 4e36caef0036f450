package manager

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/machinist"
	lifecycle "github.com/aurea-dev/aurea/internal/session" // a session here is a worker's
	"github.com/aurea-dev/aurea/internal/store"
)

// newMachinist makes the part that looks after machines.
func (m *Manager) newMachinist(t SandboxTerms) *machinist.Machinist {
	return machinist.New(machinist.Config{
		Store: m.Store, Sandboxes: m.Keeper, Execs: m.Keeper, Leads: func() bool { return m.fence.Load() != 0 },
		Now: m.Now, Logger: m.Logger, MaxTTL: t.MaxTTL, Alone: m.Alone,
	})
}

// SessionTerms is how sessions are looked after; 0 is as their origin has it.
type SessionTerms struct {
	Age, Idle time.Duration
	OnStop    lifecycle.OnStop
}

// newSessions makes the part that looks after sessions.
func (m *Manager) newSessions(t SessionTerms) *lifecycle.Lifecycle {
	return lifecycle.New(lifecycle.Config{
		Store: m.Store, Sandboxes: m.Keeper, Leads: func() bool { return m.fence.Load() != 0 }, Now: m.Now, Logger: m.Logger,
		Submit: func(ctx context.Context, prd job.PRD) (job.Submission, error) { return m.SubmitPRD(ctx, prd, "", "") },
		Queue:  m.Queue, Execs: m.Keeper, Arrived: m.idle.Wait, LeaseTerm: m.LeaseTerm,
		Age: t.Age, Idle: t.Idle, MaxTTL: m.SandboxTerms.MaxTTL, OnStop: t.OnStop,
	})
}

// machines forgets machines that were destroyed long ago, and sessions that
// ended, a few at a time.
func (p *pass) machines(ctx context.Context) error {
	before, ok := p.cutoff(p.m.Retention.Jobs)
	for ok && !p.dry {
		var machines, sessions int64
		err := p.write(ctx, func(tx store.Tx) (err error) {
			if machines, err = tx.Machines().Forget(ctx, before, forgetBatch); err != nil {
				return err
			}
			sessions, err = tx.Sessions().Forget(ctx, before, forgetBatch)
			return err
		})
		if err != nil {
			return err
		}
		ok = machines == forgetBatch || sessions == forgetBatch
	}
	return nil
}
