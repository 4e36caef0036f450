package governor_test

import (
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
)

// quarantine puts a worker under quarantine, and demands that it stands still.
func (s *stage) quarantine(w manifest.Worker) {
	s.Helper()
	x, err := s.Quarantine(me(), w.ID(), governor.Suspicion{Reason: "odd", Severity: manifest.Low})
	if err != nil || !x.Quarantined() || !s.frozen(w) {
		s.Errorf("under quarantine: %t, and stands still: %t: %v", x.Quarantined(), s.frozen(w), err)
	}
}

// running is how many workers are said to run.
func (s *stage) running() int {
	s.Helper()
	list, err := s.Workers(me(), store.FleetFilter{States: []manifest.State{manifest.Launching, manifest.Running, manifest.Ending}, Limit: 1000})
	if err != nil {
		s.Fatalf("list the workers: %v", err)
	}
	return len(list)
}

// clearAway takes a worker out of service with all below it, and demands that
// nothing of them is left.
func (s *stage) clearAway(w manifest.Worker) {
	s.Helper()
	if _, err := s.Decommission(me(), w.ID(), "over"); err != nil || s.running() != 0 || s.alive() != 0 {
		s.Errorf("%d are left, with %d sandboxes: %v", s.running(), s.alive(), err)
	}
}

// TestAQuarantineDuringAReplication puts a worker under quarantine while its child
// is launched: that was allowed before, so it lives, where the law can find it. A
// paper from before gives no other.
func TestAQuarantineDuringAReplication(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(*manifest.Contract) {})
		w := s.start("")
		paper := s.issue(w.ID())
		s.host = killing{stageHost{s.boxes}, func() { s.quarantine(w) }}
		child, err := s.Replicate(me(), w.ID(), "more hands", nil)
		s.host = nil
		if err != nil || child.State != manifest.Running || s.running() != 2 || s.alive() != 2 {
			t.Fatalf("the child is %q, and %d of %d have a sandbox: %v", child.State, s.alive(), s.running(), err)
		}
		tree, err := s.Lineage(me(), "")
		if err != nil || len(tree.Roots) != 1 || len(tree.Roots[0].Children) != 1 || len(tree.Orphans) != 0 {
			t.Errorf("the lineage is %+v, %v", tree, err)
		}
		if record, err := s.Forensic(me(), w.ID()); err != nil || !strings.Contains(string(record), child.ID()) {
			t.Errorf("the record does not name the child: %v", err)
		}
		_, err = s.Replicate(me(), w.ID(), "", nil)
		s.wantCode("a child of one under quarantine", err, "deny_quarantined")
		_, err = s.Register(me(), paper)
		s.wantCode("a paper from before", err, "deny_quarantined")
		if !s.frozen(w) || s.frozen(child) || s.alive() != 2 {
			t.Errorf("it stands still: %t, its child: %t, %d sandboxes", s.frozen(w), s.frozen(child), s.alive())
		}
		s.clearAway(w)
	})
}

// TestAnEndDuringAReplicationUnderQuarantine takes the worker out of service too
// before its child is there.
func TestAnEndDuringAReplicationUnderQuarantine(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(*manifest.Contract) {})
		w := s.start("")
		s.host = killing{stageHost{s.boxes}, func() {
			s.quarantine(w)
			if _, err := s.Decommission(me(), w.ID(), "over"); err != nil {
				t.Errorf("decommission: %v", err)
			}
		}}
		_, err := s.Replicate(me(), w.ID(), "more hands", nil)
		s.wantCode("the child", err, "ended")
		if s.running() != 0 || s.alive() != 0 {
			t.Errorf("%d are left, with %d sandboxes", s.running(), s.alive())
		}
	})
}

// TestAQuarantineMeetsReplications lets many hands replicate a worker that comes
// under quarantine meanwhile: whoever was sooner, all that live are known.
func TestAQuarantineMeetsReplications(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(c *manifest.Contract) { c.MaxReplicas = 100 })
		w := s.start("")
		stop := crowd(3, func() {
			if _, err := s.Replicate(me(), w.ID(), "", nil); err != nil && !fault.Is(err, fault.Denied) {
				t.Errorf("replicate: %v", err)
			}
		})
		s.quarantine(w)
		stop()
		_, err := s.Replicate(me(), w.ID(), "", nil)
		s.wantCode("a child of one under quarantine", err, "deny_quarantined")
		if s.running() != s.alive() || !s.frozen(w) {
			t.Errorf("%d run, with %d sandboxes", s.running(), s.alive())
		}
		s.clearAway(w)
	})
}
