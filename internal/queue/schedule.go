package queue

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// capRecheck is when to look again for jobs that only the cap of their project
// holds back; the manager looks sooner when one of its jobs ends.
const capRecheck = time.Second

// Schedule assigns jobs that are due, at most one batch, to the worker or
// model that their role is bound to, or to nobody in particular. Only the
// leader may call it, with its fence. It answers how many it assigned, and
// when to look again: at once after a full batch, the zero time when nothing
// waits for its time.
func (q *Queue) Schedule(ctx context.Context, fence int64) (assigned int, next time.Time, err error) {
	if q.holding() != nil {
		return 0, time.Time{}, nil
	}
	err = q.lead(ctx, fence, func(t *turn) error {
		due, more, err := t.due(ctx)
		if err != nil {
			return err
		}
		for _, j := range due {
			if err := t.bind(ctx, j, "", false); err != nil {
				return err
			}
		}
		assigned = len(due)
		if more {
			next = t.now
			return nil
		}
		next, err = t.nextReady(ctx, due)
		return err
	})
	if err != nil {
		return 0, time.Time{}, err
	}
	return assigned, next, nil
}

// bound returns the worker or model that the job's role is bound to, or those
// who have the driver that it asks for, or "".
func (q *Queue) bound(j *job.Job) string {
	if name := q.cfg.Roles[j.Role]; name != "" {
		return name
	}
	if driver := job.DriverOf(j.Payload); driver != "" {
		return job.DriverModel(driver)
	}
	return q.cfg.Fallback
}

// bind assigns a job to a model, or to whom it is bound. The work of a session
// that there is goes to those who have its sandbox, whatever its role.
func (t *turn) bind(ctx context.Context, j *job.Job, model string, manual bool) error {
	if model != "" || j.SessionID == "" {
		return t.assign(j, cmp.Or(model, t.q.bound(j)), manual)
	}
	_, err := t.tx.Sessions().Get(ctx, j.Owner, j.SessionID)
	switch {
	case err == nil:
		return t.assign(j, job.SessionModel, manual)
	case fault.Is(err, fault.NotFound): // a word of the client's own
		return t.assign(j, t.q.bound(j), manual)
	}
	return fmt.Errorf("look up session: %w", err)
}

// assign gives a job to a name, or to nobody in particular.
func (t *turn) assign(j *job.Job, model string, manual bool) error {
	j.AssignedModel = model
	return t.move(j, job.Assigned, event.JobAssigned, facts{Model: model, Manual: manual})
}

// due returns what may be assigned now, best first, at most one batch; more
// says that there is more of it.
func (t *turn) due(ctx context.Context) (due []*job.Job, more bool, err error) {
	if t.q.cfg.ProjectCap == 0 {
		listed, err := t.tx.Jobs().Due(ctx, t.now, batch)
		return t.own(listed), len(listed) == batch, err
	}
	busy, err := t.tx.Jobs().Busy(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("count busy jobs: %w", err)
	}
	// Looks ever further down the line, because a project at its cap can fill
	// the whole front of it.
	for limit := batch; ; limit *= 4 {
		listed, err := t.tx.Jobs().Due(ctx, t.now, limit)
		if err != nil {
			return nil, false, err
		}
		fit := underCap(listed, busy, t.q.cfg.ProjectCap)
		if len(fit) == batch || len(listed) < limit {
			return t.own(fit), len(fit) == batch, nil
		}
	}
}

// underCap chooses the jobs that their project has room for.
func underCap(listed []job.Job, busy map[int64]int, most int) []job.Job {
	var fit []job.Job
	taken := map[int64]int{}
	for i := range listed {
		project := listed[i].ProjectID
		if busy[project]+taken[project] >= most {
			continue
		}
		taken[project]++
		if fit = append(fit, listed[i]); len(fit) == batch {
			break
		}
	}
	return fit
}

// nextReady says when the next job gets its time, given that those in due are
// assigned but not yet stored as such.
func (t *turn) nextReady(ctx context.Context, due []*job.Job) (time.Time, error) {
	next, err := t.tx.Jobs().NextReady(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("find the next job: %w", err)
	}
	switch {
	case next.IsZero() || next.After(t.now):
		return next, nil
	case len(due) > 0:
		return t.now, nil // perhaps one that was just assigned; the next look tells
	default:
		return t.now.Add(capRecheck), nil
	}
}

// Assign binds a job to a worker or model on somebody's request, ahead of the
// schedule and of any wait between tries. Without a model it binds the job as
// the schedule would.
func (q *Queue) Assign(ctx context.Context, caller policy.Caller, id, model string) (job.Job, error) {
	if model != "" {
		if err := job.CheckWord("model", model); err != nil {
			return job.Job{}, err
		}
	}
	return q.decide(ctx, caller, "assign", id, func(t *turn, j *job.Job) error {
		if err := demandTask(j, "assign"); err != nil {
			return err
		}
		if err := j.Demand("assign", job.Queued, job.Assigned); err != nil {
			return err
		}
		if j.State == job.Queued {
			if err := t.demandRoom(ctx, j); err != nil {
				return err
			}
		}
		j.ReadyAt = t.now
		return t.bind(ctx, j, model, true)
	})
}

// demandRoom refuses to give out a QUEUED job that waits for others, or whose
// project is at its cap.
func (t *turn) demandRoom(ctx context.Context, j *job.Job) error {
	if j.Waiting > 0 {
		return fault.New(fault.Conflict, "job %s waits for %d other jobs to complete", j.ID, j.Waiting).WithCode("waits_for_dependencies")
	}
	if t.q.cfg.ProjectCap == 0 {
		return nil
	}
	busy, err := t.tx.Jobs().Busy(ctx)
	if err != nil {
		return fmt.Errorf("count busy jobs: %w", err)
	}
	if busy[j.ProjectID] >= t.q.cfg.ProjectCap {
		return fault.New(fault.Conflict, "project %d already has %d jobs out, as many as it may; try again when one has ended", j.ProjectID, busy[j.ProjectID]).
			WithCode("project_cap")
	}
	return nil
}

// demandTask refuses what cannot be done with the root of a PRD.
func demandTask(j *job.Job, what string) error {
	if j.IsRoot() {
		return fault.New(fault.Conflict, "cannot %s job %s: it is the root of a PRD, which ends with its tasks; name one of them", what, j.ID).
			WithCode("is_root")
	}
	return nil
}
