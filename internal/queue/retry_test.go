package queue_test

import (
	"context"
	"testing"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

func TestRetryReplaysADeadLetterAndWhatWaitedForIt(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("c", after("b")), task("a", retries(0)), task("b", after("a", "x")), task("x"))
	f.schedule()
	jobs := f.lease("w", 2)
	f.finish(jobs[0], false)
	f.finish(jobs[1], true) // x completes after b has ended: b must not wait for it when it is replayed
	f.stands(ids[""], job.Failed, job.OutcomeFailed)

	_, err := f.Retry(ctx, me, ids["b"])
	f.refused(err, fault.Conflict, "dependency_failed")
	_, err = f.Retry(ctx, me, ids["x"])
	f.refused(err, fault.Conflict, "wrong_state")

	a, err := f.Retry(ctx, me, ids["a"])
	f.must(err)
	if a.State != job.Queued || a.Failures != 0 || a.Outcome != "" || !a.CompletedAt.IsZero() || a.Fence != 1 || a.Attempt != 1 {
		t.Errorf("replayed as %+v", a)
	}
	root := f.stands(ids[""], job.InProgress, "")
	if root.Open != 3 || root.Details != nil || !root.CompletedAt.IsZero() {
		t.Errorf("the root counts %d open, details %s", root.Open, root.Details)
	}
	for _, key := range []string{"b", "c"} {
		if j := f.stands(ids[key], job.Queued, ""); j.Waiting != 1 {
			t.Errorf("%s waits for %d, want 1", key, j.Waiting)
		}
	}
	again := f.begin("w", ids["a"])
	if again.Attempt != 2 || again.Fence != 2 {
		t.Errorf("the replay is attempt %d under %d", again.Attempt, again.Fence)
	}
	f.finish(again, true)
	f.finish(f.begin("w", ids["b"]), true)
	f.finish(f.begin("w", ids["c"]), true)
	f.stands(ids[""], job.Completed, job.OutcomeOK)
	f.told(ids[""], event.JobCreated, event.JobFailed, event.JobRetried, event.JobCompleted)
	f.told(ids["b"], event.JobCreated, event.JobFailed, event.JobRefused, event.JobRetried, event.JobAssigned, event.JobClaimed, event.JobCompleted)
}

func TestRetryLeavesWhatAnotherFailureHolds(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a", retries(0)), task("b", retries(0)), task("c", after("a", "b")))
	f.schedule()
	for _, j := range f.lease("w", 2) {
		f.finish(j, false)
	}
	_, err := f.Retry(ctx, me, ids["a"])
	f.must(err)
	f.stands(ids["c"], job.Failed, job.OutcomeDependencyFailed)
	if root := f.stands(ids[""], job.InProgress, ""); root.Open != 1 {
		t.Errorf("the root counts %d open, want 1", root.Open)
	}
	_, err = f.Retry(ctx, me, ids["b"])
	f.must(err)
	if c := f.stands(ids["c"], job.Queued, ""); c.Waiting != 2 {
		t.Errorf("c waits for %d, want 2", c.Waiting)
	}
}

func TestRetryARootReplaysAllThatFailed(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("last", after("mid")), task("mid", after("bad")), task("bad", retries(0)), task("no", validated), task("ok"), task("gone"))
	_, err := f.Retry(ctx, me, ids[""])
	f.refused(err, fault.Conflict, "wrong_state")

	_, _, err = f.Cancel(ctx, me, ids["last"], "")
	f.must(err)
	_, _, err = f.Cancel(ctx, me, ids["gone"], "")
	f.must(err)
	f.schedule()
	for _, j := range f.lease("w", 9) {
		f.finish(j, j.ID != ids["bad"])
	}
	_, err = f.Validate(ctx, me, ids["no"], says("judge", 1, false))
	f.must(err)
	f.stands(ids[""], job.Failed, job.OutcomeFailed)

	root, err := f.Retry(ctx, me, ids[""])
	f.must(err)
	if root.State != job.InProgress || root.Open != 5 {
		t.Errorf("the root is %s with %d open", root.State, root.Open)
	}
	for _, key := range []string{"last", "mid", "bad", "no", "gone"} {
		f.stands(ids[key], job.Queued, "")
	}
	f.stands(ids["ok"], job.Completed, job.OutcomeOK)
	f.told(ids[""], event.JobCreated, event.JobRefused, event.JobFailed, event.JobRetried)
	if no := f.job(ids["no"]); no.Submitter != "" {
		t.Errorf("the replay still has the submitter %q", no.Submitter)
	}
}
