package keeper

import (
	"cmp"
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Sandbox returns a sandbox.
func (k *Keeper) Sandbox(ctx context.Context, id string) (s live.Sandbox, err error) {
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		s, err = visible(ctx, tx, id)
		return err
	})
	if err != nil {
		return s, err
	}
	return k.touchedOf(s), nil
}

// touchedOf is a sandbox with when it was last of use.
func (k *Keeper) touchedOf(s live.Sandbox) live.Sandbox {
	if at, there := k.touch(s.ID, false); there && s.Open() && at.After(s.ActiveAt) {
		s.ActiveAt = at
		s.ExpiresAt = due(&s)
	}
	return s
}

// SandboxByName returns the caller's open sandbox that has a name.
func (k *Keeper) SandboxByName(ctx context.Context, name string) (s live.Sandbox, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return s, err
	}
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		s, err = tx.Sandboxes().ByName(ctx, c.ID, name)
		return err
	})
	if err == nil && !c.Sees(s.Owner, s.Spec.Project()) {
		return live.Sandbox{}, fault.New(fault.NotFound, "No open sandbox of yours has the name %q.", name)
	}
	return s, err
}

// Sandboxes lists sandboxes, newest first.
func (k *Keeper) Sandboxes(ctx context.Context, f store.SandboxFilter) (list []live.Sandbox, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	f.Owner = cmp.Or(c.OnlyOwner(), f.Owner)
	if f.Labels, err = placed(c, f.Labels); err != nil {
		return nil, err
	}
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sandboxes().List(ctx, f)
		return err
	})
	return list, err
}

// UpdateSandbox changes a sandbox. A time to live counts from now on.
func (k *Keeper) UpdateSandbox(ctx context.Context, id string, ch live.Change) (live.Sandbox, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return live.Sandbox{}, err
	}
	if err := noStorage(c, ch.Sync); err != nil {
		return live.Sandbox{}, err
	}
	if ch.Labels != nil {
		if ch.Labels, err = placed(c, ch.Labels); err != nil {
			return live.Sandbox{}, err
		}
	}
	s, host, err := k.use(ctx, id)
	if err != nil {
		return s, err
	}
	if ch.Limits != nil || ch.Labels != nil {
		if err := k.demandOwn(ctx, &s, "change its limits or labels"); err != nil {
			return s, err
		}
	}
	if ch.TTL != nil {
		if err := live.CheckTTL(*ch.TTL, k.Terms); err != nil {
			return s, err
		}
	}
	if err := live.CheckLabels(ch.Labels); err != nil {
		return s, err
	}
	if err := ch.Sync.Check(); err != nil {
		return s, err
	}
	if ch.Sync != nil && isSecond(host) {
		return s, fault.New(fault.Unavailable, "The files of sandbox %s are followed by the manager that its worker %s is connected to, and this is %s. Ask that one.", s.ID, s.Worker, k.ID).
			WithCode(CodeElsewhere).Retry(2 * time.Second)
	}
	var made *live.Made
	if ch.Limits != nil {
		if err := live.CheckLimits(*ch.Limits, k.Terms.Most); err != nil {
			return s, err
		}
		m, err := host.AdjustSandbox(ctx, id, over(s.Spec.Limits, *ch.Limits))
		if err != nil {
			return s, err
		}
		made = &m
	}
	return k.alter(ctx, id, event.SandboxUpdated, nil, func(s *live.Sandbox, now time.Time) error {
		if ch.TTL != nil {
			s.Spec.TTL, s.Deadline = *ch.TTL, deadline(*ch.TTL, now)
		}
		if ch.Idle != nil {
			s.Spec.Idle = *ch.Idle
		}
		if ch.OnTimeout != nil {
			s.Spec.OnTimeout = *ch.OnTimeout
		}
		if ch.Labels != nil {
			relabel(s, ch.Labels)
		}
		if ch.Sync != nil {
			s.Spec.Sync = ch.Sync
		}
		if made != nil {
			s.Made.Enforced, s.Spec.Limits = made.Enforced, made.Enforced
		}
		return nil
	})
}

// over lays the limits that were asked for over those that hold.
func over(l, asked sandbox.Limits) sandbox.Limits {
	for _, x := range []struct{ into, from *int64 }{
		{&l.MilliCPU, &asked.MilliCPU},
		{&l.Memory, &asked.Memory},
		{&l.Processes, &asked.Processes},
		{&l.Disk, &asked.Disk},
		{&l.OpenFiles, &asked.OpenFiles},
		{(*int64)(&l.CPUTime), (*int64)(&asked.CPUTime)},
	} {
		if *x.from > 0 {
			*x.into = *x.from
		}
	}
	return l
}

// alter changes a sandbox that runs, and says so.
func (k *Keeper) alter(ctx context.Context, id string, t event.Type, data map[string]any, change func(s *live.Sandbox, now time.Time) error) (s live.Sandbox, err error) {
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		if s, err = visible(ctx, tx, id); err != nil {
			return err
		}
		if err := s.State.Demand("change it", sandbox.StateRunning); err != nil {
			return err
		}
		now := k.now()
		s.ActiveAt = now
		before := s
		if err := change(&s, now); err != nil {
			return err
		}
		if err := acted(ctx, tx, &before, string(t), "", after(&s, data)); err != nil {
			return err
		}
		s.ExpiresAt = due(&s)
		if err := tx.Sandboxes().Put(ctx, &s); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&s, t, policy.ActorOf(ctx), now, data))
	})
	k.ended.Wake()
	if err == nil {
		k.followHere(&s) //nolint:contextcheck // following goes on in the keeper's life
	}
	return s, err
}

// use returns a sandbox that runs and its worker, and notes that it is of use.
func (k *Keeper) use(ctx context.Context, id string) (s live.Sandbox, host hosting, err error) {
	if s, err = k.glance(ctx, id); err != nil {
		return s, nil, err
	}
	if s.State.Ended() {
		return s, nil, fault.New(fault.Gone, "The sandbox %s has ended (%s%s).", id, s.Outcome, reasonOf(&s)).WithCode("sandbox_ended")
	}
	if err := s.State.Demand("use it", sandbox.StateRunning); err != nil {
		return s, nil, err
	}
	k.touch(id, true)
	host, err = k.host(ctx, &s)
	return s, host, err
}

func reasonOf(s *live.Sandbox) string {
	if s.Reason == "" {
		return ""
	}
	return ": " + s.Reason
}

// free is use of one that the kill switch lets be.
func (k *Keeper) free(ctx context.Context, id string) (live.Sandbox, hosting, error) {
	s, host, err := k.use(ctx, id)
	if err == nil {
		err = k.Stops(subject(&s))
	}
	return s, host, err
}

// awake is free of one that does not stand still.
func (k *Keeper) awake(ctx context.Context, id string) (live.Sandbox, hosting, error) {
	s, host, err := k.free(ctx, id)
	if err == nil && s.Paused != "" {
		err = fault.New(fault.Conflict, "The sandbox %s is paused; resume it first.", id).WithCode("paused")
	}
	return s, host, err
}

// touch notes that a sandbox is of use now, or returns when it last was.
func (k *Keeper) touch(id string, now bool) (time.Time, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now {
		k.touched[id] = k.now()
	}
	at, there := k.touched[id]
	return at, there
}

// writeTouches writes down when sandboxes were last of use, where that puts off
// their end.
func (k *Keeper) writeTouches(ctx context.Context) {
	k.mu.Lock()
	touched := k.touched
	k.touched = map[string]time.Time{}
	k.mu.Unlock()
	if len(touched) == 0 {
		return
	}
	err := k.Store.Update(ctx, func(tx store.Tx) error {
		for id, at := range touched {
			s, err := tx.Sandboxes().Get(ctx, id)
			if err != nil || s.State.Ended() || s.Spec.Idle == 0 || !at.After(s.ActiveAt) {
				if err != nil && !fault.Is(err, fault.NotFound) {
					return err
				}
				continue
			}
			s.ActiveAt = at
			s.ExpiresAt = due(&s)
			if err := tx.Sandboxes().Put(ctx, &s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		k.Logger.Error("could not write down when sandboxes were used", "error", err)
	}
}

// WaitSandbox waits until a sandbox is in a state that fits, or ctx ends.
func (k *Keeper) WaitSandbox(ctx context.Context, id string, fits func(*live.Sandbox) bool) (live.Sandbox, error) {
	for {
		moved := k.ended.Wait() // before the look
		s, err := k.Sandbox(context.WithoutCancel(ctx), id)
		if err != nil || fits(&s) {
			return s, err
		}
		select {
		case <-moved:
		case <-time.After(rhythm): // another manager may have moved it
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

// SandboxStats measures a sandbox.
func (k *Keeper) SandboxStats(ctx context.Context, id string) (live.Stats, error) {
	s, err := k.Sandbox(ctx, id)
	if err != nil {
		return live.Stats{}, err
	}
	if s.State.Ended() {
		return live.Stats{Usage: s.Usage, Disk: s.LastDisk(), At: s.EndedAt}, nil
	}
	host, err := k.host(ctx, &s)
	if err != nil {
		return live.Stats{}, err
	}
	stats, err := host.SandboxStats(ctx, id)
	if err == nil && stats.Disk < 0 { // one that stands still has what it had
		stats.Disk = s.LastDisk()
	}
	return stats, err
}

// Accounts adds up what sandboxes have used since a time.
func (k *Keeper) Accounts(ctx context.Context, since time.Time) (list []store.Account, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	f := store.AccountFilter{Owner: c.OnlyOwner(), Project: c.Project(), Since: since, Now: k.now()}
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sandboxes().Accounts(ctx, f)
		return err
	})
	return list, err
}
