package manager

import (
	"context"
	"strconv"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// findMembers finds the sandboxes of a subtree: forks below a sandbox, and those
// of the members of the fleet below one. What cannot be found is known by its
// parents all the same. A subtree of more than a switch can name is refused: it
// would stop a part of it, and say that it was all.
func (m *Manager) findMembers(ctx context.Context, one *killswitch.Switch) error {
	if one.Scope != killswitch.Subtree {
		return nil
	}
	bounded, cancel := context.WithTimeoutCause(ctx, persistTime, errSlowStore)
	defer cancel()
	below := map[string][]string{}
	err := m.fleetBelow(bounded, below)
	if err == nil {
		err = m.forksBelow(bounded, below)
	}
	if err != nil {
		m.Logger.Error("could not find all of a subtree", "root", one.Root, "error", err)
	}
	members := []string{one.Root}
	known := map[string]bool{one.Root: true}
	for i := 0; i < len(members); i++ {
		for _, child := range below[members[i]] {
			if !known[child] {
				known[child] = true
				members = append(members, child)
			}
		}
	}
	if len(members) > killswitch.MaxMembers {
		return fault.New(fault.Exhausted, "Below %.40q are more than the %d that a switch can name; engage one for all, or for the label %s of their contract.", one.Root, killswitch.MaxMembers, governor.LabelContract).WithCode("subtree_too_large")
	}
	one.Members = members
	return nil
}

// fleetBelow adds who is whose child in the fleet, and whose sandbox: of those who
// are there, through those above them who may have ended long ago.
func (m *Manager) fleetBelow(ctx context.Context, below map[string][]string) error {
	return m.Store.View(ctx, func(tx store.Tx) error {
		list, err := tx.Fleet().List(ctx, store.FleetFilter{
			States: []manifest.State{manifest.Launching, manifest.Running, manifest.Ending}, Limit: manifest.MaxReplicas,
		})
		known := map[string]bool{}
		for i := range list {
			known[list[i].ID()] = true
		}
		for i := range list {
			w := list[i]
			if w.Sandbox != "" {
				below[w.ID()] = append(below[w.ID()], w.Sandbox)
			}
			if err == nil {
				err = climb(ctx, tx, w, known, below)
			}
		}
		return err
	})
}

// climb adds whose child a worker is, and whose its parent is, up to one who is
// known: that one climbs by itself, or has.
func climb(ctx context.Context, tx store.Tx, w manifest.Worker, known map[string]bool, below map[string][]string) (err error) {
	for range manifest.MaxDepth + 1 {
		parent := w.Manifest.ParentID
		if parent == "" {
			return nil
		}
		below[parent] = append(below[parent], w.ID())
		if known[parent] {
			return nil
		}
		known[parent] = true
		if w, err = tx.Fleet().Get(ctx, parent); fault.Is(err, fault.NotFound) {
			return nil // it was forgotten
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forksBelow adds which open sandbox is a fork of which.
func (m *Manager) forksBelow(ctx context.Context, below map[string][]string) error {
	for before := ""; ; {
		page := 0
		err := m.Store.View(ctx, func(tx store.Tx) error {
			list, err := tx.Sandboxes().List(ctx, store.SandboxFilter{Open: true, Before: before, Limit: keptPage})
			page = len(list)
			for i := range list {
				if parent := list[i].Parent; parent != "" {
					below[parent] = append(below[parent], list[i].ID)
				}
				before = list[i].ID
			}
			return err
		})
		if err != nil || page < keptPage {
			return err
		}
	}
}

// stopsFleet says whether the kill switch stands against a member of the fleet,
// or against one above it.
func (m *Manager) stopsFleet(_ context.Context, _ store.Tx, s governor.Subject) (reason string, stopped bool, err error) {
	state := m.switches.state()
	labels := map[string]string{governor.LabelWorker: s.Worker, governor.LabelContract: s.Contract}
	if s.ProjectID != 0 {
		labels[governor.LabelProject] = strconv.FormatInt(s.ProjectID, 10)
	}
	subjects := []sandbox.Subject{{ID: s.Worker, Project: s.ProjectID, Labels: labels}, {ID: s.Sandbox}}
	for _, id := range s.Ancestors {
		subjects = append(subjects, sandbox.Subject{ID: id})
	}
	for _, x := range subjects {
		if over := state.Over(x); over != nil {
			return over.Reason, true, nil
		}
	}
	return "", false, nil
}
