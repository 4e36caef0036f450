package session_test

import (
	"context"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

func inProject(id int64) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Operator, ID: "o", Scope: &policy.Scope{Project: id}})
}

// TestSessionsStayInTheirProject starts a session with a key that is narrowed to a
// project: so are its sandbox and its jobs. Another owner has one of the same
// name elsewhere.
func TestSessionsStayInTheirProject(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]func(*testing.T) store.Store{"sqlite": sqliteStore, "postgres": postgresStore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, db(t))
			mine, theirs := inProject(7), inProject(8)
			x, _, err := s.StartSession(mine, live.SessionRequest{ID: "main", Prompt: "make me a small app"})
			if err != nil || x.Project != "7" {
				t.Fatalf("%+v, %v", x, err)
			}
			if box, err := s.keeper.Sandbox(mine, x.Sandbox); err != nil || box.Spec.Project() != 7 || box.Spec.Labels["session"] != "main" {
				t.Errorf("its sandbox: %+v, %v", box, err)
			}
			if len(s.plans) != 1 || s.plans[0].ProjectID != 7 {
				t.Errorf("its jobs: %+v", s.plans)
			}
			if _, _, err := s.StartSession(as("p"), live.SessionRequest{ID: "main", Project: "8"}); err != nil {
				t.Fatal(err)
			}
			if y, err := s.Session(mine, "main"); err != nil || y.Owner != "o" {
				t.Errorf("its own is %+v, %v", y, err)
			}
			if y, err := s.Session(theirs, "main"); err != nil || y.Owner != "p" {
				t.Errorf("that of the other project is %+v, %v", y, err)
			}
			if _, err := s.Session(inProject(9), "main"); !fault.Is(err, fault.NotFound) {
				t.Errorf("in a third project: %v", err)
			}
			if _, err := s.StopSession(inProject(9), "main"); !fault.Is(err, fault.NotFound) {
				t.Errorf("in a third project: %v", err)
			}
			if _, _, err := s.StartSession(theirs, live.SessionRequest{ID: "main"}); fault.CodeOf(err) != store.CodeSessionExists {
				t.Errorf("a name that the owner has in another project: %v", err)
			}
			if list, err := s.Sessions(mine, store.SessionFilter{}); err != nil || len(list) != 1 || list[0].Owner != "o" {
				t.Errorf("the list is %+v, %v", list, err)
			}
		})
	}
}

// TestASessionTakesNoSandboxThatIsNotItsOwn: whoever gives a sandbox the name that
// that of a session has does not get the session's work into it.
func TestASessionTakesNoSandboxThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	s := newStage(t, sqliteStore(t))
	for who, ctx := range map[string]context.Context{"stranger": inProject(8), "owner": as("o")} {
		trap, _, err := s.keeper.CreateSandbox(inProject(7), live.Request{Name: "session-" + who})
		if err != nil {
			t.Fatal(err)
		}
		if x, _, err := s.StartSession(ctx, live.SessionRequest{ID: who}); fault.CodeOf(err) != "name_taken" || x.Sandbox == trap.ID {
			t.Errorf("%s: %+v, %v", who, x, err)
		}
		if _, err := s.StopSession(ctx, who); err != nil {
			t.Errorf("%s: stop: %v", who, err)
		}
		if box, err := s.keeper.Sandbox(inProject(7), trap.ID); err != nil || box.State.Ended() {
			t.Errorf("%s: the sandbox with that name: %+v, %v", who, box, err)
		}
	}
}
