package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// JobBody is a job as clients see it. What is not there is null.
type JobBody struct {
	ID             string     `json:"id" format:"uuid"`
	RootJobID      string     `json:"root_job_id" format:"uuid" doc:"The job that stands for the whole plan; its own id for that job itself."`
	ProjectID      int64      `json:"project_id"`
	SessionID      *string    `json:"session_id"`
	Key            *string    `json:"key" doc:"The key of the task within its plan."`
	Title          string     `json:"title"`
	Role           string     `json:"role"`
	Type           *string    `json:"type"`
	Payload        Object     `json:"payload"`
	Priority       int        `json:"priority"`
	DependsOn      []string   `json:"depends_on" nullable:"false" doc:"Ids of jobs that must be completed before."`
	Status         job.State  `json:"status" enum:"QUEUED,ASSIGNED,IN_PROGRESS,SUBMITTED,VALIDATING,COMPLETED,FAILED,ESCALATED"`
	Outcome        *string    `json:"outcome" enum:"ok,failed,cancelled,dependency_failed,lost,rejected" doc:"Why an ended job ended."`
	Details        Object     `json:"details" doc:"What the worker said at the end."`
	AssignedModel  *string    `json:"assigned_model" doc:"The worker or model that it is bound to, or that holds it."`
	WorkerID       *string    `json:"worker_id" doc:"Who holds it, or held it last."`
	Fence          int64      `json:"fence" doc:"The number of the lease; an older number is refused."`
	LeaseUntil     *time.Time `json:"lease_until"`
	Attempt        int        `json:"attempt" doc:"How often it was given out."`
	RetryCount     int        `json:"retry_count" doc:"How often it was given back to the queue."`
	MaxRetries     int        `json:"max_retries"`
	TimeoutSeconds int64      `json:"timeout_seconds"`
	Validate       bool       `json:"validate"`
	CreatedAt      time.Time  `json:"created_at"`
	StartedAt      *time.Time `json:"started_at"`
	CompletedAt    *time.Time `json:"completed_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

func jobBody(j job.Job) JobBody {
	b := JobBody{
		ID: j.ID, RootJobID: j.RootID, ProjectID: j.ProjectID, SessionID: orNull(j.SessionID), Key: orNull(j.Key),
		Title: j.Title, Role: j.Role, Type: orNull(j.Type), Payload: Object(j.Payload), Priority: j.Priority,
		DependsOn: j.DependsOn, Status: j.State, Outcome: orNull(string(j.Outcome)), Details: Object(j.Details),
		AssignedModel: orNull(j.AssignedModel), WorkerID: orNull(j.Worker), Fence: j.Fence, LeaseUntil: timeOrNull(j.LeaseUntil),
		Attempt: j.Attempt, RetryCount: j.RetryCount(), MaxRetries: j.MaxRetries, TimeoutSeconds: int64(j.Timeout / time.Second),
		Validate: j.Validate, CreatedAt: j.CreatedAt.UTC(), StartedAt: timeOrNull(j.StartedAt),
		CompletedAt: timeOrNull(j.CompletedAt), UpdatedAt: j.UpdatedAt.UTC(),
	}
	if len(b.Payload) == 0 {
		b.Payload = Object(`{}`)
	}
	if b.DependsOn == nil {
		b.DependsOn = []string{}
	}
	return b
}

func jobBodies(jobs []job.Job) []JobBody {
	bodies := make([]JobBody, 0, len(jobs))
	for _, j := range jobs {
		j.Payload = job.HideEnv(j.Payload)
		bodies = append(bodies, jobBody(j))
	}
	return bodies
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// JobOutput answers with one job.
type JobOutput struct{ Body JobBody }

func answerJob(j job.Job, err error) (*JobOutput, error) {
	if err != nil {
		return nil, err
	}
	return &JobOutput{Body: jobBody(j)}, nil
}

// Optional is a parameter of which it matters whether it was given.
type Optional[T any] struct {
	Value T
	Set   bool
}

// Schema describes the parameter by its value.
func (o Optional[T]) Schema(r huma.Registry) *huma.Schema {
	return huma.SchemaFromType(r, reflect.TypeFor[T]())
}

// Receiver says where the value goes.
func (o *Optional[T]) Receiver() reflect.Value { return reflect.ValueOf(o).Elem().Field(0) }

// OnParamSet learns whether there was one.
func (o *Optional[T]) OnParamSet(isSet bool, _ any) { o.Set = isSet }

type listJobsInput struct {
	Exchange
	Status    string          `query:"status" doc:"Only jobs in this state, in any case." example:"ASSIGNED"`
	ProjectID Optional[int64] `query:"project_id" doc:"Only jobs of this project."`
	Role      string          `query:"role" maxLength:"100" doc:"Only jobs for this role."`
	RootJobID string          `query:"root_job_id" maxLength:"36" doc:"Only jobs of this plan."`
	Limit     int             `query:"limit" minimum:"1" maximum:"1000" default:"200" doc:"At most so many."`
	Cursor    string          `query:"cursor" maxLength:"100" doc:"Where to go on, from the Link header of the page before."`
}

type listJobsOutput struct {
	Link string    `header:"Link" doc:"The next page, as <URL>; rel=\"next\"; not there on the last."`
	Body []JobBody `nullable:"false"`
}

func (a *API) registerJobs() {
	register(a, route{
		method: http.MethodGet, path: "/jobs", action: policy.Read, id: "listJobs", tag: "jobs", summary: "List jobs, newest first",
	}, a.listJobs)
	register(a, route{
		method: http.MethodGet, path: "/jobs/{id}", action: policy.Read, id: "getJob", tag: "jobs", summary: "Look at a job",
	}, func(ctx context.Context, in *JobPath) (*JobOutput, error) {
		return answerJob(a.cfg.Manager.Job(ctx, in.ID))
	})
}

func (a *API) listJobs(ctx context.Context, in *listJobsInput) (*listJobsOutput, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	f.Limit = in.Limit + 1 // one more, to know whether there is another page
	jobs, err := a.cfg.Manager.Jobs(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &listJobsOutput{}
	if len(jobs) > in.Limit || store.Full(jobs, store.JobBytes) {
		jobs = jobs[:min(len(jobs), in.Limit)]
		out.Link = nextLink(in.r.URL, "cursor", encodeCursor(jobs[len(jobs)-1].Seq))
	}
	out.Body = jobBodies(jobs)
	return out, nil
}

func (in *listJobsInput) filter() (store.JobFilter, error) {
	f := store.JobFilter{Role: in.Role, RootID: in.RootJobID}
	if in.Status != "" {
		f.State = job.State(strings.ToUpper(in.Status))
		if !f.State.Valid() {
			return f, fault.Field("query.status", "%q is not a state; the states are %s", clip(in.Status, 60), stateList()).WithCode("unknown_state")
		}
	}
	if in.ProjectID.Set {
		f.ProjectID = &in.ProjectID.Value
	}
	for field, s := range map[string]string{"query.role": in.Role, "query.root_job_id": in.RootJobID} {
		if err := checkPrintable(field, s); err != nil {
			return f, err
		}
	}
	var err error
	f.Before, err = decodeCursor(in.Cursor)
	return f, err
}

func stateList() string {
	words := make([]string, 0, len(job.States()))
	for _, s := range job.States() {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// nextLink names the next page: the same request with one parameter changed.
func nextLink(u *url.URL, name, value string) string {
	q := u.Query()
	q.Set(name, value)
	next := url.URL{Path: u.Path, RawQuery: q.Encode()}
	return "<" + next.String() + `>; rel="next"`
}

// cursorPrefix tells our cursors from whatever else is sent as one.
const cursorPrefix = "j1:"

func encodeCursor(seq int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorPrefix + strconv.FormatInt(seq, 10)))
}

// decodeCursor returns the place that a cursor names; 0 for none.
func decodeCursor(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if digits, ok := strings.CutPrefix(string(raw), cursorPrefix); err == nil && ok {
		if seq, err := strconv.ParseInt(digits, 10, 64); err == nil && seq > 0 {
			return seq, nil
		}
	}
	return 0, fault.Field("query.cursor", "is not a cursor of ours; take it from the Link header of the page before").WithCode("bad_cursor")
}
