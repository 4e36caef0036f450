package sandbox_test

import (
	"errors"
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
