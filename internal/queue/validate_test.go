package queue_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// says is what a validator says of a job: one tick per answer.
func says(worker string, confidence float64, answers ...bool) job.Validation {
	v := job.Validation{WorkerID: worker, Confidence: confidence}
	for _, passed := range answers {
		v.Ticks = append(v.Ticks, job.Tick{Type: "tests", Passed: passed})
	}
	return v
}

// handIn takes a task with validation to SUBMITTED, by the worker "author".
func (f *fixture) handIn(id string) {
	f.Helper()
	f.finish(f.begin("author", id), true)
	if j := f.stands(id, job.Submitted, ""); j.Submitter != "author" || !j.LeaseUntil.IsZero() {
		f.Fatalf("submitted by %q, leased until %s", j.Submitter, j.LeaseUntil)
	}
}

func TestValidationDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v    job.Validation
		want job.State
	}{
		"all pass, sure":       {says("judge", 0.9, true, true), job.Completed},
		"all pass, just so":    {says("judge", 0.7, true), job.Completed},
		"all pass, not enough": {says("judge", 0.69, true), job.Escalated},
		"one fails":            {says("judge", 1, true, false), job.Escalated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			ids := f.submit(task("a", validated), task("b", after("a")))
			f.handIn(ids["a"])
			got, err := f.Validate(context.Background(), policy.LocalCaller(), ids["a"], c.v)
			f.must(err)
			if got.State != c.want {
				t.Fatalf("validated to %s, want %s", got.State, c.want)
			}
			last := event.JobCompleted
			if c.want == job.Completed {
				f.stands(ids["a"], job.Completed, job.OutcomeOK)
				f.finish(f.begin("w", ids["b"]), true)
				f.stands(ids[""], job.Completed, job.OutcomeOK)
			} else {
				last = event.JobEscalated
				f.stands(ids["a"], job.Escalated, job.OutcomeRejected)
				f.stands(ids["b"], job.Failed, job.OutcomeDependencyFailed)
				f.stands(ids[""], job.Failed, job.OutcomeFailed)
			}
			events := f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobSubmitted,
				event.JobValidating, event.JobValidated, last)
			if d := f.data(events[5]); d["worker"] != "judge" || d["passed"] != (c.want == job.Completed) || d["confidence"] != c.v.Confidence {
				t.Errorf("job.validated says %v", d)
			}
		})
	}
}

func TestWhoMayValidate(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	key := policy.Caller{Kind: policy.Worker, ID: "worker-key"} // sees all, controls nothing
	f.register(job.Worker{ID: "judge", Role: job.ValidatorRole})
	f.register(job.Worker{ID: "poet", Role: job.DefaultRole})
	ids := f.submit(task("a", validated))

	_, err := f.Validate(ctx, me, ids["a"], says("judge", 1, true))
	f.refused(err, fault.Conflict, "wrong_state")
	f.handIn(ids["a"])
	for _, try := range []struct {
		caller policy.Caller
		worker string
		code   string
	}{{me, "author", "self_validation"}, {me, "poet", "not_a_validator"}, {key, "nobody-knows", "not_a_validator"}} {
		_, err := f.Claim(ctx, try.caller, ids["a"], try.worker)
		f.refused(err, fault.Denied, try.code)
		_, err = f.Validate(ctx, try.caller, ids["a"], says(try.worker, 1, true))
		f.refused(err, fault.Denied, try.code)
	}
	for _, v := range []job.Validation{says("judge", 1), says("judge", math.NaN(), true), says("judge", 1.1, true), says("judge", -0.1, true), says("", 1, true)} {
		_, err := f.Validate(ctx, me, ids["a"], v)
		f.refused(err, fault.Invalid, "invalid")
	}
	_, err = f.Validate(ctx, me, ids[""], says("judge", 1, true))
	f.refused(err, fault.Conflict, "is_root")

	claimed, err := f.Claim(ctx, key, ids["a"], "judge")
	f.must(err)
	if claimed.State != job.Validating || claimed.Worker != "judge" || claimed.Attempt != 1 || claimed.Fence != 2 {
		t.Errorf("claimed for validation: %s by %s, attempt %d, number %d", claimed.State, claimed.Worker, claimed.Attempt, claimed.Fence)
	}
	_, err = f.Validate(ctx, me, ids["a"], says("another", 1, true))
	f.refused(err, fault.Conflict, "not_the_holder")
	_, err = f.Claim(ctx, me, ids["a"], "another")
	f.refused(err, fault.Conflict, "already_taken")
	_, err = f.Complete(ctx, me, ids["a"], "judge", nil, true, nil)
	f.refused(err, fault.Conflict, "wrong_state")
	if refused := f.tryFinish(claimed, true); len(refused) != 1 {
		t.Error("a validator finished the work that it judges")
	}
	_, err = f.Heartbeat(ctx, me, ids["a"], "judge", nil)
	f.must(err)
	_, err = f.Validate(ctx, key, ids["a"], says("judge", 1, true))
	f.must(err)
	f.stands(ids["a"], job.Completed, job.OutcomeOK)
}

func TestAValidatorThatVanishesLeavesTheWorkSubmitted(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a", validated))
	f.handIn(ids["a"])
	first, err := f.Claim(ctx, me, ids["a"], "judge-1")
	f.must(err)
	f.clock.pass(31 * time.Second)
	_, err = f.Reap(ctx, f.fence)
	f.must(err)
	j := f.stands(ids["a"], job.Submitted, "")
	if j.Losses != 0 || j.Submitter != "author" || j.Fence != first.Fence+1 {
		t.Errorf("it has %d losses, submitter %s, number %d", j.Losses, j.Submitter, j.Fence)
	}
	_, err = f.Claim(ctx, me, ids["a"], "author")
	f.refused(err, fault.Denied, "self_validation")
	_, err = f.Claim(ctx, me, ids["a"], "judge-2")
	f.must(err)
	f.must(f.Release(ctx, "judge-2", nil, "worker_left"))
	f.stands(ids["a"], job.Submitted, "")
	_, err = f.Validate(ctx, me, ids["a"], says("judge-3", 1, true))
	f.must(err)
}

func TestSubmitWorkAsksForValidation(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a"))
	_, err := f.SubmitWork(ctx, me, ids["a"], "author", nil, nil)
	f.refused(err, fault.Conflict, "wrong_state")
	j := f.begin("author", ids["a"])
	_, err = f.SubmitWork(ctx, me, ids["a"], "thief", nil, nil)
	f.refused(err, fault.Conflict, "not_the_holder")
	got, err := f.SubmitWork(ctx, me, ids["a"], "author", &j.Fence, []byte(`{"branch":"x"}`))
	f.must(err)
	if got.State != job.Submitted || got.Submitter != "author" || string(got.Details) != `{"branch":"x"}` {
		t.Errorf("submitted as %s by %s with %s", got.State, got.Submitter, got.Details)
	}
	_, err = f.Validate(ctx, me, ids["a"], says("judge", 1, true))
	f.must(err)
	f.stands(ids[""], job.Completed, job.OutcomeOK)
}
