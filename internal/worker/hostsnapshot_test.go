package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// counter prints a number each second for a minute.
func counter() (script, want string) {
	var b, w strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "echo %d; sleep 1; ", i)
		fmt.Fprintln(&w, i)
	}
	return b.String(), w.String()
}

func small(c *worker.Config) { c.Limits, c.Memory = sandbox.Limits{Memory: 40}, 100 }

func (s *stand) snapshot(o live.SnapshotOrder) {
	s.t.Helper()
	o.Sandbox, o.Kind = "b1", live.Full
	if _, err := s.host().SnapshotSandbox(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// cpu is the processor time that a sandbox has used.
func (s *stand) cpu(id string) time.Duration {
	s.t.Helper()
	stats, err := s.host().SandboxStats(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return stats.Usage.CPU
}

// A sandbox that was put aside uses nothing, and goes on where it was, also
// through the death of its worker.
func TestPutAsideAndGoOn(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := durable(t, small)
			synctest.Wait()
			s.open(live.Order{ID: "b1"})
			script, want := counter()
			s.exec("e1", script)
			pass(10*time.Second + time.Millisecond)
			used := s.cpu("b1")
			s.snapshot(live.SnapshotOrder{ID: live.Aside("b1"), Generation: 1, Aside: true})
			if now := s.cpu("b1"); now != used {
				t.Errorf("on disk it has used %s, and %s before", now, used)
			}
			s.snapshot(live.SnapshotOrder{ID: live.Aside("b1"), Generation: 1, Aside: true})
			s.noSandboxes()
			s.open(live.Order{ID: "b2"})
			s.open(live.Order{ID: "b3"}) // its memory is free
			s.endBox("b2")
			if err := s.host().StartExec(t.Context(), live.Command{ID: "e2", Sandbox: "b1", Command: []string{"true"}}); fault.CodeOf(err) != sandbox.CodePaused {
				t.Errorf("got %v", err)
			}
			if dies {
				s = s.kill()
				s.revive(small)
				synctest.Wait()
				if got := s.ref.Standings("worker_default"); len(got) != 2 || got[0].Paused != live.Checkpointed || len(got[0].Execs) != 1 {
					t.Errorf("it named %+v", got)
				}
			}
			if _, err := s.host().ResumeSandbox(t.Context(), "b1"); err != nil {
				t.Fatal(err)
			}
			if now := s.cpu("b1"); now < used {
				t.Errorf("it goes on and has used %s, and %s before", now, used)
			}
			pass(2 * time.Minute)
			if res, out, _ := s.ended("e1"); out != want || res.Verdict != sandbox.OK {
				t.Errorf("ended %+v, %q", res, out)
			}
			s.exec("e3", "echo here")
			synctest.Wait()
			s.ended("e3")
			s.endBox("b1")
			if left := entries(t, s.base+"/checkpoints"); len(left) != 0 {
				t.Errorf("%q are left", left)
			}
			s.bury()
		})
	}
}

// A sandbox that lies on disk can be ended there.
func TestPutAsideAndEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, small)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "echo one; sleep 1000")
		pass(time.Second)
		s.snapshot(live.SnapshotOrder{ID: live.Aside("b1"), Generation: 1, Aside: true})
		s.endBox("b1")
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.Killed || out != "one\n" {
			t.Errorf("ended %+v, %q", res, out)
		}
		if end, told := s.ref.SandboxEnd("b1"); !told || end.Outcome != sandbox.OutcomeDone {
			t.Errorf("told %+v", end)
		}
		s.bury()
	})
}

// Forks go on from one moment, with what runs in them, and so does the sandbox
// itself when it is set back.
func TestForksAndSettingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		script, want := counter()
		s.exec("e1", script)
		pass(10*time.Second + time.Millisecond)
		s.snapshot(live.SnapshotOrder{ID: "s1", Generation: 1})
		s.exec("later", "sleep 1000")
		for i := range 3 {
			s.open(live.Order{ID: fmt.Sprint("f", i), Restore: "s1"})
		}
		pass(10 * time.Second)
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "b1", Restore: "s1"}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			var got string
			err := s.host().FollowExec(t.Context(), live.Follow{Sandbox: fmt.Sprint("f", i), Exec: "e1"}, func(c dispatch.Chunk) error {
				got += string(c.Data)
				return nil
			})
			if err != nil || got != want {
				t.Errorf("fork %d: %q, %v", i, got, err)
			}
		}
		pass(2 * time.Minute)
		if res, out, _ := s.ended("e1"); out != want || res.Verdict != sandbox.OK {
			t.Errorf("ended %+v, %q", res, out)
		}
		if res, _, _ := s.ended("later"); res.Verdict != sandbox.Killed {
			t.Errorf("what did not run then ended %+v", res)
		}
		if err := s.host().DropSnapshot(t.Context(), "s1"); err != nil {
			t.Error(err)
		}
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "f9", Restore: "s1"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("from nothing: %v", err)
		}
		s.bury()
	})
}

func TestSnapshotOfFiles(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1", Files: map[string][]byte{"a": []byte("x")}})
		made, err := s.host().SnapshotSandbox(t.Context(), live.SnapshotOrder{ID: "s1", Sandbox: "b1", Kind: live.Files, Generation: 1})
		if err != nil || made.SHA256 == "" || made.Bytes == 0 {
			t.Fatalf("made %+v, %v", made, err)
		}
		if data, there := s.ref.Blob(made.SHA256); !there || int64(len(data)) != made.Bytes {
			t.Errorf("%d bytes were put", len(data))
		}
	})
}
