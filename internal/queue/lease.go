package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Lease gives a worker at most max jobs that are ASSIGNED to it, to one of its
// models, to one of its drivers, or to nobody in particular: highest priority first, then oldest.
func (q *Queue) Lease(ctx context.Context, worker job.Worker, most int) (leased []job.Job, err error) {
	most = min(most, dispatch.MaxLeases)
	if most <= 0 || q.holding() != nil {
		return nil, nil
	}
	err = q.update(ctx, worker.ID, func(t *turn) error {
		listed, err := t.tx.Jobs().Leasable(ctx, worker.Names(), most)
		if err == nil && slices.ContainsFunc(listed, q.halted) {
			// Those of a project that is stopped stand before others that are not.
			listed, err = t.tx.Jobs().Leasable(ctx, worker.Names(), batch)
			listed = slices.DeleteFunc(listed, q.halted)
			listed = listed[:min(len(listed), most)]
		}
		if err != nil {
			return fmt.Errorf("find jobs to lease: %w", err)
		}
		leased = make([]job.Job, 0, len(listed))
		for _, j := range t.own(fitting(listed)) {
			if err := t.lease(j, worker.ID); err != nil {
				return err
			}
			leased = append(leased, *j)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return leased, nil
}

func (q *Queue) halted(j job.Job) bool { return q.cfg.Halt(j.ProjectID).Stopped }

// maxLeaseBytes bounds the payloads of one answer; one job always fits.
const maxLeaseBytes = 8 << 20

// fitting cuts a list where its payloads would make too large an answer.
func fitting(listed []job.Job) []job.Job {
	total := 0
	for i := range listed {
		if total += len(listed[i].Payload); total > maxLeaseBytes && i > 0 {
			return listed[:i]
		}
	}
	return listed
}

// lease starts a try of an ASSIGNED job.
func (t *turn) lease(j *job.Job, worker string) error {
	j.Attempt++
	j.AssignedModel = worker
	j.StartedAt = t.now
	t.hold(j, worker)
	return t.move(j, job.InProgress, event.JobClaimed, facts{Worker: worker, Attempt: j.Attempt, Fence: j.Fence})
}

// hold binds a job to its new holder for one term, under a new number.
func (t *turn) hold(j *job.Job, worker string) {
	j.Worker = worker
	j.Fence++
	j.Reported = 0
	j.LeaseUntil = t.now.Add(t.q.cfg.LeaseTerm)
}

// Claim gives one named job to one worker: an ASSIGNED or QUEUED one to be
// done, a SUBMITTED one to be validated. Of several that claim a job one wins;
// the others get a Conflict.
func (q *Queue) Claim(ctx context.Context, caller policy.Caller, id, workerID string) (job.Job, error) {
	if err := job.CheckWord("worker_id", workerID); err != nil {
		return job.Job{}, err
	}
	if err := q.holding(); err != nil {
		return job.Job{}, err
	}
	return q.decide(ctx, caller, "claim", id, func(t *turn, j *job.Job) error {
		if err := demandTask(j, "claim"); err != nil {
			return err
		}
		if halt := q.cfg.Halt(j.ProjectID); halt.Stopped {
			return fault.New(fault.Unavailable, "Job %s is not given out: %s.", j.ID, halt.Reason).WithCode("KILL_SWITCH")
		}
		if j.State == job.Submitted {
			return t.claimValidation(ctx, caller, j, workerID)
		}
		if j.State == job.InProgress || j.State == job.Validating {
			return fault.New(fault.Conflict, "job %s is already taken by %s", j.ID, j.Worker).WithCode("already_taken")
		}
		if err := j.Demand("claim", job.Assigned, job.Queued); err != nil {
			return err
		}
		if j.State == job.Queued {
			if err := t.assignForClaim(ctx, j); err != nil {
				return err
			}
		}
		if err := t.demandBinding(ctx, j, workerID); err != nil {
			return err
		}
		return t.lease(j, workerID)
	})
}

// assignForClaim does for one QUEUED job what the schedule would have done.
func (t *turn) assignForClaim(ctx context.Context, j *job.Job) error {
	if err := t.demandRoom(ctx, j); err != nil {
		return err
	}
	if j.ReadyAt.After(t.now) {
		return fault.New(fault.Conflict, "job %s is not given out again before %s", j.ID, j.ReadyAt.Format(time.RFC3339)).WithCode("not_ready")
	}
	return t.bind(ctx, j, "", false)
}

// demandBinding refuses a worker that a job is not for.
func (t *turn) demandBinding(ctx context.Context, j *job.Job, workerID string) error {
	if j.AssignedModel == "" || j.AssignedModel == workerID {
		return nil
	}
	w, err := t.tx.Workers().Get(ctx, workerID)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("look up worker: %w", err)
	}
	if err == nil && slices.Contains(w.Names(), j.AssignedModel) {
		return nil
	}
	return fault.New(fault.Conflict, "job %s is bound to %s", j.ID, j.AssignedModel).WithCode("bound_to_another")
}

// Extend renews the leases of a worker until the time it answers, and says
// which are gone: work on those must stop. A lease that ran out and that
// nobody took yet is renewed like any other.
func (q *Queue) Extend(ctx context.Context, workerID string, held []dispatch.Held) (gone []dispatch.Held, until time.Time, err error) {
	err = q.update(ctx, workerID, func(t *turn) error {
		gone, until = nil, t.now.Add(q.cfg.LeaseTerm)
		for _, h := range held {
			j, err := t.get(ctx, h.JobID)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			if err != nil || !holds(j, workerID, h.Fence) {
				gone = append(gone, h)
				continue
			}
			j.LeaseUntil = until
			t.touch(j)
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return gone, until, nil
}

// holds reports whether a worker holds a job under a number.
func holds(j *job.Job, worker string, fence int64) bool {
	return (j.State == job.InProgress || j.State == job.Validating) && !j.IsRoot() && j.Worker == worker && j.Fence == fence
}

// Heartbeat renews one lease on request of a worker that speaks for itself.
// It leaves no event, since nothing happened.
func (q *Queue) Heartbeat(ctx context.Context, caller policy.Caller, id, workerID string, fence *int64) (held job.Job, err error) {
	err = q.update(ctx, caller.ID, func(t *turn) error {
		j, err := t.get(ctx, id)
		if err != nil {
			return err
		}
		if err := visible(caller, j); err != nil {
			return err
		}
		if err := t.demandLease(j, "extend the lease of", workerID, fence, job.InProgress, job.Validating); err != nil {
			return err
		}
		j.LeaseUntil = t.now.Add(q.cfg.LeaseTerm)
		t.touch(j)
		held = *j
		return nil
	})
	if err != nil {
		return job.Job{}, err
	}
	return held, nil
}

// demandLease refuses who does not hold a job. With a fencing number that
// number decides. Without one, only the deadline can tell a holder from a
// late-comer, so the lease must be running.
func (t *turn) demandLease(j *job.Job, what, workerID string, fence *int64, states ...job.State) error {
	if err := demandTask(j, what); err != nil {
		return err
	}
	if fence != nil && *fence != j.Fence {
		return fault.New(fault.Conflict, "the fencing number %d is not the current one of job %s: it was given out again, or taken away", *fence, j.ID).WithCode("stale_fence")
	}
	if err := j.Demand(what, states...); err != nil {
		return err
	}
	if workerID != "" && workerID != j.Worker {
		return fault.New(fault.Conflict, "job %s is held by %s, not by %s", j.ID, j.Worker, workerID).WithCode("not_the_holder")
	}
	if fence == nil && j.LeaseUntil.Before(t.now) {
		return fault.New(fault.Conflict, "the lease of job %s ran out; claim it again, or send its fencing number", j.ID).WithCode("lease_expired")
	}
	return nil
}
