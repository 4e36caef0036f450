package keeper

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// inProject is an operator whose key is narrowed to a project.
func inProject(id int64) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Operator, ID: "o", Scope: &policy.Scope{Project: id}})
}

// TestSandboxesStayInTheirProject makes a sandbox with a key that is narrowed to a
// project, and comes with one of another.
func TestSandboxesStayInTheirProject(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	mine, theirs := inProject(7), inProject(8)
	x, _, err := s.CreateSandbox(mine, live.Request{Name: "n", Spec: live.Spec{Labels: map[string]string{"a": "b"}}})
	if err != nil || !maps.Equal(x.Spec.Labels, map[string]string{"a": "b", "project": "7"}) {
		t.Fatalf("made %+v, %v", x, err)
	}
	e, _, err := s.StartExec(mine, live.Command{Sandbox: x.ID, Command: []string{"sleep"}, Open: true}, run.Asked{Key: "k", Digest: "d"})
	if err != nil {
		t.Fatal(err)
	}
	snap := live.Snapshot{ID: "snap", Sandbox: x.ID, Owner: x.Owner, Kind: live.Files, CreatedAt: s.clock()}
	err = s.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Sandboxes().AddSnapshot(t.Context(), &snap) })
	if err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func(ctx context.Context) error{
		"sandbox":  func(ctx context.Context) error { _, err := s.Sandbox(ctx, x.ID); return err },
		"by name":  func(ctx context.Context) error { _, err := s.SandboxByName(ctx, "n"); return err },
		"exec":     func(ctx context.Context) error { _, err := s.Exec(ctx, e.ID); return err },
		"execs":    func(ctx context.Context) error { _, err := s.Execs(ctx, store.ExecFilter{Sandbox: x.ID}); return err },
		"feed":     func(ctx context.Context) error { return s.FeedExec(ctx, e.ID, -1, []byte("x"), false) },
		"put":      func(ctx context.Context) error { return s.PutFiles(ctx, x.ID, "/", strings.NewReader("")) },
		"snapshot": func(ctx context.Context) error { _, err := s.Snapshot(ctx, snap.ID); return err },
		"snapshots": func(ctx context.Context) error {
			_, err := s.Snapshots(ctx, store.SnapshotFilter{Sandbox: x.ID})
			return err
		},
		"labels": func(ctx context.Context) error {
			_, err := s.UpdateSandbox(ctx, x.ID, live.Change{Labels: map[string]string{}})
			return err
		},
	} {
		if err := ask(theirs); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s of another project: %v", what, err)
		}
		if err := ask(mine); err != nil && what != "put" {
			t.Errorf("%s of its own project: %v", what, err)
		}
	}
	if now := s.sandbox(x.ID); now.Spec.Project() != 7 {
		t.Errorf("new labels have put it into project %d", now.Spec.Project())
	}
	s.pass(time.Second) // so that it has lived
	for ctx, want := range map[context.Context]int{mine: 1, theirs: 0} {
		list, err := s.Sandboxes(ctx, store.SandboxFilter{})
		used, more := s.Accounts(ctx, x.CreatedAt)
		if err != nil || more != nil || len(list) != want || len(used) != want {
			t.Errorf("%d are listed and %d accounts, %v, %v", len(list), len(used), err, more)
		}
	}
	if _, _, err := s.CreateSandbox(theirs, live.Request{Name: "n"}); fault.CodeOf(err) != store.CodeNameTaken {
		t.Errorf("a name that a sandbox of another project has: %v", err)
	}
	other, _, err := s.CreateSandbox(theirs, live.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if y, replayed, err := s.StartExec(theirs, live.Command{Sandbox: other.ID, Command: []string{"sleep"}}, run.Asked{Key: "k", Digest: "d"}); err != nil || replayed || y.ID == e.ID {
		t.Errorf("the reply that another project's key got: %v, %v", replayed, err)
	}
	if _, err := s.SyncSandbox(mine, x.ID, live.Sync{Session: "s"}); !fault.Is(err, fault.Denied) {
		t.Errorf("stored files, which belong to no project: %v", err)
	}
	if _, err := s.StoredFiles(mine, "s", "", 10); !fault.Is(err, fault.Denied) {
		t.Errorf("stored files, which belong to no project: %v", err)
	}
}

// TestAMoveToAnotherProjectEndsLinksAndTokens makes a link and a token, gives the
// sandbox other labels in its project, and then moves it.
func TestAMoveToAnotherProjectEndsLinksAndTokens(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x, _, err := s.CreateSandbox(inProject(7), live.Request{})
	if err != nil {
		t.Fatal(err)
	}
	now := s.clock()
	until := now.Add(time.Hour)
	link, err := s.LinkSandbox(as("o"), x.ID, 80, until)
	if err != nil {
		t.Fatal(err)
	}
	token := x.Token(until)
	for _, c := range []struct {
		labels map[string]string
		good   bool
	}{
		{map[string]string{live.LabelProject: "7", "a": "b"}, true},
		{map[string]string{live.LabelProject: "8", "a": "b"}, false},
		{map[string]string{live.LabelProject: "7"}, false}, // not when it comes back either
	} {
		x, err := s.UpdateSandbox(as("o"), x.ID, live.Change{Labels: c.labels})
		if err != nil {
			t.Fatal(err)
		}
		stored := s.sandbox(x.ID)
		for who, box := range map[string]*live.Sandbox{"answered": &x, "stored": &stored} {
			if err := box.CheckLink(80, link, now); (err == nil) != c.good {
				t.Errorf("a link of before, with %v, %s: %v", c.labels, who, err)
			}
			if err := box.CheckToken(token, now); (err == nil) != c.good {
				t.Errorf("a token of before, with %v, %s: %v", c.labels, who, err)
			}
			if err := box.CheckToken(box.Token(until), now); err != nil {
				t.Errorf("a new token, with %v, %s: %v", c.labels, who, err)
			}
		}
	}
}

// TestEventsOfSandboxesNameTheProject ends an exec and its sandbox.
func TestEventsOfSandboxesNameTheProject(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x, _, err := s.CreateSandbox(inProject(7), live.Request{})
	if err != nil {
		t.Fatal(err)
	}
	e := s.start(x.ID, "echo", "hello")
	if e, err = s.WaitExec(as("o"), e.ID); err != nil || e.Result.Verdict != sandbox.OK {
		t.Fatalf("%+v, %v", e, err)
	}
	if _, err := s.EndSandbox(as("o"), x.ID, "enough"); err != nil {
		t.Fatal(err)
	}
	var events []event.Event
	err = s.Store.View(context.Background(), func(tx store.Tx) (err error) {
		events, err = tx.Events().List(context.Background(), event.Filter{}, 100)
		return err
	})
	if err != nil || len(events) < 7 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for _, x := range events {
		if x.ProjectID != 7 {
			t.Errorf("%s of %s names project %d", x.Type, x.Entity, x.ProjectID)
		}
	}
}
