package worker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

const partition = 5 * time.Minute

func limited(c *worker.Config) { c.PartitionLimit = partition }

// cut cuts the line: no call arrives, and the command stream breaks.
func (s *stand) cut() {
	s.t.Helper()
	s.line.away.Store(true)
	s.ref.Restart()
	synctest.Wait()
}

func (s *stand) mend() {
	s.line.away.Store(false)
	pass(time.Minute)
}

func (s *stand) living() int {
	s.t.Helper()
	all, err := s.driver.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return len(all)
}

func TestAWorkerThatIsCutOffEndsEverything(t *testing.T) {
	change := func(c *worker.Config) { limited(c); c.Pool = map[string]int{"python": 1} }
	story(t, change, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "echo up; sleep 6000")
		id := s.submit(`{"action":"exec","command":["sleep","480"]}`)
		ran := make(chan run.Result, 1)
		go func() {
			res, err := s.ref.Receiver("worker_default").Run(t.Context(), run.Order{ID: "r1", Language: "bash", Code: "sleep 6000", Timeout: time.Hour}, func(dispatch.Chunk) error { return nil })
			if err != nil {
				t.Errorf("the run: %v", err)
			}
			ran <- res
		}()
		pass(time.Minute)
		s.cut()
		pass(partition - time.Minute)
		if n := s.living(); n != 4 { // a sandbox, a job, a run, and one that waits
			t.Errorf("%d live before the time is over", n)
		}
		pass(time.Minute + 30*time.Second)
		s.noSandboxes()
		if res := <-ran; res.Verdict != sandbox.Killed {
			t.Errorf("the run ended %+v", res)
		}
		pass(partition)
		s.noSandboxes() // also no pool
		s.mend()
		if told := s.ref.Tripped(); len(told) != 0 {
			t.Errorf("the manager took it for a switch: %+v", told)
		}
		end, ok := s.ref.SandboxEnd("b1")
		if !ok || end.Outcome != sandbox.OutcomeKilled || !strings.Contains(end.Reason, "no manager could be reached for 5m0s") {
			t.Errorf("the sandbox ended %+v, %v", end, ok)
		}
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.Killed || out != "up\n" {
			t.Errorf("the exec ended %+v with %q", res, out)
		}
		// It goes on by itself, and what was taken from the job is done again.
		s.open(live.Order{ID: "b2"})
		pass(9 * time.Minute)
		if res, d := s.result(id); !res.Success || d.Verdict != "ok" {
			t.Errorf("the job ended %+v, %+v", res, d)
		}
		s.endBox("b2")
	})
}

// A manager that was away for less takes everything back.
func TestAShortPartitionCostsNothing(t *testing.T) {
	story(t, limited, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "sleep 900; echo late")
		for range 2 { // each counts by itself
			s.cut()
			pass(partition - time.Minute)
			s.mend()
		}
		pass(10 * time.Minute)
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.OK || out != "late\n" {
			t.Errorf("the exec ended %+v with %q", res, out)
		}
		s.endBox("b1")
	})
}

// A manager whose database is away answers nothing, and can stop everything all
// the same: its stream is open.
func TestAnOpenStreamIsContact(t *testing.T) {
	story(t, limited, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		pass(time.Minute)
		s.line.away.Store(true)
		pass(2 * partition)
		if n := s.living(); n != 1 {
			t.Errorf("%d live while the stream is open", n)
		}
		s.ref.Restart()
		pass(partition + time.Second)
		s.noSandboxes()
		s.mend()
	})
}

// The limit that is shorter than a lease is not kept: a worker says its word only
// every third of that.
func TestAPartitionIsNoShorterThanALease(t *testing.T) {
	story(t, func(c *worker.Config) { c.PartitionLimit = time.Second }, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		pass(2 * partition)
		if n := s.living(); n != 1 {
			t.Errorf("%d live beside a manager that is there", n)
		}
		s.cut()
		pass(time.Minute)
		s.noSandboxes()
		s.mend()
	})
}

// What was adopted waits for a manager as long as what was begun.
func TestAdoptedSandboxesWaitForAManager(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, limited)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "sleep 6000")
		pass(time.Second)
		s = s.kill()
		s.line.away.Store(true)
		pass(2 * partition) // nobody is there to count it
		s.revive(limited)
		pass(partition - time.Minute)
		s.mend()
		if standing := s.ref.Standings("worker_default"); len(standing) != 1 || len(standing[0].Execs) != 1 {
			t.Errorf("it named %+v", standing)
		}
		s = s.kill()
		s.line.away.Store(true)
		s.revive(limited)
		pass(partition + time.Second)
		s.noSandboxes()
		s.mend()
		if end, ok := s.ref.SandboxEnd("b1"); !ok || end.Outcome != sandbox.OutcomeKilled {
			t.Errorf("the sandbox ended %+v, %v", end, ok)
		}
		s.bury()
	})
}

// What stands still already is stopped, and stays what it is.
func TestWhatIsFrozenOutlivesAPartition(t *testing.T) {
	story(t, limited, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "sleep 10; echo late")
		pass(time.Second)
		s.pull(stop(1, killswitch.Freeze))
		s.cut()
		pass(2 * partition)
		s.mend()
		s.pull(killswitch.State{Seq: 2})
		pass(time.Minute)
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.OK || out != "late\n" {
			t.Errorf("the exec ended %+v with %q", res, out)
		}
		s.endBox("b1")
	})
}
