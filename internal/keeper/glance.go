package keeper

import (
	"context"
	"sync"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// maxGlances is how many sandboxes are kept at hand.
const maxGlances = 256

// glances has sandboxes at hand as they are written down, so that a call about
// one need not ask the database how it stands. It is for a manager that shares
// its database with no other: only this one writes sandboxes down then, and
// whatever may do that goes through moving.
type glances struct {
	mu      sync.Mutex
	writers int    // changes under way
	changes uint64 // that have begun, and that are done
	boxes   map[string]live.Sandbox
}

// moving is the store for whatever may change a sandbox: what is at hand is
// forgotten before, and nothing is taken to hand until it is done.
type moving struct {
	store.Store
	glances *glances
}

// Update implements store.Store.
func (m moving) Update(ctx context.Context, fn func(store.Tx) error) error {
	m.glances.begin()
	defer m.glances.end()
	return m.Store.Update(ctx, fn)
}

// begin notes that a change begins, and returns what endWith wants to know.
func (g *glances) begin() (changes uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writers++
	g.changes++
	clear(g.boxes)
	return g.changes
}

func (g *glances) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writers--
	g.changes++ // who looked meanwhile may have seen what was before
}

// endWith is end for a change that has written a new sandbox down, which is taken
// to hand unless there was another change since it began.
func (g *glances) endWith(s live.Sandbox, changes uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := g.writers == 1 && g.changes == changes
	g.writers--
	g.changes++
	if alone {
		g.keep(s)
	}
}

// get returns a sandbox that is at hand, or what put wants to know.
func (g *glances) get(id string) (s live.Sandbox, there bool, changes uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, there = g.boxes[id]
	return s, there, g.changes
}

// put takes a sandbox to hand that was read after so many changes, unless there
// was another since, or is one under way.
func (g *glances) put(s live.Sandbox, changes uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writers > 0 || g.changes != changes {
		return
	}
	g.keep(s)
}

// keep has a sandbox at hand. mu is held.
func (g *glances) keep(s live.Sandbox) {
	if g.boxes == nil || len(g.boxes) >= maxGlances {
		g.boxes = map[string]live.Sandbox{}
	}
	g.boxes[s.ID] = s
}

// glance is Sandbox where it may be at hand. What it returns is not to be
// written into.
func (k *Keeper) glance(ctx context.Context, id string) (live.Sandbox, error) {
	if !k.Alone {
		return k.Sandbox(ctx, id)
	}
	c, err := policy.Asking(ctx)
	if err != nil {
		return live.Sandbox{}, err
	}
	s, there, changes := k.glances.get(id)
	if there && c.Sees(s.Owner, s.Spec.Project()) {
		return k.touchedOf(s), nil
	}
	if s, err = k.Sandbox(ctx, id); err == nil {
		k.glances.put(s, changes)
	}
	return s, err
}
