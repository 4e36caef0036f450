package runner

import (
	"context"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

func inProject(id int64) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Operator, ID: "o", Scope: &policy.Scope{Project: id}})
}

// TestRunsStayInTheirProject runs code with keys of one owner that are narrowed to
// different projects, under the same idempotency key, while one project is
// stopped.
func TestRunsStayInTheirProject(t *testing.T) {
	t.Parallel()
	cfg := config(t, newBench().worker(2))
	stopped := fault.New(fault.Unavailable, "stopped")
	cfg.Stops = func(s sandbox.Subject) error {
		if s.Project == 9 {
			return stopped
		}
		return nil
	}
	r := start(t, cfg)
	asked := run.Asked{Key: "k", Digest: "d"}
	a, err := r.Execute(inProject(7), code("say:hello"), asked)
	if err != nil || a.Project != 7 {
		t.Fatalf("%+v, %v", a, err)
	}
	s, err := r.SubmitRuns(inProject(8), []run.Request{code("say:hello")}, asked)
	if err != nil || s.Replayed || s.Runs[0].Project != 8 {
		t.Fatalf("%+v, %v", s, err)
	}
	if again, err := r.Execute(inProject(7), code("say:hello"), asked); err != nil || again.ID != a.ID {
		t.Errorf("the same key again: %+v, %v", again, err)
	}
	if _, err := r.Run(inProject(7), s.Runs[0].ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("that of another project: %v", err)
	}
	if _, err := r.CancelRun(inProject(8), a.ID, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("that of another project: %v", err)
	}
	if x, err := r.Execute(as("o"), run.Request{Code: "say:hello", Project: 8}, run.Asked{}); err != nil || x.Project != 8 {
		t.Errorf("a run that names its project: %+v, %v", x, err)
	}
	if _, err := r.Execute(inProject(7), run.Request{Code: "say:hello", Project: 8}, run.Asked{}); fault.CodeOf(err) != policy.CodeOtherProject {
		t.Errorf("a run that names another project: %v", err)
	}
	if _, err := r.SubmitRuns(inProject(7), []run.Request{code("say:hello"), {Code: "say:hello", Project: 8}}, run.Asked{}); fault.CodeOf(err) != policy.CodeOtherProject {
		t.Errorf("runs one of which names another project: %v", err)
	}
	if _, err := r.Execute(as("o"), run.Request{Code: "say:hello", Project: -1}, run.Asked{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a project below zero: %v", err)
	}
	if list, err := r.Runs(inProject(7), store.RunFilter{}); err != nil || len(list) != 1 || list[0].ID != a.ID {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if _, err := r.Execute(inProject(9), code("say:hello"), run.Asked{}); err != stopped { //nolint:errorlint // this very one
		t.Errorf("in a project that is stopped: %v", err)
	}
	if _, err := r.SubmitRuns(inProject(9), []run.Request{code("say:hello")}, run.Asked{}); err != stopped { //nolint:errorlint // this very one
		t.Errorf("in a project that is stopped: %v", err)
	}
}
