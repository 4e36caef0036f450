package queue_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
)

func TestCancelEndsARunningJobAndItsDependents(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a"), task("b", after("a")), task("c"))
	a := f.begin("w", ids["a"])
	got, stopped, err := f.Cancel(ctx, me, ids["a"], "not needed")
	f.must(err)
	if diff := cmp.Diff([]queue.Stop{{Held: heldOf(a), Worker: "w"}}, stopped); diff != "" {
		t.Errorf("to stop (-want +got):\n%s", diff)
	}
	if got.State != job.Failed || got.Outcome != job.OutcomeCancelled || got.Fence != a.Fence+1 {
		t.Errorf("cancelled as %s, %s, number %d", got.State, got.Outcome, got.Fence)
	}
	f.stands(ids["b"], job.Failed, job.OutcomeDependencyFailed)
	f.stands(ids["c"], job.Assigned, "")
	f.stands(ids[""], job.InProgress, "")
	if refused := f.tryFinish(a, true); len(refused) != 1 {
		t.Error("a cancelled job completed")
	}
	events := f.told(a.ID, event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobFailed, event.JobRefused)
	if d := f.data(events[3]); events[3].Actor != "local" || d["reason"] != "not needed" || d["outcome"] != "cancelled" || d["from"] != "IN_PROGRESS" {
		t.Errorf("%s says %v", events[3].Actor, d)
	}
	_, _, err = f.Cancel(ctx, me, ids["a"], "")
	f.refused(err, fault.Conflict, "wrong_state")
	_, _, err = f.Cancel(ctx, me, ids["c"], strings.Repeat("x", 501))
	f.refused(err, fault.Invalid, "invalid")
	f.finish(f.begin("w", ids["c"]), true)
	f.stands(ids[""], job.Failed, job.OutcomeFailed)
}

func TestCancelFromEveryOpenState(t *testing.T) {
	t.Parallel()
	ctx, me := context.Background(), policy.LocalCaller()
	for state, reach := range map[job.State]func(*fixture, string){
		job.Queued:     func(*fixture, string) {},
		job.Assigned:   func(f *fixture, _ string) { f.schedule() },
		job.InProgress: func(f *fixture, id string) { f.begin("w", id) },
		job.Submitted:  func(f *fixture, id string) { f.handIn(id) },
		job.Validating: func(f *fixture, id string) {
			f.handIn(id)
			_, err := f.Claim(ctx, me, id, "judge")
			f.must(err)
		},
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			f := open(t)
			ids := f.submit(task("a", validated))
			reach(f, ids["a"])
			f.stands(ids["a"], state, "")
			_, stopped, err := f.Cancel(ctx, me, ids["a"], "")
			f.must(err)
			if runs := state == job.InProgress || state == job.Validating; (len(stopped) == 1) != runs {
				t.Errorf("to stop: %v", stopped)
			}
			f.stands(ids["a"], job.Failed, job.OutcomeCancelled)
			f.stands(ids[""], job.Failed, job.OutcomeFailed)
		})
	}
}

func TestCancelARootCancelsItsOpenTasks(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("done"), task("runs"), task("waits", after("runs")))
	f.finish(f.begin("w", ids["done"]), true)
	runs := f.begin("w", ids["runs"])
	root, stopped, err := f.Cancel(ctx, me, ids[""], "changed my mind")
	f.must(err)
	if len(stopped) != 1 || stopped[0].Held != heldOf(runs) {
		t.Errorf("to stop: %v", stopped)
	}
	if root.State != job.Failed || root.Outcome != job.OutcomeCancelled || root.Open != 0 {
		t.Errorf("the root is %s, %s, with %d open", root.State, root.Outcome, root.Open)
	}
	if diff := cmp.Diff(root, f.job(root.ID)); diff != "" {
		t.Errorf("what was answered is not what is stored:\n%s", diff)
	}
	f.stands(ids["done"], job.Completed, job.OutcomeOK)
	f.stands(ids["runs"], job.Failed, job.OutcomeCancelled)
	f.stands(ids["waits"], job.Failed, job.OutcomeCancelled)
	e := f.told(root.ID, event.JobCreated, event.JobFailed)[1]
	if d := f.data(e); d["reason"] != "changed my mind" || d["outcome"] != "cancelled" {
		t.Errorf("the root's event says %v", d)
	}
	_, _, err = f.Cancel(ctx, me, ids[""], "")
	f.refused(err, fault.Conflict, "wrong_state")
}
