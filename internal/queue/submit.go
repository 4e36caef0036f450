package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trace"
)

// maxSourceBytes bounds the document that is kept of a PRD.
const maxSourceBytes = 16 << 20

// task is what the record keeps of one task when it is made. The payload is
// not repeated here: the event of the root holds the whole document.
type task struct {
	Key            string   `json:"key,omitempty"`
	Title          string   `json:"title"`
	Role           string   `json:"role"`
	Type           string   `json:"type,omitempty"`
	Priority       int      `json:"priority,omitempty"`
	DependsOn      []string `json:"depends_on,omitempty"` // ids
	TimeoutSeconds float64  `json:"timeout_seconds"`
	MaxRetries     int      `json:"max_retries"`
	Validate       bool     `json:"validate,omitempty"`
	SessionID      string   `json:"session_id,omitempty"`
}

// Submit stores a PRD: its root, one job per task, their events, and the
// answer, in one transaction. The same idempotency key with the same request
// gives the same answer again; with another request it is a Conflict with code
// "idempotency_mismatch". An empty key asks for neither.
func (q *Queue) Submit(ctx context.Context, caller policy.Caller, prd job.PRD, idempotencyKey, requestDigest string) (job.Submission, error) {
	if len(prd.Source) > 0 {
		if _, err := job.CheckObject("prd", prd.Source, maxSourceBytes); err != nil {
			return job.Submission{}, err
		}
	}
	// Planned before the transaction, which others wait for.
	root, tasks, err := prd.Plan(caller.ID, q.now())
	if err != nil {
		return job.Submission{}, err
	}
	root.Trace = trace.From(ctx).String()
	for i := range tasks {
		tasks[i].Trace = root.Trace
	}
	var answer job.Submission
	err = q.update(ctx, caller.ID, func(t *turn) error {
		if idempotencyKey != "" {
			old, err := t.replay(ctx, caller.ID, idempotencyKey, requestDigest)
			if err != nil {
				return err
			}
			if old != nil {
				answer = *old
				return nil
			}
		}
		answer, err = t.add(ctx, root, tasks, prd.Source)
		if err != nil || idempotencyKey == "" {
			return err
		}
		return t.keep(ctx, caller.ID, idempotencyKey, requestDigest, answer)
	})
	if err != nil {
		return job.Submission{}, err
	}
	return answer, nil
}

// add stores a root and its tasks. It works on copies, because a transaction
// can run more than once.
func (t *turn) add(ctx context.Context, root job.Job, tasks []job.Job, source json.RawMessage) (job.Submission, error) {
	answer := job.Submission{RootID: root.ID, JobIDs: make([]string, 0, len(tasks))}
	fresh := make([]*job.Job, 0, len(tasks)+1)
	fresh = append(fresh, &root)
	if err := t.record(&root, event.JobCreated, facts{To: root.State, Title: root.Title, PRD: job.HidePlanEnv(source)}); err != nil {
		return job.Submission{}, err
	}
	for i := range tasks {
		j := tasks[i]
		fresh = append(fresh, &j)
		answer.JobIDs = append(answer.JobIDs, j.ID)
		if err := t.record(&j, event.JobCreated, facts{To: j.State, Task: taskOf(&j)}); err != nil {
			return job.Submission{}, err
		}
	}
	var err error
	if answer.Assigned, err = t.assignFresh(ctx, fresh[1:]); err != nil {
		return job.Submission{}, err
	}
	if err := t.tx.Jobs().Add(ctx, fresh...); err != nil {
		return job.Submission{}, fmt.Errorf("store PRD: %w", err)
	}
	t.stored()
	return answer, nil
}

// assignFresh does for new jobs what the schedule would do right after, and
// reports whether it did.
func (t *turn) assignFresh(ctx context.Context, fresh []*job.Job) (bool, error) {
	fence := t.q.leading.Load()
	if fence == 0 || t.q.cfg.ProjectCap != 0 {
		return false, nil
	}
	if err := t.tx.Leaders().Check(ctx, fence); err != nil {
		if fault.Is(err, fault.Conflict) {
			return false, nil // another leads by now, and will schedule it
		}
		return false, err
	}
	submitter := t.actor
	t.actor = policy.System().ID
	defer func() { t.actor = submitter }()
	for _, j := range fresh {
		if j.Waiting > 0 || j.ReadyAt.After(t.now) {
			continue
		}
		if err := t.bind(ctx, j, "", false); err != nil {
			return false, err
		}
	}
	return true, nil
}

func taskOf(j *job.Job) *task {
	return &task{
		Key: j.Key, Title: j.Title, Role: j.Role, Type: j.Type, Priority: j.Priority, DependsOn: j.DependsOn,
		TimeoutSeconds: j.Timeout.Round(time.Millisecond).Seconds(), MaxRetries: j.MaxRetries, Validate: j.Validate, SessionID: j.SessionID,
	}
}

// replay returns the answer that a key got before, or nil.
func (t *turn) replay(ctx context.Context, owner, key, request string) (*job.Submission, error) {
	reply, err := t.tx.Replies().Get(ctx, owner, key)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up idempotency key: %w", err)
	}
	if reply.Request != request {
		return nil, fault.New(fault.Conflict, "the idempotency key was used before with another request; use a new key for a new request").
			WithCode("idempotency_mismatch")
	}
	var answer job.Submission
	if err := json.Unmarshal(reply.Body, &answer); err != nil {
		return nil, fmt.Errorf("read the kept reply: %w", err)
	}
	answer.Replayed = true
	return &answer, nil
}

func (t *turn) keep(ctx context.Context, owner, key, request string, answer job.Submission) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("write the reply to keep: %w", err)
	}
	if err := t.tx.Replies().Put(ctx, owner, key, store.Reply{Request: request, Body: body, At: t.now}); err != nil {
		return fmt.Errorf("keep the reply: %w", err)
	}
	return nil
}
