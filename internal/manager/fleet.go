package manager

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
	"github.com/aurea-dev/aurea/internal/watchman"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// FleetTerms is how the fleet is governed; 0 is a sensible time.
type FleetTerms struct {
	// Keys signs manifests; nil is a key that is forgotten with the process.
	Keys governor.Keyring
	// Silence is how long a worker may send no heartbeat, Validity how long a
	// manifest can be used.
	Silence, Validity time.Duration
	// Observe is told of what is measured, Fired of what triggers did; nil is
	// nobody.
	Observe func(manifest.Enforcement)
	Fired   func(trigger.Kind, trigger.Outcome)
	// Hooks is what calls of the hooks of triggers may do.
	Hooks webhook.Terms
}

// newGovernor makes the part that governs the fleet.
func (m *Manager) newGovernor(t FleetTerms) (*governor.Governor, error) {
	if t.Keys == nil {
		keys, err := governor.OpenKeyFile("", nil)
		if err != nil {
			return nil, err
		}
		t.Keys = keys
	}
	return governor.New(governor.Config{
		Store: m.Store, Sandboxes: m.Keeper, Blobs: m.Blobs, Keys: t.Keys, Leads: func() bool { return m.fence.Load() != 0 },
		Demand: func(context.Context) error { return m.demandDisk() }, Stopped: m.stopsFleet,
		Now: m.Now, Logger: m.Logger, Observe: t.Observe, Most: m.SandboxTerms.Most, MaxTTL: m.SandboxTerms.MaxTTL,
		Silence: t.Silence, Validity: t.Validity, Alone: m.Alone,
	}), nil
}

// newWatchman makes the part that watches the fleet by triggers.
func (m *Manager) newWatchman(t FleetTerms) *watchman.Watchman {
	return watchman.New(watchman.Config{
		Store: m.Store, Fleet: m.Fleet, Sandboxes: m.Keeper, Hooks: t.Hooks, Leads: func() bool { return m.fence.Load() != 0 }, Now: m.Now, Logger: m.Logger, Observe: t.Fired,
	})
}

// fleet forgets workers of the fleet that ended long ago, and what triggers did
// then.
func (p *pass) fleet(ctx context.Context) error {
	before, ok := p.cutoff(p.m.Retention.Jobs)
	for ok && !p.dry {
		var n int64
		err := p.write(ctx, func(tx store.Tx) (err error) {
			if n, err = tx.Fleet().Forget(ctx, before, governor.MaxHistory, forgetBatch); err != nil {
				return err
			}
			fired, err := tx.Firings().Forget(ctx, before, watchman.MaxFirings, forgetBatch)
			n = max(n, fired)
			return err
		})
		if err != nil {
			return err
		}
		ok = n == forgetBatch
	}
	return nil
}

// fleetBlobs crosses out of the list what was put aside of workers.
func (p *pass) fleetBlobs(ctx context.Context, unwanted map[string]int64) error {
	return p.m.Store.View(ctx, func(tx store.Tx) error {
		list, err := tx.Fleet().List(ctx, store.FleetFilter{Bundled: true, Limit: governor.MaxHistory + manifest.MaxReplicas})
		for i := range list {
			bundles := []*manifest.Bundle{list[i].Bundle}
			if q := list[i].Quarantine; q != nil {
				bundles = append(bundles, q.Bundle)
			}
			for _, b := range bundles {
				if b != nil {
					delete(unwanted, b.Record)
					delete(unwanted, b.Files)
				}
			}
		}
		return err
	})
}
