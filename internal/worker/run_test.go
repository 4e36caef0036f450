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
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// shown is what an asker of a run has got.
type shown struct {
	run.Result
	stdout, stderr string
	err            error
}

func (s *stand) runner() dispatch.Runner {
	s.t.Helper()
	rc := s.ref.Receiver("worker_default")
	if rc == nil {
		s.t.Fatal("the worker holds no stream")
	}
	return rc
}

func script(id, code string) run.Order {
	return run.Order{ID: id, Owner: "o", Language: "shell", Code: code, Timeout: 10 * time.Second, ReadOnly: true, Artifacts: true}
}

func ask(ctx context.Context, r dispatch.Runner, o run.Order) (got shown) {
	got.Result, got.err = r.Run(ctx, o, func(c dispatch.Chunk) error {
		if c.Stream == sandbox.Stderr {
			got.stderr += string(c.Data)
		} else {
			got.stdout += string(c.Data)
		}
		return nil
	})
	return got
}

// later asks in the background.
func later(ctx context.Context, r dispatch.Runner, o run.Order) <-chan shown {
	got := make(chan shown, 1)
	go func() { got <- ask(ctx, r, o) }()
	return got
}

func TestRun(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		o := script("a", `cat; cat in.txt; printenv NAME; echo oops >&2; echo made > artifacts/left.txt; printenv AUREA_ARTIFACTS; exit 3`)
		o.Files, o.Args, o.Env, o.Stdin = map[string]string{"in.txt": "input\n"}, []string{"argument"}, map[string]string{"NAME": "value"}, "typed\n"
		got := ask(t.Context(), s.runner(), o)
		if got.err != nil || got.Verdict != sandbox.Failed || got.ExitCode != 3 || got.Step != run.StepRun {
			t.Fatalf("%+v", got)
		}
		if want := "typed\ninput\nvalue\n/workspace/artifacts\n"; got.stdout != want || got.stderr != "oops\n" {
			t.Errorf("said %q and %q", got.stdout, got.stderr)
		}
		if a := got.Artifacts["left.txt"]; string(a.Data) != "made\n" || len(got.Artifacts) != 1 {
			t.Errorf("artifacts %+v, skipped %q", got.Artifacts, got.Skipped)
		}
		if got.Stdout.Kept != int64(len(got.stdout)) || got.Driver != "fake" || got.Worker != "worker_default" || got.Sandbox == "" || len(got.Stages) < 4 {
			t.Errorf("%+v", got.Result)
		}
		pass(time.Second) // the answer goes first
		s.noSandboxes()
	})
}

func TestRunOutOfTime(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		o := script("a", `echo before; sleep 60; echo after`)
		got := ask(t.Context(), s.runner(), o)
		if got.err != nil || got.Verdict != sandbox.Timeout || got.ExitCode != -1 || got.stdout != "before\n" {
			t.Errorf("%+v", got)
		}
	})
}

func TestRunThatNobodyWants(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		ctx, cancel := context.WithCancelCause(t.Context())
		got := later(ctx, s.runner(), script("a", `echo here; sleep 5; echo after`))
		pass(time.Second)
		cancel(errors.New("the client hung up"))
		if g := <-got; !fault.Is(g.err, fault.Unavailable) || g.stdout != "here\n" {
			t.Errorf("%+v", g)
		}
		s.noSandboxes() // it was destroyed before the call returned
	})
}

func TestRunIsFoundAgain(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		o := script("a", `echo one; sleep 5; echo two`)
		o.Keep = true
		ctx, cancel := context.WithCancelCause(t.Context())
		first := later(ctx, s.runner(), o)
		pass(time.Second)
		cancel(errors.New("the manager was killed"))
		if g := <-first; g.err == nil || g.stdout != "one\n" {
			t.Fatalf("%+v", g)
		}
		s.ref.Restart()
		pass(time.Second)
		o.From.Stdout = 4
		for range 2 { // also after its end
			if g := ask(t.Context(), s.runner(), o); g.err != nil || g.Verdict != sandbox.OK || g.stdout != "two\n" {
				t.Errorf("%+v", g)
			}
		}
		if err := s.runner().Forget(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		o.From.Stdout = 0
		if g := ask(t.Context(), s.runner(), o); g.err != nil || g.stdout != "one\ntwo\n" {
			t.Errorf("a run that was forgotten: %+v", g)
		}
	})
}

func TestForgetStopsARun(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		o := script("a", `sleep 5`)
		o.Keep = true
		got := later(t.Context(), s.runner(), o)
		pass(time.Second)
		if err := s.runner().Forget(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if g := <-got; !fault.Is(g.err, fault.Gone) {
			t.Errorf("%+v", g)
		}
		synctest.Wait()
		s.noSandboxes()
	})
}

func TestRunsOfOneIDDoNotMeet(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		first := later(t.Context(), s.runner(), script("a", `sleep 1`))
		pass(100 * time.Millisecond)
		if g := ask(t.Context(), s.runner(), script("a", `echo mine`)); !fault.Is(g.err, fault.Conflict) {
			t.Errorf("%+v", g)
		}
		if g := <-first; g.err != nil {
			t.Error(g.err)
		}
	})
}

func TestRunsAndJobsShareTheRoom(t *testing.T) {
	var driver *counting
	story(t, func(c *worker.Config) {
		c.Slots = 2
		driver = &counting{Driver: c.Drivers["fake"]}
		c.Drivers = map[string]sandbox.Driver{"fake": driver}
	}, func(t *testing.T, s *stand) {
		var runs []<-chan shown
		for i := range 2 {
			runs = append(runs, later(t.Context(), s.runner(), script(fmt.Sprint(i), `sleep 3`)))
		}
		pass(time.Second)
		if g := ask(t.Context(), s.runner(), script("b", `true`)); !fault.Is(g.err, fault.Exhausted) {
			t.Errorf("no room: %+v", g)
		}
		job := s.submit(payload("exec", map[string]any{"command": []string{"sleep", "5"}}))
		for _, r := range runs {
			if g := <-r; g.err != nil {
				t.Error(g.err)
			}
		}
		pass(time.Second)
		if g := ask(t.Context(), s.runner(), script("c", `true`)); g.err != nil {
			t.Errorf("beside one job: %+v", g)
		}
		pass(10 * time.Second)
		s.result(job)
		// Two at work, and two that are being destroyed behind their answers:
		// those hold no slot, but their memory.
		if driver.most > 4 {
			t.Errorf("%d sandboxes lived at a time", driver.most)
		}
	})
}

// TestMemoryIsGivenBackWithTheSandbox has a driver that takes its time to
// destroy. Answers do not wait for it, but the memory of what is being
// destroyed is not given to another: all limits together never come to more
// than the worker may give.
func TestMemoryIsGivenBackWithTheSandbox(t *testing.T) {
	const memory = 1 << 30
	var driver *counting
	story(t, func(c *worker.Config) {
		c.Slots, c.Memory, c.Limits.Memory = 2, memory, memory/2
		driver = &counting{Driver: slowEnd{c.Drivers["fake"], 5 * time.Second}}
		c.Drivers = map[string]sandbox.Driver{"fake": driver}
	}, func(t *testing.T, s *stand) {
		for i := range 2 {
			if g := ask(t.Context(), s.runner(), script(fmt.Sprint(i), `true`)); g.err != nil {
				t.Fatal(g.err)
			}
		}
		pass(time.Second)
		if g := ask(t.Context(), s.runner(), script("early", `true`)); !fault.Is(g.err, fault.Exhausted) {
			t.Errorf("while both are destroyed: %+v", g)
		}
		pass(10 * time.Second)
		if g := ask(t.Context(), s.runner(), script("late", `true`)); g.err != nil {
			t.Errorf("after that: %+v", g)
		}
		pass(10 * time.Second)
		driver.mu.Lock()
		defer driver.mu.Unlock()
		if driver.mostMemory != memory || driver.now != 0 {
			t.Errorf("the limits came to %d, and %d are left", driver.mostMemory, driver.now)
		}
	})
}

// slowEnd is a driver that takes its time to destroy.
type slowEnd struct {
	sandbox.Driver
	takes time.Duration
}

func (d slowEnd) Destroy(ctx context.Context, h sandbox.Handle) error {
	<-time.After(d.takes) // virtual
	return d.Driver.Destroy(ctx, h)
}

func TestRunsAreRefused(t *testing.T) {
	story(t, func(c *worker.Config) { c.Memory = 1 << 30 }, func(t *testing.T, s *stand) {
		for code, change := range map[string]func(*run.Order){
			"unknown_language":   func(o *run.Order) { o.Language = "cobol" },
			"driver_unavailable": func(o *run.Order) { o.Driver = "docker" },
			"reserved_name":      func(o *run.Order) { o.Files = map[string]string{"main.sh": ""} },
			"limit_too_large":    func(o *run.Order) { o.Limits.Memory = 2 << 30 },
		} {
			o := script("a", "true")
			change(&o)
			if g := ask(t.Context(), s.runner(), o); !fault.Is(g.err, fault.Invalid) || fault.CodeOf(g.err) != code {
				t.Errorf("%s: %v", code, g.err)
			}
		}
		o := script("a", "true")
		o.Files = map[string]string{"artifacts": ""}
		if g := ask(t.Context(), s.runner(), o); fault.CodeOf(g.err) != "reserved_name" {
			t.Error(g.err)
		}
	})
}

// compiled is a language whose compiler is a shell script.
func compiled(t *testing.T, compiler string) *language.Registry {
	t.Helper()
	r, err := language.New([]language.Language{{
		Name: "made", File: "main.sh", Command: []string{"sh", language.OutWord},
		Compile: &language.Compile{Command: []string{"sh", "-c", compiler, language.FileWord, language.OutWord}, Timeout: 2 * time.Second},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompileStep(t *testing.T) {
	for compiler, want := range map[string]shown{
		"echo fine; echo 'echo built' > /tmp/main": {Result: run.Result{Verdict: sandbox.OK, Step: run.StepRun}, stdout: "built\n"},
		"echo line 1: no >&2; exit 4":              {Result: run.Result{Verdict: sandbox.Failed, ExitCode: 4, Step: run.StepCompile}, stderr: "line 1: no\n"},
		"echo slow; sleep 60":                      {Result: run.Result{Verdict: sandbox.Timeout, ExitCode: -1, Step: run.StepCompile}, stdout: "slow\n"},
	} {
		t.Run(compiler, func(t *testing.T) {
			story(t, func(c *worker.Config) { c.Languages = compiled(t, compiler) }, func(t *testing.T, s *stand) {
				o := script("a", "code")
				o.Language = "made"
				got := ask(t.Context(), s.runner(), o)
				if got.err != nil || got.Verdict != want.Verdict || got.ExitCode != want.ExitCode || got.Step != want.Step ||
					got.stdout != want.stdout || got.stderr != want.stderr {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestOutputOfARunIsCut(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		o := script("a", `echo 0123456789; echo more`)
		o.OutputCap = 5
		got := ask(t.Context(), s.runner(), o)
		if got.err != nil || got.stdout != "01234" || !got.Stdout.Truncated || got.Stdout.Seen != 16 || got.Stderr.Truncated {
			t.Errorf("%+v", got)
		}
	})
}

// A worker that is stopped lets its runs end, and takes no more.
func TestRunsAreDrained(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		r := s.runner()
		got := later(t.Context(), r, script("a", `sleep 5; echo end`))
		pass(time.Second)
		s.stop(errors.New("stopped"))
		pass(time.Second)
		if g := ask(t.Context(), r, script("b", `true`)); !fault.Is(g.err, fault.Unavailable) {
			t.Errorf("%+v", g)
		}
		if g := <-got; g.err != nil || g.stdout != "end\n" {
			t.Errorf("%+v", g)
		}
	})
}

func TestRunsThatDoNotEndAreStopped(t *testing.T) {
	story(t, func(c *worker.Config) { c.DrainTimeout = 2 * time.Second }, func(t *testing.T, s *stand) {
		o := script("a", `sleep 9`)
		o.Keep = true
		got := later(t.Context(), s.runner(), o)
		pass(time.Second)
		s.stop(errors.New("stopped"))
		if g := <-got; g.err == nil {
			t.Errorf("%+v", g)
		}
	})
}

// The sandboxes of runs that a killed worker had are swept by the next.
func TestRunsOfAKilledWorkerAreSwept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		synctest.Wait()
		got := later(t.Context(), s.runner(), script("a", `sleep 9`))
		pass(time.Second)
		next := s.kill().revive(nil)
		pass(time.Second)
		if left, err := next.driver.List(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("%d sandboxes are left, %v", len(left), err)
		}
		<-got
		next.bury()
	})
}

// What is kept of runs that nobody asks for any more is bounded.
func TestKeptRunsAreBounded(t *testing.T) {
	story(t, func(c *worker.Config) { c.Slots = 50 }, func(t *testing.T, s *stand) {
		r := s.runner()
		for i := range 300 {
			o := script(fmt.Sprint(i), `echo x`)
			o.Keep = true
			if g := ask(t.Context(), r, o); g.err != nil {
				t.Fatal(g.err)
			}
			synctest.Wait()
		}
		first, last := script("0", `echo again`), script("299", `echo again`)
		first.Keep, last.Keep = true, true
		if g := ask(t.Context(), r, first); g.stdout != "again\n" {
			t.Errorf("the oldest: %+v", g)
		}
		if g := ask(t.Context(), r, last); g.stdout != "x\n" {
			t.Errorf("the newest: %+v", g)
		}
	})
}

func TestMuchOutputOfARun(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		text := strings.Repeat("0123456789abcdef", 20_000)
		o := script("a", `cat in.txt`)
		o.Files = map[string]string{"in.txt": text}
		if g := ask(t.Context(), s.runner(), o); g.err != nil || g.stdout != text {
			t.Errorf("%d bytes, %v", len(g.stdout), g.err)
		}
	})
}
