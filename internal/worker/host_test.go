package worker_test

import (
	"context"
	"errors"
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

func (s *stand) host() dispatch.Host {
	s.t.Helper()
	rc := s.ref.Receiver("worker_default")
	if rc == nil {
		s.t.Fatal("the worker holds no stream")
	}
	return rc
}

func (s *stand) open(o live.Order) live.Made {
	s.t.Helper()
	made, err := s.host().OpenSandbox(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

func (s *stand) exec(id, script string) {
	s.t.Helper()
	s.command(live.Command{ID: id, Sandbox: "b1", Command: []string{"sh", "-c", script}})
}

func (s *stand) command(c live.Command) {
	s.t.Helper()
	if err := s.host().StartExec(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}

// follow reads both streams of an exec to its end.
func (s *stand) follow(id string, from sandbox.Offsets) (stdout, stderr string, err error) {
	err = s.host().FollowExec(s.t.Context(), live.Follow{Sandbox: "b1", Exec: id, From: from}, func(c dispatch.Chunk) error {
		if c.Stream == sandbox.Stderr {
			stderr += string(c.Data)
		} else {
			stdout += string(c.Data)
		}
		return nil
	})
	return stdout, stderr, err
}

// end demands that the end of an exec was told, with all that it printed.
func (s *stand) ended(id string) (res live.ExecResult, stdout, stderr string) {
	s.t.Helper()
	e, ok := s.ref.ExecEnd(id)
	if !ok {
		s.t.Fatalf("the end of %s was not told", id)
	}
	get := func(sum string, kept int64) string {
		data, ok := s.ref.Blob(sum)
		if kept > 0 && !ok || int64(len(data)) != kept {
			s.t.Fatalf("%s: %d bytes are there, %d were kept", id, len(data), kept)
		}
		return string(data)
	}
	return e.Result, get(e.Result.Stdout.SHA256, e.Result.Stdout.Kept), get(e.Result.Stderr.SHA256, e.Result.Stderr.Kept)
}

func (s *stand) endBox(id string) {
	s.t.Helper()
	if err := s.host().EndSandbox(s.t.Context(), live.Closing{ID: id, Outcome: sandbox.OutcomeDone, Reason: "enough"}); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

func TestKeptSandbox(t *testing.T) {
	story(t, func(c *worker.Config) { c.Limits = sandbox.Limits{Memory: 64 << 20} }, func(t *testing.T, s *stand) {
		order := live.Order{ID: "b1", Owner: "o", Spec: live.Spec{Env: map[string]string{"NAME": "value"}}, Files: map[string][]byte{"in/a.txt": []byte("input\n")}}
		made := s.open(order)
		if made.Driver != "fake" || made.Enforced.Memory != 64<<20 || made.Started.IsZero() {
			t.Errorf("made %+v", made)
		}
		if again := s.open(order); again != made {
			t.Errorf("said again: %+v", again)
		}
		s.exec("e1", "cat in/a.txt; printenv NAME; echo oops >&2; exit 3")
		s.exec("e1", "echo never")
		stdout, stderr, err := s.follow("e1", sandbox.Offsets{Stdout: 2})
		if stdout != "put\nvalue\n" || stderr != "oops\n" || err != nil {
			t.Errorf("followed %q, %q, %v", stdout, stderr, err)
		}
		synctest.Wait()
		res, out, errs := s.ended("e1")
		if res.Verdict != sandbox.Failed || res.ExitCode != 3 || out != "input\nvalue\n" || errs != "oops\n" || res.Started.IsZero() {
			t.Errorf("ended %+v with %q and %q", res, out, errs)
		}
		if _, told := s.ref.SandboxEnd("b1"); told {
			t.Error("the sandbox has ended")
		}
		s.endBox("b1")
		if end, told := s.ref.SandboxEnd("b1"); !told || end.Outcome != sandbox.OutcomeDone || end.Reason != "enough" || end.At.IsZero() {
			t.Errorf("told %+v", end)
		}
		s.endBox("b1")
		s.noSandboxes()
		if _, err := s.host().OpenSandbox(t.Context(), order); fault.CodeOf(err) != dispatch.CodeSandboxEnded {
			t.Errorf("opened again: %v", err)
		}
		// What was printed can be read for a while, and then nothing is left.
		if stdout, _, err := s.follow("e1", sandbox.Offsets{}); stdout != "input\nvalue\n" || err != nil {
			t.Errorf("read again: %q, %v", stdout, err)
		}
		pass(2 * time.Minute)
		if _, _, err := s.follow("e1", sandbox.Offsets{}); fault.CodeOf(err) != dispatch.CodeNoSandbox {
			t.Errorf("read later: %v", err)
		}
		if left := entries(t, s.base+"/boxes"); len(left) != 0 {
			t.Errorf("%q are left", left)
		}
	})
}

func TestExecsOfKeptSandboxes(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		// Input by offset.
		s.command(live.Command{ID: "cat", Sandbox: "b1", Command: []string{"cat"}, Stdin: []byte("ab"), Open: true})
		feed := func(offset int64, data string, last bool) error {
			return s.host().FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "cat", Offset: offset, Data: []byte(data), Close: last})
		}
		synctest.Wait()
		for _, c := range []struct {
			offset int64
			data   string
		}{{2, "cd"}, {2, "cd"}, {-1, ""}, {0, "abcd"}, {3, "def"}, {-1, "g"}} {
			if err := feed(c.offset, c.data, false); err != nil {
				t.Errorf("%q at %d: %v", c.data, c.offset, err)
			}
		}
		if err := feed(9, "x", false); fault.CodeOf(err) != dispatch.CodeInputGap {
			t.Errorf("a gap: %v", err)
		}
		if err := feed(7, "h", true); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if res, out, _ := s.ended("cat"); out != "abcdefgh" || res.Verdict != sandbox.OK {
			t.Errorf("it got %q: %+v", out, res)
		}
		if err := feed(-1, "x", false); fault.CodeOf(err) != dispatch.CodeExecEnded {
			t.Errorf("after its end: %v", err)
		}
		if err := s.host().FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "nobody", Offset: -1}); fault.CodeOf(err) != dispatch.CodeNoExec {
			t.Errorf("of a command that is not known: %v", err)
		}
		// Input that comes at once and is all.
		s.command(live.Command{ID: "all", Sandbox: "b1", Command: []string{"cat"}, Stdin: []byte("all")})
		// A timeout, a kill, and a signal.
		s.command(live.Command{ID: "slow", Sandbox: "b1", Command: []string{"sleep", "1000"}, Timeout: time.Second})
		s.command(live.Command{ID: "killed", Sandbox: "b1", Command: []string{"sleep", "1000"}})
		s.command(live.Command{ID: "signalled", Sandbox: "b1", Command: []string{"sleep", "1000"}})
		if err := s.host().SignalExec(t.Context(), live.Signal{Sandbox: "b1", Exec: "killed", Kill: "its user"}); err != nil {
			t.Error(err)
		}
		if err := s.host().SignalExec(t.Context(), live.Signal{Sandbox: "b1", Exec: "killed", Kill: "again"}); err != nil {
			t.Error(err)
		}
		if err := s.host().SignalExec(t.Context(), live.Signal{Sandbox: "b1", Exec: "signalled", Signal: 15}); err != nil {
			t.Error(err)
		}
		pass(2 * time.Second)
		for id, want := range map[string]live.ExecResult{
			"all": {Verdict: sandbox.OK}, "slow": {Verdict: sandbox.Timeout, ExitCode: -1},
			"killed": {Verdict: sandbox.Killed, ExitCode: -1}, "signalled": {Verdict: sandbox.Signal, ExitCode: -1},
		} {
			if res, _, _ := s.ended(id); res.Verdict != want.Verdict || res.ExitCode != want.ExitCode {
				t.Errorf("%s ended %+v", id, res)
			}
		}
		if res, _, _ := s.ended("killed"); res.Cause != "its user" {
			t.Errorf("killed by %q", res.Cause)
		}
		if stats, err := s.host().SandboxStats(t.Context(), "b1"); err != nil || stats.Execs != 0 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

// Execs are told before the sandbox that they were in, also when the manager is
// away, and once it is back.
func TestEndsAreToldUntilTheyAreTaken(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		host := s.host()
		s.open(live.Order{ID: "b1"})
		s.exec("before", "echo before")
		synctest.Wait()
		s.line.away.Store(true)
		for i := range 100 { // more than one call takes
			if err := host.StartExec(t.Context(), live.Command{ID: fmt.Sprint("e", i), Sandbox: "b1", Command: []string{"sh", "-c", "echo " + fmt.Sprint(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := host.StartExec(t.Context(), live.Command{ID: "long", Sandbox: "b1", Command: []string{"sleep", "1000"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := host.EndSandbox(t.Context(), live.Closing{ID: "b1", Outcome: sandbox.OutcomeCancelled}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if _, told := s.ref.ExecEnd("e1"); told {
			t.Fatal("it was told while the manager was away")
		}
		s.ref.Restart() // and the session is forgotten
		s.line.away.Store(false)
		pass(time.Minute)
		for i := range 100 {
			if _, out, _ := s.ended(fmt.Sprint("e", i)); out != fmt.Sprintln(i) {
				t.Errorf("%d said %q", i, out)
			}
		}
		if res, _, _ := s.ended("long"); res.Verdict != sandbox.Killed {
			t.Errorf("ended %+v", res)
		}
		if _, told := s.ref.SandboxEnd("b1"); !told {
			t.Error("the end of the sandbox was not told")
		}
	})
}

// An end that goes with an answer is told once more, a moment later or before the
// end of its sandbox.
func TestAnEndThatGoesWithTheAnswer(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		run := func(id, script string, within time.Duration) *live.ExecEnded {
			t.Helper()
			e, err := s.host().RunExec(t.Context(), live.Command{ID: id, Sandbox: "b1", Command: []string{"sh", "-c", script}}, within)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		e := run("quick", "echo hello; exit 3", time.Second)
		if e == nil || e.Result.ExitCode != 3 || string(e.Inline[e.Result.Stdout.SHA256]) != "hello\n" {
			t.Fatalf("got %+v", e)
		}
		synctest.Wait()
		if _, told := s.ref.ExecEnd("quick"); told {
			t.Error("it was told again at once")
		}
		pass(time.Second)
		if res, out, _ := s.ended("quick"); out != "hello\n" || res.ExitCode != 3 {
			t.Errorf("told %q, %+v", out, res)
		}
		if e := run("slow", "sleep 5; echo late", 10*time.Millisecond); e != nil {
			t.Errorf("one that runs on: %+v", e)
		}
		synctest.Wait()
		pass(5 * time.Second)
		if _, out, _ := s.ended("slow"); out != "late\n" {
			t.Errorf("told %q", out)
		}
		if e := run("last", "echo last", time.Second); e == nil {
			t.Error("it did not end in time")
		}
		if err := s.host().EndSandbox(t.Context(), live.Closing{ID: "b1", Outcome: sandbox.OutcomeCancelled}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, told := s.ref.ExecEnd("last"); !told {
			t.Error("the end of a command was not told before that of its sandbox")
		}
		if _, told := s.ref.SandboxEnd("b1"); !told {
			t.Error("the end of the sandbox waits")
		}
		if _, err := s.host().RunExec(t.Context(), live.Command{ID: "none", Sandbox: "b1", Command: []string{"true"}}, time.Second); err == nil {
			t.Error("one was started in a sandbox that has ended")
		}
	})
}

func TestLargeOutputGoesAsBlobs(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		big := strings.Repeat("0123456789abcdef", dispatch.MaxChunk/16*2+100)
		s.command(live.Command{ID: "big", Sandbox: "b1", Command: []string{"sh", "-c", "cat; echo small >&2"}, Stdin: []byte(big)})
		s.command(live.Command{ID: "capped", Sandbox: "b1", Command: []string{"cat"}, Stdin: []byte(big), OutputCap: 100})
		synctest.Wait()
		res, out, errs := s.ended("big")
		if out != big || errs != "small\n" || res.Stdout.Truncated {
			t.Errorf("%d bytes and %q: %+v", len(out), errs, res)
		}
		if e, _ := s.ref.ExecEnd("big"); len(e.Inline) != 1 {
			t.Errorf("%d streams rode along", len(e.Inline))
		}
		res, out, _ = s.ended("capped")
		if out != big[:100] || !res.Stdout.Truncated || res.Stdout.Seen != int64(len(big)) {
			t.Errorf("%d bytes: %+v", len(out), res)
		}
		for _, from := range []int64{0, 1, dispatch.MaxChunk, int64(len(big))} {
			if stdout, _, err := s.follow("big", sandbox.Offsets{Stdout: from}); stdout != big[from:] || err != nil {
				t.Errorf("from %d: %d bytes, %v", from, len(stdout), err)
			}
		}
		if _, _, err := s.follow("big", sandbox.Offsets{Stdout: int64(len(big)) + 1}); !fault.Is(err, fault.Invalid) {
			t.Errorf("from beyond the end: %v", err)
		}
	})
}

func TestKeptSandboxesTakeMemory(t *testing.T) {
	story(t, func(c *worker.Config) {
		c.Limits, c.Memory, c.Slots = sandbox.Limits{Memory: 40}, 100, 1
	}, func(t *testing.T, s *stand) {
		s.open(live.Order{ID: "b1"})
		s.open(live.Order{ID: "b2"})
		_, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "b3"})
		if !fault.Is(err, fault.Exhausted) {
			t.Errorf("a third: %v", err)
		}
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "b3", Spec: live.Spec{Limits: sandbox.Limits{Memory: 101}}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a large one: %v", err)
		}
		s.open(live.Order{ID: "b4", Spec: live.Spec{Limits: sandbox.Limits{Memory: 20}}})
		// A job waits: no sandbox is killed for it.
		job := s.submit(payload("exec", map[string]any{"command": []string{"echo", "job"}}))
		pass(time.Minute)
		if n := len(s.ref.Accepted(job)); n != 0 {
			t.Fatal("the job had room")
		}
		s.endBox("b1")
		pass(time.Minute)
		if n := len(s.ref.Accepted(job)); n != 1 {
			t.Error("the job was not done")
		}
	})
}

// sluggish is a driver that takes its time to make a sandbox.
type sluggish struct{ sandbox.Driver }

func (d sluggish) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	select {
	case <-time.After(10 * time.Second): // virtual
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return d.Driver.Create(ctx, spec, report)
}

func slowly(c *worker.Config) {
	c.Drivers = map[string]sandbox.Driver{"fake": sluggish{c.Drivers["fake"]}}
}

// A call that is given up does not undo what it began; an end does.
func TestOpeningOutlivesItsCall(t *testing.T) {
	story(t, slowly, func(t *testing.T, s *stand) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no patience"))
		defer cancel()
		for _, id := range []string{"b1", "b2"} {
			if _, err := s.host().OpenSandbox(ctx, live.Order{ID: id}); !fault.Is(err, fault.Unavailable) {
				t.Errorf("got %v", err)
			}
		}
		s.endBox("b2")
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "echo here")
		synctest.Wait()
		if _, out, _ := s.ended("e1"); out != "here\n" {
			t.Errorf("said %q", out)
		}
		if all, err := s.driver.List(t.Context()); len(all) != 1 || err != nil {
			t.Errorf("there are %d sandboxes, %v", len(all), err)
		}
	})
}

func TestStoppedWorkerEndsItsSandboxes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, nil)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "echo here; sleep 1000")
		synctest.Wait()
		s.end()
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.Killed || out != "here\n" {
			t.Errorf("ended %+v, %q", res, out)
		}
		if end, told := s.ref.SandboxEnd("b1"); !told || end.Outcome.State() != sandbox.StateFailed {
			t.Errorf("told %+v", end)
		}
		if left := entries(t, s.base+"/boxes"); len(left) != 0 {
			t.Errorf("%q are left", left)
		}
	})
}
