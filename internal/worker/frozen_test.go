package worker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// Ten minutes of work in the fifteen that a job has by default.
const tenMinutes = `{"action":"exec","command":["sleep","600"]}`

func TestTheTimeOfAFrozenJobStandsStill(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		// The fake holds a command before its next step.
		id := s.submit(`{"action":"exec","command":["sh","-c","sleep 120; sleep 120; sleep 120"]}`)
		pass(time.Minute)
		for i := range int64(2) {
			if done := s.pull(stop(2*i+1, killswitch.Freeze)); done.Frozen != 1 {
				t.Errorf("it did %+v", done)
			}
			pass(20 * time.Minute)
			if done := s.pull(killswitch.State{Seq: 2*i + 2}); done.Resumed != 1 {
				t.Errorf("it did %+v", done)
			}
			pass(time.Minute)
		}
		pass(10 * time.Minute)
		if res, d := s.result(id); !res.Success || d.Verdict != "ok" {
			t.Errorf("the job ended %+v, %+v", res, d)
		}
		slow := s.submit(`{"action":"exec","command":["sleep","6000"]}`) // its time passes again
		pass(14 * time.Minute)
		if n := len(s.ref.Accepted(slow)); n != 0 {
			t.Error("a job has ended before its time")
		}
		pass(2 * time.Minute)
		if res, d := s.result(slow); res.Success || d.Verdict != "timeout" {
			t.Errorf("the slow job ended %+v, %+v", res, d)
		}
	})
}

func TestAJobThatIsFrozenBeforeItsSandboxWaits(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		s.pull(stop(1, killswitch.Freeze))
		id := s.submit(tenMinutes)
		pass(20 * time.Minute)
		s.noSandboxes()
		s.pull(killswitch.State{Seq: 2})
		pass(11 * time.Minute)
		if res, d := s.result(id); !res.Success || d.Verdict != "ok" {
			t.Errorf("the job ended %+v, %+v", res, d)
		}
	})
}

// The time that a job stood still is not counted by a later process either.
func TestAStandstillIsKnownAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		synctest.Wait()
		id := s.submit(tenMinutes)
		pass(time.Minute)
		s.pull(stop(1, killswitch.Freeze))
		pass(20 * time.Minute)
		s.pull(killswitch.State{Seq: 2})
		pass(time.Minute)
		s = s.kill()
		s.revive(nil)
		pass(10 * time.Minute)
		if res, d := s.result(id); !res.Success || d.Verdict != "ok" {
			t.Errorf("the job ended %+v, %+v", res, d)
		}
		s.bury()
	})
}

// stalling is a driver with a place before each step of a job.
type stalling struct {
	sandbox.Driver
	at func(step string)
}

type stalledBox struct {
	sandbox.Box
	sandbox.Pauser
	at func(string)
}

type stalledProcess struct {
	sandbox.Process
	at func(string)
}

func (d stalling) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	b, err := d.Driver.Create(ctx, spec, report)
	if err != nil {
		return nil, err
	}
	return stalledBox{b, b.(sandbox.Pauser), d.at}, nil
}

func (b stalledBox) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	b.at("before exec")
	p, err := b.Box.Exec(ctx, spec)
	if err != nil {
		return nil, err
	}
	b.at("after exec")
	return stalledProcess{p, b.at}, nil
}

func (p stalledProcess) Write(ctx context.Context, data []byte) error {
	p.at("write")
	return p.Process.Write(ctx, data)
}

func (p stalledProcess) CloseInput(ctx context.Context) error {
	p.at("close")
	return p.Process.CloseInput(ctx)
}

// TestAJobIsFrozenBetweenItsSteps freezes a job at each step for longer than its
// time is.
func TestAJobIsFrozenBetweenItsSteps(t *testing.T) {
	for step, want := range map[string]string{"before exec": "ok", "after exec": "ok", "close": "ok", "write": "killed"} {
		t.Run(step, func(t *testing.T) {
			var s *stand
			var once sync.Once
			var halted atomic.Bool
			at := func(reached string) {
				if reached != step {
					return
				}
				once.Do(func() {
					state := stop(1, killswitch.Freeze)
					s.ref.Stop(state)
					if _, err := s.ref.Receiver("worker_default").(dispatch.Stopper).Switch(context.Background(), state); err != nil {
						t.Error(err)
					}
					halted.Store(true)
				})
			}
			change := func(c *worker.Config) { c.Drivers = map[string]sandbox.Driver{"fake": stalling{c.Drivers["fake"], at}} }
			story(t, change, func(t *testing.T, st *stand) {
				s = st
				id := s.submit(`{"action":"exec","command":["cat"],"stdin":"in"}`)
				pass(time.Minute)
				if !halted.Load() {
					t.Fatal("it did not come there")
				}
				pass(20 * time.Minute)
				s.pull(killswitch.State{Seq: 2})
				pass(time.Minute)
				res, d := s.result(id)
				if res.Success != (want == "ok") || d.Verdict != want {
					t.Errorf("the job ended %+v, %+v", res, d)
				}
				if out, _ := inline(res, "stdout.log"); want == "ok" && out != "in" {
					t.Errorf("it said %q", out)
				}
				if want == "killed" && !strings.Contains(d.Error, "frozen while its input was written") {
					t.Errorf("it failed with %q", d.Error)
				}
			})
		})
	}
}
