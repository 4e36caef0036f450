package watchman_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

func TestABusyWorkerIsKilled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		rule := s.rule(trigger.CPU, 80, func(x *trigger.Trigger) { x.Sustained, x.Label = 10*time.Second, "too busy" })
		busy, calm := s.start(), s.start() // each may use half a processor
		for range 3 {
			s.burn(busy, 0.3, 1, 1)
			s.burn(calm, 0.1, 1, 1)
		}
		s.want()
		s.burn(busy, 0.5, 1, 4) // until the mean is above
		s.restart()             // a manager that was killed goes on counting
		s.burn(busy, 0.5, 1, 20)
		f := s.want(trigger.Killed)[0]
		if f.Worker != busy.ID() || f.Trigger != rule.ID || f.Value < 80 || f.Lasted < rule.Sustained || f.Owner != "o" || f.By != "system" {
			t.Errorf("it fired %+v", f)
		}
		if x := s.worker(busy); x.State != manifest.Ended || x.Reason != f.Because() {
			t.Errorf("the busy one is %s: %s", x.State, x.Reason)
		}
		if x := s.worker(calm); x.State != manifest.Running {
			t.Errorf("the calm one is %s: %s", x.State, x.Reason)
		}
		if got := s.audited("trigger"); got != "trigger_added trigger_fired trigger_killed " {
			t.Errorf("the audit has %s", got)
		}
		if !slices.Equal(s.outcomes, []string{"resource_cpu killed"}) {
			t.Errorf("counted %v", s.outcomes)
		}
	})
}

// TestABreakBeginsAnew holds that a worker must be in breach without a break.
func TestABreakBeginsAnew(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.rule(trigger.Memory, 100, func(x *trigger.Trigger) { x.Sustained = 5 * time.Second })
	w := s.start()
	for range 4 {
		s.burn(w, 0, 120, 5)
		s.burn(w, 0, 99, 1)
	}
	s.want()
	s.burn(w, 0, 100, 5)
	s.want()
	s.burn(w, 0, 100, 1)
	s.want(trigger.Killed)
}

func TestGraceful(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		stops    bool
		escalate bool
		want     trigger.Outcome
	}{
		{"work that stops", true, true, trigger.Killed},
		{"work that does not", false, true, trigger.Killed},
		{"work that does not, and nothing follows", false, false, trigger.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, openSQLite(t))
			s.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) {
				x.Plan.Strategy, x.Plan.Escalate, x.Plan.Preserve, x.Plan.Cooldown = trigger.Graceful, c.escalate, true, time.Minute
			})
			w := s.start()
			e := s.exec(w, "sleep")
			s.look(4)
			s.want()
			s.look(1)
			f := s.want("")[0]
			if f.AskedAt.IsZero() || !f.Deadline.Equal(f.AskedAt.Add(30*time.Second)) || !slices.Equal(s.host.signals, []int{15}) {
				t.Errorf("asked %+v with %v", f, s.host.signals)
			}
			s.restart()
			if c.stops {
				if _, err := s.keep.KillExec(as("o"), e.ID, "itself"); err != nil {
					t.Fatal(err)
				}
				s.look(1)
			} else {
				s.look(29)
				s.want("")
				s.look(1)
			}
			f = s.want(c.want)[0]
			x := s.worker(w)
			if f.Escalated != (!c.stops && c.escalate) || (x.State == manifest.Ended) != (c.want == trigger.Killed) || x.Bundle == nil || x.Bundle.Record == "" {
				t.Errorf("%+v; the worker is %s with %+v", f, x.State, x.Bundle)
			}
			if text, err := s.gov.Forensic(as("o"), w.ID()); err != nil || !strings.Contains(string(text), w.ID()) {
				t.Errorf("what was put aside: %d bytes, %v", len(text), err)
			}
			if c.want == trigger.Failed { // it goes on, and so does the law
				s.look(29)
				s.want(trigger.Failed)
				s.look(1)
				s.want(trigger.Failed, "")
			}
		})
	}
}

func TestSuspendAndRevive(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.rule(trigger.TimeLimit, 10, func(x *trigger.Trigger) { x.Plan.Strategy, x.Plan.Cooldown = trigger.Suspend, 30*time.Second })
		w := s.start()
		s.look(10)
		s.want(trigger.Suspended)
		if x := s.worker(w); !s.frozen(w) || !x.Suspended() || x.Standing(s.time()) != "SUSPENDED" {
			t.Errorf("it is %+v", x)
		}
		s.look(100) // it stays, and fires no more
		s.want(trigger.Suspended)
		if ids, err := s.gov.Reap(boss(), 0); err != nil || len(ids) != 0 {
			t.Errorf("reaped %v, which could not speak: %v", ids, err)
		}
		if _, err := s.keep.ResumeSandbox(as("o"), w.Sandbox); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "suspended" || !s.frozen(w) {
			t.Errorf("its owner let it go on without reviving it: %v", err)
		}
		x, err := s.gov.Revive(as("o"), w.ID(), "looked at it")
		if err != nil || x.Suspended() || s.frozen(w) || x.Standing(s.time()) != "ACTIVE" {
			t.Fatalf("revived %+v: %v", x, err)
		}
		s.look(9) // its time begins anew
		s.want(trigger.Suspended)
		s.look(1)
		s.want(trigger.Suspended, trigger.Suspended)
		if _, _, err := s.gov.Kill(as("o"), w.ID(), "enough"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.gov.Revive(as("o"), w.ID(), ""); fault.CodeOf(err) != "wrong_state" {
			t.Errorf("revived a dead one: %v", err)
		}
	})
}

func TestQuarantineByATrigger(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) { x.Plan.Strategy, x.Label = trigger.Quarantine, "odd" })
	w := s.start()
	s.look(6)
	s.want(trigger.Quarantined)
	x := s.worker(w)
	if q := x.Quarantine; !x.Quarantined() || !s.frozen(w) || q.Severity != manifest.High || !strings.HasPrefix(q.Source, "trigger ") || q.Bundle == nil {
		t.Errorf("the quarantine is %+v", q)
	}
	if x, err := s.gov.Revive(as("o"), w.ID(), "harmless"); err != nil || x.Quarantined() || s.frozen(w) {
		t.Errorf("revived: %v", err)
	}
}

// TestWhatDoesNotStandStillIsEnded holds that a trigger which cannot do what it
// says does not leave it at that.
func TestWhatDoesNotStandStillIsEnded(t *testing.T) {
	t.Parallel()
	for _, strategy := range []trigger.Strategy{trigger.Suspend, trigger.Quarantine} {
		for escalate, want := range map[bool]trigger.Outcome{true: trigger.Killed, false: trigger.Failed} {
			s := newStage(t, openSQLite(t))
			s.host.deaf = true
			s.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) { x.Plan.Strategy, x.Plan.Escalate = strategy, escalate })
			w := s.start()
			s.look(6)
			if f := s.want(want)[0]; f.Escalated != escalate || f.Detail == "" || (s.worker(w).State == manifest.Ended) != escalate {
				t.Errorf("%s: %+v", strategy, f)
			}
		}
	}
}

func TestTheCooldownIsTheWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	suspend := func(x *trigger.Trigger) { x.Plan.Strategy = trigger.Suspend }
	s.rule(trigger.Memory, 100, suspend)
	s.rule(trigger.TimeLimit, 20, suspend)
	w, other := s.start(), s.start()
	s.burn(w, 0, 100, 1)
	s.want(trigger.Suspended)
	if _, err := s.gov.Revive(as("o"), w.ID(), ""); err != nil {
		t.Fatal(err)
	}
	s.burn(w, 0, 100, 10)
	s.want(trigger.Suspended, trigger.CooldownBlocked)
	s.burn(w, 0, 100, 10) // 20 seconds of each, and the other has no cooldown
	if list := s.want(trigger.Suspended, trigger.CooldownBlocked, trigger.Suspended, trigger.CooldownBlocked); !s.frozen(other) || s.frozen(w) {
		t.Errorf("at the wrong ones: %+v", list)
	}
	s.burn(w, 0, 100, 39)
	if s.frozen(w) {
		t.Error("it fired within the cooldown")
	}
	s.burn(w, 0, 100, 1)
	if !s.frozen(w) {
		t.Error("it did not fire after the cooldown")
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		s.rule(trigger.Requests, 8, func(x *trigger.Trigger) { x.Plan.Strategy, x.Plan.Cooldown = trigger.Suspend, 0 })
		s.rule(trigger.Errors, 0.5, func(x *trigger.Trigger) { x.Plan.Cooldown = 0 })
		many, bad := s.start(), s.start()
		for range 4 { // too few to say anything
			s.exec(bad, "exit", "1")
		}
		for range 7 {
			s.exec(many, "echo")
		}
		s.look(1)
		s.want()
		s.exec(many, "sleep")
		s.look(1)
		if f := s.want(trigger.Suspended)[0]; f.Worker != many.ID() || f.Value != 8 {
			t.Errorf("it fired %+v", f)
		}
		s.exec(bad, "echo")
		s.look(1)
		if f := s.want(trigger.Suspended, trigger.Killed)[0]; f.Worker != bad.ID() || f.Value != 0.8 {
			t.Errorf("it fired %+v", f)
		}
		late := s.start()
		for range 5 {
			s.exec(late, "exit", "1")
		}
		s.pass(trigger.Window + time.Second)
		s.look(1) // what is older counts no more
		s.want(trigger.Suspended, trigger.Killed)
	})
}

func TestFireByHand(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	manual := s.rule(trigger.Manual, 0, func(x *trigger.Trigger) { x.Plan.Strategy, x.Plan.Cooldown = trigger.Suspend, time.Minute })
	custom := s.rule(trigger.Custom, 7, func(x *trigger.Trigger) { x.Sustained = 10 * time.Second })
	own := s.rule(trigger.TimeLimit, 1e6, func(*trigger.Trigger) {})
	w, v := s.start(), func(x float64) *float64 { return &x }
	for what, c := range map[string]struct {
		ask    error
		status fault.Kind
	}{
		"another's worker":                      {func() error { _, err := s.Fire(as("p"), w.ID(), manual.ID, nil, ""); return err }(), fault.NotFound},
		"no worker":                             {func() error { _, err := s.Fire(as("o"), "../x", manual.ID, nil, ""); return err }(), fault.NotFound},
		"no trigger":                            {func() error { _, err := s.Fire(as("o"), w.ID(), "x", nil, ""); return err }(), fault.Invalid},
		"one that fires by itself":              {func() error { _, err := s.Fire(as("o"), w.ID(), own.ID, nil, ""); return err }(), fault.Invalid},
		"a manual one with a value":             {func() error { _, err := s.Fire(as("o"), w.ID(), manual.ID, v(1), ""); return err }(), fault.Invalid},
		"one that is about a value without one": {func() error { _, err := s.Fire(as("o"), w.ID(), custom.ID, nil, ""); return err }(), fault.Invalid},
	} {
		if !fault.Is(c.ask, c.status) {
			t.Errorf("%s: %v", what, c.ask)
		}
	}
	s.want()
	if r, err := s.Fire(as("o"), w.ID(), manual.ID, nil, "I saw it"); err != nil || r.Firing == nil || r.Firing.By != "o" {
		t.Fatalf("%+v: %v", r, err)
	}
	s.look(1)
	s.want(trigger.Suspended)
	if r, err := s.Fire(as("o"), w.ID(), manual.ID, nil, ""); err != nil || r.Firing.Outcome != trigger.CooldownBlocked {
		t.Errorf("%+v: %v", r, err)
	}
	if _, err := s.gov.Revive(as("o"), w.ID(), ""); err != nil {
		t.Fatal(err)
	}
	s.pass(time.Minute)
	for _, c := range []struct {
		value    float64
		after    time.Duration
		in, fire bool
	}{{7, 0, true, false}, {6, 9 * time.Second, false, false}, {8, time.Second, true, false}, {9, 9 * time.Second, true, false}, {9, time.Second, true, true}} {
		s.pass(c.after)
		r, err := s.Fire(as("o"), w.ID(), custom.ID, &c.value, "")
		if err != nil || r.InBreach != c.in || (r.Firing != nil) != c.fire {
			t.Fatalf("%v: %+v, %v", c.value, r, err)
		}
	}
	s.look(1)
	s.want(trigger.Suspended, trigger.CooldownBlocked, trigger.Killed)
	if r, err := s.Fire(as("o"), w.ID(), manual.ID, nil, ""); err != nil || r.Firing.Outcome != trigger.AlreadyDead {
		t.Errorf("at a dead one: %+v, %v", r, err)
	}
}

func TestTriggersAreKept(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	made, left, err := s.ApplyPreset(boss(), "conservative", "")
	if err != nil || len(made) != 4 || len(left) != 1 || left[0].Kind != trigger.Anomaly || left[0].Threshold != 0.7 || left[0].Why == "" {
		t.Fatalf("made %v, left out %v: %v", made, left, err)
	}
	if made, _, err = s.ApplyPreset(boss(), "conservative", ""); err != nil || len(made) != 4 {
		t.Fatal(err)
	}
	list, err := s.Triggers(as("o"))
	if err != nil || len(list) != 4 {
		t.Errorf("there are %d: %v", len(list), err)
	}
	if _, _, err := s.ApplyPreset(boss(), "x", ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("no preset: %v", err)
	}
	if _, err := s.AddTrigger(boss(), trigger.Trigger{Kind: trigger.Network, Threshold: 1, Severity: manifest.Low, Plan: trigger.DefaultPlan()}); fault.CodeOf(err) != trigger.CodeUnavailable {
		t.Errorf("one that never fires: %v", err)
	}
	id := made[0].ID
	off := func(x *trigger.Trigger) error { x.Enabled = false; return nil }
	if x, err := s.ChangeTrigger(boss(), id, off); err != nil || x.Enabled {
		t.Errorf("changed: %+v, %v", x, err)
	}
	if _, err := s.ChangeTrigger(boss(), id, func(x *trigger.Trigger) error { x.Threshold = 101; return nil }); !fault.Is(err, fault.Invalid) {
		t.Errorf("changed to nonsense: %v", err)
	}
	if x, err := s.Trigger(as("o"), id); err != nil || x.Enabled || x.Threshold != 80 {
		t.Errorf("it is %+v: %v", x, err)
	}
	if err := s.RemoveTrigger(boss(), id); err != nil {
		t.Error(err)
	}
	for _, err := range []error{s.RemoveTrigger(boss(), id), func() error { _, err := s.ChangeTrigger(boss(), id, off); return err }()} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("one that is gone: %v", err)
		}
	}
	for range trigger.MaxTriggers - 3 {
		s.rule(trigger.TimeLimit, 9, func(*trigger.Trigger) {})
	}
	if _, err := s.AddTrigger(boss(), list[1]); !fault.Is(err, fault.Exhausted) {
		t.Errorf("one too many: %v", err)
	}
}

func TestTheDiskIsWatched(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.rule(trigger.Disk, 10, func(*trigger.Trigger) {})
	w := s.start()
	for _, n := range []int64{9 << 20, -1} { // what is not known is no breach
		s.host.disk = n
		s.burn(w, 0, 1, 1)
	}
	s.want()
	s.host.disk = 10 << 20
	s.burn(w, 0, 1, 1)
	s.want(trigger.Killed)
}

// TestADisabledTriggerDoesNothing and one for another contract neither.
func TestADisabledTriggerDoesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	off := s.rule(trigger.TimeLimit, 1, func(x *trigger.Trigger) { x.Enabled = false })
	s.rule(trigger.TimeLimit, 1, func(x *trigger.Trigger) { x.Contract = "another" })
	s.start()
	s.look(5)
	s.want()
	if _, err := s.ChangeTrigger(boss(), off.ID, func(x *trigger.Trigger) error { x.Enabled = true; return nil }); err != nil {
		t.Fatal(err)
	}
	s.look(1)
	s.want(trigger.Killed)
}

func TestFiringsAreTheirOwners(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.rule(trigger.TimeLimit, 1, func(*trigger.Trigger) {})
	s.start()
	s.look(2)
	for owner, want := range map[string]int{"o": 1, "p": 0} {
		if list, err := s.Firings(as(owner), store.FiringFilter{Owner: "o"}); err != nil || len(list) != want {
			t.Errorf("%s sees %d: %v", owner, len(list), err)
		}
	}
	if _, err := s.Firings(t.Context(), store.FiringFilter{}); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("nobody sees: %v", err)
	}
}

// TestItStartsAndStops looks by itself, under real time.
func TestItStartsAndStops(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	manual := s.rule(trigger.Manual, 0, func(*trigger.Trigger) {})
	w := s.start()
	ended := make(chan struct{}, 1)
	s.Observe = func(trigger.Kind, trigger.Outcome) { ended <- struct{}{} }
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fire(policy.With(t.Context(), policy.LocalCaller()), w.ID(), manual.ID, nil, "now"); err != nil {
		t.Fatal(err)
	}
	<-ended
	s.Stop()
	s.Stop()
	s.want(trigger.Killed)
}
