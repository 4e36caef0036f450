package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
)

func TestReapGivesBackWhatRanOut(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	ids := f.submit(task("a"), task("b"))
	f.schedule()
	jobs := f.lease("w", 2)
	f.clock.pass(30 * time.Second)
	lost, err := f.Reap(ctx, f.fence)
	f.must(err)
	if len(lost) != 0 {
		t.Fatal("a lease was taken away at its last moment")
	}
	_, _, err = f.Extend(ctx, "w", []dispatch.Held{heldOf(jobs[1])})
	f.must(err)
	f.clock.pass(time.Microsecond)
	lost, err = f.Reap(ctx, f.fence)
	f.must(err)
	if len(lost) != 1 || lost[0].Held != heldOf(jobs[0]) {
		t.Fatalf("lost %v, want %v", lost, heldOf(jobs[0]))
	}
	a := f.stands(ids["a"], job.Queued, "")
	if a.Losses != 1 || a.Failures != 0 || a.Fence != 2 || !a.ReadyAt.Equal(f.clock.Now().Add(time.Second)) || a.RetryCount() != 1 {
		t.Errorf("it went back with %d losses, %d failures, number %d, ready at %s", a.Losses, a.Failures, a.Fence, a.ReadyAt)
	}
	f.stands(ids["b"], job.InProgress, "")
	e := f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRequeued)[3]
	if d := f.data(e); e.Actor != "system" || d["reason"] != "lease_expired" || d["worker"] != "w" || d["fence"] != 1.0 || d["losses"] != 1.0 {
		t.Errorf("%s says %v", e.Actor, d)
	}
}

func TestAJobThatLosesTooManyWorkersEnds(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	ids := f.submit(task("a", retries(0)), task("b", after("a")))
	for range job.MaxLosses {
		f.begin("w", ids["a"])
		f.clock.pass(2 * time.Minute)
		_, err := f.Reap(ctx, f.fence)
		f.must(err)
		f.stands(ids["a"], job.Queued, "")
		f.clock.pass(2 * time.Minute)
	}
	f.begin("w", ids["a"])
	f.must(f.Release(ctx, "w", nil, "worker_restarted"))
	if j := f.stands(ids["a"], job.Failed, job.OutcomeLost); j.Failures != 0 {
		t.Errorf("losses were counted as %d failures", j.Failures)
	}
	f.stands(ids["b"], job.Failed, job.OutcomeDependencyFailed)
	f.stands(ids[""], job.Failed, job.OutcomeFailed)
}

func TestReleaseKeepsWhatTheWorkerStillDoes(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	ids := f.submit(task("a"), task("b"), task("c"))
	f.schedule()
	mine := f.lease("w", 2)
	f.lease("another", 1)
	keep := []dispatch.Held{heldOf(mine[0]), {JobID: mine[1].ID, Fence: 99}}
	f.must(f.Release(ctx, "w", keep, "worker_restarted"))
	f.stands(ids["a"], job.InProgress, "")
	f.stands(ids["c"], job.InProgress, "")
	b := f.stands(ids["b"], job.Queued, "")
	if b.Losses != 1 || b.ReadyAt.After(f.clock.Now().Add(time.Second)) {
		t.Errorf("it went back with %d losses, ready at %s: want soon", b.Losses, b.ReadyAt)
	}
	f.finish(mine[0], true)
	if refused := f.tryFinish(mine[1], true); len(refused) != 1 {
		t.Error("a result under a released lease was taken")
	}
}

func TestLostSandboxesAreToldAndGivenBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	ids := f.submit(task("a"), task("b"))
	f.schedule()
	mine := f.lease("w", 2)
	lost := []dispatch.Lost{{Held: heldOf(mine[0]), Sandbox: "box", Reason: "it is gone"}}
	for range 2 { // the answer may be lost, and it is said again
		f.must(f.Replace(ctx, "w", []dispatch.Held{heldOf(mine[0]), heldOf(mine[1])}, lost, "worker_restarted"))
	}
	f.stands(ids["b"], job.InProgress, "")
	if a := f.stands(ids["a"], job.Queued, ""); a.Losses != 1 || a.Failures != 0 {
		t.Errorf("it went back with %d losses and %d failures", a.Losses, a.Failures)
	}
	told := 0
	for _, e := range f.events(ids["a"]) {
		if e.Type == event.SandboxLost {
			told++
			if !strings.Contains(string(e.Data), "it is gone") {
				t.Errorf("it says %s", e.Data)
			}
		}
	}
	if told != 1 {
		t.Errorf("the loss was told %d times", told)
	}
}
