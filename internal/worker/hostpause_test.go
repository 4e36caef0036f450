package worker_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// freeze freezes the sandbox, twice.
func (s *stand) freeze() {
	s.t.Helper()
	for range 2 {
		if err := s.host().PauseSandbox(s.t.Context(), "b1"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// thaw lets it go on, twice.
func (s *stand) thaw() {
	s.t.Helper()
	for range 2 {
		if _, err := s.host().ResumeSandbox(s.t.Context(), "b1"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A frozen sandbox does nothing, runs out of no time, and goes on.
func TestFrozenSandbox(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.command(live.Command{ID: "e1", Sandbox: "b1", Command: []string{"sh", "-c", "echo one; sleep 10; echo two"}, Timeout: 20 * time.Second})
		s.command(live.Command{ID: "slow", Sandbox: "b1", Command: []string{"sleep", "100000"}, Timeout: 20 * time.Second})
		pass(5 * time.Second)
		s.freeze()
		pass(time.Hour)
		for what, err := range map[string]error{
			"start":  s.host().StartExec(t.Context(), live.Command{ID: "e2", Sandbox: "b1", Command: []string{"true"}}),
			"signal": s.host().SignalExec(t.Context(), live.Signal{Sandbox: "b1", Exec: "e1", Kill: "me"}),
			"put":    s.host().PutFiles(t.Context(), "b1", "/workspace", strings.NewReader("")),
		} {
			if !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != sandbox.CodePaused {
				t.Errorf("%s: got %v", what, err)
			}
		}
		if _, err := s.host().SandboxStats(t.Context(), "b1"); err != nil {
			t.Error(err)
		}
		if _, told := s.ref.ExecEnd("slow"); told {
			t.Error("its time was over while it stood still")
		}
		s.thaw()
		pass(time.Minute)
		if res, out, _ := s.ended("e1"); out != "one\ntwo\n" || res.Verdict != sandbox.OK {
			t.Errorf("ended %+v, %q", res, out)
		}
		if res, _, _ := s.ended("slow"); res.Verdict != sandbox.Timeout {
			t.Errorf("ended %+v", res)
		}
	})
}

// A frozen sandbox is taken over as such, and what runs in it is met when it
// goes on, or ends with it.
func TestFrozenSandboxIsTakenOver(t *testing.T) {
	t.Parallel()
	for _, thaws := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := durable(t, nil)
			synctest.Wait()
			s.open(live.Order{ID: "b1"})
			s.exec("e1", "echo one; sleep 10; echo two")
			pass(5 * time.Second)
			s.freeze()
			s = s.kill()
			<-time.After(time.Minute)
			s.revive(nil)
			synctest.Wait()
			if standing := s.ref.Standings("worker_default"); len(standing) != 1 || standing[0].Paused != live.Frozen || len(standing[0].Execs) != 1 {
				t.Errorf("it named %+v", standing)
			}
			if err := s.host().StartExec(t.Context(), live.Command{ID: "e2", Sandbox: "b1", Command: []string{"true"}}); fault.CodeOf(err) != sandbox.CodePaused {
				t.Errorf("got %v", err)
			}
			want := "one\n"
			if thaws {
				s.thaw()
				pass(time.Minute)
				want = "one\ntwo\n"
			} else {
				s.endBox("b1")
			}
			if res, out, _ := s.ended("e1"); out != want || (res.Verdict == sandbox.OK) != thaws {
				t.Errorf("ended %+v, %q", res, out)
			}
			s.bury()
		})
	}
}

func TestFilesOfKeptSandboxes(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		files := s.host().Files("b1")
		if _, err := files.WriteFile(t.Context(), "/workspace/a/b.txt", 0, strings.NewReader("text")); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if info, err := files.ReadFile(t.Context(), "/workspace/a/b.txt", 1, 2, &got); err != nil || got.String() != "ex" || info.Size != 4 {
			t.Errorf("read %q: %+v, %v", got.String(), info, err)
		}
		found, more, err := files.List(t.Context(), "/workspace", 2, 10)
		if err != nil || more || len(found) != 2 {
			t.Errorf("listed %+v, %v, %v", found, more, err)
		}
		s.exec("e1", "cat a/b.txt")
		synctest.Wait()
		if _, out, _ := s.ended("e1"); out != "text" {
			t.Errorf("it found %q", out)
		}
		if _, err := s.host().Files("b2").Stat(t.Context(), "/"); fault.CodeOf(err) != dispatch.CodeNoSandbox {
			t.Errorf("no sandbox: %v", err)
		}
		if _, err := s.host().DialSandbox(t.Context(), "b1", 9); fault.CodeOf(err) != sandbox.CodePortClosed {
			t.Errorf("a port: %v", err)
		}
		var packed bytes.Buffer
		if err := s.host().GetFiles(t.Context(), "b1", "/workspace", &packed); err != nil || packed.Len() == 0 {
			t.Errorf("packed %d bytes, %v", packed.Len(), err)
		}
		if err := s.host().PutFiles(t.Context(), "b1", "/workspace/copy", &packed); err != nil {
			t.Error(err)
		}
		if _, err := files.Stat(t.Context(), "/workspace/copy/a/b.txt"); err != nil {
			t.Error(err)
		}
	})
}
