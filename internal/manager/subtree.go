package manager

import (
	"context"
	"strconv"

	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// findMembers finds the sandboxes of a subtree: forks below a sandbox, and those
// of the members of the fleet below one. What cannot be found is known by its
// parents all the same.
func (m *Manager) findMembers(ctx context.Context, one *killswitch.Switch) {
	if one.Scope != killswitch.Subtree {
		return
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
			if !known[child] && len(members) < killswitch.MaxMembers {
				known[child] = true
				members = append(members, child)
			}
		}
	}
	one.Members = members
}

// fleetBelow adds who is whose child in the fleet, and whose sandbox.
func (m *Manager) fleetBelow(ctx context.Context, below map[string][]string) error {
	return m.Store.View(ctx, func(tx store.Tx) error {
		list, err := tx.Fleet().List(ctx, store.FleetFilter{Limit: killswitch.MaxMembers})
		for i := range list {
			w := &list[i]
			if parent := w.Manifest.ParentID; parent != "" {
				below[parent] = append(below[parent], w.ID())
			}
			if w.Sandbox != "" {
				below[w.ID()] = append(below[w.ID()], w.Sandbox)
			}
		}
		return err
	})
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
