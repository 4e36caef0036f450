package attacktest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// TestAttacks runs every attack in a sandbox of every driver, one after the
// other: each may use what its sandbox may use, and the host is looked at in
// between.
func TestAttacks(t *testing.T) {
	if raced {
		t.Skip("the attacks run in other processes; they are run without the race detector")
	}
	results := map[string]map[string]string{}
	ran := false
	for _, f := range factories() {
		results[f.name] = map[string]string{}
		t.Run(f.name, func(t *testing.T) {
			ran = runAll(t, f, results[f.name]) || ran
		})
	}
	if ran {
		checkTable(t, results)
	}
}

func runAll(t *testing.T, f factory, results map[string]string) bool {
	s := openStand(t, f)
	for _, a := range manifest(t) {
		t.Run(a.Name, func(t *testing.T) {
			if lack := s.lacks(a); lack != "" {
				results[a.Name] = "not run: " + lack
				t.Skip(lack)
			}
			if why := a.Known[f.name]; why != "" {
				results[a.Name] = "**not contained**: " + why
				t.Skip(results[a.Name])
			}
			if a.User == "0" && s.rootless {
				results[a.Name] = "contained: nothing runs as root"
				t.Skip(results[a.Name])
			}
			results[a.Name] = cmp.Or(s.attack(t, a), "contained")
			if t.Failed() {
				results[a.Name] = "NOT CONTAINED"
			}
		})
	}
	return true
}

// TestTheChecksCanFail asks them while a daemon lives.
func TestTheChecksCanFail(t *testing.T) {
	s := openStand(t, factories()[0])
	box := s.open(t, s.limits(sandbox.Limits{}))
	defer box.Close(context.Background())
	s.put(t, box, attack{Files: []string{"attack"}})
	exec, err := box.Exec(t.Context(), sandbox.ExecSpec{Command: []string{"./attack", "daemon", "wait"}, Env: map[string]string{"AUREA_ATTACK": "1"}}, sandbox.ExecOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.answers(t, box, "start", "until test -s /workspace/growing; do :; done")
	for _, script := range []string{noSurvivors, isQuiet} {
		if r := s.run(t, box, sandbox.ExecSpec{Command: []string{"sh", "-c", script}}); r.Verdict != sandbox.Failed {
			t.Errorf("%s: %s", script, r.Verdict)
		}
	}
	if err := exec.Kill(t.Context(), "the test"); err != nil {
		t.Error(err)
	}
	for _, script := range []string{noSurvivors, isQuiet} {
		s.answers(t, box, "after the kill", script)
	}
}

// trial is one attack under way.
type trial struct {
	attack attack
	box    *sandbox.Sandbox
	exec   *sandbox.Exec
	out    output
	began  time.Time // before its sandbox was made
	result sandbox.Result
	note   string // why it could not really be tried, or ""
}

// attack is one attack, from the picture before to the picture after. It
// returns why it could not really be tried, or "".
func (s *stand) attack(t *testing.T, a attack) (note string) {
	before := look(t, s.state, s.bait, s.neighbour.ID())
	r := &trial{attack: a, began: time.Now(), box: s.open(t, s.limits(a.Limits))}
	closed := false
	defer func() {
		if !closed {
			_ = r.box.Close(context.Background())
		}
	}()
	s.put(t, r.box, a)
	if spec, ok := preparations()[a.Prepare]; ok {
		if v := s.run(t, r.box, spec).Verdict; v != sandbox.OK {
			t.Fatalf("prepare: %s", v)
		}
	}
	s.try(t, r)
	s.judge(t, r)
	if alive(r.result.Verdict) && (!a.Fatal || !gone(r.box)) {
		s.afterwards(t, r)
	}
	if strong := bold(); len(strong) > 0 {
		t.Errorf("processes on the host with a higher priority: %q", strong)
	}
	closed = true
	if err := r.box.Close(context.Background()); err != nil {
		t.Errorf("destroy: %v", err)
	}
	s.settled(t, before)
	s.answers(t, s.neighbour, "neighbour", "test -f /workspace/mine")
	return r.note
}

// preparations are what is run before an attack, by the manifest's word for it.
func preparations() map[string]sandbox.ExecSpec {
	return map[string]sandbox.ExecSpec{
		"theirs": {Command: []string{"sh", "-c", "echo theirs >/tmp/theirs; chmod 644 /tmp/theirs"}, Dir: "/tmp", User: "nobody"},
		// The first 300 numbers are given once only.
		"numbers": {Command: []string{"sh", "-c", "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done"}},
	}
}

// try runs the attack to its end.
func (s *stand) try(t *testing.T, r *trial) {
	t.Helper()
	a := r.attack
	spec := sandbox.ExecSpec{Command: s.fillIn(a.Command), User: a.User, Env: map[string]string{"AUREA_ATTACK": "1"}}
	for name, value := range a.Env {
		spec.Env[name] = value
	}
	began := time.Now()
	var err error
	if r.exec, err = r.box.Exec(t.Context(), spec, sandbox.ExecOptions{Timeout: a.timeout(t), Sink: &r.out}); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(a.During, "collect") {
		s.collect(t, r.box, 0)
	}
	bounded, cancel := context.WithTimeoutCause(t.Context(), 2*patience, errors.New("the attack did not end"))
	defer cancel()
	if r.result, err = r.exec.Wait(bounded); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s after %s; %s", r.result.Verdict, time.Since(began).Round(time.Millisecond), r.out.brief())
}
