package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// PRDBody is a plan with tasks, as a client sends it. Other fields of its own
// are kept with the plan; a task has none but these.
type PRDBody struct {
	ProjectID int64      `json:"project_id,omitempty" minimum:"0" doc:"The project that the plan belongs to." example:"1"`
	Title     string     `json:"title" minLength:"1" maxLength:"500" doc:"What the plan is about." example:"Test PRD"`
	Tasks     []TaskBody `json:"tasks" minItems:"1" maxItems:"1000" nullable:"false" doc:"What is to be done; each task becomes a job."`
	_         struct{}   `additionalProperties:"true"`
}

// TaskBody is one task of a plan.
type TaskBody struct {
	Key            string   `json:"key,omitempty" maxLength:"100" doc:"Names the task within the plan, for depends_on."`
	Title          string   `json:"title,omitempty" maxLength:"500" doc:"Defaults to the plan's."`
	Role           string   `json:"role,omitempty" maxLength:"100" default:"Employee" doc:"Who should do it."`
	Type           string   `json:"type,omitempty" maxLength:"100" doc:"What sort of task it is, such as IMPLEMENT or TEST."`
	Payload        Object   `json:"payload,omitempty" doc:"What to do: an action (\"create file\", \"write files\", \"exec\", \"run\") and its fields. Without an action it is a \"create file\"."`
	Priority       int      `json:"priority,omitempty" minimum:"-1000" maximum:"1000" doc:"Higher goes first."`
	DependsOn      []string `json:"depends_on,omitempty" maxItems:"1000" nullable:"false" doc:"Keys of tasks that must be completed before."`
	TimeoutSeconds *int64   `json:"timeout_seconds,omitempty" minimum:"1" maximum:"86400" default:"900" doc:"How long one try may take."`
	MaxRetries     *int     `json:"max_retries,omitempty" minimum:"0" maximum:"100" default:"3" doc:"How often it is tried again after it failed."`
	Validate       bool     `json:"validate,omitempty" doc:"Whether a validator must look at the work before it counts."`
	SessionID      string   `json:"session_id,omitempty" maxLength:"100" doc:"The session that the work belongs to."`
}

// AcceptedBody answers a plan.
type AcceptedBody struct {
	RootJobID string   `json:"root_job_id" format:"uuid" doc:"The job that stands for the whole plan."`
	JobIDs    []string `json:"job_ids" nullable:"false" doc:"One job per task, in the order of the tasks."`
	Message   string   `json:"message"`
}

type submitPRDInput struct {
	Exchange
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"Printable characters of your choice. The same key with the same body answers as the first time, and makes nothing twice."`
}

type submitPRDOutput struct {
	Replayed string `header:"Idempotency-Replayed" doc:"\"true\" when this is the answer to an earlier request with the same key."`
	Body     AcceptedBody
}

func (a *API) registerPRDs() {
	register(a, route{
		method: http.MethodPost, path: "/prds", action: policy.Submit, id: "submitPRD", tag: "plans", status: http.StatusCreated,
		summary: "Submit a plan", body: PRDBody{}, example: examplePRD(),
		detail: "Stores a plan (PRD) and one job per task, all or nothing. A body that is not JSON, has a key twice, a NUL character, or more than 64 levels is refused with 422.",
	}, a.submitPRD)
}

func examplePRD() any {
	return map[string]any{"project_id": 1, "title": "Test PRD", "tasks": []any{
		map[string]any{"role": job.DefaultRole, "payload": map[string]any{"action": job.CreateFile}},
	}}
}

func (a *API) submitPRD(ctx context.Context, in *submitPRDInput) (*submitPRDOutput, error) {
	if err := checkPrintable("header.Idempotency-Key", in.IdempotencyKey); err != nil {
		return nil, err
	}
	body, err := in.read()
	if err != nil {
		return nil, err
	}
	prd, err := decodePRD(body)
	if err != nil {
		return nil, err
	}
	s, err := a.cfg.Manager.SubmitPRD(ctx, prd, in.IdempotencyKey, digest(http.MethodPost+" /prds", body))
	if err != nil {
		return nil, err
	}
	out := &submitPRDOutput{Body: AcceptedBody{RootJobID: s.RootID, JobIDs: s.JobIDs, Message: accepted(len(s.JobIDs))}}
	if s.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

func accepted(jobs int) string {
	if jobs == 1 {
		return "The plan is accepted: 1 job is queued."
	}
	return fmt.Sprintf("The plan is accepted: %d jobs are queued.", jobs)
}

// digest tells one request from another under the same idempotency key.
func digest(route string, body []byte) string {
	h := sha256.New()
	_, _ = h.Write([]byte(route + "\n")) // a hash never fails
	_, _ = h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// decodePRD reads a plan. The plan itself is judged by job.PRD.
func decodePRD(body []byte) (job.PRD, error) {
	if body == nil {
		return job.PRD{}, fault.New(fault.Invalid, "The body is empty; send a plan as a JSON object with a title and tasks.").WithCode("no_body")
	}
	var b PRDBody
	if err := bind(body, &b); err != nil {
		return job.PRD{}, err
	}
	prd := job.PRD{ProjectID: b.ProjectID, Title: b.Title, Source: json.RawMessage(body)}
	var faults problem.Faults
	for i, t := range b.Tasks {
		task, err := t.task(i)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		prd.Tasks = append(prd.Tasks, task)
	}
	if len(faults) > 0 {
		return job.PRD{}, faults
	}
	return prd, nil
}

func (t TaskBody) task(i int) (job.Task, *fault.Error) {
	out := job.Task{
		Key: t.Key, Title: t.Title, Role: t.Role, Type: t.Type, Payload: json.RawMessage(t.Payload), Priority: t.Priority,
		DependsOn: t.DependsOn, MaxRetries: t.MaxRetries, Validate: t.Validate, SessionID: t.SessionID,
	}
	if s := t.TimeoutSeconds; s != nil {
		if *s > math.MaxInt64/int64(time.Second) || *s < 0 { // would wrap around to something that looks right
			return job.Task{}, fault.Field(member(element("tasks", i), "timeout_seconds"), "must be from 1 to %d", int(job.MaxTimeout.Seconds()))
		}
		d := time.Duration(*s) * time.Second
		out.Timeout = &d
	}
	return out, nil
}
