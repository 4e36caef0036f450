package governor_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
)

// TestHostileIDs shows the law ids that are none, on both databases: bytes that are
// no text, what looks like an id, what is too long, what is a path. Each is refused
// as what is not there, and none is an accident.
func TestHostileIDs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		good := s.issue("")
		for _, id := range []string{
			"", "w\x00rker1", "\xff\xfe\xfd\xfc", "ＡＡＡＡＡＡＡＡ", "а1b2c3d4", "AAAAAAAA", " aaaaaaa", "aaaaaaa\u200b", "aaaaaaa\n", "../../aa",
			strings.Repeat("a", 1<<16), strings.Repeat("\x00", 600), strings.Repeat("日", 300), "' OR 1=1", good.WorkerID + " ",
		} {
			m := good
			m.WorkerID = id
			if _, err := s.Register(me(), m); fault.CodeOf(err) != governor.RejectSignature {
				t.Errorf("register %.20q: %v", id, err)
			}
			m.WorkerID, m.ParentID = good.WorkerID, id+"x"
			if _, err := s.Register(me(), m); fault.CodeOf(err) != governor.RejectSignature {
				t.Errorf("register with the parent %.20q: %v", id, err)
			}
			if _, err := s.Issue(me(), governor.Asked{ParentID: id}); id != "" && fault.CodeOf(err) != governor.DenyUnknownParent {
				t.Errorf("issue with the parent %.20q: %v", id, err)
			}
			if _, err := s.Issue(me(), governor.Asked{Contract: id}); id != "" && !fault.Is(err, fault.Invalid) {
				t.Errorf("issue under the contract %.20q: %v", id, err)
			}
			if ok, err := s.Heartbeat(me(), id); ok || err != nil {
				t.Errorf("heartbeat of %.20q: %t, %v", id, ok, err)
			}
			if _, killed, err := s.Kill(me(), id, id); killed || err != nil {
				t.Errorf("kill of %.20q: %t, %v", id, killed, err)
			}
			_, quarantine := s.Quarantine(me(), id, governor.Suspicion{Reason: id, Source: id, Severity: manifest.Low, Note: id})
			_, release := s.Release(me(), id, id)
			_, terminate := s.Terminate(me(), id, id)
			_, suspend := s.Suspend(me(), id, id)
			_, revive := s.Revive(me(), id, id)
			_, replicate := s.Replicate(me(), id, id, nil)
			_, decommission := s.Decommission(me(), id, id)
			for what, err := range map[string]error{
				"quarantine": quarantine, "release": release, "terminate": terminate, "suspend": suspend, "revive": revive, "decommission": decommission,
			} {
				if !fault.Is(err, fault.NotFound) {
					t.Errorf("%s of %.20q: %v", what, id, err)
				}
			}
			if id != "" && fault.CodeOf(replicate) != governor.DenyUnknownParent {
				t.Errorf("replicate %.20q: %v", id, replicate)
			}
		}
		// Words of others are kept as they are, or as much of them as can be.
		w, err := s.Register(me(), good)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"w\x00rd", "\xff\xfe", strings.Repeat("日", 5000), "\x1b[2J\r\n"} {
			if _, err := s.Quarantine(me(), w.ID(), governor.Suspicion{Reason: word, Source: word, Severity: manifest.Low, Note: word}); err != nil {
				t.Errorf("quarantine for %.20q: %v", word, err)
			}
			if _, err := s.Release(me(), w.ID(), word); err != nil {
				t.Errorf("release for %.20q: %v", word, err)
			}
			if _, err := s.Suspend(me(), w.ID(), word); err != nil {
				t.Errorf("suspend for %.20q: %v", word, err)
			}
			if _, err := s.Revive(me(), w.ID(), word); err != nil {
				t.Errorf("revive for %.20q: %v", word, err)
			}
		}
		if _, killed, err := s.Kill(me(), w.ID(), "w\x00rd\xff"); err != nil || !killed {
			t.Errorf("kill: %t, %v", killed, err)
		}
	})
}

// TestOnePaperIsOneWorker shows one paper with 64 hands, and once more after a
// restart of the manager.
func TestOnePaperIsOneWorker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		m := s.issue("")
		show := func() (n int) {
			var mu sync.Mutex
			var group sync.WaitGroup
			for range 64 {
				group.Go(func() {
					_, err := s.Register(me(), m)
					if err != nil && fault.CodeOf(err) != governor.RejectReplay {
						t.Errorf("register: %v", err)
					}
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						n++
					}
				})
			}
			group.Wait()
			return n
		}
		if n := show(); n != 1 || s.alive() != 1 {
			t.Errorf("%d were registered, %d live", n, s.alive())
		}
		s.restart()
		if n := show(); n != 0 || s.alive() != 1 {
			t.Errorf("after a restart %d were registered, %d live", n, s.alive())
		}
		if _, _, err := s.Kill(me(), m.WorkerID, ""); err != nil {
			t.Fatal(err)
		}
		if n := show(); n != 0 || s.alive() != 0 {
			t.Errorf("after its end %d were registered, %d live", n, s.alive())
		}
	})
}

// TestTwoManagersKeepOneQuota has 64 hands at two managers over one database.
func TestTwoManagersKeepOneQuota(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	ctx := context.Background()
	address, err := server.Fresh(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := place{t.TempDir()}
	one := stageAt(t, openPostgresAt(t, address), dir)
	t.Cleanup(one.close)
	two := stageAt(t, openPostgresAt(t, address), dir)
	t.Cleanup(two.close)
	two.boxes = one.boxes
	two.restart()
	one.contract(func(c *manifest.Contract) { c.MaxReplicas = 5 })
	var mu sync.Mutex
	var group sync.WaitGroup
	started := 0
	for i := range 64 {
		s := []*stage{one, two}[i%2]
		group.Go(func() {
			m, err := s.Issue(me(), governor.Asked{})
			if err == nil {
				_, err = s.Register(me(), m)
			}
			if err != nil && fault.CodeOf(err) != governor.DenyQuota {
				t.Errorf("start: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				started++
			}
		})
	}
	group.Wait()
	if started != 5 || one.alive() != 5 {
		t.Errorf("%d were started, and %d live", started, one.alive())
	}
}

// TestAContractBelowItsUse lowers a contract under those who live by it: they stay,
// nobody comes until they are fewer, and it goes to no other project meanwhile.
func TestAContractBelowItsUse(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(c *manifest.Contract) { c.ProjectID = 7 })
	root := s.start("")
	child := s.start(root.ID())
	unused := s.issue(child.ID())
	s.contract(func(c *manifest.Contract) {
		c.ProjectID, c.MaxReplicas, c.MaxDepth, c.Expiration = 7, 1, 0, time.Second
	})
	s.pass(time.Minute)
	s.Sweep(me(), s.clock().Add(-time.Hour))
	if s.alive() != 2 {
		t.Errorf("%d live, want those who did", s.alive())
	}
	_, err := s.Register(me(), unused)
	s.wantCode("a paper from before", err, governor.RejectDepthExceeded)
	_, err = s.Issue(me(), governor.Asked{})
	s.wantCode("another root", err, governor.DenyQuota)
	for _, w := range []manifest.Worker{root, child} {
		if _, err := s.Issue(me(), governor.Asked{ParentID: w.ID()}); !fault.Is(err, fault.Denied) {
			t.Errorf("a child: %v", err)
		}
	}
	c := manifest.Default()
	c.ProjectID = 8
	if _, err := s.PutContract(me(), c); fault.CodeOf(err) != "contract_in_use" {
		t.Errorf("carried to another project: %v", err)
	}
	for _, w := range []manifest.Worker{root, child} {
		if _, _, err := s.Kill(me(), w.ID(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutContract(me(), c); err != nil {
		t.Errorf("carried to another project: %v", err)
	}
	s.start("")
}

// TestAClockThatIsSetBack puts nobody off for as long as it was set back, and lets
// nobody out of a cooldown whose manager's clock is a little behind.
func TestAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(c *manifest.Contract) { c.Cooldown, c.Expiration = 10*time.Second, 0 })
	root := s.start("")
	s.start(root.ID())
	s.pass(-30 * time.Second)
	_, err := s.Issue(me(), governor.Asked{ParentID: root.ID()})
	s.wantCode("a clock that is a little behind", err, governor.DenyCooldown)
	s.pass(-time.Hour)
	s.start(root.ID())
	_, err = s.Issue(me(), governor.Asked{ParentID: root.ID()})
	s.wantCode("a second at once", err, governor.DenyCooldown)
}
