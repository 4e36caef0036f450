package worker_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// pull has the manager say what holds.
func (s *stand) pull(state killswitch.State) killswitch.Done {
	s.t.Helper()
	s.ref.Stop(state)
	done, err := s.ref.Receiver("worker_default").(dispatch.Stopper).Switch(s.t.Context(), state)
	if err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
	return done
}

func stop(seq int64, level killswitch.Level) killswitch.State {
	return killswitch.State{Seq: seq, Engaged: []killswitch.Switch{{ID: "s1", Level: level, Scope: killswitch.All, Reason: "enough", By: "me"}}}
}

func TestTheKillSwitchEndsEverything(t *testing.T) {
	story(t, func(c *worker.Config) { c.Pool = map[string]int{"python": 2} }, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "echo up; sleep 600")
		id := s.submit(`{"action":"exec","command":["sleep","600"]}`)
		ran := make(chan run.Result, 1)
		go func() {
			res, err := s.ref.Receiver("worker_default").Run(t.Context(), run.Order{ID: "r1", Language: "bash", Code: "sleep 600", Timeout: time.Hour}, func(dispatch.Chunk) error { return nil })
			if err != nil {
				t.Errorf("the run: %v", err)
			}
			ran <- res
		}()
		pass(time.Minute)
		done := s.pull(stop(1, killswitch.Kill))
		if done.Killed != 5 || done.Failed != 0 { // a sandbox, a job, a run, and two that waited
			t.Errorf("it did %+v", done)
		}
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.Killed || res.Cause != "the kill switch: enough" || out != "up\n" {
			t.Errorf("the exec ended %+v with %q", res, out)
		}
		if end, ok := s.ref.SandboxEnd("b1"); !ok || end.Outcome != sandbox.OutcomeKilled || end.Reason != "the kill switch: enough" {
			t.Errorf("the sandbox ended %+v, %v", end, ok)
		}
		if res := <-ran; res.Verdict != sandbox.Killed {
			t.Errorf("the run ended %+v", res)
		}
		pass(time.Minute)
		if res, d := s.result(id); res.Success || d.Verdict != "killed" {
			t.Errorf("the job ended %+v, %+v", res, d)
		}
		s.noSandboxes()
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "b2"}); fault.CodeOf(err) != killswitch.Code {
			t.Errorf("a new sandbox: %v", err)
		}
		if again := s.pull(stop(1, killswitch.Kill)); again != done {
			t.Errorf("said again, what came of it is %+v", again)
		}
		pass(time.Hour)
		s.noSandboxes() // also no pool
		s.pull(killswitch.State{Seq: 2})
		s.open(live.Order{ID: "b3"})
		if old := s.pull(stop(1, killswitch.Kill)); old != (killswitch.Done{}) {
			t.Errorf("an old word did %+v", old)
		}
		s.endBox("b3")
	})
}

// TestTheKillSwitchIsHeardBeforeItIsTold lets a worker hear of it with the answer
// to its own word first: who tells it learns what came of it all the same.
func TestTheKillSwitchIsHeardBeforeItIsTold(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.ref.Stop(stop(1, killswitch.Kill))
		pass(time.Minute)
		s.noSandboxes()
		if done := s.pull(stop(1, killswitch.Kill)); done.Killed != 1 || done.Failed != 0 {
			t.Errorf("what came of it is %+v", done)
		}
	})
}

// A project's switch ends its runs, in new sandboxes and in those that waited, and
// no other's.
func TestTheKillSwitchOfAProjectEndsItsRuns(t *testing.T) {
	for name, pool := range map[string]map[string]int{"new": nil, "waiting": {"bash": 2}} {
		t.Run(name, func(t *testing.T) {
			story(t, func(c *worker.Config) { c.Pool = pool }, func(t *testing.T, s *stand) {
				start := func(id string, project int64) <-chan run.Result {
					ran := make(chan run.Result, 1)
					go func() {
						res, err := s.ref.Receiver("worker_default").Run(t.Context(), run.Order{ID: id, Project: project, Language: "bash", Code: "sleep 600", Timeout: time.Hour}, func(dispatch.Chunk) error { return nil })
						if err != nil {
							t.Errorf("the run: %v", err)
						}
						ran <- res
					}()
					return ran
				}
				of7, of8 := start("r7", 7), start("r8", 8)
				pass(time.Minute)
				done := s.pull(killswitch.State{Seq: 1, Engaged: []killswitch.Switch{{ID: "s1", Level: killswitch.Kill, Scope: killswitch.Project, Project: 7, Reason: "enough", By: "me"}}})
				if done.Killed != 1 || done.Failed != 0 {
					t.Errorf("it did %+v", done)
				}
				if res := <-of7; res.Verdict != sandbox.Killed {
					t.Errorf("that of the project ended %+v", res)
				}
				if res := <-of8; res.Verdict != sandbox.OK {
					t.Errorf("that of another project ended %+v", res)
				}
			})
		})
	}
}

func TestFreezeStopsTheTimeOfAll(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1", Spec: live.Spec{Labels: map[string]string{"team": "red"}}})
		s.open(live.Order{ID: "b2", Spec: live.Spec{Labels: map[string]string{"team": "blue"}}})
		s.exec("e1", "sleep 1; echo late")
		red := killswitch.State{Seq: 1, Engaged: []killswitch.Switch{{ID: "s1", Level: killswitch.Freeze, Scope: killswitch.Label, Label: "team=red", Reason: "wait"}}}
		if done := s.pull(red); done.Frozen != 1 {
			t.Errorf("it did %+v", done)
		}
		pass(time.Hour)
		if _, told := s.ref.ExecEnd("e1"); told {
			t.Error("a frozen command has ended")
		}
		s.command(live.Command{ID: "e2", Sandbox: "b2", Command: []string{"true"}})
		if done := s.pull(killswitch.State{Seq: 2}); done.Resumed != 1 {
			t.Errorf("it did %+v", done)
		}
		pass(2 * time.Second)
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.OK || out != "late\n" {
			t.Errorf("it ended %+v with %q", res, out)
		}
		s.endBox("b1")
		s.endBox("b2")
	})
}

// A worker that was killed under a kill switch begins nothing when it is started
// again, and ends what it finds.
func TestTheKillSwitchHoldsAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "sleep 600")
		pass(time.Second)
		s = s.kill()
		// It was away when the switch was pulled; the folder of another that was
		// there says so.
		s.ref.Stop(stop(1, killswitch.Kill))
		s.revive(nil)
		pass(time.Minute)
		if end, ok := s.ref.SandboxEnd("b1"); !ok || end.Outcome != sandbox.OutcomeKilled {
			t.Errorf("what it found ended %+v, %v", end, ok)
		}
		s.noSandboxes()
		s = s.kill()
		s.line.away.Store(true)
		s.revive(nil)
		pass(time.Minute)
		s.noSandboxes()
		s.line.away.Store(false)
		pass(time.Minute)
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "b2"}); fault.CodeOf(err) != killswitch.Code {
			t.Errorf("a new sandbox: %v", err)
		}
		s.pull(killswitch.State{Seq: 2})
		s.open(live.Order{ID: "b3"})
		s.endBox("b3")
		s.bury()
	})
}

// What is frozen stays so through a restart of the worker, and goes on with what
// ran in it.
func TestFreezeHoldsAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "echo one; sleep 5; echo two")
		pass(time.Second)
		s.pull(stop(1, killswitch.Freeze))
		s = s.kill()
		s.revive(nil)
		pass(time.Hour)
		if _, told := s.ref.ExecEnd("e1"); told {
			t.Error("a frozen command has ended")
		}
		s.pull(killswitch.State{Seq: 2})
		pass(time.Minute)
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.OK || out != "one\ntwo\n" {
			t.Errorf("it ended %+v with %q", res, out)
		}
		s.endBox("b1")
		s.bury()
	})
}

// A switch that is tripped at the machine needs no manager, and the manager hears
// of it.
func TestATripNeedsNoManager(t *testing.T) {
	var trip chan struct{} // made in the story's own time
	story(t, func(c *worker.Config) { trip = make(chan struct{}, 1); c.Trip = trip }, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.line.away.Store(true)
		s.ref.Restart()
		pass(time.Second)
		trip <- struct{}{}
		pass(time.Second)
		s.noSandboxes()
		if len(s.ref.Tripped()) != 0 {
			t.Error("a manager that is away has heard of it")
		}
		s.line.away.Store(false)
		pass(time.Minute)
		if told := s.ref.Tripped(); len(told) != 1 || told[0].Level != killswitch.Kill || told[0].Worker != "worker_default" {
			t.Errorf("the manager was told %+v", told)
		}
		file := filepath.Join(s.base, "trip")
		if err := os.WriteFile(file, []byte(`{"level":"freeze","reason":"by hand","by":"root"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if told := s.ref.Tripped(); len(told) != 2 || told[1].Level != killswitch.Freeze || told[1].Reason != "by hand" {
			t.Errorf("the manager was told %+v", told)
		}
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("the file is still there: %v", err)
		}
	})
}
