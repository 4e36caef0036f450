package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// killed is a story in which the worker dies after a while, and another comes
// after some more time.
func killed(t *testing.T, payload string, after, away time.Duration, change func(*worker.Config), meanwhile func(s *stand, id string), tell func(t *testing.T, s *stand, id string)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, change)
		id := s.submit(payload)
		pass(after)
		s = s.kill()
		if meanwhile != nil {
			meanwhile(s, id)
		}
		<-time.After(away)
		s.revive(change)
		synctest.Wait()
		tell(t, s, id)
		s.bury()
	})
}

func sleeping(script string) string {
	return payload("exec", map[string]any{"command": []string{"sh", "-c", script}})
}

// The time of a job goes on while nobody looks.
func TestTimeGoesOnWithoutAWorker(t *testing.T) {
	killed(t, sleeping("echo up; sleep 10000"), 5*time.Minute, 20*time.Second, nil, nil, func(t *testing.T, s *stand, id string) {
		pass(9 * time.Minute)
		if len(s.ref.Accepted(id)) != 0 {
			t.Fatal("it ended before its time")
		}
		pass(time.Minute)
		res, d := s.result(id)
		took := res.Record.Ended.Sub(res.Record.Started)
		if d.Verdict != "timeout" || res.Record.Attempt != 1 || took < 15*time.Minute || took > 15*time.Minute+time.Second {
			t.Errorf("after %s: %s", took, res.Details)
		}
	})
}

// One that ended in time is not blamed for a worker that came back too late.
func TestEndInTimeCountsAlsoWhenSeenLate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ script, verdict string }{
		"ended":   {"sleep 600; echo done", "ok"},
		"did not": {"echo up; sleep 100000", "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := durable(t, nil)
				synctest.Wait()
				s.ref.Term = time.Hour // it is still the worker's when it comes back
				id := s.submit(sleeping(tc.script))
				pass(5 * time.Second)
				s = s.kill()
				<-time.After(20 * time.Minute)
				s.revive(nil)
				pass(2 * time.Second)
				if res, d := s.result(id); d.Verdict != tc.verdict || res.Record.Attempt != 1 {
					t.Errorf("attempt %d: %s", res.Record.Attempt, res.Details)
				}
				s.bury()
			})
		})
	}
}

func TestLostSandboxGoesBackToTheQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		harm func(s *stand, id string) error
		says string
	}{
		"gone": {func(s *stand, _ string) error { return os.RemoveAll(s.state) }, "gone"},
		"another boot": {func(s *stand, _ string) error {
			return edit(s, func(text []byte) []byte { return bytes.Replace(text, []byte(`"boot":"`), []byte(`"boot":"not-`), 1) })
		}, "restarted"},
		"another driver": {func(s *stand, _ string) error {
			return edit(s, func(text []byte) []byte {
				return bytes.Replace(text, []byte(`"handle":{"version":1,"driver":"fake"`), []byte(`"handle":{"version":1,"driver":"none"`), 1)
			})
		}, "does not have the driver"},
		"another version of the driver": {func(s *stand, _ string) error {
			return edit(s, func(text []byte) []byte {
				return bytes.Replace(text, []byte(`"handle":{"version":1`), []byte(`"handle":{"version":99`), 1)
			})
		}, "version 99"},
		"damaged journal": {func(s *stand, _ string) error {
			return edit(s, func(text []byte) []byte { return append([]byte("{\n"), text...) })
		}, ""},
		"journal of another version": {func(s *stand, _ string) error {
			return edit(s, func(text []byte) []byte {
				return bytes.Replace(text, []byte(`{"version":1`), []byte(`{"version":2`), 1)
			})
		}, ""},
		"no journal": {func(s *stand, _ string) error { return edit(s, func([]byte) []byte { return nil }) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			harm := func(s *stand, id string) {
				if err := tc.harm(s, id); err != nil {
					s.t.Fatal(err)
				}
			}
			killed(t, sleeping("echo x >> log; sleep 20"), 5*time.Second, time.Second, nil, harm, func(t *testing.T, s *stand, id string) {
				pass(time.Minute)
				res, d := s.result(id)
				if !res.Success || res.Record.Attempt != 2 {
					t.Errorf("attempt %d: %s", res.Record.Attempt, res.Details)
				}
				if got := s.files(d.Snapshot)[id+"/log"]; got != "x\n" {
					t.Errorf("the second try saw the first: %q", got)
				}
				lost := s.ref.Lost(id)
				if tc.says == "" && len(lost) != 0 || tc.says != "" && (len(lost) != 1 || !strings.Contains(lost[0].Reason, tc.says)) {
					t.Errorf("lost %+v, want one that says %q", lost, tc.says)
				}
			})
		})
	}
}

// edit changes the only journal of a stand.
func edit(s *stand, change func([]byte) []byte) error {
	all, err := filepath.Glob(filepath.Join(s.base, "leases", "*"))
	if err != nil || len(all) != 1 {
		s.t.Fatalf("%q, %v", all, err)
	}
	text, err := os.ReadFile(all[0])
	if err != nil {
		return err
	}
	return os.WriteFile(all[0], change(text), 0o600)
}

// Of two tries of one job the later one is gone on with.
func TestOnlyTheLaterTryGoesOn(t *testing.T) {
	older := func(s *stand, id string) {
		text, err := os.ReadFile(filepath.Join(s.base, "leases", id+"-1.json"))
		if err != nil {
			s.t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte(`"fence":1`), []byte(`"fence":0`))
		_, after, _ := bytes.Cut(text, []byte(`"handle":{"version":1,"driver":"fake","id":"`))
		box, _, _ := bytes.Cut(after, []byte(`"`))
		text = bytes.ReplaceAll(text, box, []byte("another"))
		if err := os.WriteFile(filepath.Join(s.base, "leases", id+"-0.json"), text, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	killed(t, sleeping("echo one; sleep 20; echo two"), 5*time.Second, time.Second, nil, older, func(t *testing.T, s *stand, id string) {
		pass(time.Minute)
		res, _ := s.result(id)
		if out, _ := inline(res, "stdout.log"); out != "one\ntwo\n" || res.Record.Attempt != 1 {
			t.Errorf("attempt %d, %q", res.Record.Attempt, out)
		}
	})
}

// A line that was torn by the death is as if it had not been written.
func TestTornLineIsLeftOut(t *testing.T) {
	tear := func(s *stand, _ string) {
		if err := edit(s, func(text []byte) []byte { return append(text, `{"ended":tr`...) }); err != nil {
			s.t.Fatal(err)
		}
	}
	killed(t, sleeping("echo one; sleep 20; echo two"), 5*time.Second, time.Second, nil, tear, func(t *testing.T, s *stand, id string) {
		pass(time.Minute)
		res, _ := s.result(id)
		if out, _ := inline(res, "stdout.log"); out != "one\ntwo\n" || res.Record.Attempt != 1 {
			t.Errorf("attempt %d, %q", res.Record.Attempt, out)
		}
	})
}

// A result that nobody has taken yet is handed over by the next process, even
// after a reboot, and nothing is done again.
func TestResultIsHandedOverAfterADeath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		id := s.submit(sleeping("echo hello; sleep 5; exit 3"))
		pass(time.Second)
		s.line.away.Store(true)
		pass(10 * time.Second)
		s = s.kill()
		if err := edit(s, func(text []byte) []byte { return bytes.Replace(text, []byte(`"boot":"`), []byte(`"boot":"not-`), 1) }); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(s.state); err != nil {
			t.Fatal(err)
		}
		s.revive(nil)
		pass(time.Second)
		res, d := s.result(id)
		if out, _ := inline(res, "stdout.log"); out != "hello\n" || d.ExitCode != 3 || res.Record.Attempt != 1 {
			t.Errorf("attempt %d, %q, %s", res.Record.Attempt, out, res.Details)
		}
		if types := s.types(id); slices.Contains(types, event.SandboxAdopted) || len(types) != 6 {
			t.Errorf("the events are %q", types)
		}
		s.bury()
	})
}

// A lease that ran out meanwhile is not this worker's any more: what it had is
// destroyed, and the next try starts clean.
func TestLeaseThatRanOutIsNotGoneOnWith(t *testing.T) {
	expire := func(s *stand, id string) { s.ref.Expire(id) }
	killed(t, sleeping("echo x >> log; sleep 20"), 5*time.Second, time.Second, nil, expire, func(t *testing.T, s *stand, id string) {
		pass(time.Minute)
		res, d := s.result(id)
		if got := s.files(d.Snapshot)[id+"/log"]; got != "x\n" || res.Record.Attempt < 2 || s.ref.Refused(id) != 0 {
			t.Errorf("attempt %d, %q, %d refusals", res.Record.Attempt, got, s.ref.Refused(id))
		}
	})
}

// A job that was cancelled meanwhile ends.
func TestCancelledMeanwhile(t *testing.T) {
	cancel := func(s *stand, id string) { s.ref.Cancel(id) }
	killed(t, sleeping("sleep 10000"), 5*time.Second, time.Second, nil, cancel, func(t *testing.T, s *stand, id string) {
		pass(time.Second)
		s.noSandboxes()
		if len(s.ref.Accepted(id)) != 0 {
			t.Error("it has a result")
		}
	})
}

// forgetful is a driver that does not give output again that was read before,
// up to an offset of stdout.
type forgetful struct {
	sandbox.Driver
	upTo int64
}

type forgetfulBox struct {
	sandbox.Box
	upTo int64
}

func (d forgetful) Recover(ctx context.Context, h sandbox.Handle) (sandbox.Box, error) {
	b, err := d.Driver.Recover(ctx, h)
	return forgetfulBox{b, d.upTo}, err
}

func (b forgetfulBox) Attach(ctx context.Context, id string, from sandbox.Offsets) (sandbox.Process, error) {
	if from.Stdout < b.upTo {
		return nil, fault.New(fault.Conflict, "the output from %d on is gone", from.Stdout)
	}
	return b.Box.Attach(ctx, id, from)
}

// Output over the cap is gone for good; the worker still knows how much of it
// there was, and where to go on.
func TestOutputOverTheCapIsCountedOn(t *testing.T) {
	small := func(c *worker.Config) {
		c.OutputCap = 1000
		c.Drivers["fake"] = forgetful{c.Drivers["fake"], 5000}
	}
	script := payload("exec", map[string]any{"command": []string{"sh", "-c", "head -c 5000 /dev/zero; sleep 20; head -c 2000 /dev/zero; echo end >&2"}})
	killed(t, script, 5*time.Second, time.Second, small, nil, func(t *testing.T, s *stand, id string) {
		pass(time.Minute)
		res, _ := s.result(id)
		if o := res.Record.Stdout; o.Bytes != 1000 || o.Seen != 7000 || !o.Truncated {
			t.Errorf("stdout %+v", o)
		}
		if o := res.Record.Stderr; o.Bytes != 4 || o.Seen != 4 || o.Truncated || res.Record.Attempt != 1 {
			t.Errorf("stderr %+v", o)
		}
	})
}

// Large output goes on in the spool.
func TestLargeOutputGoesOn(t *testing.T) {
	script := payload("exec", map[string]any{"command": []string{"sh", "-c", "head -c 3000000 /dev/zero; sleep 20; echo end"}})
	killed(t, script, 5*time.Second, time.Second, nil, nil, func(t *testing.T, s *stand, id string) {
		pass(10 * time.Second)
		if live := s.ref.Output(id, sandbox.Stdout); len(live) != 3_000_000 {
			t.Errorf("%d bytes are seen live", len(live))
		}
		pass(time.Minute)
		res, d := s.result(id)
		if res.Record.Attempt != 1 || d.StdoutBytes != 3_000_004 || res.Record.Stdout.Truncated {
			t.Errorf("attempt %d, %+v", res.Record.Attempt, res.Record.Stdout)
		}
	})
}

// Work goes on while the manager is away too, and what is taken over has its
// place: nothing new is begun beside it.
func TestTakenOverHasItsPlace(t *testing.T) {
	t.Parallel()
	two := func(c *worker.Config) { c.Slots = 2 }
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, two)
		first := []string{s.submit(sleeping("sleep 30")), s.submit(sleeping("sleep 30"))}
		pass(5 * time.Second)
		third := s.submit(sleeping("sleep 5"))
		s = s.kill()
		s.line.away.Store(true)
		s.revive(func(c *worker.Config) { c.Slots = 1 })
		pass(10 * time.Second)
		s.line.away.Store(false)
		pass(10 * time.Second)
		if left, err := s.driver.List(t.Context()); err != nil || len(left) != 2 {
			t.Errorf("%d sandboxes work, %v", len(left), err)
		}
		pass(time.Minute)
		for _, id := range append(first, third) {
			if res, _ := s.result(id); !res.Success || res.Record.Attempt != 1 {
				t.Errorf("%s: attempt %d", id, res.Record.Attempt)
			}
		}
		s.bury()
	})
}

// halting is a log whose every line that a job is gone on with takes a while.
type halting struct{ slog.Handler }

func (h halting) Enabled(context.Context, slog.Level) bool { return true }

func (h halting) Handle(ctx context.Context, rec slog.Record) error {
	if strings.HasPrefix(rec.Message, "goes on with a job") {
		<-time.After(5 * time.Second)
	}
	return h.Handler.Handle(ctx, rec)
}

func (h halting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return halting{h.Handler.WithAttrs(attrs)}
}

// What is taken over first has something to tell before the others have begun.
// The registration that this needs names them too.
func TestFirstToReportNamesTheOthers(t *testing.T) {
	t.Parallel()
	slow := func(c *worker.Config) {
		c.Slots, c.Logger = 3, slog.New(halting{slog.DiscardHandler})
	}
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, slow)
		jobs := []string{s.submit(sleeping("sleep 10; head -c 3000000 /dev/zero"))}
		for range 2 {
			jobs = append(jobs, s.submit(sleeping("sleep 300")))
		}
		pass(5 * time.Second)
		s = s.kill()
		<-time.After(10 * time.Second)
		s.revive(slow)
		pass(10 * time.Minute)
		for _, id := range jobs {
			if res, _ := s.result(id); !res.Success || res.Record.Attempt != 1 {
				t.Errorf("%s: attempt %d", id, res.Record.Attempt)
			}
		}
		s.bury()
	})
}

// A stop while what was taken over has not been announced ends it all.
func TestStopBeforeTheManagerIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := durable(t, nil)
		s.submit(sleeping("sleep 1000"))
		pass(5 * time.Second)
		s = s.kill()
		s.line.away.Store(true)
		s.revive(nil)
		pass(5 * time.Second)
		s.bury()
	})
}

// A sandbox that ran out of memory while no worker lived is a result like any
// other, with what was kept of its output.
func TestOutOfMemoryWithoutAWorker(t *testing.T) {
	ask := payload("exec", map[string]any{
		"command": []string{"sh", "-c", "true"}, "env": map[string]string{"FAKE_SLEEP": "10s", "FAKE_OOM": "1"},
	})
	killed(t, ask, time.Second, time.Second, nil, func(s *stand, _ string) {
		d := keeping(t, s.state)
		handles, err := d.List(t.Context())
		if err != nil || len(handles) != 1 {
			t.Fatal(handles, err)
		}
		b, err := d.Recover(t.Context(), handles[0])
		if err != nil {
			t.Fatal(err)
		}
		<-b.Done()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, s *stand, id string) {
		res, d := s.result(id)
		if res.Success || d.Verdict != "oom" || res.Record.Attempt != 1 || !res.Record.Stdout.Truncated || res.Record.ExitCode != -1 {
			t.Errorf("%+v, %s", res.Record, res.Details)
		}
		var told []event.Type
		for _, h := range s.ref.Events(id) {
			told = append(told, h.Type)
		}
		if !slices.Contains(told, event.ExecEnded) || slices.Contains(told, event.SandboxLost) {
			t.Errorf("the events are %q", told)
		}
	})
}
