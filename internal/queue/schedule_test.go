package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
)

func TestScheduleBindsRolesAndFallsBack(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *queue.Config) {
		c.Roles = map[string]string{"Poet": "poet-1"}
		c.Fallback = "anyone"
	})
	ids := f.submit(task("a", role("Poet")), task("b"), task("c", after("a")))
	if n := f.schedule(); n != 2 {
		t.Fatalf("assigned %d, want 2: c waits for a", n)
	}
	if m := f.stands(ids["a"], job.Assigned, "").AssignedModel; m != "poet-1" {
		t.Errorf("a is bound to %q", m)
	}
	if m := f.stands(ids["b"], job.Assigned, "").AssignedModel; m != "anyone" {
		t.Errorf("b is bound to %q", m)
	}
	e := f.told(ids["a"], event.JobCreated, event.JobAssigned)[1]
	if d := f.data(e); e.Actor != "system" || d["from"] != "QUEUED" || d["to"] != "ASSIGNED" || d["model"] != "poet-1" {
		t.Errorf("%s says %v", e.Actor, d)
	}

	if got := f.lease("stranger", 9); len(got) != 0 {
		t.Errorf("a stranger leased %v", idsOf(got))
	}
	got, err := f.Lease(context.Background(), job.Worker{ID: "w", Models: []string{"anyone"}}, 9)
	f.must(err)
	if !slices.Equal(idsOf(got), []string{ids["b"]}) || got[0].AssignedModel != "w" {
		t.Errorf("a worker that answers to the fallback leased %v, bound to %q", idsOf(got), got[0].AssignedModel)
	}
}

func TestScheduleIsForTheLeaderOnly(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	old := f.fence
	f.lead("leader-2")
	_, _, err := f.Schedule(context.Background(), old)
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("a deposed leader scheduled: %v", err)
	}
	if _, err := f.Reap(context.Background(), old); !fault.Is(err, fault.Conflict) {
		t.Errorf("a deposed leader reaped: %v", err)
	}
	f.stands(ids["a"], job.Queued, "")
}

func TestScheduleHoldsTheCapOfAProject(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *queue.Config) { c.ProjectCap = 2 })
	me := policy.LocalCaller()
	var crowd []job.Task
	for i := range 400 { // more than one batch, all ahead of the other project
		crowd = append(crowd, task(fmt.Sprint(i), priority(9)))
	}
	first := f.submitAs(me, 1, crowd...)
	second := f.submitAs(me, 2, task("a"))

	n, next, err := f.Schedule(context.Background(), f.fence)
	f.must(err)
	if n != 3 {
		t.Fatalf("assigned %d, want 2 of the crowd and 1 of the other project", n)
	}
	f.stands(second["a"], job.Assigned, "")
	if next.After(f.clock.Now()) {
		t.Errorf("after assigning it would look again only at %s", next)
	}
	n, next, err = f.Schedule(context.Background(), f.fence)
	f.must(err)
	if n != 0 || !next.After(f.clock.Now()) {
		t.Errorf("over the cap it assigned %d, and would look again at %s: it must not spin", n, next)
	}

	_, err = f.Claim(context.Background(), me, first["7"], "w")
	f.refused(err, fault.Conflict, "project_cap")
	_, err = f.Assign(context.Background(), me, first["7"], "w")
	f.refused(err, fault.Conflict, "project_cap")

	j := f.lease("w", 1)[0]
	f.finish(j, true)
	if n := f.schedule(); n != 1 {
		t.Errorf("one ended and %d were assigned, want 1", n)
	}
}

func TestScheduleSaysWhenToLookAgain(t *testing.T) {
	t.Parallel()
	f := open(t)
	_, next, err := f.Schedule(context.Background(), f.fence)
	f.must(err)
	if !next.IsZero() {
		t.Errorf("with nothing to wait for it would look again at %s", next)
	}
	ids := f.submit(task("a"))
	f.finish(f.begin("w", ids["a"]), false)
	n, next, err := f.Schedule(context.Background(), f.fence)
	f.must(err)
	if want := f.clock.Now().Add(time.Second); n != 0 || !next.Equal(want) {
		t.Errorf("assigned %d, next at %s, want none before %s", n, next, want)
	}
	f.clock.pass(time.Second)
	if n := f.schedule(); n != 1 {
		t.Errorf("assigned %d at its time, want 1", n)
	}
}

func TestScheduleGoesOnBatchByBatch(t *testing.T) {
	t.Parallel()
	f := open(t)
	var tasks []job.Task
	for range 300 {
		tasks = append(tasks, job.Task{})
	}
	f.submit(tasks...)
	n, next, err := f.Schedule(context.Background(), f.fence)
	f.must(err)
	if n != 256 || !next.Equal(f.clock.Now()) {
		t.Errorf("the first batch has %d, next at %s", n, next)
	}
	if n := f.schedule(); n != 44 {
		t.Errorf("the second batch has %d, want 44", n)
	}
}

func TestAssignBindsByHand(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a"), task("b", after("a")))
	j, err := f.Assign(ctx, me, ids["a"], "w1")
	f.must(err)
	if j.State != job.Assigned || j.AssignedModel != "w1" {
		t.Errorf("got %s bound to %q", j.State, j.AssignedModel)
	}
	if j, err := f.Assign(ctx, me, ids["a"], ""); err != nil || j.AssignedModel != "" { // to whomever the role map says: nobody
		t.Errorf("without a model: bound to %q, %v", j.AssignedModel, err)
	}
	_, err = f.Assign(ctx, me, ids["a"], "w2") // and another, while nobody has it
	f.must(err)
	events := f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobAssigned, event.JobAssigned)
	if d := f.data(events[3]); d["manual"] != true || d["from"] != "ASSIGNED" || d["model"] != "w2" {
		t.Errorf("the record says %v", d)
	}
	if got := f.lease("w1", 1); len(got) != 0 {
		t.Errorf("w1 leased a job that is bound to w2")
	}
	f.begin("w2", ids["a"])

	_, err = f.Assign(ctx, me, ids["a"], "w3")
	f.refused(err, fault.Conflict, "wrong_state")
	_, err = f.Assign(ctx, me, ids["b"], "w3")
	f.refused(err, fault.Conflict, "waits_for_dependencies")
	_, err = f.Assign(ctx, me, ids[""], "w3")
	f.refused(err, fault.Conflict, "is_root")
}
