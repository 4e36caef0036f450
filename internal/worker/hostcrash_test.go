package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/probe"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// A worker that was killed is followed by one that goes on with its sandboxes,
// and with what runs in them.
func TestKeptSandboxesAreTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, func(c *worker.Config) { c.Limits, c.Memory = sandbox.Limits{Memory: 40}, 100 })
		synctest.Wait()
		s.open(live.Order{ID: "b1", Spec: live.Spec{Env: map[string]string{"NAME": "value"}}})
		s.open(live.Order{ID: "b2"})
		s.exec("long", "echo one; echo err >&2; sleep 60; echo two; printenv NAME; exit 7")
		s.command(live.Command{ID: "cat", Sandbox: "b1", Command: []string{"cat"}, Stdin: []byte("ab"), Open: true})
		s.exec("short", "sleep 10; echo short")
		s.command(live.Command{ID: "slow", Sandbox: "b2", Command: []string{"sleep", "1000"}, Timeout: time.Minute})
		s.exec("done", "echo done")
		pass(time.Second)
		s = s.kill()
		<-time.After(20 * time.Second)
		s.revive(func(c *worker.Config) { c.Limits, c.Memory = sandbox.Limits{Memory: 40}, 100 })
		synctest.Wait()
		standing := s.ref.Standings("worker_default")
		if len(standing) != 2 || fmt.Sprint(standing[0].Execs) != "[cat long short]" || fmt.Sprint(standing[1].Execs) != "[slow]" {
			t.Errorf("it named %+v", standing)
		}
		if _, out, _ := s.ended("short"); out != "short\n" {
			t.Errorf("what ended while nobody looked said %q", out)
		}
		if made := s.open(live.Order{ID: "b1"}); made.Enforced.Memory != 40 {
			t.Errorf("made %+v", made)
		}
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "b3"}); !fault.Is(err, fault.Exhausted) {
			t.Errorf("a third: %v", err)
		}
		for offset, data := range map[int64]string{0: "ab", 2: "cd"} {
			if err := s.host().FeedExec(t.Context(), live.Input{Sandbox: "b1", Exec: "cat", Offset: offset, Data: []byte(data), Close: offset == 2}); err != nil {
				t.Error(err)
			}
		}
		s.exec("after", "echo after; printenv NAME")
		stdout, stderr, err := s.follow("long", sandbox.Offsets{})
		if stdout != "one\ntwo\nvalue\n" || stderr != "err\n" || err != nil {
			t.Errorf("followed %q, %q, %v", stdout, stderr, err)
		}
		pass(time.Minute)
		if res, out, errs := s.ended("long"); res.ExitCode != 7 || out != "one\ntwo\nvalue\n" || errs != "err\n" {
			t.Errorf("ended %+v with %q and %q", res, out, errs)
		}
		if _, out, _ := s.ended("cat"); out != "abcd" {
			t.Errorf("it got %q", out)
		}
		if _, out, _ := s.ended("after"); out != "after\nvalue\n" {
			t.Errorf("it said %q", out)
		}
		if res, _, _ := s.ended("slow"); res.Verdict != sandbox.Timeout || res.Ended.Sub(res.Started) > 61*time.Second {
			t.Errorf("ended %+v", res)
		}
		s.bury()
	})
}

// What the manager does not know is destroyed.
func TestStrangersAreDestroyed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s.open(live.Order{ID: "b2"})
		s.exec("known", "sleep 10; echo known")
		s.exec("unknown", "sleep 1000")
		s = s.kill()
		s.ref.Disown("b2")
		s.ref.DisownExec("unknown")
		s.revive(nil)
		synctest.Wait()
		if res, _, _ := s.ended("unknown"); res.Verdict != sandbox.Killed {
			t.Errorf("the command that nobody knows: %+v", res)
		}
		pass(10 * time.Second)
		if res, out, _ := s.ended("known"); res.Verdict != sandbox.OK || out != "known\n" {
			t.Errorf("%+v, %q", res, out)
		}
		if all, err := s.driver.List(t.Context()); err != nil || len(all) != 1 || all[0].ID != "b1" {
			t.Errorf("there are %+v, %v", all, err)
		}
		s.bury()
	})
}

// After the machine was restarted everything is told as lost, with what is left
// of it.
func TestSandboxesAreLostWithTheMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s.exec("e1", "echo one; sleep 1000")
		synctest.Wait()
		s = s.kill()
		journal := filepath.Join(s.base, "boxes", "b1", "sandbox.box")
		data, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(journal, []byte(strings.ReplaceAll(string(data), string(boot[:8]), "00000000")), 0o600); err != nil {
			t.Fatal(err)
		}
		s.revive(nil)
		synctest.Wait()
		if res, out, _ := s.ended("e1"); res.Verdict != sandbox.Lost || out != "one\n" || !res.Stdout.Truncated {
			t.Errorf("ended %+v, %q", res, out)
		}
		if end, told := s.ref.SandboxEnd("b1"); !told || end.Outcome != sandbox.OutcomeLost {
			t.Errorf("told %+v", end)
		}
		s.noSandboxes()
		pass(2 * time.Minute)
		s.bury()
	})
}

// keeping one sandbox whose worker is killed at some of its steps.
func keepingOn(t *testing.T, stops []int) (reached bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Bool
		var step *steps
		world := func(c *worker.Config, stop int) {
			step = newSteps(stop)
			c.Manager.(*line).at = step.at
			c.Drivers = map[string]sandbox.Driver{"fake": stepping{c.Drivers["fake"], step.at, &asked}}
		}
		s := durable(t, func(c *worker.Config) { world(c, stops[0]) })
		user := newUser(t, s)
		var places []string
		for i := range stops {
			now := step
			select {
			case place := <-now.reached:
				places = append(places, place)
			case <-user.done:
			}
			reached = len(places) == i+1
			if !reached {
				close(now.release)
				break
			}
			s = s.kill()
			user.lose()
			close(now.release)
			<-time.After(3 * time.Second) // nobody is there
			next := 0
			if i+1 < len(stops) {
				next = stops[i+1]
			}
			s.revive(func(c *worker.Config) { world(c, next) })
			user.find(s)
		}
		<-user.done
		user.check(fmt.Sprintf("killed at %v, %q", stops, places))
		pass(2 * time.Minute)
		s.bury()
	})
	return reached
}

// user is who keeps a sandbox: as a manager does, everything is said again until
// it was heard.
type user struct {
	t    *testing.T
	done chan struct{}

	mu     sync.Mutex
	s      *stand
	ctx    context.Context
	cancel context.CancelFunc
	stdout string
	stderr string
}

func newUser(t *testing.T, s *stand) *user {
	u := &user{t: t, done: make(chan struct{})}
	u.find(s)
	go u.use()
	return u
}

func (u *user) find(s *stand) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.s = s
	u.ctx, u.cancel = context.WithCancel(u.t.Context())
}

// lose is the end of the stream to a worker that was killed.
func (u *user) lose() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cancel()
	u.s.ref.Restart()
	u.s = nil
}

// insist calls the worker that is there until it has answered.
func (u *user) insist(call func(ctx context.Context, h dispatch.Host) error) {
	for {
		u.mu.Lock()
		s, ctx := u.s, u.ctx
		u.mu.Unlock()
		if s != nil {
			if rc := s.ref.Receiver("worker_default"); rc != nil {
				err := call(ctx, rc)
				u.mu.Lock()
				same := u.s == s
				u.mu.Unlock()
				if same && (err == nil || !fault.Is(err, fault.Unavailable)) {
					if err != nil {
						u.t.Errorf("got %v", err)
					}
					return
				}
			}
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (u *user) use() {
	defer close(u.done)
	u.insist(func(ctx context.Context, h dispatch.Host) error {
		_, err := h.OpenSandbox(ctx, live.Order{ID: "b1", Files: map[string][]byte{"in": []byte("one\n")}})
		return err
	})
	u.insist(func(ctx context.Context, h dispatch.Host) error {
		return h.StartExec(ctx, live.Command{ID: "e1", Sandbox: "b1", Command: []string{"sh", "-c", "cat in; echo err >&2; sleep 20; echo two; exit 7"}})
	})
	u.insist(func(ctx context.Context, h dispatch.Host) error {
		from := sandbox.Offsets{Stdout: int64(len(u.stdout)), Stderr: int64(len(u.stderr))}
		err := h.FollowExec(ctx, live.Follow{Sandbox: "b1", Exec: "e1", From: from}, func(c dispatch.Chunk) error {
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.s == nil || ctx.Err() != nil {
				return fault.New(fault.Unavailable, "the stream is broken")
			}
			if c.Stream == sandbox.Stderr {
				u.stderr += string(c.Data)
			} else {
				u.stdout += string(c.Data)
			}
			return nil
		})
		if ctx.Err() != nil {
			return fault.New(fault.Unavailable, "the stream is broken")
		}
		if fault.CodeOf(err) == dispatch.CodeNoExec && u.told() {
			return nil
		}
		return err
	})
	u.insist(func(ctx context.Context, h dispatch.Host) error {
		return h.EndSandbox(ctx, live.Closing{ID: "b1", Outcome: sandbox.OutcomeDone})
	})
	<-time.After(10 * time.Second)
}

// told takes what is left of the output from the end that was told, as a manager
// does whose worker knows the exec no more.
func (u *user) told() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	e, told := u.s.ref.ExecEnd("e1")
	stdout, _ := u.s.ref.Blob(e.Result.Stdout.SHA256)
	stderr, _ := u.s.ref.Blob(e.Result.Stderr.SHA256)
	u.stdout += string(stdout[min(len(u.stdout), len(stdout)):])
	u.stderr += string(stderr[min(len(u.stderr), len(stderr)):])
	return told
}

// check demands every byte exactly once, and both ends.
func (u *user) check(when string) {
	u.t.Helper()
	if u.stdout != "one\ntwo\n" || u.stderr != "err\n" {
		u.t.Errorf("%s: followed %q and %q", when, u.stdout, u.stderr)
	}
	e, told := u.s.ref.ExecEnd("e1")
	if !told {
		u.t.Errorf("%s: the end of the exec was not told", when)
		return
	}
	stdout, _ := u.s.ref.Blob(e.Result.Stdout.SHA256)
	if e.Result.ExitCode != 7 || string(stdout) != "one\ntwo\n" || e.Result.Stdout.Truncated {
		u.t.Errorf("%s: told %+v, %q", when, e.Result, stdout)
	}
	if end, told := u.s.ref.SandboxEnd("b1"); !told || end.Outcome != sandbox.OutcomeDone {
		u.t.Errorf("%s: told %+v, %v", when, end, told)
	}
}

// A worker that is killed at any step of a sandbox that it keeps loses nothing
// of it.
func TestKeptThroughAKillAtEveryStep(t *testing.T) {
	t.Parallel()
	n := 1
	for ; keepingOn(t, []int{n}); n++ {
		if n > 1000 {
			t.Fatal("it never ends")
		}
	}
	t.Logf("%d steps", n-1)
}

func TestKeptThroughKillAfterKill(t *testing.T) {
	t.Parallel()
	for range 25 {
		keepingOn(t, []int{1 + rand.IntN(40), 1 + rand.IntN(30), 1 + rand.IntN(30)})
	}
}

// Nobody who uses a sandbox waits for the proof of what makes new ones.
func TestKeptSandboxesAreReachedBeforeTheProof(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		proved := func(ctx context.Context, d sandbox.Driver) probe.Report {
			return probe.Report{Exempt: "a test"}
		}
		s := durable(t, func(c *worker.Config) { c.Probe = proved })
		synctest.Wait()
		s.open(live.Order{ID: "b1"})
		s = s.kill()
		s.revive(func(c *worker.Config) {
			c.Probe = func(ctx context.Context, d sandbox.Driver) probe.Report {
				<-time.After(time.Minute)
				return proved(ctx, d)
			}
		})
		synctest.Wait()
		s.exec("e1", "echo here")
		synctest.Wait()
		if _, out, _ := s.ended("e1"); out != "here\n" {
			t.Errorf("said %q", out)
		}
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: "b2"}); fault.CodeOf(err) != "driver_degraded" {
			t.Errorf("a new one: %v", err)
		}
		pass(2 * time.Minute)
		s.open(live.Order{ID: "b2"})
		s.bury()
	})
}
