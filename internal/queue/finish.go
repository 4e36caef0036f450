package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// MaxDetailsBytes bounds what is kept of what a worker says at the end.
const MaxDetailsBytes = 1 << 20

// result is what the record keeps of how a try ended; the rest is evidence.
type result struct {
	Verdict        string `json:"verdict,omitempty"`
	Cause          string `json:"cause,omitempty"`
	ExitCode       int    `json:"exit_code"`
	Driver         string `json:"driver,omitempty"`
	Snapshot       string `json:"snapshot,omitempty"`
	SnapshotSHA256 string `json:"snapshot_sha256,omitempty"`
	SnapshotBytes  int64  `json:"snapshot_bytes,omitempty"`
	TreeDigest     string `json:"tree_digest,omitempty"`
}

func resultOf(r *evidence.Record) *result {
	const most = 500
	out := &result{
		Verdict: clip(string(r.Verdict), most), Cause: clip(r.Cause, most), ExitCode: r.ExitCode, Driver: clip(r.Driver, most),
	}
	if s := r.Snapshot; s != nil {
		out.Snapshot, out.SnapshotBytes = clip(s.Path, most), s.Bytes
		out.SnapshotSHA256, out.TreeDigest = clip(s.SHA256, most), clip(s.TreeDigest, most)
	}
	return out
}

// Finish takes the results of a worker's leases: what happened, the record of
// the try, and what follows from it. A result under a lease that the worker
// does not hold is refused and audited; one that was taken before is a
// success. A result that cannot be taken is refused, and its job goes back to
// the queue.
func (q *Queue) Finish(ctx context.Context, workerID string, results []dispatch.Result) (refused []dispatch.Refusal, err error) {
	ids := make([]string, len(results))
	for i := range results {
		ids[i] = results[i].JobID
	}
	err = q.update(ctx, workerID, func(t *turn) error {
		refused = nil
		if err := t.foresee(ctx, ids); err != nil {
			return err
		}
		for i := range results {
			reason, err := t.finish(ctx, workerID, &results[i])
			if err != nil {
				return err
			}
			if reason != "" {
				refused = append(refused, dispatch.Refusal{Held: results[i].Held, Reason: reason})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refused, nil
}

// finish takes one result; reason is empty unless it is refused.
func (t *turn) finish(ctx context.Context, workerID string, r *dispatch.Result) (reason string, err error) {
	j, reason, err := t.heldJob(ctx, workerID, r.Held)
	if j == nil {
		return reason, err
	}
	if reason != "" {
		taken, err := t.takenBefore(ctx, j, workerID, r)
		if err != nil || taken {
			return "", err
		}
		return reason, t.refuseLate(j, "finish", reason, r.Held)
	}
	details, bad := checkResult(r)
	for i := range r.Happenings {
		if bad != nil {
			break
		}
		bad = t.take(j, &r.Happenings[i])
	}
	if bad != nil {
		return t.refuseInvalid(ctx, j, "finish", bad, r.Held)
	}
	record := r.Record
	record.JobID, record.Attempt, record.Fence, record.Worker = j.ID, j.Attempt, j.Fence, workerID
	if err := t.tx.Records().Add(ctx, record, r.Artifacts, r.Inline); err != nil {
		return "", fmt.Errorf("store the record of job %s: %w", j.ID, err)
	}
	return "", t.settle(ctx, j, r.Success, details, resultOf(&record))
}

// takenBefore reports whether this result was taken already: then there is a
// record of its try, under its number, by its worker.
func (t *turn) takenBefore(ctx context.Context, j *job.Job, workerID string, r *dispatch.Result) (bool, error) {
	attempt := r.Record.Attempt
	if r.Fence == j.Fence {
		attempt = j.Attempt
	}
	if attempt < 1 {
		return false, nil
	}
	old, err := t.tx.Records().Get(ctx, j.ID, attempt)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the record of job %s: %w", j.ID, err)
	}
	return old.Fence == r.Fence && old.Worker == workerID, nil
}

// checkResult refuses what the store could not keep: one bad result must not
// hold up the others of its call for ever.
func checkResult(r *dispatch.Result) (details json.RawMessage, err error) {
	if len(r.Artifacts) > dispatch.MaxArtifacts {
		return nil, fault.Field("artifacts", "at most %d fit in one result", dispatch.MaxArtifacts)
	}
	seen := make(map[string]bool, len(r.Artifacts))
	for _, a := range r.Artifacts {
		if err := job.CheckPath("artifacts", a.Name); err != nil {
			return nil, err
		}
		if seen[a.Name] || a.Bytes < 0 || len(a.SHA256) > 64 {
			return nil, fault.Field("artifacts", "%q comes twice, or is not described right", clip(a.Name, 80))
		}
		seen[a.Name] = true
	}
	return job.CheckObject("details", r.Details, MaxDetailsBytes)
}

// Complete takes a result from a worker that speaks for itself, without a
// record. Without a fencing number it is accepted only while the lease runs.
func (q *Queue) Complete(ctx context.Context, caller policy.Caller, id, workerID string, fence *int64, success bool, details json.RawMessage) (job.Job, error) {
	details, err := job.CheckObject("details", details, MaxDetailsBytes)
	if err != nil {
		return job.Job{}, err
	}
	return q.decide(ctx, caller, "complete", id, func(t *turn, j *job.Job) error {
		if err := t.demandLease(j, "complete", workerID, fence, job.InProgress); err != nil {
			return err
		}
		return t.settle(ctx, j, success, details, nil)
	})
}

// SubmitWork hands a job's work over for validation, whether its task asked
// for validation or not. Its lease is held to what Complete demands.
func (q *Queue) SubmitWork(ctx context.Context, caller policy.Caller, id, workerID string, fence *int64, details json.RawMessage) (job.Job, error) {
	details, err := job.CheckObject("details", details, MaxDetailsBytes)
	if err != nil {
		return job.Job{}, err
	}
	return q.decide(ctx, caller, "submit", id, func(t *turn, j *job.Job) error {
		if err := t.demandLease(j, "submit", workerID, fence, job.InProgress); err != nil {
			return err
		}
		j.Details = details
		return t.submit(j, nil)
	})
}

// settle draws what follows from a result that was taken.
func (t *turn) settle(ctx context.Context, j *job.Job, success bool, details json.RawMessage, res *result) error {
	j.Details = details
	switch {
	case success && j.Validate:
		return t.submit(j, res)
	case success:
		return t.end(ctx, j, job.Completed, job.OutcomeOK, event.JobCompleted, t.tried(j, res))
	default:
		return t.fail(ctx, j, res)
	}
}

// tried says which try an event is about.
func (t *turn) tried(j *job.Job, res *result) facts {
	return facts{Worker: j.Worker, Attempt: j.Attempt, Fence: j.Fence, Result: res}
}

// submit waits for a validator.
func (t *turn) submit(j *job.Job, res *result) error {
	f := t.tried(j, res)
	j.Submitter = j.Worker
	t.free(j)
	return t.move(j, job.Submitted, event.JobSubmitted, f)
}

// fail spends a try. When none is left the job is a dead letter.
func (t *turn) fail(ctx context.Context, j *job.Job, res *result) error {
	j.Failures++
	f := t.tried(j, res)
	f.Failures = j.Failures
	if halt := t.q.cfg.Halt(j.ProjectID); halt.Killed {
		f.Reason = halt.Reason
		return t.end(ctx, j, job.Failed, job.OutcomeKilled, event.JobFailed, f)
	}
	if j.Failures <= j.MaxRetries {
		f.Reason = "failed"
		return t.requeue(j, t.q.backoff(j.Failures), f)
	}
	f.Reason = "retries_used_up"
	return t.end(ctx, j, job.Failed, job.OutcomeFailed, event.JobFailed, f)
}
