package governor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestAnIssuedManifestGivesOneRunningWorkerAndItsKillNone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		m, err := s.Issue(me(), governor.Asked{
			State:     json.RawMessage(` {"b": 1, "a": "<x> & \u003cy\u003e"} `),
			Resources: &manifest.Resources{CPULimit: 0.5, MemoryLimitMB: 256, Network: manifest.DefaultNetwork()},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !manifest.ValidID(m.WorkerID) || m.Depth != 0 || !m.Root() || string(m.State) != `{"a":"<x> & <y>","b":1}` || !m.IssuedAt.Equal(s.clock()) {
			t.Errorf("the manifest is %+v", m)
		}
		w, err := s.Register(me(), m)
		if err != nil {
			t.Fatal(err)
		}
		if c := w.Container(); c.Status != "running" || c.StartedAt == nil || c.Reason != nil || c.Resources != m.Resources || s.alive() != 1 {
			t.Errorf("launched: %+v, with %d sandboxes", c, s.alive())
		}
		if box := s.sandbox(w); box.Spec.Limits.MilliCPU != 500 || box.Spec.Limits.Memory != 256<<20 || box.Spec.Network != sandbox.NetworkNone || box.Spec.Labels[governor.LabelWorker] != w.ID() || box.Owner != "o" {
			t.Errorf("the sandbox is %+v", box.Spec)
		}
		if valid, err := s.SignatureValid(me(), []manifest.Worker{s.worker(w.ID())}); err != nil || !valid[0] {
			t.Errorf("its signature is shown as %v: %v", valid, err)
		}
		if _, killed, err := s.Kill(me(), w.ID(), "a test"); err != nil || !killed {
			t.Fatalf("killed %t: %v", killed, err)
		}
		w = s.worker(w.ID())
		if c := w.Container(); c.Status != "killed" || *c.Reason != "a test" || s.alive() != 0 {
			t.Errorf("killed: %+v, with %d sandboxes", c, s.alive())
		}
		if box := s.sandbox(w); box.State != sandbox.StateFailed || box.Outcome != sandbox.OutcomeKilled || box.Reason != "a test" {
			t.Errorf("the sandbox ended %s %s %s", box.State, box.Outcome, box.Reason)
		}
		for _, id := range []string{w.ID(), "ffffffff", "w1"} {
			if _, killed, err := s.Kill(me(), id, "again"); err != nil || killed {
				t.Errorf("kill of %s: %t, %v", id, killed, err)
			}
		}
		launched, ended := s.log.Lines("container_launched"), s.log.Lines("container_killed")
		if len(launched) != 1 || launched[0]["worker_id"] != w.ID() || launched[0]["parent_id"] != "" || launched[0]["cpu_limit"] != 0.5 || launched[0]["memory_limit_mb"] != 256.0 || launched[0]["allow_external"] != false {
			t.Errorf("launched as %v", launched)
		}
		if len(ended) != 1 || ended[0]["worker_id"] != w.ID() || ended[0]["reason"] != "a test" || len(s.log.Lines("container_kill_skipped")) != 3 {
			t.Errorf("killed as %v", ended)
		}
	})
}

func TestEveryDenialHasItsCode(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(c *manifest.Contract) {
			c.MaxDepth, c.MaxReplicas, c.Cooldown, c.Expiration = 1, 3, 10*time.Second, time.Hour
		})
		try := func(a governor.Asked) error { _, err := s.Issue(me(), a); return err }
		show := func(m manifest.Manifest) error { _, err := s.Register(me(), m); return err }

		s.wantCode("a root that says it is deep", try(governor.Asked{Depth: 1}), governor.DenyDepthSpoof)
		s.wantCode("a parent that is not there", try(governor.Asked{ParentID: "ffffffff"}), governor.DenyUnknownParent)
		root := s.start("")
		early := s.issue(root.ID()) // two papers at once: the cooldown counts from the registration
		child := s.start(root.ID())
		if child.Manifest.Depth != 1 {
			t.Errorf("the child has depth %d", child.Manifest.Depth)
		}
		s.wantCode("a second child at once", try(governor.Asked{ParentID: root.ID()}), governor.DenyCooldown)
		s.wantCode("a second paper at once", show(early), governor.DenyCooldown)
		s.wantCode("a child of a child", try(governor.Asked{ParentID: child.ID()}), governor.DenyDepth)
		_, err := s.Issue(as("another"), governor.Asked{ParentID: root.ID()})
		s.wantCode("a child of another's", err, governor.DenyUnknownParent)

		unused, late := s.issue(""), s.issue("")
		third := s.start("")
		s.wantCode("a fourth", try(governor.Asked{}), governor.DenyQuota)
		s.wantCode("a paper from before", show(unused), governor.DenyQuota)
		s.wantCode("a used paper", show(third.Manifest), governor.RejectReplay)
		if _, _, err := s.Kill(me(), third.ID(), ""); err != nil {
			t.Fatal(err)
		}
		s.wantCode("the paper of a dead one", show(third.Manifest), governor.RejectReplay)

		forged := unused
		forged.Depth++
		s.wantCode("an altered paper", show(forged), governor.RejectSignature)
		s.wantCode("a paper of no id", show(manifest.Manifest{WorkerID: "w1", IssuedAt: s.clock(), Resources: unused.Resources, Signature: "signed"}), governor.RejectSignature)
		s.wantCode("a root that is deep", show(s.deepRoot()), governor.RejectRootDepth)
		if _, err := s.Quarantine(me(), child.ID(), governor.Suspicion{Severity: manifest.Low}); err != nil {
			t.Fatal(err)
		}
		s.wantCode("a child of one under quarantine", try(governor.Asked{ParentID: child.ID()}), governor.DenyQuarantined)
		_, err = s.Heartbeat(me(), child.ID())
		s.wantCode("a heartbeat under quarantine", err, governor.DenyQuarantined)

		s.engage("enough")
		s.wantCode("issue under the switch", try(governor.Asked{}), governor.DenyKillSwitch)
		s.wantCode("register under the switch", show(unused), governor.DenyKillSwitch)
		s.engage("")
		s.contract(func(c *manifest.Contract) {
			c.MaxDepth, c.Stop = 0, []manifest.StopCondition{{Name: manifest.QuotaPressure, Threshold: 0.2}}
		})
		s.wantCode("a stop condition", show(unused), governor.DenyStopCondition)
		s.pass(10 * time.Second)
		s.wantCode("a depth that is not allowed any more", show(early), governor.RejectDepthExceeded)
		s.pass(time.Hour)
		s.wantCode("an old paper", show(late), governor.RejectExpired)
		if n := s.alive(); n != 2 {
			t.Errorf("%d sandboxes are there, want 2", n)
		}
		_, err = s.Heartbeat(me(), root.ID())
		s.wantCode("a heartbeat too late", err, governor.DenyExpired)
		for _, code := range governor.Codes() {
			if !s.denied[code] {
				t.Errorf("nothing here is denied with %s", code)
			}
			records := s.records(audit.Filter{Actions: []string{code}})
			if len(records) == 0 {
				t.Errorf("%s has no record", code)
			}
			for _, r := range records {
				if r.Outcome != audit.Denied || r.Target == "" || r.Actor != "o" && r.Actor != "another" || r.Message == "" || r.Metadata["decision"] == "" {
					t.Errorf("%s is recorded as %+v", code, r)
				}
			}
		}
	})
}

// deepRoot is a paper that only another program with this manager's key and its
// database could have made: all in it is genuine, and it says of a worker
// without a parent that it is deep.
func (s *stage) deepRoot() manifest.Manifest {
	s.Helper()
	w := manifest.Worker{
		Manifest: manifest.Manifest{
			WorkerID: "0badcafe", Depth: 1, State: json.RawMessage("{}"), IssuedAt: s.clock(),
			Resources: manifest.Resources{CPULimit: 1, MemoryLimitMB: 64, Network: manifest.DefaultNetwork()},
		},
		Terms: manifest.Terms{Contract: manifest.DefaultContract, Owner: "o", Until: s.clock().Add(time.Hour)}, State: manifest.Issued, UpdatedAt: s.clock(),
	}
	s.keys.Signer().Sign(&w.Manifest, w.Terms)
	if err := s.db.Update(context.Background(), func(tx store.Tx) error { return tx.Fleet().Add(context.Background(), &w) }); err != nil {
		s.Fatalf("put the paper among the issued: %v", err)
	}
	return w.Manifest
}

// records are those of the audit that a filter lets through.
func (s *stage) records(f audit.Filter) (list []audit.Record) {
	s.Helper()
	err := s.db.View(context.Background(), func(tx store.Tx) (err error) {
		list, err = tx.Audit().List(context.Background(), f, 1000)
		return err
	})
	if err != nil {
		s.Fatalf("read the audit: %v", err)
	}
	return list
}

func TestPapersThatAreNotOursAreRefusedBeforeAnythingHappens(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s, other := newStage(t, db), newStage(t, openSQLite(t))
		root := s.start("")
		good, foreign := s.issue(""), other.issue("")
		alter := func(change func(m *manifest.Manifest)) manifest.Manifest {
			m := good
			change(&m)
			return m
		}
		flipped := []byte(good.Signature)
		flipped[len(flipped)-2] ^= 1
		for what, m := range map[string]manifest.Manifest{
			"unsigned":            alter(func(m *manifest.Manifest) { m.Signature = "" }),
			"the literal one":     {WorkerID: "w1", State: json.RawMessage("{}"), IssuedAt: s.clock(), Resources: good.Resources, Signature: "signed"},
			"a word as signature": alter(func(m *manifest.Manifest) { m.Signature = "signed" }),
			"a flipped signature": alter(func(m *manifest.Manifest) { m.Signature = string(flipped) }),
			"another form":        alter(func(m *manifest.Manifest) { m.Signature = strings.Replace(m.Signature, "v1", "v0", 1) }),
			"an unknown key": alter(func(m *manifest.Manifest) {
				m.Signature = strings.Replace(m.Signature, s.keys.Signer().Key.ID, "0123456789abcdef", 1)
			}),
			"another id":           alter(func(m *manifest.Manifest) { m.WorkerID = root.ID() }),
			"an id in capitals":    alter(func(m *manifest.Manifest) { m.WorkerID = strings.ToUpper("ABCDEF" + m.WorkerID[6:]) }),
			"a path as id":         alter(func(m *manifest.Manifest) { m.WorkerID = "../../x" }),
			"another parent":       alter(func(m *manifest.Manifest) { m.ParentID = root.ID() }),
			"another depth":        alter(func(m *manifest.Manifest) { m.Depth = 1 }),
			"another state":        alter(func(m *manifest.Manifest) { m.State = json.RawMessage(`{"a":1}`) }),
			"another time":         alter(func(m *manifest.Manifest) { m.IssuedAt = m.IssuedAt.Add(time.Microsecond) }),
			"more processors":      alter(func(m *manifest.Manifest) { m.Resources.CPULimit *= 2 }),
			"more memory":          alter(func(m *manifest.Manifest) { m.Resources.MemoryLimitMB++ }),
			"the network":          alter(func(m *manifest.Manifest) { m.Resources.Network.AllowExternal = true }),
			"less network":         alter(func(m *manifest.Manifest) { m.Resources.Network.AllowController = false }),
			"from another manager": foreign,
		} {
			_, err := s.Register(me(), m)
			s.wantCode(what, err, governor.RejectSignature)
		}
		_, err := s.Register(as("another"), good)
		s.wantCode("another's", err, governor.RejectSignature)
		if n := s.alive(); n != 1 {
			t.Errorf("%d sandboxes are there, want 1", n)
		}
		if _, err := s.Register(me(), good); err != nil {
			t.Errorf("the good one: %v", err)
		}
	})
}

func TestKeysAreRotatedAndRevoked(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	admin := policy.With(context.Background(), policy.LocalCaller())
	first, signing := s.issue(""), s.keys.Signer().Key.ID
	revoked := s.issue("")
	if _, err := s.RotateKey(admin); err != nil {
		t.Fatal(err)
	}
	second := s.issue("")
	if id, _ := manifest.KeyOf(second.Signature); id == signing {
		t.Error("the new key signs nothing")
	}
	if _, err := s.Register(me(), first); err != nil {
		t.Errorf("a paper under the key before: %v", err)
	}
	if err := s.RevokeKey(admin, signing); err != nil {
		t.Fatal(err)
	}
	_, err := s.Register(me(), revoked)
	s.wantCode("a paper under a revoked key", err, governor.RejectSignature)
	if _, err := s.Register(me(), second); err != nil {
		t.Errorf("a paper under the good key: %v", err)
	}
	now := s.keys.Signer().Key.ID
	if err := s.RevokeKey(admin, now); err != nil {
		t.Fatal(err)
	}
	keys, signs, err := s.ManifestKeys(admin)
	if err != nil || len(keys) != 3 || signs == now || !slices.ContainsFunc(keys, func(k manifest.PublicKey) bool { return k.ID == signs && k.RevokedAt.IsZero() }) {
		t.Errorf("after the signing key was revoked %s signs: %v", signs, err)
	}
	list, err := s.Workers(me(), store.FleetFilter{States: []manifest.State{manifest.Running}})
	if err != nil {
		t.Fatal(err)
	}
	valid, err := s.SignatureValid(me(), list)
	if err != nil || slices.Contains(valid, true) {
		t.Errorf("workers under revoked keys are shown as %v: %v", valid, err)
	}
}

func TestWhatCannotBeHeldToIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	for code, r := range map[string]manifest.Resources{
		"network_unavailable": {CPULimit: 1, MemoryLimitMB: 1, Network: manifest.NetworkPolicy{AllowExternal: true}},
		"invalid":             {CPULimit: 0, MemoryLimitMB: 1},
	} {
		_, err := s.Issue(me(), governor.Asked{Resources: &r})
		if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != code {
			t.Errorf("%+v: %v", r, err)
		}
	}
	_, err := s.Issue(me(), governor.Asked{State: json.RawMessage(`{"a":1,"a":2}`)})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a state with a key twice: %v", err)
	}
	_, err = s.Issue(me(), governor.Asked{Contract: "none"})
	s.wantCode("a contract that is not there", err, "unknown_contract")
}

// TestNoRaceExceedsAQuota has many at once ask, register, replicate and kill.
func TestNoRaceExceedsAQuota(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		const most, racers = 7, 64
		s.contract(func(c *manifest.Contract) { c.MaxReplicas = most })
		count := func() (n int) {
			err := db.View(context.Background(), func(tx store.Tx) (err error) {
				n, err = tx.Fleet().Count(context.Background(), manifest.DefaultContract, manifest.Launching, manifest.Running, manifest.Ending)
				return err
			})
			if err != nil {
				t.Error(err)
			}
			return n
		}
		var papers []manifest.Manifest
		for range racers {
			papers = append(papers, s.issue(""))
		}
		var group sync.WaitGroup
		var mu sync.Mutex
		in, denied := 0, map[string]int{}
		for _, m := range papers {
			group.Go(func() {
				w, err := s.Register(me(), m)
				if n := count(); n > most {
					t.Errorf("%d workers at once", n)
				}
				if err == nil && m.WorkerID[0] < '4' { // some leave room for others
					_, _, err = s.Kill(me(), w.ID(), "made room")
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					in++
				} else {
					denied[fault.CodeOf(err)]++
				}
			})
		}
		group.Wait()
		if in < most || in+denied[governor.DenyQuota] != racers {
			t.Errorf("%d got in, the others: %v", in, denied)
		}
		if n := count(); n != s.alive() || n > most {
			t.Errorf("%d are registered and %d sandboxes there", n, s.alive())
		}
	})
}

func TestManyRacersUseAPaperOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		m := s.issue("")
		var group sync.WaitGroup
		codes := make([]string, 16)
		for i := range codes {
			group.Go(func() {
				if _, err := s.Register(me(), m); err != nil {
					codes[i] = fault.CodeOf(err)
				}
			})
		}
		group.Wait()
		slices.Sort(codes)
		if codes[0] != "" || codes[1] != governor.RejectReplay || s.alive() != 1 {
			t.Errorf("%v, with %d sandboxes", codes, s.alive())
		}
	})
}

func TestTheOldFormIsSignedAndChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "short", "        ", "\t\t\t\t\t\t\t\t"} {
		if _, err := manifest.NewSecret(bad); err == nil {
			t.Errorf("the secret %q was taken", bad)
		}
	}
	secret, err := manifest.NewSecret("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	m := manifest.Manifest{
		WorkerID: "0a1b2c3d", Depth: 0, IssuedAt: time.Date(2031, 1, 2, 3, 4, 5, 6000, time.UTC), State: json.RawMessage(`{"a":1}`),
		Resources: manifest.Resources{CPULimit: 1, MemoryLimitMB: 64, Network: manifest.DefaultNetwork()},
	}
	m.Signature = secret.Sign(&m)
	if len(m.Signature) != 64 || !secret.Verify(&m) {
		t.Errorf("the signature is %q", m.Signature)
	}
	for i := range m.Signature {
		x := m
		x.Signature = fmt.Sprintf("%s%x%s", m.Signature[:i], (m.Signature[i]^1)&0xf, m.Signature[i+1:])
		if x.Signature != m.Signature && secret.Verify(&x) {
			t.Errorf("a change at %d is not seen", i)
		}
	}
}
