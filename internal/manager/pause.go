package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// pause is what this manager knows of the organisation's pause. It is asked
// often and asks no database.
type pause struct{ now atomic.Pointer[policy.Pause] }

func (p *pause) get() policy.Pause {
	if now := p.now.Load(); now != nil {
		return *now
	}
	return policy.Pause{}
}

// Pause says whether the organisation is paused, and since when.
func (m *Manager) Pause(ctx context.Context) (policy.Pause, error) {
	if _, err := policy.Asking(ctx); err != nil {
		return policy.Pause{}, err
	}
	if err := m.readPause(ctx); err != nil {
		return policy.Pause{}, err
	}
	return m.pause.get(), nil
}

// DemandIntake refuses what is new while the organisation is paused.
func (m *Manager) DemandIntake() error { return m.pause.get().Refuse() }

// SetPause pauses the organisation or lets it go on. What is so already is a
// Conflict, so that the reason on record is that of who did it.
func (m *Manager) SetPause(ctx context.Context, paused bool, reason string) (policy.Pause, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return policy.Pause{}, err
	}
	if err := policy.CheckReason(reason); err != nil {
		return policy.Pause{}, err
	}
	next := policy.Pause{Paused: paused, Reason: reason, Actor: c.Actor(), At: m.Now().UTC().Truncate(time.Microsecond)}
	err = m.Store.Update(ctx, func(tx store.Tx) error {
		was, err := tx.Organisation().Pause(ctx)
		if err != nil {
			return err
		}
		if was.Paused == paused {
			return alreadySo(was)
		}
		if err := tx.Organisation().SetPause(ctx, next); err != nil {
			return err
		}
		return tellPause(ctx, tx, next)
	})
	if err != nil {
		return policy.Pause{}, err
	}
	m.Logger.Warn("the organisation's pause was changed", "paused", paused, "by", next.Actor, "reason", reason)
	m.learnPause(next)
	return next, nil
}

func alreadySo(p policy.Pause) error {
	if p.Paused {
		return fault.New(fault.Conflict, "The organisation is paused already, by %s: %s", p.Actor, p.Reason).WithCode("already_paused")
	}
	return fault.New(fault.Conflict, "The organisation is not paused.").WithCode("not_paused")
}

// tellPause writes down what was changed.
func tellPause(ctx context.Context, tx store.Tx, p policy.Pause) error {
	t, severity := event.OrganisationResumed, audit.Warning
	if p.Paused {
		t, severity = event.OrganisationPaused, audit.Critical
	}
	data, err := json.Marshal(map[string]any{"reason": p.Reason})
	if err != nil {
		return fmt.Errorf("encode the pause: %w", err)
	}
	err = tx.Audit().Append(ctx, &audit.Record{
		At: p.At, Category: audit.Policy, Severity: severity, Action: string(t), Message: p.Reason, Source: "manager", Actor: p.Actor, Target: "organisation",
	})
	if err != nil {
		return err
	}
	return tx.Events().Append(ctx, &event.Event{Type: t, Version: 1, Entity: "organisation", EntityID: "organisation", Actor: p.Actor, At: p.At, Data: data})
}

// readPause reads what was decided, here or at another manager.
func (m *Manager) readPause(ctx context.Context) error {
	var p policy.Pause
	err := m.Store.View(ctx, func(tx store.Tx) (err error) {
		p, err = tx.Organisation().Pause(ctx)
		return err
	})
	if err == nil {
		m.learnPause(p)
	}
	return err
}

// learnPause makes the rest of the manager obey.
func (m *Manager) learnPause(p policy.Pause) {
	was := m.pause.get()
	m.pause.now.Store(&p)
	m.Queue.Hold(p.Refuse())
	if was.Paused && !p.Paused {
		m.work.Wake()
		m.idle.Wake()
		m.Wake()
	}
}

// pauseEvery is how soon another manager's decision holds here.
const pauseEvery = time.Second

// followPause asks what other managers decided, until ctx ends.
func (m *Manager) followPause(ctx context.Context) {
	tick := time.NewTicker(pauseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := m.readPause(ctx); err != nil && ctx.Err() == nil {
			m.Logger.Warn("could not read whether the organisation is paused; trying again", "error", err)
		}
	}
}
