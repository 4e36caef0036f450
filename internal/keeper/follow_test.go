package keeper

import (
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// until looks again and again until something holds.
func (s *stage) until(what string, holds func() bool) {
	s.t.Helper()
	const patience, rhythm = time.Minute, 10 * time.Millisecond
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	for over := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-over:
			s.t.Fatalf("not after %s: %s", patience, what)
		}
	}
}

func (s *stage) followed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Keeper.mu.Lock()
	defer s.Keeper.mu.Unlock()
	return len(s.follows)
}

// TestFilesAreFollowed lets files go both ways as they change, to the sandboxes
// of a session, through a pause and a manager that is started anew.
func TestFilesAreFollowed(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	together := live.Spec{Sync: &live.Sync{Session: "both", Continuous: true}}
	x, y := s.create(live.Request{Spec: together}), s.create(live.Request{Spec: together})
	s.write(x.ID, "/workspace/a", "from x")
	s.until("the other sandbox has it", func() bool { return s.inside(y.ID, "/workspace/a") == "from x" })

	if _, err := s.PauseSandbox(as("o"), x.ID, live.Frozen); err != nil {
		t.Fatal(err)
	}
	if n := s.followed(); n != 1 {
		t.Errorf("%d are followed while one is paused", n)
	}
	s.write(y.ID, "/workspace/b", "from y")
	s.until("it is stored", func() bool { return s.stored("o", "both", "b") == "from y" })
	if _, err := s.ResumeSandbox(as("o"), x.ID); err != nil {
		t.Fatal(err)
	}
	s.until("the resumed one has it", func() bool { return s.inside(x.ID, "/workspace/b") == "from y" })

	s.Stop()
	anew := New(s.Config)
	s.Keeper = anew
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Meet(t.Context(), "w", s.boxes.Standings()); err != nil {
		t.Fatal(err)
	}
	s.write(x.ID, "/workspace/c", "after")
	s.until("it is stored after a restart", func() bool { return s.stored("o", "both", "c") == "after" })
	if _, err := s.UpdateSandbox(as("o"), y.ID, live.Change{Sync: &live.Sync{}}); err != nil {
		t.Fatal(err)
	}
	if n := s.followed(); n != 1 {
		t.Errorf("%d are followed when one was let go", n)
	}
}

// TestLastPass writes a file and ends the sandbox at once, on request and by its
// time: it is stored. One that is not followed ends without a pass.
func TestLastPass(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil) // not started: nobody follows, only the last pass is left
	for name, end := range map[string]func(x *live.Sandbox){
		"request": func(x *live.Sandbox) {
			if _, err := s.EndSandbox(as("o"), x.ID, ""); err != nil {
				t.Error(err)
			}
		},
		"time": func(x *live.Sandbox) { s.timeOver(t.Context(), x) },
	} {
		for _, continuous := range []bool{true, false} {
			x := s.create(live.Request{Name: name, Spec: live.Spec{Sync: &live.Sync{Continuous: continuous}}})
			want := ""
			if continuous {
				want = x.ID
			}
			s.write(x.ID, "/workspace/"+x.ID, x.ID)
			end(&x)
			if got := s.stored("o", name, x.ID); got != want {
				t.Errorf("ended by %s, continuous %v: stored %q", name, continuous, got)
			}
			if x = s.sandbox(x.ID); x.State != sandbox.StateCompleted {
				t.Errorf("it is %s", x.State)
			}
		}
	}
}
