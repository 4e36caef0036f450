package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestTimeoutKillsTheTreeAndKeepsWhatWasSaid(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		e := start(t, s, sandbox.ExecOptions{Timeout: 10 * time.Second}, "sh", "-c", "sleep 99999 & echo partial; sleep 99999")
		r := result(t, e)
		if r.Verdict != sandbox.Timeout || r.Ended.Sub(r.Started) != 10*time.Second || r.Exit.Signal != 9 {
			t.Errorf("result %+v", r)
		}
		if r.Stdout.Kept != 8 || r.Stdout.SHA256 != digest("partial\n") {
			t.Errorf("stdout %+v", r.Stdout)
		}
		synctest.Wait()
		if u, err := s.Usage(t.Context()); err != nil || u.Processes != 0 {
			t.Errorf("%d processes are left (%v)", u.Processes, err)
		}
		if again := result(t, start(t, s, sandbox.ExecOptions{Timeout: time.Second}, "true")); again.Verdict != sandbox.OK {
			t.Errorf("the next exec: %+v", again)
		}
		shut(t, s)
	})
}

func TestKillSaysWhoAskedForIt(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		e := start(t, s, sandbox.ExecOptions{}, "sleep", "99999")
		for _, who := range []string{"alice", "bob"} {
			if err := e.Kill(t.Context(), who); err != nil {
				t.Fatal(err)
			}
		}
		if r := result(t, e); r.Verdict != sandbox.Killed || r.Cause != "alice" {
			t.Errorf("result %+v", r)
		}
		done := start(t, s, sandbox.ExecOptions{}, "true")
		before := result(t, done)
		if err := done.Kill(t.Context(), "too late"); err != nil {
			t.Fatal(err)
		}
		if after := result(t, done); after != before || after.Verdict != sandbox.OK {
			t.Errorf("a late kill turned %+v into %+v", before, after)
		}
		shut(t, s)
	})
}

func TestOutputOverTheCapIsCountedAndDropped(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		o := options(t, d, nil)
		o.OutputCap = 1000
		s := open(t, o)
		kept := &memory{}
		r := result(t, start(t, s, sandbox.ExecOptions{Sink: kept}, "sh", "-c", "head -c 5000000 /dev/zero; echo end; echo small >&2; exit 2"))
		if r.Verdict != sandbox.Failed || r.Stdout.Seen != 5000004 || r.Stdout.Kept != 1000 || !r.Stdout.Truncated {
			t.Errorf("result %+v", r)
		}
		if kept.stdout() != strings.Repeat("\x00", 1000) || r.Stdout.SHA256 != digest(kept.stdout()) {
			t.Errorf("the sink has %d bytes", len(kept.stdout()))
		}
		if r.Stderr.Seen != 6 || r.Stderr.Truncated || r.Stderr.SHA256 != digest("small\n") {
			t.Errorf("stderr %+v", r.Stderr)
		}
		shut(t, s)
	})
}

func TestASinkThatFailsDoesNotStopTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		full := errors.New("disk full")
		var calls atomic.Int64
		sink := sandbox.SinkFunc(func(context.Context, sandbox.Frame) error { calls.Add(1); return full })
		e := start(t, s, sandbox.ExecOptions{Sink: sink}, "sh", "-c", "echo one; echo two; exit 4")
		r, err := e.Wait(t.Context())
		if !errors.Is(err, full) || r.Verdict != sandbox.Failed || r.Exit.Code != 4 {
			t.Errorf("wait: %+v, %v", r, err)
		}
		if r.Stdout.Seen != 8 || r.Stdout.Kept != 0 || !r.Stdout.Truncated || calls.Load() != 1 {
			t.Errorf("stdout %+v after %d calls", r.Stdout, calls.Load())
		}
		shut(t, s)
	})
}

func TestASinkThatBlocksDoesNotHoldUpTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		sink := sandbox.SinkFunc(func(ctx context.Context, _ sandbox.Frame) error { <-ctx.Done(); return context.Cause(ctx) })
		e := start(t, s, sandbox.ExecOptions{Sink: sink, Timeout: 5 * time.Second}, "sh", "-c", "echo one; sleep 99999")
		r, err := e.Wait(t.Context())
		if err == nil || r.Verdict != sandbox.Timeout || r.Ended.Sub(r.Started) != 5*time.Second || !r.Stdout.Truncated {
			t.Errorf("wait: %+v, %v", r, err)
		}
		shut(t, s)
	})
}

func TestInputReachesTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		e, err := s.Exec(t.Context(), sandbox.ExecSpec{ID: "mine", Command: []string{"cat"}, Stdin: true}, sandbox.ExecOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Write(t.Context(), []byte("hello")), e.CloseInput(t.Context())); err != nil {
			t.Fatal(err)
		}
		if r := result(t, e); r.Stdout.SHA256 != digest("hello") || e.ID() != "mine" {
			t.Errorf("%s: %+v", e.ID(), r)
		}
		if err := e.Resize(t.Context(), 1, 1); !fault.Is(err, fault.Conflict) {
			t.Errorf("resize: %v", err)
		}
		shut(t, s)
	})
}

func TestWaitEndsWithItsCtxAndTheExecGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		over := errors.New("over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, over)
		defer cancel()
		e, err := s.Exec(ctx, sandbox.ExecSpec{Command: []string{"sleep", "60"}}, sandbox.ExecOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Wait(ctx); !errors.Is(err, over) {
			t.Errorf("wait: %v", err)
		}
		if r := result(t, e); r.Verdict != sandbox.OK || r.Ended.Sub(r.Started) != time.Minute {
			t.Errorf("result %+v", r)
		}
		if _, err := e.Wait(ctx); err != nil {
			t.Errorf("a result that is known was not told: %v", err)
		}
		shut(t, s)
	})
}

func TestAStartThatHangsIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, map[string]string{"FAKE_HANG": "exec"}))
		begin := time.Now()
		_, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"true"}}, sandbox.ExecOptions{})
		if fault.CodeOf(err) != "start_timeout" || time.Since(begin) != sandbox.DefaultStartTimeout {
			t.Errorf("exec: %v after %s", err, time.Since(begin))
		}
		for timeout, want := range map[time.Duration]time.Duration{
			time.Millisecond: 10 * time.Second, 20 * time.Second: 20 * time.Second, time.Hour: sandbox.DefaultStartTimeout,
		} {
			begin = time.Now()
			_, err = s.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"true"}}, sandbox.ExecOptions{Timeout: timeout})
			if fault.CodeOf(err) != "start_timeout" || time.Since(begin) != want {
				t.Errorf("exec with %s: %v after %s", timeout, err, time.Since(begin))
			}
		}
		shut(t, s)
	})
}

func TestAProcessThatWillNotDieTakesItsSandboxWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, &broken{Driver: d, immortal: true}, nil))
		other := start(t, s, sandbox.ExecOptions{}, "sleep", "99999")
		r := result(t, start(t, s, sandbox.ExecOptions{Timeout: time.Second}, "sleep", "99999"))
		if r.Verdict != sandbox.Timeout {
			t.Errorf("result %+v", r)
		}
		if r := result(t, other); r.Verdict != sandbox.Signal && r.Verdict != sandbox.Lost {
			t.Errorf("the other's result %+v", r)
		}
		wantStatus(t, s, sandbox.StateFailed, sandbox.OutcomeKilled)
		shut(t, s)
	})
}

func TestADriverThatNeverTellsTheExit(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, &broken{Driver: d, mute: true}, nil))
		e := start(t, s, sandbox.ExecOptions{}, "true")
		synctest.Wait()
		shut(t, s)
		if r := result(t, e); r.Verdict != sandbox.Killed || !r.Exit.Lost {
			t.Errorf("result %+v", r)
		}
	})
}

func TestOutputThatNeverEndsIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, &broken{Driver: d, endless: true}, nil))
		r := result(t, start(t, s, sandbox.ExecOptions{}, "echo", "hello"))
		if r.Verdict != sandbox.OK || r.Stdout.Kept != 6 || !r.Stdout.Truncated {
			t.Errorf("result %+v", r)
		}
		shut(t, s)
	})
}

// BenchmarkLife is the whole life of a sandbox with one exec.
func BenchmarkLife(b *testing.B) {
	d, err := fake.New(fake.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		id, err := sandbox.NewID()
		if err != nil {
			b.Fatal(err)
		}
		s, err := sandbox.Open(b.Context(), sandbox.Options{Driver: d, Spec: sandbox.Spec{ID: id}})
		if err != nil {
			b.Fatal(err)
		}
		e, err := s.Exec(b.Context(), sandbox.ExecSpec{Command: []string{"echo", "hello"}}, sandbox.ExecOptions{Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
