package queue

import (
	"context"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

// Bounds of what a worker says happened.
const (
	maxTypeBytes = 64
	maxDataBytes = 64 << 10
)

// Report takes what happened to jobs that a worker holds and turns it into
// events. A happening that was taken before, by its ordinal, is dropped. Items
// under a lease that the worker does not hold are refused and audited, once
// per lease; output is not kept here, but its lease is checked like any other.
//
// A happening that cannot be taken is refused as well. A refusal is final, so
// the job goes back to the queue with it.
func (q *Queue) Report(ctx context.Context, workerID string, items []dispatch.ReportItem) (refused []dispatch.Refusal, err error) {
	err = q.update(ctx, workerID, func(t *turn) error {
		refused = nil
		done := map[dispatch.Held]bool{}
		for i := range items {
			if done[items[i].Held] {
				continue
			}
			reason, err := t.report(ctx, workerID, &items[i])
			if err != nil {
				return err
			}
			if reason != "" {
				done[items[i].Held] = true
				refused = append(refused, dispatch.Refusal{Held: items[i].Held, Reason: reason})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refused, nil
}

// report takes one item; reason is empty unless it is refused.
func (t *turn) report(ctx context.Context, workerID string, item *dispatch.ReportItem) (reason string, err error) {
	j, reason, err := t.heldJob(ctx, workerID, item.Held)
	if j == nil {
		return reason, err
	}
	if reason != "" {
		again := item.Event != nil && item.Output == nil && item.Event.N <= j.Reported && item.Fence == j.Fence && workerID == j.Worker
		if again {
			return "", nil // the answer was lost, and the job moved on meanwhile
		}
		return reason, t.refuseLate(j, "report", reason, item.Held)
	}
	if item.Event == nil {
		return "", nil
	}
	if bad := t.take(j, item.Event); bad != nil {
		return t.refuseInvalid(ctx, j, "report", bad, item.Held)
	}
	return "", nil
}

// heldJob returns the job of a lease; reason says why the worker does not hold
// it. The job is nil when there is none.
func (t *turn) heldJob(ctx context.Context, workerID string, h dispatch.Held) (j *job.Job, reason string, err error) {
	j, err = t.get(ctx, h.JobID)
	if fault.Is(err, fault.NotFound) {
		return nil, "there is no such job", nil
	}
	if err != nil {
		return nil, "", err
	}
	switch {
	case j.State == job.InProgress && holds(j, workerID, h.Fence):
		return j, "", nil
	case j.Fence != h.Fence:
		return j, "the lease was taken away or given to another", nil
	default:
		return j, "the job is not leased to this worker", nil
	}
}

// refuseLate audits what came under a lease that is not the worker's.
func (t *turn) refuseLate(j *job.Job, what, reason string, h dispatch.Held) error {
	return t.refuse(j, what, "stale_fence", reason, &h.Fence)
}

// refuseInvalid audits what a holder said and nobody can take, and takes the
// job away from it.
func (t *turn) refuseInvalid(ctx context.Context, j *job.Job, what string, bad error, h dispatch.Held) (reason string, err error) {
	if err := t.refuse(j, what, fault.Invalid.String(), bad.Error(), &h.Fence); err != nil {
		return "", err
	}
	return "invalid: " + bad.Error(), t.lose(ctx, j, "invalid_"+what, t.q.backoff(j.Losses+1))
}

// take turns a happening into an event, unless it was taken before.
func (t *turn) take(j *job.Job, h *dispatch.Happening) error {
	if err := checkHappening(h); err != nil {
		return err
	}
	if h.N <= j.Reported {
		return nil
	}
	data := h.Data
	if len(data) > 0 {
		var err error
		if data, err = job.CheckObject("data", data, maxDataBytes); err != nil {
			return err
		}
	}
	j.Reported = h.N
	t.touch(j)
	t.append(j, h.Type, t.within(j, h.At), data)
	return nil
}

// within keeps a worker's clock inside the lease that it reports on.
func (t *turn) within(j *job.Job, at time.Time) time.Time {
	at = at.UTC().Truncate(time.Microsecond)
	if at.Before(j.StartedAt) {
		return j.StartedAt
	}
	if at.After(t.now) {
		return t.now
	}
	return at
}

// checkHappening lets a worker speak of its sandboxes, and of nothing that is
// the queue's to say.
func checkHappening(h *dispatch.Happening) error {
	if h.N < 1 {
		return fault.Field("n", "happenings are counted from 1")
	}
	name := string(h.Type)
	ours := h.Type == event.JobStarted
	for _, noun := range []string{"sandbox.", "exec.", "snapshot."} {
		ours = ours || strings.HasPrefix(name, noun) && len(name) > len(noun)
	}
	plain := strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && r != '.' && r != '_' }) < 0
	if !ours || !plain || len(name) > maxTypeBytes {
		return fault.Field("type", "%q is not an event that a worker reports", clip(name, maxTypeBytes))
	}
	return nil
}

// clip keeps what a worker said short.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
