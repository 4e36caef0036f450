package sandbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a story in virtual time with a fake driver of its own.
func bubble(t *testing.T, story func(t *testing.T, d sandbox.Driver)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := fake.New(fake.Options{})
		if err != nil {
			t.Fatal(err)
		}
		story(t, d)
		left, err := d.List(t.Context())
		if err != nil || len(left) != 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func options(t *testing.T, d sandbox.Driver, env map[string]string) sandbox.Options {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Options{Driver: d, Spec: sandbox.Spec{ID: id, Env: env}}
}

func open(t *testing.T, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	s, err := sandbox.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func shut(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func start(t *testing.T, s *sandbox.Sandbox, o sandbox.ExecOptions, command ...string) *sandbox.Exec {
	t.Helper()
	e, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: command}, o)
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	return e
}

func result(t *testing.T, e *sandbox.Exec) sandbox.Result {
	t.Helper()
	r, err := e.Wait(t.Context())
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return r
}

func wantStatus(t *testing.T, s *sandbox.Sandbox, state sandbox.State, outcome sandbox.Outcome) {
	t.Helper()
	if got := s.Status(); got.State != state || got.Outcome != outcome {
		t.Errorf("status %+v, want %s and %s", got, state, outcome)
	}
}

func TestALife(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		o := options(t, d, nil)
		var reported sandbox.Handle
		o.Report = func(h sandbox.Handle) error { reported = h; return nil }
		s := open(t, o)
		if reported.ID != s.ID() {
			t.Errorf("%s was reported for %s", reported.ID, s.ID())
		}
		wantStatus(t, s, sandbox.StateRunning, "")
		var packed bytes.Buffer
		w := tar.NewWriter(&packed)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: "in.txt", Size: 2, Mode: 0o600}), second(w.Write([]byte("hi"))), w.Close()); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), "/workspace", &packed); err != nil {
			t.Fatal(err)
		}
		if r := result(t, start(t, s, sandbox.ExecOptions{}, "cat", "in.txt")); r.Verdict != sandbox.OK || r.Stdout.Seen != 2 {
			t.Errorf("result %+v", r)
		}
		var out bytes.Buffer
		if err := s.Get(t.Context(), "/workspace", &out); err != nil || !strings.Contains(out.String(), "in.txt") {
			t.Errorf("get: %v", err)
		}
		if _, err := s.Usage(t.Context()); err != nil {
			t.Error(err)
		}
		shut(t, s)
		wantStatus(t, s, sandbox.StateCompleted, sandbox.OutcomeDone)
		<-s.Done()
		for what, err := range map[string]error{
			"put":  s.Put(t.Context(), "/workspace", nil),
			"get":  s.Get(t.Context(), "/workspace", io.Discard),
			"exec": second(s.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"true"}}, sandbox.ExecOptions{})),
		} {
			if !fault.Is(err, fault.Conflict) {
				t.Errorf("%s after the end: %v", what, err)
			}
		}
		shut(t, s)
	})
}

func second[T any](_ T, err error) error { return err }

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env     map[string]string
		command string
		want    sandbox.Verdict
	}{
		"ok":     {command: "true", want: sandbox.OK},
		"failed": {command: "exit 3", want: sandbox.Failed},
		"signal": {command: "kill -SEGV $$", want: sandbox.Signal},
		"oom":    {env: map[string]string{"FAKE_OOM": "1"}, want: sandbox.OOM},
		"lost":   {env: map[string]string{"FAKE_CRASH": "run"}, want: sandbox.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d sandbox.Driver) {
				s := open(t, options(t, d, c.env))
				if r := result(t, start(t, s, sandbox.ExecOptions{}, "sh", "-c", c.command)); r.Verdict != c.want {
					t.Errorf("result %+v, want %s", r, c.want)
				}
				shut(t, s)
			})
		})
	}
}

func TestRefusedBeforeCreate(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		weak := &broken{Driver: d, capabilities: &sandbox.Capabilities{Networks: []sandbox.Network{sandbox.NetworkNone}}}
		o := options(t, weak, nil)
		o.Spec.Limits.Memory = 1 << 20
		if _, err := sandbox.Open(t.Context(), o); fault.CodeOf(err) != "limit_unenforceable" {
			t.Errorf("a limit: %v", err)
		}
		o = options(t, weak, nil)
		o.Spec.Network = sandbox.NetworkFull
		if _, err := sandbox.Open(t.Context(), o); fault.CodeOf(err) != "network_unenforceable" {
			t.Errorf("a network: %v", err)
		}
		s := open(t, options(t, weak, nil))
		_, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"true"}, TTY: true}, sandbox.ExecOptions{})
		if fault.CodeOf(err) != "tty_unsupported" {
			t.Errorf("a terminal: %v", err)
		}
		if weak.created.Load() != 1 {
			t.Errorf("create was called %d times, want once", weak.created.Load())
		}
		shut(t, s)
	})
}

func TestALimitThatDoesNotHoldIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		liar := &broken{Driver: d, enforced: &sandbox.Limits{Memory: 2 << 20}}
		o := options(t, liar, nil)
		o.Spec.Limits.Memory = 1 << 20
		if _, err := sandbox.Open(t.Context(), o); fault.CodeOf(err) != "limit_unenforceable" {
			t.Errorf("open: %v", err)
		}
	})
}

func TestACreateThatHangsIsGivenUpAndDestroyed(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		begin := time.Now()
		_, err := sandbox.Open(t.Context(), options(t, d, map[string]string{"FAKE_HANG": "create"}))
		if fault.CodeOf(err) != "provision_timeout" || time.Since(begin) != sandbox.DefaultProvisionTimeout {
			t.Errorf("open: %v after %s", err, time.Since(begin))
		}
	})
}

func TestAnOpenThatIsCancelledIsDestroyed(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		over := errors.New("the caller went away")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, over)
		defer cancel()
		if _, err := sandbox.Open(ctx, options(t, d, map[string]string{"FAKE_HANG": "create"})); !errors.Is(err, over) {
			t.Errorf("open: %v", err)
		}
	})
}

func TestOpenFailures(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		refused := errors.New("disk full")
		o := options(t, d, nil)
		o.Report = func(sandbox.Handle) error { return refused }
		if _, err := sandbox.Open(t.Context(), o); !errors.Is(err, refused) {
			t.Errorf("a report that fails: %v", err)
		}
		if _, err := sandbox.Open(t.Context(), options(t, d, map[string]string{"FAKE_CRASH": "create"})); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a crash: %v", err)
		}
		if _, err := sandbox.Open(t.Context(), options(t, &broken{Driver: d, silent: true}, nil)); err == nil {
			t.Error("a driver that reports no handle was accepted")
		}
	})
}

func TestCloseIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, map[string]string{"FAKE_HANG": "destroy"}))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("even without a caller"))
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		wantStatus(t, s, sandbox.StateCompleted, sandbox.OutcomeDone)
	})
}

func TestACloseThatFailsCanBeCalledAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		stuck := &broken{Driver: d}
		stuck.destroyFails.Store(true)
		s := open(t, options(t, stuck, nil))
		e := start(t, s, sandbox.ExecOptions{}, "sleep", "100000")
		begin := time.Now()
		if err := s.Close(t.Context()); err == nil || time.Since(begin) < sandbox.DefaultCleanupTimeout {
			t.Errorf("close: %v after %s, want a failure at its bound", err, time.Since(begin))
		}
		if r := result(t, e); r.Verdict != sandbox.Killed {
			t.Errorf("result %+v", r)
		}
		wantStatus(t, s, sandbox.StateFailed, sandbox.OutcomeUncleaned)
		stuck.destroyFails.Store(false)
		shut(t, s)
		wantStatus(t, s, sandbox.StateFailed, sandbox.OutcomeUncleaned)
	})
}

func TestEndKillsWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		e := start(t, s, sandbox.ExecOptions{}, "sh", "-c", "echo partial; sleep 100000")
		synctest.Wait()
		if err := s.End(t.Context(), sandbox.OutcomeCancelled, "on request of alice"); err != nil {
			t.Fatal(err)
		}
		r := result(t, e)
		if r.Verdict != sandbox.Killed || r.Cause != "on request of alice" || r.Stdout.Kept != 8 {
			t.Errorf("result %+v", r)
		}
		wantStatus(t, s, sandbox.StateCompleted, sandbox.OutcomeCancelled)
		if err := s.End(t.Context(), sandbox.OutcomeExpired, "later"); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, s, sandbox.StateCompleted, sandbox.OutcomeCancelled)
	})
}

func TestDeathOfTheSandbox(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		s := open(t, options(t, d, nil))
		one := start(t, s, sandbox.ExecOptions{}, "sleep", "100000")
		two, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"x"}, Env: map[string]string{"FAKE_CRASH": "run"}}, sandbox.ExecOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []*sandbox.Exec{one, two} {
			if r := result(t, e); r.Verdict != sandbox.Lost {
				t.Errorf("result %+v", r)
			}
		}
		<-s.Done()
		wantStatus(t, s, sandbox.StateFailed, sandbox.OutcomeLost)
		shut(t, s)
		wantStatus(t, s, sandbox.StateFailed, sandbox.OutcomeLost)
	})
}

func TestAdoptGoesOnWhereTheEarlierWorkerLeft(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first, err := fake.New(fake.Options{StateDir: folder})
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, options(t, first, nil))
		kept := &memory{}
		e := start(t, s, sandbox.ExecOptions{Timeout: time.Hour, Sink: kept}, "sh", "-c", "echo one; sleep 60; echo two")
		started := e.Started()
		synctest.Wait()
		if err := first.Close(); err != nil { // the worker ends, and its driver with it
			t.Fatal(err)
		}
		if r := result(t, e); r.Verdict != sandbox.Lost {
			t.Errorf("result in the dying worker %+v", r)
		}

		second, err := fake.New(fake.Options{StateDir: folder})
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := sandbox.Adopt(t.Context(), sandbox.Options{Driver: second}, s.Handle())
		if err != nil {
			t.Fatal(err)
		}
		again, err := adopted.Attach(t.Context(), e.ID(), sandbox.ExecOptions{Timeout: time.Hour, Sink: kept},
			sandbox.Resume{From: sandbox.Offsets{Stdout: 4}, Stdout: strings.NewReader("one\n"), Started: started})
		if err != nil {
			t.Fatal(err)
		}
		r := result(t, again)
		if r.Verdict != sandbox.OK || r.Ended.Sub(r.Started) != time.Minute {
			t.Errorf("result %+v", r)
		}
		if r.Stdout.Kept != 8 || r.Stdout.SHA256 != digest("one\ntwo\n") || kept.stdout() != "one\ntwo\n" {
			t.Errorf("stdout %+v, kept %q", r.Stdout, kept.stdout())
		}
		if _, err := adopted.Attach(t.Context(), "nobody", sandbox.ExecOptions{}, sandbox.Resume{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("attach to nobody: %v", err)
		}
		shut(t, adopted)
		if _, err := sandbox.Adopt(t.Context(), sandbox.Options{Driver: second}, s.Handle()); !fault.Is(err, fault.NotFound) {
			t.Errorf("adopt what is gone: %v", err)
		}
		abandon(t, s, second)
	})
}

// abandon ends what is left of the first worker's view.
func abandon(t *testing.T, s *sandbox.Sandbox, d *fake.Driver) {
	t.Helper()
	if err := s.Close(t.Context()); err == nil {
		t.Error("a sandbox of a closed driver was destroyed")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestStress ends sandboxes while execs start, are killed and time out: every
// Wait must return, and nothing may be left.
func TestStress(t *testing.T) {
	t.Parallel()
	d, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			o := options(t, d, nil)
			s, err := sandbox.Open(t.Context(), o)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			var work sync.WaitGroup
			for n := range 8 {
				work.Go(func() {
					e, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"sh", "-c", "echo a; sleep 0.002; echo b >&2; sleep 1000 & wait"}},
						sandbox.ExecOptions{Timeout: time.Duration(n+1) * time.Millisecond})
					if err != nil {
						if !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
							t.Errorf("exec: %v", err)
						}
						return
					}
					if n%2 == 0 {
						if err := e.Kill(t.Context(), "a test"); err != nil {
							t.Errorf("kill: %v", err)
						}
					}
					r, err := e.Wait(t.Context())
					if err != nil || r.Verdict != sandbox.Killed && r.Verdict != sandbox.Timeout && r.Verdict != sandbox.Lost {
						t.Errorf("wait: %+v, %v", r, err)
					}
				})
				if n == 5 {
					for range 2 {
						work.Go(func() {
							if err := s.Close(t.Context()); err != nil {
								t.Errorf("close: %v", err)
							}
						})
					}
				}
			}
			work.Wait()
		})
	}
	all.Wait()
	if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
