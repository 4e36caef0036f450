package governor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
)

// crowd does something with several hands until it is told to stop.
func crowd(hands int, do func()) (stop func()) {
	var group sync.WaitGroup
	over := make(chan struct{})
	for range hands {
		group.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					do()
				}
			}
		})
	}
	return func() { close(over); group.Wait() }
}

// TestNobodyLetsASuspendedWorkerGoOn has the owner pause and resume the sandbox
// with many hands while the law suspends the worker: from the moment in which that
// is said it stands still, until it is revived.
func TestNobodyLetsASuspendedWorkerGoOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(*manifest.Contract) {})
		w := s.start("")
		for range 3 {
			stop := crowd(4, func() {
				_, _ = s.keep.PauseSandbox(me(), w.Sandbox, live.Frozen)
				_, _ = s.keep.ResumeSandbox(me(), w.Sandbox)
				if x, err := s.Worker(me(), w.ID()); err == nil && x.Suspended() { // as somebody sees it who watches for a gap
					_, _ = s.keep.ResumeSandbox(me(), w.Sandbox)
				}
			})
			x, err := s.Suspend(me(), w.ID(), "enough")
			if err != nil || !x.Suspended() || !s.frozen(w) {
				t.Fatalf("suspended %t, and its host says %t: %v", x.Suspended(), s.frozen(w), err)
			}
			for range 20 {
				if _, err := s.keep.ResumeSandbox(me(), w.Sandbox); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "suspended" {
					t.Fatalf("its owner lets it go on: %v", err)
				}
				if !s.frozen(w) {
					t.Fatal("it went on")
				}
			}
			stop()
			// The law holds it, and looks after that, also while it is revived.
			stop = crowd(4, func() { _ = s.HoldStill(me(), w.ID()) })
			x, err = s.Revive(me(), w.ID(), "looked at it")
			stop()
			if err != nil || x.Suspended() || s.frozen(w) {
				t.Fatalf("revived, and its host says it stands %t: %v", s.frozen(w), err)
			}
		}
	})
}

// TestTwoManagersHoldOneWorker is the same with another manager over the same
// database, which reaches the same host and takes no turns with the first: what was
// decided there a moment before may still be done, and is undone at once.
func TestTwoManagersHoldOneWorker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(*manifest.Contract) {})
		w := s.start("")
		other := keeper.New(keeper.Config{Store: db, Blobs: s.blobs, Now: s.clock, Workers: s.workers})
		law := governor.New(governor.Config{Store: db, Sandboxes: other, Blobs: s.blobs, Keys: s.keys, Now: s.clock})
		for range 5 {
			stop := crowd(3, func() {
				_, _ = other.PauseSandbox(me(), w.Sandbox, live.Frozen)
				_, _ = other.ResumeSandbox(me(), w.Sandbox)
			})
			_, err := s.Suspend(me(), w.ID(), "enough")
			stop()
			if x := s.worker(w.ID()); err != nil || !x.Suspended() || !s.frozen(w) {
				t.Fatalf("suspended %t, and its host says %t: %v", x.Suspended(), s.frozen(w), err)
			}
			stop = crowd(3, func() { _ = law.HoldStill(me(), w.ID()) })
			_, err = s.Revive(me(), w.ID(), "looked at it")
			stop()
			if x := s.worker(w.ID()); err != nil || x.Suspended() || s.frozen(w) {
				t.Fatalf("suspended %t, and its host says %t: %v", x.Suspended(), s.frozen(w), err)
			}
		}
	})
}

// TestAReleaseMeetsAQuarantine lets both come at once: whoever is later, what the
// law says and what the host does are the same.
func TestAReleaseMeetsAQuarantine(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(*manifest.Contract) {})
	w := s.start("")
	for range 10 {
		stop := crowd(3, func() { _, _ = s.Release(me(), w.ID(), "nothing was found") })
		for range 3 {
			if _, err := s.Quarantine(me(), w.ID(), governor.Suspicion{Reason: "odd", Severity: manifest.Low}); err != nil && fault.CodeOf(err) != "already_quarantined" {
				t.Fatal(err)
			}
		}
		stop()
		if x := s.worker(w.ID()); x.Quarantined() != s.frozen(w) || x.Still() != s.frozen(w) {
			t.Fatalf("it is under quarantine: %t, and stands still: %t", x.Quarantined(), s.frozen(w))
		}
	}
}

// deafHost freezes nothing while it is deaf.
type deafHost struct {
	stageHost
	deaf *bool
}

func (h deafHost) PauseSandbox(ctx context.Context, id string) error {
	if *h.deaf {
		return fault.New(fault.Unavailable, "it does not listen")
	}
	return h.stageHost.PauseSandbox(ctx, id)
}

// TestWhatTheLawHoldsIsFrozenLater: a mark without the deed is what a manager
// leaves that was killed between the two, and what a deaf host makes of it.
func TestWhatTheLawHoldsIsFrozenLater(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(*manifest.Contract) {})
	w, deaf := s.start(""), true
	s.host = deafHost{stageHost{s.boxes}, &deaf}
	if x, err := s.Suspend(me(), w.ID(), "enough"); !fault.Is(err, fault.Unavailable) || x.Suspended() {
		t.Errorf("it is said to be suspended, and goes on: %v", err)
	}
	if _, err := s.Quarantine(me(), w.ID(), governor.Suspicion{Reason: "odd", Severity: manifest.Low}); fault.CodeOf(err) != "not_frozen" {
		t.Errorf("quarantine: %v", err)
	}
	deaf = false
	s.restart()
	if err := s.HoldStill(me(), w.ID()); err != nil {
		t.Fatal(err)
	}
	if x := s.worker(w.ID()); !s.frozen(w) || !x.Still() {
		t.Errorf("it stands still: %t, and is said to: %t", s.frozen(w), x.Still())
	}
}

// TestTheLawHoldsUnderASwitch puts a worker under quarantine that a kill switch has
// frozen: that is what freezing is for. It stays when the switch is released.
func TestTheLawHoldsUnderASwitch(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(*manifest.Contract) {})
	w, other := s.start(""), s.start("")
	s.engage("looking into it")
	if x, err := s.Quarantine(me(), w.ID(), governor.Suspicion{Reason: "odd", Severity: manifest.Low}); err != nil || !x.Still() || !s.frozen(w) {
		t.Fatalf("quarantine under a switch: %v", err)
	}
	if x, err := s.Suspend(me(), other.ID(), "odd too"); err != nil || !x.Suspended() || !s.frozen(other) {
		t.Fatalf("suspension under a switch: %v", err)
	}
	if x, err := s.Release(me(), w.ID(), ""); fault.CodeOf(err) != "KILL_SWITCH" || !x.Still() || !s.frozen(w) {
		t.Errorf("released under a switch: %v", err)
	}
	if x, err := s.Revive(me(), other.ID(), ""); fault.CodeOf(err) != "KILL_SWITCH" || !x.Suspended() || !s.frozen(other) {
		t.Errorf("revived under a switch: %v", err)
	}
	s.engage("")
	if !s.frozen(w) || !s.frozen(other) {
		t.Error("they went on with the switch")
	}
	if x, err := s.Release(me(), w.ID(), ""); err != nil || x.Still() || s.frozen(w) {
		t.Errorf("released: %v", err)
	}
	if x, err := s.Revive(me(), other.ID(), ""); err != nil || x.Suspended() || s.frozen(other) {
		t.Errorf("revived: %v", err)
	}
}

// TestTheSilentUnderASwitchAreSpared: what is frozen cannot speak, and freezing can
// be undone; so nobody is reaped for it, neither then nor right afterwards.
func TestTheSilentUnderASwitchAreSpared(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(c *manifest.Contract) { c.Expiration = 0 })
		w := s.start("")
		s.engage("looking into it")
		reap := func() int {
			t.Helper()
			ids, err := s.Reap(me(), 0)
			if err != nil {
				t.Fatal(err)
			}
			return len(ids)
		}
		for range 30 {
			s.pass(10 * time.Second)
			if n := reap(); n != 0 {
				t.Fatal("a frozen worker was reaped")
			}
		}
		s.pass(35 * time.Second) // for the manager looks only now and then
		if err := db.Update(t.Context(), func(tx store.Tx) error { return s.SpareStopped(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
		s.engage("")
		s.pass(59 * time.Second)
		if n := reap(); n != 0 || s.worker(w.ID()).State != manifest.Running {
			t.Error("it was reaped before it could speak again")
		}
		s.pass(2 * time.Second)
		if n := reap(); n != 1 {
			t.Error("it is silent, and was not reaped")
		}
	})
}
