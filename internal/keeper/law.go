package keeper

import (
	"context"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/store"
)

// member says whether a sandbox is that of a worker of the fleet, and by what the
// law holds it: "quarantined", "suspended", or "".
func (k *Keeper) member(ctx context.Context, s *live.Sandbox) (is bool, held string, err error) {
	id, named := strings.CutPrefix(s.Name, live.FleetName)
	if !named {
		return false, "", nil
	}
	err = k.Store.View(ctx, func(tx store.Tx) error {
		is, held = false, ""
		w, err := tx.Fleet().Get(ctx, id)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		// One that is being launched has no sandbox written down yet.
		is = err == nil && (w.Sandbox == s.ID || w.Sandbox == "")
		switch {
		case is && w.Quarantined():
			held = "quarantined"
		case is && w.Suspended():
			held = "suspended"
		}
		return err
	})
	return is, held, err
}

// demandOwn refuses what would change a worker of the fleet behind the back of
// the law: what its manifest says holds for its life, by its labels a kill
// switch finds it, and its copies would be in nobody's registry.
func (k *Keeper) demandOwn(ctx context.Context, s *live.Sandbox, what string) error {
	is, _, err := k.member(ctx, s)
	if err == nil && is {
		err = fault.New(fault.Conflict, "The sandbox %s is that of a worker of the fleet: its manifest holds, and nobody may %s.", s.ID, what).WithCode("of_the_fleet")
	}
	return err
}

// demandFree refuses to let a worker of the fleet go on that the law holds: only
// its release does, or its revival.
func (k *Keeper) demandFree(ctx context.Context, s *live.Sandbox) error {
	_, held, err := k.member(ctx, s)
	if err != nil || held == "" {
		return err
	}
	worker := strings.TrimPrefix(s.Name, live.FleetName)
	if held == "suspended" {
		return fault.New(fault.Conflict, "The sandbox %s is that of the worker %s, which is suspended; revive the worker first (POST /api/v1/fleet/workers/%s/revive).", s.ID, worker, worker).WithCode(held)
	}
	return fault.New(fault.Conflict, "The sandbox %s is that of the worker %s, which is under quarantine; release the worker first (POST /api/v1/fleet/workers/%s/release).", s.ID, worker, worker).WithCode(held)
}

// HoldSandbox freezes the sandbox of a worker of the fleet that the law holds, also
// where a kill switch has frozen it already: it stays when that is released. held
// is false where the law lets the worker be by now.
func (k *Keeper) HoldSandbox(ctx context.Context, id string) (held bool, err error) {
	give, err := k.still.take(ctx, id)
	if err != nil {
		return false, err
	}
	defer give()
	s, host, err := k.use(ctx, id)
	if err != nil {
		return false, err
	}
	_, by, err := k.member(ctx, &s)
	if err != nil || by == "" {
		return false, err
	}
	if s.Paused == "" {
		s, err = k.pause(ctx, &s, host, live.Frozen)
	} else { // its host is asked in any case: what is written down may be of before
		err = host.PauseSandbox(ctx, id)
	}
	if err != nil {
		return false, err
	}
	// Another manager may have let it go on since the law was asked.
	if _, by, err = k.member(ctx, &s); err == nil && by == "" {
		_, err = k.goOn(ctx, &s, host)
	}
	return err == nil && by != "", err
}

// Halted reports whether a kill switch stands against a sandbox.
func (k *Keeper) Halted(s *live.Sandbox) bool { return k.Stops(subject(s)) != nil }
