package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Retry replays a job that ended FAILED or ESCALATED, with all its tries
// before it, and with it the jobs that never ran because of it. Its root is
// open again. Retrying a root replays all of its tasks that did not complete.
func (q *Queue) Retry(ctx context.Context, caller policy.Caller, id string) (job.Job, error) {
	return q.decide(ctx, caller, "retry", id, func(t *turn, j *job.Job) error {
		if j.IsRoot() {
			return t.reopenChildren(ctx, j)
		}
		if err := j.Demand("retry", job.Failed, job.Escalated); err != nil {
			return err
		}
		blocker, err := t.blocker(ctx, j)
		if err != nil {
			return err
		}
		if blocker != nil {
			return fault.New(fault.Conflict, "job %s depends on job %s, which is %s; retry that one, and this one follows", j.ID, blocker.ID, blocker.State).
				WithCode(string(job.OutcomeDependencyFailed))
		}
		return t.reopen(ctx, j)
	})
}

// reopenChildren replays what it can until nothing is left to replay: a task
// can be replayed when the tasks that it depends on are.
func (t *turn) reopenChildren(ctx context.Context, root *job.Job) error {
	children, err := t.children(ctx, root)
	if err != nil {
		return err
	}
	reopened := 0
	for again := true; again; {
		again = false
		for _, c := range children {
			if c.State != job.Failed && c.State != job.Escalated {
				continue
			}
			blocker, err := t.blocker(ctx, c)
			if err != nil {
				return err
			}
			if blocker != nil {
				continue
			}
			if err := t.reopen(ctx, c); err != nil {
				return err
			}
			reopened++
			again = true
		}
	}
	if reopened == 0 {
		return fault.New(fault.Conflict, "cannot retry job %s: none of its tasks has failed", root.ID).WithCode("wrong_state")
	}
	return nil
}

// blocker returns a job that j depends on and that has ended without being
// completed, or nil.
func (t *turn) blocker(ctx context.Context, j *job.Job) (*job.Job, error) {
	for _, id := range j.DependsOn {
		d, err := t.get(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("find a dependency of job %s: %w", j.ID, err)
		}
		if d.State == job.Failed || d.State == job.Escalated {
			return d, nil
		}
	}
	return nil, nil
}

// reopen puts a job back into the queue, and after it those of its dependents
// that ended only because of it.
func (t *turn) reopen(ctx context.Context, j *job.Job) error {
	if err := t.reopenOne(ctx, j); err != nil {
		return err
	}
	for open := []*job.Job{j}; len(open) > 0; open = open[1:] {
		dependents, err := t.dependents(ctx, open[0])
		if err != nil {
			return err
		}
		for _, d := range dependents {
			if d.State != job.Failed || d.Outcome != job.OutcomeDependencyFailed {
				continue
			}
			blocker, err := t.blocker(ctx, d)
			if err != nil {
				return err
			}
			if blocker != nil {
				continue // it is looked at again if that one is replayed too
			}
			if err := t.reopenOne(ctx, d); err != nil {
				return err
			}
			open = append(open, d)
		}
	}
	return nil
}

// reopenOne puts one job back and counts it at its root. Its fence goes on
// from where it was: numbers of earlier leases stay refused.
func (t *turn) reopenOne(ctx context.Context, j *job.Job) error {
	j.Failures, j.Losses, j.Outcome = 0, 0, ""
	j.AssignedModel, j.Worker, j.Submitter = "", "", ""
	j.Details = nil
	j.StartedAt, j.CompletedAt, j.ReadyAt = time.Time{}, time.Time{}, t.now
	if err := t.move(j, job.Queued, event.JobRetried, facts{}); err != nil {
		return err
	}
	root, err := t.get(ctx, j.RootID)
	if err != nil {
		return fmt.Errorf("find the root of job %s: %w", j.ID, err)
	}
	root.Open++
	t.touch(root)
	if !root.State.Ended() {
		return nil
	}
	root.Outcome, root.Details, root.CompletedAt = "", nil, time.Time{}
	return t.move(root, job.InProgress, event.JobRetried, facts{Cause: j.ID})
}
