package governor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/governor/governortest"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// real is the governor as the suite sees an orchestrator.
type real struct{ *stage }

func (r real) Launch(_ context.Context, m manifest.Manifest) (manifest.Container, error) {
	w, err := r.Register(me(), m)
	return w.Container(), err
}

func (r real) Kill(_ context.Context, id, reason string) (bool, error) {
	_, killed, err := r.Governor.Kill(me(), id, reason)
	return killed, err
}

func (r real) KillAll(_ context.Context, reason string) (int, error) {
	ids, err := r.Governor.KillAll(me(), "", reason)
	return len(ids), err
}

func (r real) Enforce(_ context.Context, id string) (manifest.Enforcement, bool, error) {
	return r.Governor.Enforce(me(), id)
}

func (r real) list(states ...manifest.State) (list []manifest.Container, err error) {
	workers, err := r.Workers(me(), store.FleetFilter{States: states})
	for i := range workers {
		list = append(list, workers[i].Container())
	}
	return list, err
}

func (r real) Containers(context.Context) ([]manifest.Container, error) {
	return r.list(manifest.Running)
}

func (r real) History(context.Context) ([]manifest.Container, error) { return r.list(manifest.Ended) }

func TestTheGovernorIsAnOrchestrator(t *testing.T) {
	t.Parallel()
	governortest.Run(t, func(t *testing.T, log *slog.Logger) governortest.Orchestrator {
		t.Helper()
		s := newStage(t, openSQLite(t))
		s.Logger = log
		return real{s}
	}, func(t *testing.T, o governortest.Orchestrator, r manifest.Resources) manifest.Manifest {
		t.Helper()
		m, err := o.(real).Issue(me(), governor.Asked{Resources: &r})
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func TestASilentWorkerIsReapedAndFreesItsPlace(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.contract(func(c *manifest.Contract) { c.MaxReplicas = 2 })
		silent, speaks := s.start(""), s.start("")
		s.pass(50 * time.Second)
		if ok, err := s.Heartbeat(me(), speaks.ID()); err != nil || !ok {
			t.Fatalf("accepted %t: %v", ok, err)
		}
		s.pass(20 * time.Second)
		ids, err := s.Reap(me(), 0)
		if err != nil || !slices.Equal(ids, []string{silent.ID()}) {
			t.Fatalf("reaped %v: %v", ids, err)
		}
		w := s.worker(silent.ID())
		if box := s.sandbox(w); w.Reason != "heartbeat_timeout" || w.State != manifest.Ended || box.Outcome != sandbox.OutcomeReaped || box.Reason != "heartbeat_timeout" || s.alive() != 1 {
			t.Errorf("%s %s, its sandbox %s %s", w.State, w.Reason, box.Outcome, box.Reason)
		}
		if len(s.log.Lines("reap_stale")) != 1 {
			t.Error("it was not logged")
		}
		s.start("")
		for _, id := range []string{silent.ID(), "ffffffff", "x"} {
			if ok, err := s.Heartbeat(me(), id); ok || err != nil {
				t.Errorf("a heartbeat of %s was accepted %t: %v", id, ok, err)
			}
		}
	})
}

func TestAWorkerWhoseTimeIsOverIsEnded(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(c *manifest.Contract) { c.Expiration = time.Minute })
	first, second := s.start(""), s.start("")
	unused := s.issue("")
	s.pass(time.Minute)
	_, err := s.Heartbeat(me(), first.ID())
	s.wantCode("a heartbeat too late", err, governor.DenyExpired)
	if w := s.worker(first.ID()); w.State != manifest.Ended || w.Reason != "expired" {
		t.Errorf("%s %s", w.State, w.Reason)
	}
	s.Sweep(context.Background(), s.clock())
	if w := s.worker(second.ID()); w.State != manifest.Ended || w.Reason != "expired" || s.alive() != 0 {
		t.Errorf("%s %s", w.State, w.Reason)
	}
	s.pass(time.Hour)
	s.Sweep(context.Background(), s.clock())
	if w := s.worker(unused.WorkerID); w.State != manifest.Ended || w.Reason != "manifest_expired" {
		t.Errorf("%s %s", w.State, w.Reason)
	}
	_, err = s.Register(me(), unused)
	s.wantCode("its paper", err, governor.RejectReplay)
}

// TestWhatWasCutIsEnded leaves a worker at each point at which a manager can be
// killed, and looks whether the next one cleans up.
func TestWhatWasCutIsEnded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		cut := func(change func(w *manifest.Worker)) string {
			w := s.start("")
			err := db.Update(context.Background(), func(tx store.Tx) error {
				change(&w)
				return tx.Fleet().Put(context.Background(), &w)
			})
			if err != nil {
				t.Fatal(err)
			}
			return w.ID()
		}
		launching := cut(func(w *manifest.Worker) { w.State, w.Sandbox, w.StartedAt = manifest.Launching, "", time.Time{} })
		ending := cut(func(w *manifest.Worker) { w.State, w.Reason = manifest.Ending, "somebody's" })
		nothing := cut(func(w *manifest.Worker) { w.State, w.Sandbox, w.StartedAt = manifest.Launching, "", time.Time{} })
		if x, err := s.keep.SandboxByName(me(), "fleet-"+nothing); err != nil {
			t.Fatal(err)
		} else if _, err := s.keep.EndSandbox(me(), x.ID, ""); err != nil {
			t.Fatal(err)
		}
		fallen := s.start("")
		if _, err := s.keep.EndSandbox(me(), fallen.Sandbox, "by hand"); err != nil {
			t.Fatal(err)
		}
		killed := s.start("")
		if _, err := s.keep.EndSandboxAs(me(), killed.Sandbox, sandbox.OutcomeKilled, "the kill switch: fire"); err != nil {
			t.Fatal(err)
		}
		stays := s.start("")
		s.pass(time.Second)
		s.restart()
		s.Sweep(context.Background(), s.clock())
		for id, reason := range map[string]string{launching: "launch_interrupted", ending: "somebody's", nothing: "launch_interrupted", fallen.ID(): "sandbox_ended", killed.ID(): "the kill switch: fire"} {
			if w := s.worker(id); w.State != manifest.Ended || w.Reason != reason {
				t.Errorf("%s is %s: %s, want %s", id, w.State, w.Reason, reason)
			}
		}
		if w := s.worker(stays.ID()); w.State != manifest.Running || s.alive() != 1 {
			t.Errorf("the one that was well is %s, with %d sandboxes", w.State, s.alive())
		}
	})
}

// refusing is a worker that makes no sandboxes.
type refusing struct{ stageHost }

func (refusing) OpenSandbox(context.Context, live.Order) (live.Made, error) {
	return live.Made{}, fault.New(fault.Invalid, "there is no such image")
}

func TestALaunchThatFailsFreesItsPlace(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(c *manifest.Contract) { c.MaxReplicas = 1 })
	m := s.issue("")
	s.host = refusing{stageHost{s.boxes}}
	if _, err := s.Register(me(), m); !fault.Is(err, fault.Invalid) {
		t.Errorf("launched: %v", err)
	}
	if w := s.worker(m.WorkerID); w.State != manifest.Ended || w.Reason != "launch_failed: there is no such image" {
		t.Errorf("%s %s", w.State, w.Reason)
	}
	s.host = nil
	s.start("")
}

// killing is a worker during whose launches somebody kills what is launched.
type killing struct {
	stageHost
	kill func()
}

func (k killing) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	k.kill()
	return k.Boxes.OpenSandbox(ctx, o)
}

func TestAKillDuringTheLaunchWins(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		m := s.issue("")
		s.host = killing{stageHost{s.boxes}, func() {
			if _, killed, err := s.Kill(me(), m.WorkerID, "too early"); err != nil || !killed {
				t.Errorf("killed %t: %v", killed, err)
			}
		}}
		_, err := s.Register(me(), m)
		s.wantCode("the launch", err, "ended")
		if w := s.worker(m.WorkerID); w.State != manifest.Ended || w.Reason != "too early" || s.alive() != 0 {
			t.Errorf("it is %s: %s, with %d sandboxes", w.State, w.Reason, s.alive())
		}
	})
}

func TestReplicasInheritAndDecommissionTakesThemAll(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(c *manifest.Contract) { c.MaxDepth = 2 })
	m, err := s.Issue(me(), governor.Asked{Resources: &manifest.Resources{CPULimit: 0.25, MemoryLimitMB: 32}})
	if err != nil {
		t.Fatal(err)
	}
	root, err := s.Register(me(), m)
	if err != nil {
		t.Fatal(err)
	}
	child, err := s.Replicate(me(), root.ID(), "more hands", json.RawMessage(`{"part":1}`))
	if err != nil || child.Manifest.Resources != m.Resources || child.Manifest.Depth != 1 || string(child.Manifest.State) != `{"part":1}` {
		t.Fatalf("the child is %+v: %v", child.Manifest, err)
	}
	grandchild, err := s.Replicate(me(), child.ID(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Replicate(me(), grandchild.ID(), "", nil)
	s.wantCode("too deep", err, governor.DenyDepth)
	if len(s.log.Lines("replication_denied")) != 1 || len(s.log.Lines("replication_requested")) != 2 {
		t.Error("replications were not logged")
	}
	lost := s.start(root.ID())
	if _, _, err := s.Kill(me(), lost.ID(), ""); err != nil {
		t.Fatal(err)
	}
	l, err := s.Lineage(me(), "")
	if err != nil || len(l.Roots) != 1 || len(l.Roots[0].Children) != 2 || len(l.Orphans)+len(l.Cycles)+len(l.BadDepths) != 0 {
		t.Errorf("the lineage is %+v: %v", l, err)
	}
	d, err := s.Decommission(me(), root.ID(), "the end")
	if err != nil || s.alive() != 0 || len(d.Below()) != 2 {
		t.Errorf("below were %v, with %d sandboxes left: %v", d.Below(), s.alive(), err)
	}
	var steps []string
	for _, step := range d.Steps {
		steps = append(steps, step.Name)
	}
	if fmt.Sprint(steps) != "[notify drain children permissions resources data registry verify]" {
		t.Errorf("the steps were %v", steps)
	}
	if w := s.worker(grandchild.ID()); w.Reason != "the end" {
		t.Errorf("the grandchild ended for %q", w.Reason)
	}
}

func TestAKilledParentLeavesOrphans(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.contract(func(*manifest.Contract) {})
	root := s.start("")
	child := s.start(root.ID())
	if _, _, err := s.Kill(me(), root.ID(), ""); err != nil {
		t.Fatal(err)
	}
	l, err := s.Lineage(me(), "")
	if err != nil || !slices.Equal(l.Orphans, []string{child.ID()}) {
		t.Errorf("orphans are %v: %v", l.Orphans, err)
	}
}

// snapping is a worker that takes snapshots.
type snapping struct{ stageHost }

func (snapping) SnapshotSandbox(context.Context, live.SnapshotOrder) (live.SnapshotMade, error) {
	return live.SnapshotMade{SHA256: strings.Repeat("a", 64), Bytes: 1}, nil
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.host = snapping{stageHost{s.boxes}}
	s.contract(func(*manifest.Contract) {})
	w := s.start("")
	early := s.issue(w.ID())
	w, err := s.Quarantine(me(), w.ID(), governor.Suspicion{Reason: "odd", Severity: manifest.High, Note: "look at it"})
	if err != nil {
		t.Fatal(err)
	}
	q := w.Quarantine
	if q.Status != manifest.QuarantineOn || q.Restrictions != (manifest.Restrictions{ReplicationBlocked: true, NetworkRestricted: true, TaskExecutionPaused: true}) || len(q.Notes) != 1 || q.Source != "o" {
		t.Errorf("the quarantine is %+v", q)
	}
	if box := s.sandbox(w); box.Paused != live.Frozen {
		t.Errorf("the sandbox is paused %q", box.Paused)
	}
	text, err := s.Forensic(me(), w.ID())
	if err != nil || !json.Valid(text) || q.Bundle.Files == "" || q.Bundle.Snapshot == "" {
		t.Errorf("put aside %+v, %d bytes: %v", q.Bundle, len(text), err)
	}
	_, err = s.Quarantine(me(), w.ID(), governor.Suspicion{})
	s.wantCode("twice", err, "already_quarantined")
	_, err = s.keep.ResumeSandbox(me(), w.Sandbox)
	s.wantCode("a resume past it", err, "quarantined")
	_, err = s.keep.UpdateSandbox(me(), w.Sandbox, live.Change{Labels: map[string]string{}})
	s.wantCode("other labels", err, "of_the_fleet")
	_, err = s.keep.UpdateSandbox(me(), w.Sandbox, live.Change{Limits: &sandbox.Limits{Memory: 1 << 30}})
	s.wantCode("other limits", err, "of_the_fleet")
	_, err = s.keep.ForkSandbox(me(), w.Sandbox, live.Fork{Count: 1})
	s.wantCode("a fork", err, "of_the_fleet")
	_, err = s.Replicate(me(), w.ID(), "", nil)
	s.wantCode("a child", err, governor.DenyQuarantined)
	_, err = s.Register(me(), early)
	s.wantCode("a child whose paper is older", err, governor.DenyQuarantined)
	_, err = s.Heartbeat(me(), w.ID())
	s.wantCode("a heartbeat", err, governor.DenyQuarantined)
	s.pass(2 * time.Minute)
	if ids, err := s.Reap(me(), 0); err != nil || len(ids) != 0 {
		t.Errorf("reaped %v, which could not speak: %v", ids, err)
	}
	if w, err = s.Release(me(), w.ID(), "harmless"); err != nil || w.Quarantined() || s.sandbox(w).Paused != "" {
		t.Errorf("released %+v: %v", w.Quarantine, err)
	}
	if ok, err := s.Heartbeat(me(), w.ID()); err != nil || !ok {
		t.Errorf("a heartbeat after it: %t, %v", ok, err)
	}
	_, err = s.Terminate(me(), w.ID(), "")
	s.wantCode("terminate one that is free", err, "not_quarantined")
	if _, err = s.Quarantine(me(), w.ID(), governor.Suspicion{Severity: manifest.Low}); err != nil {
		t.Fatal(err)
	}
	if w, err = s.Terminate(me(), w.ID(), "guilty"); err != nil || w.State != manifest.Ended || w.Quarantine.Status != manifest.Terminated || w.Reason != "guilty" || s.alive() != 0 {
		t.Errorf("terminated %+v: %v", w, err)
	}
	_, err = s.Quarantine(me(), "ffffffff", governor.Suspicion{})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestAnotherCannotSteer(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	w, other := s.start(""), as("another")
	if _, killed, err := s.Kill(other, w.ID(), ""); killed || err != nil {
		t.Errorf("killed %t: %v", killed, err)
	}
	if ids, err := s.KillAll(other, "", ""); len(ids) != 0 || err != nil {
		t.Errorf("killed %v: %v", ids, err)
	}
	if done, err := s.Deregister(other, w.ID()); done || err != nil {
		t.Errorf("deregistered %t: %v", done, err)
	}
	if ok, err := s.Heartbeat(other, w.ID()); ok || err != nil {
		t.Errorf("spoke for it %t: %v", ok, err)
	}
	s.pass(time.Hour)
	if ids, err := s.Reap(other, 0); len(ids) != 0 || err != nil {
		t.Errorf("reaped %v: %v", ids, err)
	}
	_, err := s.Decommission(other, w.ID(), "")
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("decommissioned: %v", err)
	}
	if s.alive() != 1 {
		t.Errorf("%d sandboxes are left", s.alive())
	}
}
