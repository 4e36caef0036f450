package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Stop is a lease that was taken away: its worker should stop the work.
type Stop struct {
	dispatch.Held
	Worker string
}

func stopOf(j *job.Job) Stop {
	return Stop{Held: dispatch.Held{JobID: j.ID, Fence: j.Fence}, Worker: j.Worker}
}

// Reap takes away leases that ran out, at most one batch, and answers which.
// Only the leader may call it, with its fence.
func (q *Queue) Reap(ctx context.Context, fence int64) (lost []Stop, err error) {
	err = q.lead(ctx, fence, func(t *turn) error {
		expired, err := t.tx.Jobs().Expired(ctx, t.now, batch)
		if err != nil {
			return fmt.Errorf("find leases that ran out: %w", err)
		}
		lost = nil
		for _, j := range t.own(expired) {
			lost = append(lost, stopOf(j))
			if err := t.lose(ctx, j, "lease_expired", q.backoff(j.Losses+1)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// Release gives back the leases of a worker that left or was replaced, but for
// those in keep. Nothing speaks against trying again soon.
func (q *Queue) Release(ctx context.Context, workerID string, keep []dispatch.Held, reason string) error {
	return q.Replace(ctx, workerID, keep, nil, reason)
}

// Replace does what Release does, for a worker that was restarted: it also says
// which of the leases that are given back had a sandbox, and why that was lost.
// A lease that is both kept and lost is lost.
func (q *Queue) Replace(ctx context.Context, workerID string, keep []dispatch.Held, lost []dispatch.Lost, reason string) error {
	return q.update(ctx, policy.System().ID, func(t *turn) error {
		held, err := t.tx.Jobs().HeldBy(ctx, workerID)
		if err != nil {
			return fmt.Errorf("find the leases of worker %s: %w", workerID, err)
		}
		for _, j := range t.own(held) {
			mine := stopOf(j).Held
			if i := slices.IndexFunc(lost, func(l dispatch.Lost) bool { return l.Held == mine }); i >= 0 {
				if err := t.lostSandbox(j, &lost[i]); err != nil {
					return err
				}
			} else if slices.Contains(keep, mine) {
				continue
			}
			if err := t.lose(ctx, j, reason, q.backoff(1)); err != nil {
				return err
			}
		}
		return nil
	})
}

// lostSandbox records what a worker says became of a sandbox.
func (t *turn) lostSandbox(j *job.Job, l *dispatch.Lost) error {
	const most = 1000
	data, err := json.Marshal(map[string]any{
		"sandbox": clip(l.Sandbox, most), "reason": clip(l.Reason, most), "worker": j.Worker, "attempt": j.Attempt,
	})
	if err != nil {
		return fmt.Errorf("encode the loss of a sandbox: %w", err)
	}
	t.append(j, event.SandboxLost, t.now, data)
	return nil
}

// lose takes a lease away. That is not the job's fault and spends no try, but
// a job that loses too many workers ends. Work that was being validated waits
// for another validator, which is nobody's loss.
func (t *turn) lose(ctx context.Context, j *job.Job, reason string, wait time.Duration) error {
	f := t.tried(j, nil)
	f.Reason = reason
	j.Fence++
	if j.State == job.Validating {
		t.free(j)
		return t.move(j, job.Submitted, event.JobRequeued, f)
	}
	if halt := t.q.cfg.Halt(j.ProjectID); halt.Killed {
		f.Reason = halt.Reason
		return t.end(ctx, j, job.Failed, job.OutcomeKilled, event.JobFailed, f)
	}
	j.Losses++
	f.Losses = j.Losses
	if j.Losses > job.MaxLosses {
		return t.end(ctx, j, job.Failed, job.OutcomeLost, event.JobFailed, f)
	}
	return t.requeue(j, wait, f)
}

// requeue sends a job back, to be given out after a wait, to whom its role is
// bound.
func (t *turn) requeue(j *job.Job, wait time.Duration, f facts) error {
	t.free(j)
	j.AssignedModel = ""
	j.ReadyAt = t.now.Add(wait).Truncate(time.Microsecond)
	f.ReadyAt = &j.ReadyAt
	return t.move(j, job.Queued, event.JobRequeued, f)
}

// free ends the term of a lease; who had it stays known.
func (t *turn) free(j *job.Job) { j.LeaseUntil = time.Time{} }
