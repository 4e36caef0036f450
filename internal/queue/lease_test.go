package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
)

func TestLeaseStartsATryAndAnswersWhatIsStored(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("low"), task("high", priority(5)), task("next"))
	f.schedule()
	got := f.lease("w", 2)
	if want := []string{ids["high"], ids["low"]}; !slices.Equal(idsOf(got), want) {
		t.Fatalf("leased %v, want priority first and then the oldest: %v", idsOf(got), want)
	}
	j := got[0]
	now := f.clock.Now()
	if j.State != job.InProgress || j.Worker != "w" || j.AssignedModel != "w" || j.Fence != 1 || j.Attempt != 1 ||
		!j.LeaseUntil.Equal(now.Add(30*time.Second)) || !j.StartedAt.Equal(now) {
		t.Errorf("leased %+v", j)
	}
	if diff := cmp.Diff(j, f.job(j.ID)); diff != "" {
		t.Errorf("what was answered is not what is stored:\n%s", diff)
	}
	e := f.told(j.ID, event.JobCreated, event.JobAssigned, event.JobClaimed)[2]
	if d := f.data(e); e.Actor != "w" || d["from"] != "ASSIGNED" || d["to"] != "IN_PROGRESS" || d["worker"] != "w" || d["fence"] != 1.0 || d["attempt"] != 1.0 {
		t.Errorf("%s says %v", e.Actor, d)
	}
	if got := f.lease("w", 0); len(got) != 0 {
		t.Errorf("asked for none and got %d", len(got))
	}
}

func TestClaimHasOneWinner(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a"), task("b", after("a")))

	j, err := f.Claim(ctx, me, ids["a"], "w1") // not scheduled yet
	f.must(err)
	if j.State != job.InProgress || j.Worker != "w1" || j.Fence != 1 {
		t.Errorf("claimed %s by %s under %d", j.State, j.Worker, j.Fence)
	}
	_, err = f.Claim(ctx, me, ids["a"], "w2")
	f.refused(err, fault.Conflict, "already_taken")
	events := f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRefused)
	if d := f.data(events[3]); d["operation"] != "claim" || d["code"] != "already_taken" || d["state"] != "IN_PROGRESS" || d["from"] != nil {
		t.Errorf("the refusal says %v", d)
	}

	_, err = f.Claim(ctx, me, ids["b"], "w2")
	f.refused(err, fault.Conflict, "waits_for_dependencies")
	_, err = f.Claim(ctx, me, ids[""], "w2")
	f.refused(err, fault.Conflict, "is_root")
	_, err = f.Claim(ctx, me, ids["a"], " ")
	f.refused(err, fault.Invalid, "invalid")
	_, err = f.Claim(ctx, me, job.NewID(), "w2")
	f.refused(err, fault.NotFound, "not_found")

	f.finish(j, true)
	_, err = f.Claim(ctx, me, ids["a"], "w2")
	f.refused(err, fault.Conflict, "wrong_state")
}

func TestClaimHonoursBindingAndWaits(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *queue.Config) { c.Roles = map[string]string{"Poet": "muse"} })
	ctx, me := context.Background(), policy.LocalCaller()
	f.register(job.Worker{ID: "poet", Models: []string{"muse"}})
	ids := f.submit(task("a", role("Poet")), task("b"))

	_, err := f.Claim(ctx, me, ids["a"], "stranger")
	f.refused(err, fault.Conflict, "bound_to_another")
	f.stands(ids["a"], job.Queued, "") // the assignment on the way was rolled back
	_, err = f.Claim(ctx, me, ids["a"], "poet")
	f.must(err)

	j, err := f.Claim(ctx, me, ids["b"], "w")
	f.must(err)
	f.finish(j, false)
	_, err = f.Claim(ctx, me, ids["b"], "w")
	f.refused(err, fault.Conflict, "not_ready")
	f.clock.pass(time.Second)
	j, err = f.Claim(ctx, me, ids["b"], "w")
	f.must(err)
	if j.Attempt != 2 || j.Fence != 2 {
		t.Errorf("the second try is attempt %d under %d", j.Attempt, j.Fence)
	}
}

func TestExtendRenewsAndNamesWhatIsGone(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	ids := f.submit(task("a"), task("b"), task("c"))
	f.schedule()
	jobs := f.lease("w", 3)
	f.finish(jobs[1], true)
	_, _, err := f.Cancel(ctx, policy.LocalCaller(), ids["c"], "")
	f.must(err)

	f.clock.pass(45 * time.Second) // run out, but not taken away
	held := []dispatch.Held{heldOf(jobs[0]), heldOf(jobs[1]), heldOf(jobs[2]), {JobID: jobs[0].ID, Fence: 7}, {JobID: job.NewID(), Fence: 1}}
	gone, until, err := f.Extend(ctx, "w", held)
	f.must(err)
	if diff := cmp.Diff(held[1:], gone); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
	if want := f.clock.Now().Add(30 * time.Second); !until.Equal(want) || !f.job(ids["a"]).LeaseUntil.Equal(want) {
		t.Errorf("extended until %s and %s, want %s", until, f.job(ids["a"]).LeaseUntil, want)
	}
	gone, _, err = f.Extend(ctx, "another", held[:1])
	f.must(err)
	if len(gone) != 1 {
		t.Error("another worker extended a lease that it does not hold")
	}
}

func TestHeartbeatRenewsOnlyForTheHolder(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a"))
	_, err := f.Heartbeat(ctx, me, ids["a"], "w", nil)
	f.refused(err, fault.Conflict, "wrong_state")
	j := f.begin("w", ids["a"])
	before := len(f.events(j.ID))

	f.clock.pass(20 * time.Second)
	got, err := f.Heartbeat(ctx, me, j.ID, "w", nil)
	f.must(err)
	if want := f.clock.Now().Add(30 * time.Second); !got.LeaseUntil.Equal(want) {
		t.Errorf("the lease runs until %s, want %s", got.LeaseUntil, want)
	}
	_, err = f.Heartbeat(ctx, me, j.ID, "thief", nil)
	f.refused(err, fault.Conflict, "not_the_holder")
	stale := j.Fence - 1
	_, err = f.Heartbeat(ctx, me, j.ID, "w", &stale)
	f.refused(err, fault.Conflict, "stale_fence")
	_, err = f.Heartbeat(ctx, me, ids[""], "", nil)
	f.refused(err, fault.Conflict, "is_root")

	f.clock.pass(31 * time.Second)
	_, err = f.Heartbeat(ctx, me, j.ID, "w", nil)
	f.refused(err, fault.Conflict, "lease_expired")
	_, err = f.Heartbeat(ctx, me, j.ID, "w", &j.Fence) // the number is proof enough
	f.must(err)
	if after := len(f.events(j.ID)); after != before {
		t.Errorf("heartbeats left %d events", after-before)
	}
}
