package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Status is where a job stands.
type Status string

// The states of a job.
const (
	Queued     Status = "QUEUED"
	Assigned   Status = "ASSIGNED"
	InProgress Status = "IN_PROGRESS"
	Submitted  Status = "SUBMITTED"
	Validating Status = "VALIDATING"
	Completed  Status = "COMPLETED"
	Failed     Status = "FAILED"
	Escalated  Status = "ESCALATED"
)

// Ended reports whether nothing more happens to the job by itself.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Escalated }

// PRD is a plan with tasks.
type PRD struct {
	ProjectID int64  `json:"project_id"`
	Title     string `json:"title,omitempty"`
	Tasks     []Task `json:"tasks"`
}

// Task is one task of a PRD; each becomes a job. Zero fields take the server's
// defaults.
type Task struct {
	Key            string         `json:"key,omitempty"`
	Title          string         `json:"title,omitempty"`
	Role           string         `json:"role,omitempty"`
	Type           string         `json:"type,omitempty"`
	Payload        map[string]any `json:"payload,omitempty"`
	Priority       int            `json:"priority,omitempty"`
	DependsOn      []string       `json:"depends_on,omitempty"`
	TimeoutSeconds int            `json:"timeout_seconds,omitempty"`
	MaxRetries     *int           `json:"max_retries,omitempty"`
	Validate       bool           `json:"validate,omitempty"`
	SessionID      string         `json:"session_id,omitempty"`
}

// Submission is the answer to a PRD: its root, and one job per task.
type Submission struct {
	RootJobID string   `json:"root_job_id"`
	JobIDs    []string `json:"job_ids"`
	Message   string   `json:"message"`
}

// Job is a job as the server shows it.
type Job struct {
	ID             string          `json:"id"`
	RootJobID      string          `json:"root_job_id"`
	ProjectID      int64           `json:"project_id"`
	SessionID      *string         `json:"session_id"`
	Key            *string         `json:"key"`
	Title          string          `json:"title"`
	Role           string          `json:"role"`
	Type           *string         `json:"type"`
	Payload        json.RawMessage `json:"payload"`
	Priority       int             `json:"priority"`
	DependsOn      []string        `json:"depends_on"`
	Status         Status          `json:"status"`
	Outcome        *string         `json:"outcome"`
	Details        json.RawMessage `json:"details"`
	AssignedModel  *string         `json:"assigned_model"`
	WorkerID       *string         `json:"worker_id"`
	Fence          int64           `json:"fence"`
	LeaseUntil     *time.Time      `json:"lease_until"`
	Attempt        int             `json:"attempt"`
	RetryCount     int             `json:"retry_count"`
	MaxRetries     int             `json:"max_retries"`
	TimeoutSeconds int64           `json:"timeout_seconds"`
	Validate       bool            `json:"validate"`
	CreatedAt      time.Time       `json:"created_at"`
	StartedAt      *time.Time      `json:"started_at"`
	CompletedAt    *time.Time      `json:"completed_at"`
	UpdatedAt      time.Time       `json:"updated_at"`
}

// IsRoot reports whether the job stands for a whole PRD.
func (j Job) IsRoot() bool { return j.ID == j.RootJobID }

// SubmitPRD submits a plan. idempotencyKey makes it safe to submit again: the
// same key gets the same answer and makes nothing new. "" makes a fresh key,
// so that this call can repeat itself while the server cannot be reached.
func (c *Client) SubmitPRD(ctx context.Context, prd PRD, idempotencyKey string) (Submission, error) {
	raw, err := json.Marshal(prd)
	if err != nil {
		return Submission{}, fmt.Errorf("write PRD: %w", err)
	}
	return c.SubmitDocument(ctx, raw, idempotencyKey)
}

// submitTries bounds how often a submission is repeated while the server is
// away.
const submitTries = 4

// SubmitDocument submits a plan that is a JSON document already. The server
// keeps fields that it does not know.
func (c *Client) SubmitDocument(ctx context.Context, doc json.RawMessage, idempotencyKey string) (Submission, error) {
	if idempotencyKey == "" {
		idempotencyKey = rand.Text()
	}
	r := request{method: http.MethodPost, path: []string{"prds"}, body: doc, header: http.Header{"Idempotency-Key": {idempotencyKey}}}
	var s Submission
	var err error
	for try := range submitTries {
		if try > 0 {
			if err := pause(ctx, backoff(try)); err != nil {
				return Submission{}, err
			}
		}
		if _, err = c.call(ctx, r, &s); !passing(err) {
			break
		}
	}
	return s, err
}

// passing reports whether trying again later can help.
func passing(err error) bool {
	var u *Unreachable
	var p *Problem
	return errors.As(err, &u) || errors.As(err, &p) &&
		(p.Status == http.StatusBadGateway || p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout)
}

// backoff is the wait before the n-th try, from 1 on.
func backoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n-1, 10), 5*time.Second)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	var j Job
	_, err := c.call(ctx, get("jobs", id), &j)
	return j, err
}

// JobFilter chooses jobs. Zero fields choose all.
type JobFilter struct {
	Status    Status
	ProjectID *int64
	Role      string
	RootJobID string
	PageSize  int // 0 is the server's
}

func (f JobFilter) query() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("status", string(f.Status))
	set("role", f.Role)
	set("root_job_id", f.RootJobID)
	if f.ProjectID != nil {
		q.Set("project_id", strconv.FormatInt(*f.ProjectID, 10))
	}
	if f.PageSize > 0 {
		q.Set("limit", strconv.Itoa(f.PageSize))
	}
	return q
}

// Jobs returns jobs, newest first, page by page as the loop asks for them. It
// ends after the first error.
func (c *Client) Jobs(ctx context.Context, f JobFilter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for q := f.query(); q != nil; {
			var page []Job
			r := get("jobs")
			r.query = q
			header, err := c.call(ctx, r, &page)
			if err != nil {
				yield(Job{}, err)
				return
			}
			for _, j := range page {
				if !yield(j, nil) {
					return
				}
			}
			q = nextQuery(header)
		}
	}
}

// nextQuery returns the query of the next page from a Link header. Only the
// query is taken: the path and the server are ours to know.
func nextQuery(h http.Header) url.Values {
	for _, value := range h.Values("Link") {
		target, params, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(value), "<"), ">")
		if !ok || !strings.Contains(params, `rel="next"`) {
			continue
		}
		if u, err := url.Parse(target); err == nil && u.RawQuery != "" {
			return u.Query()
		}
	}
	return nil
}

// Cancel cancels a job, and stops it where it runs.
func (c *Client) Cancel(ctx context.Context, id, reason string) (Job, error) {
	body := map[string]string{}
	if reason != "" {
		body["reason"] = reason
	}
	return c.act(ctx, id, "cancel", body)
}

// Retry gives a job that failed another life.
func (c *Client) Retry(ctx context.Context, id string) (Job, error) {
	return c.act(ctx, id, "retry", map[string]string{})
}

func (c *Client) act(ctx context.Context, id, verb string, body any) (Job, error) {
	r, err := post(body, "jobs", id, verb)
	if err != nil {
		return Job{}, err
	}
	var j Job
	_, err = c.call(ctx, r, &j)
	return j, err
}
