package queue

import (
	"context"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Cancel ends an open job on somebody's request, and with a root all of its
// open tasks. It answers what was running, so that the workers can be told.
func (q *Queue) Cancel(ctx context.Context, caller policy.Caller, id, reason string) (cancelled job.Job, stopped []Stop, err error) {
	if err := job.CheckReason("reason", reason); err != nil {
		return job.Job{}, nil, err
	}
	cancelled, err = q.decide(ctx, caller, "cancel", id, func(t *turn, j *job.Job) error {
		stopped, t.why = nil, reason
		if j.State.Ended() {
			return fault.New(fault.Conflict, "cannot cancel job %s: it has ended as %s", j.ID, j.State).WithCode("wrong_state")
		}
		open := []*job.Job{j}
		if j.IsRoot() {
			children, err := t.children(ctx, j)
			if err != nil {
				return err
			}
			open = children
			j.Outcome, t.reason = job.OutcomeCancelled, reason
			t.touch(j)
		}
		stopped, err = t.cancel(ctx, open, reason)
		return err
	})
	if err != nil {
		return job.Job{}, nil, err
	}
	return cancelled, stopped, nil
}

// cancel ends those of jobs that are open. All end before any takes its
// dependents along, so that what is cancelled is not said to have failed by
// another.
func (t *turn) cancel(ctx context.Context, jobs []*job.Job, reason string) (stopped []Stop, err error) {
	var ended []*job.Job
	for _, j := range jobs {
		if j.State.Ended() {
			continue
		}
		f := facts{Reason: reason}
		if j.State == job.InProgress || j.State == job.Validating {
			stopped = append(stopped, stopOf(j))
			f.Worker, f.Attempt, f.Fence = j.Worker, j.Attempt, j.Fence
		}
		j.Fence++
		if err := t.close(ctx, j, job.Failed, job.OutcomeCancelled, event.JobFailed, f); err != nil {
			return nil, err
		}
		ended = append(ended, j)
	}
	for _, j := range ended {
		if err := t.failDependents(ctx, j); err != nil {
			return nil, err
		}
	}
	return stopped, nil
}
