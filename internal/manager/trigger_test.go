package manager

import (
	"runtime"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// launch starts a worker of the fleet.
func launch(t *testing.T, m *Manager) manifest.Worker {
	t.Helper()
	paper, err := m.Fleet.Issue(local(), governor.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Fleet.Register(local(), paper)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestTriggersOfTwoManagers runs two managers over one database, each looking by
// itself: what fires at the one is done by the other that has the worker, and one
// breach that both see acts once.
func TestTriggersOfTwoManagers(t *testing.T) {
	t.Parallel()
	address, err := startServer(t).Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has, other := share(t, address), share(t, address)
	boxes := &dispatchtest.Boxes{}
	attendWith(t, has, "w", boxes)
	first, second := launch(t, has), launch(t, has)
	for { // that the worker is connected is written down a moment later
		_, _, err := other.StartExec(local(), live.Command{Sandbox: first.Sandbox, Command: []string{"true"}}, run.Asked{})
		if fault.CodeOf(err) == keeper.CodeElsewhere {
			break
		}
		runtime.Gosched() // bounded by the test's own deadline
	}
	rule := func(at *Manager, kind trigger.Kind, threshold float64) trigger.Trigger {
		t.Helper()
		x := trigger.Trigger{Kind: kind, Threshold: threshold, Severity: manifest.High, Enabled: true, Plan: trigger.DefaultPlan()}
		x.Plan.Strategy = trigger.Forceful
		x, err := at.Triggers.AddTrigger(local(), x)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	ends := func(w manifest.Worker) {
		t.Helper()
		for {
			list, err := other.Triggers.Firings(local(), store.FiringFilter{Worker: w.ID()})
			if err != nil {
				t.Fatal(err)
			}
			if len(list) > 0 && !list[0].Open() {
				if len(list) != 1 || list[0].Outcome != trigger.Killed {
					t.Errorf("it came to %+v", list)
				}
				break
			}
			time.Sleep(time.Millisecond) // bounded by the test's own deadline
		}
		err := has.Store.View(t.Context(), func(tx store.Tx) error {
			records, err := tx.Audit().List(t.Context(), audit.Filter{Actions: []string{"trigger_fired", "trigger_killed"}, Target: w.ID()}, 99)
			if len(records) != 2 {
				t.Errorf("the audit has %+v", records)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	manual := rule(other, trigger.Manual, 0)
	if _, err := other.Triggers.Fire(local(), first.ID(), manual.ID, nil, "from the other side"); err != nil {
		t.Fatal(err)
	}
	ends(first)
	rule(has, trigger.TimeLimit, 1e-6)
	ends(second)
	if left := boxes.Standings(); len(left) != 0 {
		t.Errorf("the worker still has %+v", left)
	}
}
