package trigger_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/trigger"
)

func start() time.Time { return time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC) }

// sound is a trigger that there is nothing to say against.
func sound(change func(t *trigger.Trigger)) *trigger.Trigger {
	t := &trigger.Trigger{ID: "t", Kind: trigger.CPU, Threshold: 80, Sustained: 10 * time.Second, Severity: manifest.High, Enabled: true, Plan: trigger.DefaultPlan()}
	change(t)
	return t
}

func TestWhatIsATrigger(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(t *trigger.Trigger){
		"kind":              func(t *trigger.Trigger) { t.Kind = "mood" },
		"label":             func(t *trigger.Trigger) { t.Label = "two\nlines" },
		"contract":          func(t *trigger.Trigger) { t.Contract = "../x" },
		"severity":          func(t *trigger.Trigger) { t.Severity = "" },
		"sustained_seconds": func(t *trigger.Trigger) { t.Sustained = -1 },
		"strategy":          func(t *trigger.Trigger) { t.Plan.Strategy = "beg" },
		"timeout_seconds":   func(t *trigger.Trigger) { t.Plan.Timeout = time.Hour },
		"cooldown_seconds":  func(t *trigger.Trigger) { t.Plan.Cooldown = -1 },
		"threshold":         func(t *trigger.Trigger) { t.Threshold = math.NaN() },
	} {
		if err := sound(change).Check(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for kind, thresholds := range map[trigger.Kind][]float64{
		trigger.CPU: {0, -1, 100.1, math.Inf(1)}, trigger.Memory: {0, math.Inf(1)}, trigger.Disk: {0, 1e9}, trigger.TimeLimit: {0, 1e9}, trigger.Requests: {0, 1e10},
		trigger.Errors: {0, 1.01}, trigger.Manual: {1}, trigger.Custom: {math.NaN(), math.Inf(-1)},
	} {
		for _, v := range thresholds {
			if err := sound(func(t *trigger.Trigger) { t.Kind, t.Threshold, t.Sustained = kind, v, 0 }).Check(); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s from %v on: %v", kind, v, err)
			}
		}
	}
	for kind, v := range map[trigger.Kind]float64{
		trigger.CPU: 100, trigger.Memory: 0.5, trigger.Disk: 1, trigger.TimeLimit: 1, trigger.Requests: 1, trigger.Errors: 1, trigger.Manual: 0, trigger.Custom: -7,
	} {
		if err := sound(func(t *trigger.Trigger) { t.Kind, t.Threshold, t.Sustained = kind, v, 0 }).Check(); err != nil {
			t.Errorf("%s from %v on: %v", kind, v, err)
		}
	}
}

// TestWhatCannotFireIsRefused holds that no rule is taken that would never fire.
func TestWhatCannotFireIsRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range trigger.Kinds() {
		err := sound(func(t *trigger.Trigger) { t.Kind, t.Threshold = kind, 0.5 }).Check()
		refused := slices.Contains([]trigger.Kind{trigger.Network, trigger.Anomaly}, kind)
		if (fault.CodeOf(err) == trigger.CodeUnavailable) != refused {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestPresets says the numbers of the presets a second time.
func TestPresets(t *testing.T) {
	t.Parallel()
	type row struct {
		Kind              trigger.Kind
		Threshold         float64
		Sustained, Cooled time.Duration
		Strategy          trigger.Strategy
	}
	want := map[string][]row{
		"conservative": {
			{trigger.CPU, 80, 10 * time.Second, 120 * time.Second, trigger.Graceful},
			{trigger.Memory, 1024, 0, 120 * time.Second, trigger.Graceful},
			{trigger.Anomaly, 0.7, 0, 120 * time.Second, trigger.Graceful},
			{trigger.TimeLimit, 7200, 0, 120 * time.Second, trigger.Graceful},
			{trigger.Errors, 0.15, 0, 120 * time.Second, trigger.Graceful},
		},
		"aggressive": {
			{trigger.CPU, 60, 5 * time.Second, 30 * time.Second, trigger.Forceful},
			{trigger.Memory, 512, 0, 30 * time.Second, trigger.Forceful},
			{trigger.Anomaly, 0.5, 0, 30 * time.Second, trigger.Forceful},
			{trigger.TimeLimit, 1800, 0, 30 * time.Second, trigger.Forceful},
			{trigger.Requests, 100, 0, 30 * time.Second, trigger.Forceful},
		},
		"quarantine": {
			{trigger.Anomaly, 0.6, 0, 300 * time.Second, trigger.Quarantine}, {trigger.CPU, 95, 60 * time.Second, 300 * time.Second, trigger.Quarantine},
		},
	}
	if len(trigger.Presets()) != len(want) {
		t.Errorf("there are %d presets", len(trigger.Presets()))
	}
	for name, rows := range want {
		p, err := trigger.FindPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		var got []row
		for i := range p.Triggers {
			x := &p.Triggers[i]
			got = append(got, row{x.Kind, x.Threshold, x.Sustained, x.Plan.Cooldown, x.Plan.Strategy})
			if err := x.Check(); err != nil && fault.CodeOf(err) != trigger.CodeUnavailable {
				t.Errorf("%s: %v", x.Label, err)
			}
		}
		if !slices.Equal(got, rows) {
			t.Errorf("%s is %v", name, got)
		}
	}
	if _, err := trigger.FindPreset("lenient"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a preset that there is not: %v", err)
	}
}

// TestJudge holds a trigger to a plain model over any values and times: it never
// fires before the breach has lasted, never within the cooldown, and once for
// each breach.
func TestJudge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := sound(func(x *trigger.Trigger) {
			x.Sustained = time.Duration(rapid.IntRange(0, 8).Draw(t, "sustained")) * time.Second
			x.Plan.Cooldown = time.Duration(rapid.IntRange(0, 20).Draw(t, "cooldown")) * time.Second
		})
		var breach *trigger.Breach
		var last time.Time
		now := start()
		var above time.Time // since when every known value was above; zero is that the last was not
		fired, blocked := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "passed")) * time.Second)
			v := trigger.Value{Is: float64(rapid.IntRange(78, 82).Draw(t, "value")), Known: rapid.IntRange(0, 4).Draw(t, "known") > 0}
			if v.Known && v.Is < x.Threshold {
				above, fired, blocked = time.Time{}, 0, 0
			} else if v.Known && above.IsZero() {
				above = now
			}
			next, step := x.Judge(breach, v, last, now)
			lasted, cool := !above.IsZero() && now.Sub(above) >= x.Sustained, last.IsZero() || now.Sub(last) >= x.Plan.Cooldown
			if want := v.Known && lasted && cool && fired == 0; (step == trigger.Fire) != want {
				t.Fatalf("at %s with %v: step %d, breach %+v, last %s", now, v, step, breach, last)
			}
			if want := v.Known && lasted && !cool && fired == 0 && blocked == 0; (step == trigger.Block) != want {
				t.Fatalf("at %s with %v: step %d, breach %+v, last %s", now, v, step, breach, last)
			}
			switch step {
			case trigger.Hold:
			case trigger.Clear:
				breach = nil
			case trigger.Fire:
				fired, last, breach = fired+1, now, &next
			case trigger.Block:
				blocked, breach = blocked+1, &next
			case trigger.Begin:
				breach = &next
			}
			if (breach == nil) != above.IsZero() || breach != nil && !breach.Since.Equal(above) {
				t.Fatalf("the breach is %+v, above since %s", breach, above)
			}
		}
	})
}

func TestAFailedFiringIsTriedAgainAfterTheCooldown(t *testing.T) {
	t.Parallel()
	x := sound(func(x *trigger.Trigger) { x.Sustained = 0 })
	now := start()
	high := trigger.Value{Is: 90, Known: true}
	b, step := x.Judge(nil, high, time.Time{}, now)
	if step != trigger.Fire {
		t.Fatalf("step %d", step)
	}
	b.Renew(now)
	for _, c := range []struct {
		after time.Duration
		want  trigger.Step
	}{{time.Second, trigger.Hold}, {59 * time.Second, trigger.Hold}, {60 * time.Second, trigger.Fire}} {
		if _, step := x.Judge(&b, high, now, now.Add(c.after)); step != c.want {
			t.Errorf("after %s: step %d", c.after, step)
		}
	}
}

func TestAClockThatIsSetBackFiresNothingEarly(t *testing.T) {
	t.Parallel()
	x, now, high := sound(func(*trigger.Trigger) {}), start(), trigger.Value{Is: 90, Known: true}
	b, _ := x.Judge(nil, high, time.Time{}, now)
	back := now.Add(-time.Hour)
	if b, step := x.Judge(&b, high, now, back); step != trigger.Begin || !b.Since.Equal(back) {
		t.Errorf("step %d, %+v", step, b)
	}
}

func TestAFiringKnowsItsOwnAct(t *testing.T) {
	t.Parallel()
	f := trigger.Firing{ID: "0197aaaa-0000-7000-8000-0123456789ab", Kind: trigger.CPU, Value: 97.31, Threshold: 80, Lasted: 10*time.Second + time.Millisecond}
	if got := f.Because(); got != "trigger 456789ab: resource_cpu 97.31 of 80 for 10s" || !f.Did(got) {
		t.Errorf("it says %q", got)
	}
	other := f
	other.ID = "0197aaaa-0000-7000-8000-0123456789ac"
	if other.Did(f.Because()) || f.Did("") || f.Did("done") {
		t.Error("it takes another's act for its own")
	}
	f.Reason = strings.Repeat("é", trigger.MaxText)
	if got := trigger.Clip(f.Because()); len(got) > trigger.MaxText || !f.Did(got) || !json.Valid([]byte(`"`+got+`"`)) {
		t.Errorf("clipped it is %d bytes: %q", len(got), got)
	}
}
