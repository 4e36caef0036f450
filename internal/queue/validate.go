package queue

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Validate takes what a validator says of submitted work: COMPLETED when every
// tick passed with enough confidence, ESCALATED otherwise. The validator need
// not have claimed the job before; when another has, it is a Conflict.
func (q *Queue) Validate(ctx context.Context, caller policy.Caller, id string, v job.Validation) (job.Job, error) {
	if err := v.Check(); err != nil {
		return job.Job{}, err
	}
	return q.decide(ctx, caller, "validate", id, func(t *turn, j *job.Job) error {
		if err := demandTask(j, "validate"); err != nil {
			return err
		}
		if err := j.Demand("validate", job.Submitted, job.Validating); err != nil {
			return err
		}
		if err := t.demandValidator(ctx, caller, j, v.WorkerID); err != nil {
			return err
		}
		if j.State == job.Submitted {
			if err := t.beginValidation(j, v.WorkerID); err != nil {
				return err
			}
		} else if j.Worker != v.WorkerID {
			return fault.New(fault.Conflict, "job %s is being validated by %s", j.ID, j.Worker).WithCode("not_the_holder")
		}
		return t.judge(ctx, j, v)
	})
}

// judge records a validation and ends the job by it.
func (t *turn) judge(ctx context.Context, j *job.Job, v job.Validation) error {
	passed := v.Passes()
	f := facts{Worker: v.WorkerID, Passed: &passed, Confidence: &v.Confidence, Ticks: v.Ticks}
	if err := t.record(j, event.JobValidated, f); err != nil {
		return err
	}
	f = facts{Worker: j.Submitter, Attempt: j.Attempt}
	if passed {
		f.Reason = "validated"
		return t.end(ctx, j, job.Completed, job.OutcomeOK, event.JobCompleted, f)
	}
	f.Reason = "validation_failed"
	return t.end(ctx, j, job.Escalated, job.OutcomeRejected, event.JobEscalated, f)
}

// claimValidation gives a SUBMITTED job to a validator.
func (t *turn) claimValidation(ctx context.Context, caller policy.Caller, j *job.Job, workerID string) error {
	if err := t.demandValidator(ctx, caller, j, workerID); err != nil {
		return err
	}
	return t.beginValidation(j, workerID)
}

func (t *turn) beginValidation(j *job.Job, workerID string) error {
	t.hold(j, workerID)
	return t.move(j, job.Validating, event.JobValidating, facts{Worker: workerID, Attempt: j.Attempt, Fence: j.Fence})
}

// demandValidator refuses who may not judge: the one that did the work, and a
// worker that is not registered as a validator. For a worker that never
// registered, the caller answers: it must be one that controls jobs anyway.
func (t *turn) demandValidator(ctx context.Context, caller policy.Caller, j *job.Job, workerID string) error {
	if workerID == j.Submitter {
		return fault.New(fault.Denied, "%s submitted job %s and cannot validate it; another validator must", workerID, j.ID).
			WithCode("self_validation")
	}
	w, err := t.tx.Workers().Get(ctx, workerID)
	switch {
	case err == nil && w.Role == job.ValidatorRole:
		return nil
	case fault.Is(err, fault.NotFound) && caller.May(policy.Control):
		return nil
	case err != nil && !fault.Is(err, fault.NotFound):
		return fmt.Errorf("look up worker: %w", err)
	}
	return fault.New(fault.Denied, "%s is not a worker of role %s, and only those validate", workerID, job.ValidatorRole).
		WithCode("not_a_validator")
}
