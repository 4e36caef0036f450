package keeper

import (
	"context"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/store"
)

// member says whether a sandbox is that of a worker of the fleet, and whether
// the worker is under quarantine.
func (k *Keeper) member(ctx context.Context, s *live.Sandbox) (is, held bool, err error) {
	id, named := strings.CutPrefix(s.Name, live.FleetName)
	if !named {
		return false, false, nil
	}
	err = k.Store.View(ctx, func(tx store.Tx) error {
		is, held = false, false
		w, err := tx.Fleet().Get(ctx, id)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		// One that is being launched has no sandbox written down yet.
		is = err == nil && (w.Sandbox == s.ID || w.Sandbox == "")
		held = is && w.Quarantined()
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

// demandFree refuses to let a worker of the fleet go on that is under
// quarantine: only its release does.
func (k *Keeper) demandFree(ctx context.Context, s *live.Sandbox) error {
	_, held, err := k.member(ctx, s)
	if err == nil && held {
		err = fault.New(fault.Conflict, "The sandbox %s is that of a worker under quarantine; release the worker first.", s.ID).WithCode("quarantined")
	}
	return err
}
