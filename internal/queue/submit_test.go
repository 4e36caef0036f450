package queue_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestSubmitStoresRootTasksAndTheirEvents(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a", role("Poet"), priority(7)), task("b", after("a"), validated))

	root := f.stands(ids[""], job.InProgress, "")
	if root.Open != 2 || !root.IsRoot() {
		t.Errorf("the root counts %d open tasks, want 2", root.Open)
	}
	b := f.stands(ids["b"], job.Queued, "")
	if b.Waiting != 1 || b.RootID != root.ID || b.Owner != "local" {
		t.Errorf("b waits for %d, root %s, owner %s", b.Waiting, b.RootID, b.Owner)
	}

	made := f.data(f.told(ids[""], event.JobCreated)[0])
	want := map[string]any{"to": "IN_PROGRESS", "title": "a plan", "prd": map[string]any{"title": "a plan", "more": []any{1.0, 2.0}}}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("the root's event (-want +got):\n%s", diff)
	}
	e := f.told(ids["a"], event.JobCreated)[0]
	if e.Actor != "local" || e.Owner != "local" || e.RootID != root.ID || e.ProjectID != 1 || e.Entity != "job" || e.Version != 1 {
		t.Errorf("the task's event is %+v", e)
	}
	data := f.data(e)
	kept, _ := data["task"].(map[string]any)
	if data["to"] != "QUEUED" || kept["key"] != "a" || kept["role"] != "Poet" || kept["priority"] != 7.0 || kept["timeout_seconds"] != 900.0 {
		t.Errorf("the task's event says %v", data)
	}
}

// The leader need not come back for what it was handed itself.
func TestLeaderAssignsWhatIsSubmitted(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *queue.Config) { c.Roles = map[string]string{"Poet": "muse"} })
	f.Lead(f.fence)
	ids := f.submit(task("a", role("Poet")), task("b", after("a")), task("c"))

	if a := f.stands(ids["a"], job.Assigned, ""); a.AssignedModel != "muse" {
		t.Errorf("a is bound to %q, want muse", a.AssignedModel)
	}
	f.stands(ids["b"], job.Queued, "")
	f.stands(ids["c"], job.Assigned, "")
	told := f.told(ids["a"], event.JobCreated, event.JobAssigned)
	created, assigned := told[0], told[1]
	if created.Seq >= assigned.Seq || created.Actor != "local" || assigned.Actor != "system" {
		t.Errorf("the events are %+v and %+v", created, assigned)
	}
	if from, to := f.data(assigned)["from"], f.data(assigned)["to"]; from != "QUEUED" || to != "ASSIGNED" {
		t.Errorf("the event tells of a move from %v to %v", from, to)
	}
	if n := f.schedule(); n != 0 {
		t.Errorf("the schedule assigned %d more", n)
	}
	if got := f.lease("w", 5); len(got) != 1 || got[0].ID != ids["c"] {
		t.Errorf("leased %v, want c", idsOf(got))
	}
}

// One that does not lead any more, or must count first, leaves it to the
// schedule.
func TestSubmitLeavesAssigningToTheSchedule(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T) *fixture{
		"another leads": func(t *testing.T) *fixture {
			f := open(t)
			f.Lead(f.fence)
			f.lead("leader-2")
			return f
		},
		"not any more": func(t *testing.T) *fixture {
			f := open(t)
			f.Lead(f.fence)
			f.Lead(0)
			return f
		},
		"a cap": func(t *testing.T) *fixture {
			f := open(t, func(c *queue.Config) { c.ProjectCap = 1 })
			f.Lead(f.fence)
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := prepare(t)
			f.stands(f.submit(task("a"))["a"], job.Queued, "")
			if n := f.schedule(); n != 1 {
				t.Errorf("the schedule assigned %d, want 1", n)
			}
		})
	}
}

func TestSubmitIsIdempotentByKey(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	prd := job.PRD{Title: "once", Tasks: []job.Task{{Key: "a"}, {Key: "b"}}}

	first, err := f.Submit(ctx, me, prd, "key", "digest")
	f.must(err)
	again, err := f.Submit(ctx, me, prd, "key", "digest")
	f.must(err)
	if !again.Replayed || first.Replayed {
		t.Errorf("replayed: first %v, again %v", first.Replayed, again.Replayed)
	}
	again.Replayed = false
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same request got another answer:\n%s", diff)
	}

	_, err = f.Submit(ctx, me, prd, "key", "another digest")
	f.refused(err, fault.Conflict, "idempotency_mismatch")

	other, err := f.Submit(ctx, policy.Caller{Kind: policy.Operator, ID: "operator-1"}, prd, "key", "digest")
	f.must(err)
	if other.RootID == first.RootID {
		t.Error("a key of one owner answered another")
	}
	if n := f.count(); n != 4 {
		t.Errorf("%d tasks are stored, want 4", n)
	}
}

func TestSubmitStoresNothingThatIsWrong(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	for name, prd := range map[string]job.PRD{
		"no task":        {Title: "x"},
		"a cycle":        {Title: "x", Tasks: []job.Task{{Key: "a", DependsOn: []string{"b"}}, {Key: "b", DependsOn: []string{"a"}}}},
		"unknown action": {Title: "x", Tasks: []job.Task{{Key: "ok"}, {Payload: json.RawMessage(`{"action":"fly"}`)}}},
		"broken source":  {Title: "x", Tasks: []job.Task{{Key: "a"}}, Source: json.RawMessage(`{"title":`)},
	} {
		if _, err := f.Submit(ctx, me, prd, "k", "d"); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want a fault of kind invalid", name, err)
		}
	}
	if n := f.count(); n != 0 {
		t.Errorf("%d tasks are stored, want none", n)
	}
	f.must(f.store.View(ctx, func(tx store.Tx) error {
		last, err := tx.Events().Last(ctx)
		if last != 0 {
			t.Errorf("%d events are stored, want none", last)
		}
		return err
	}))
}

// count returns how many tasks there are.
func (f *fixture) count() (n int64) {
	f.Helper()
	s, err := f.Stats(context.Background(), policy.LocalCaller())
	f.must(err)
	for _, c := range s.Counts {
		n += c
	}
	return n
}
