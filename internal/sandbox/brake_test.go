package sandbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// everything is a rule for all there is.
func everything(s sandbox.Stop) sandbox.Rule {
	return sandbox.Rule{All: s, Of: func(sandbox.Subject) sandbox.Stop { return s }}
}

func braked(t *testing.T, d sandbox.Driver, b *sandbox.Brake, x sandbox.Subject) *sandbox.Sandbox {
	t.Helper()
	o := options(t, d, nil)
	o.Brake, o.Subject = b, x
	return open(t, o)
}

func apply(t *testing.T, b *sandbox.Brake, d sandbox.Driver, r sandbox.Rule, want sandbox.Braked) {
	t.Helper()
	done, err := b.Apply(t.Context(), r, map[string]sandbox.Driver{d.Name(): d})
	if err != nil || done != want {
		t.Errorf("came to %+v, want %+v: %v", done, want, err)
	}
}

func TestABrakeKillsAllAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		b := sandbox.NewBrake()
		one, two := braked(t, d, b, sandbox.Subject{ID: "one"}), braked(t, d, b, sandbox.Subject{ID: "two"})
		e := start(t, one, sandbox.ExecOptions{}, "sleep", "600")
		apply(t, b, d, everything(sandbox.Stop{Kill: true, Reason: "enough"}), sandbox.Braked{Killed: 2})
		res, err := e.Wait(t.Context())
		if err != nil || res.Verdict != sandbox.Killed || res.Cause != "enough" {
			t.Errorf("the exec ended %+v, %v", res, err)
		}
		for _, s := range []*sandbox.Sandbox{one, two} {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if now := s.Status(); now.State != sandbox.StateFailed || now.Outcome != sandbox.OutcomeKilled || now.Reason != "enough" {
				t.Errorf("a killed sandbox stands %+v", now)
			}
		}
		o := options(t, d, nil)
		o.Brake = b
		if _, err := sandbox.Open(t.Context(), o); fault.CodeOf(err) != sandbox.CodeStopped {
			t.Errorf("a new one: %v", err)
		}
		apply(t, b, d, sandbox.Rule{}, sandbox.Braked{})
		shut(t, braked(t, d, b, sandbox.Subject{}))
	})
}

func TestABrakeFreezesAndLetsGoOn(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		b := sandbox.NewBrake()
		ours, theirs, paused := braked(t, d, b, sandbox.Subject{ID: "ours"}), braked(t, d, b, sandbox.Subject{ID: "theirs"}), braked(t, d, b, sandbox.Subject{ID: "ours"})
		if err := paused.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		e := start(t, ours, sandbox.ExecOptions{}, "sh", "-c", "sleep 1; echo late") // the fake holds a command before its next step
		freeze := sandbox.Rule{Of: func(x sandbox.Subject) sandbox.Stop { return sandbox.Stop{Freeze: x.ID == "ours", Reason: "wait"} }}
		apply(t, b, d, freeze, sandbox.Braked{Frozen: 1})
		apply(t, b, d, freeze, sandbox.Braked{})
		<-time.After(time.Hour) // virtual
		select {
		case <-e.Done():
			t.Error("a frozen command has ended")
		default:
		}
		if err := theirs.Pause(t.Context()); err != nil {
			t.Error(err)
		}
		opened := make(chan *sandbox.Sandbox, 1)
		go func() { opened <- braked(t, d, b, sandbox.Subject{ID: "ours"}) }()
		synctest.Wait()
		if len(opened) != 0 {
			t.Error("a sandbox was made while it would be frozen")
		}
		apply(t, b, d, sandbox.Rule{}, sandbox.Braked{Resumed: 1})
		if res, err := e.Wait(t.Context()); err != nil || res.Verdict != sandbox.OK {
			t.Errorf("the command ended %+v, %v", res, err)
		}
		if _, err := paused.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}}, sandbox.ExecOptions{}); fault.CodeOf(err) != sandbox.CodePaused {
			t.Errorf("one that its user had paused goes on: %v", err)
		}
		for _, s := range []*sandbox.Sandbox{ours, theirs, paused, <-opened} {
			shut(t, s)
		}
	})
}

// pauseHook is a driver that says so before a sandbox goes on.
type pauseHook struct {
	sandbox.Driver
	resuming func()
}

type hookedBox struct {
	sandbox.Box
	sandbox.Pauser
	resuming func()
}

func (d pauseHook) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	box, err := d.Driver.Create(ctx, spec, report)
	if err != nil {
		return nil, err
	}
	return hookedBox{box, box.(sandbox.Pauser), d.resuming}, nil
}

func (b hookedBox) Resume(ctx context.Context) error {
	b.resuming()
	return b.Pauser.Resume(ctx)
}

// A sandbox that its user pauses while the brake has frozen it stays when the
// brake lets go; none goes on by its user's will while the brake holds it.
func TestABrakeAndItsUserHoldASandboxTogether(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		b := sandbox.NewBrake()
		s := braked(t, d, b, sandbox.Subject{ID: "one"})
		freeze := everything(sandbox.Stop{Freeze: true, Reason: "wait"})
		runs := func() bool {
			_, err := s.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}}, sandbox.ExecOptions{})
			if err != nil && fault.CodeOf(err) != sandbox.CodePaused {
				t.Errorf("a command: %v", err)
			}
			return err == nil
		}
		apply(t, b, d, freeze, sandbox.Braked{Frozen: 1})
		if err := s.Resume(t.Context()); fault.CodeOf(err) != sandbox.CodeStopped || runs() {
			t.Errorf("its user lets a frozen one go on: %v", err)
		}
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, b, d, sandbox.Rule{}, sandbox.Braked{})
		if runs() {
			t.Error("one that its user has paused goes on with the others")
		}
		apply(t, b, d, freeze, sandbox.Braked{})
		if err := s.Resume(t.Context()); fault.CodeOf(err) != sandbox.CodeStopped || runs() {
			t.Errorf("its user lets one go on that both hold: %v", err)
		}
		apply(t, b, d, sandbox.Rule{}, sandbox.Braked{})
		if err := s.Resume(t.Context()); err != nil || !runs() {
			t.Errorf("nobody holds it: %v", err)
		}
		shut(t, s)
	})
}

// The brake is pulled in the moment in which a paused sandbox goes on: it passes
// by what stands, so what begins to go on looks once more.
func TestABrakeCatchesWhatGoesOnMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		b := sandbox.NewBrake()
		var once sync.Once
		hooked := pauseHook{d, func() {
			once.Do(func() { apply(t, b, d, everything(sandbox.Stop{Freeze: true, Reason: "wait"}), sandbox.Braked{}) })
		}}
		s := braked(t, hooked, b, sandbox.Subject{ID: "one"})
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		run := func() error {
			_, err := s.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}}, sandbox.ExecOptions{})
			return err
		}
		if err := run(); fault.CodeOf(err) != sandbox.CodePaused {
			t.Errorf("it goes on while the brake is pulled: %v", err)
		}
		apply(t, b, d, sandbox.Rule{}, sandbox.Braked{Resumed: 1})
		if err := run(); err != nil {
			t.Errorf("it does not go on afterwards: %v", err)
		}
		shut(t, s)
	})
}

// A sandbox that is being made when everything is killed is not finished, and one
// that waited for a user is not given to one who is stopped.
func TestABrakeMeetsWhatIsBeingMade(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		b := sandbox.NewBrake()
		waiting := braked(t, d, b, sandbox.Subject{})
		o := options(t, d, map[string]string{"FAKE_HANG": "create"})
		o.Brake = b
		failed := make(chan error, 1)
		go func() {
			_, err := sandbox.Open(t.Context(), o)
			failed <- err
		}()
		synctest.Wait()
		apply(t, b, d, sandbox.Rule{Of: func(x sandbox.Subject) sandbox.Stop { return sandbox.Stop{Kill: x.ID == "his", Reason: "his"} }}, sandbox.Braked{})
		if err := waiting.Assign(sandbox.Subject{ID: "his"}); fault.CodeOf(err) != sandbox.CodeStopped {
			t.Errorf("assign: %v", err)
		}
		if err := waiting.Assign(sandbox.Subject{ID: "hers"}); err != nil {
			t.Error(err)
		}
		within, cancel := b.Within(t.Context())
		defer cancel()
		apply(t, b, d, everything(sandbox.Stop{Kill: true, Reason: "all"}), sandbox.Braked{Killed: 1})
		if err := <-failed; fault.CodeOf(err) != sandbox.CodeStopped {
			t.Errorf("what was being made: %v", err)
		}
		<-within.Done()
		shut(t, waiting)
	})
}

// A driver that knows no better destroys one sandbox after the other.
func TestABrakeWorksWithAnyDriver(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		plain := struct{ sandbox.Driver }{d}
		if _, can := sandbox.Driver(plain).(sandbox.Killer); can {
			t.Fatal(errors.New("it can kill at once"))
		}
		b := sandbox.NewBrake()
		s := braked(t, plain, b, sandbox.Subject{ID: "a"})
		kept := braked(t, plain, b, sandbox.Subject{ID: "b"})
		apply(t, b, plain, sandbox.Rule{Of: func(x sandbox.Subject) sandbox.Stop { return sandbox.Stop{Kill: x.ID == "a", Reason: "a"} }}, sandbox.Braked{Killed: 1})
		shut(t, s)
		shut(t, kept)
		if s.Status().Outcome != sandbox.OutcomeKilled || kept.Status().Outcome != sandbox.OutcomeDone {
			t.Errorf("they ended %+v and %+v", s.Status(), kept.Status())
		}
	})
}
