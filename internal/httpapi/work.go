package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Bounds of what workers say over plain HTTP.
const (
	maxDetails = 1 << 20
	maxChunk   = 64 << 10
)

// WorkerPath is the input of an operation by a worker on one job.
type WorkerPath struct {
	JobPath
	WorkerID string `query:"worker_id" maxLength:"100" doc:"Who speaks, unless the body says so."`
}

// Holder says who holds a job, and under which number.
type Holder struct {
	WorkerID string `json:"worker_id,omitempty" maxLength:"100" doc:"Who speaks."`
	Fence    *int64 `json:"fence,omitempty" minimum:"0" doc:"The number of the lease."`
}

// HolderBody is a Holder, or a bare string that is the worker's id.
type HolderBody struct{ Holder }

func (h *HolderBody) bind(b *binding, path string, raw json.RawMessage) {
	if kind(raw) == "a string" {
		h.WorkerID = text(raw)
		return
	}
	b.object(path, raw, reflect.ValueOf(&h.Holder).Elem())
}

// Schema describes both forms.
func (HolderBody) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, Description: "The worker's id."},
		r.Schema(reflect.TypeFor[Holder](), true, "Holder"),
	}}
}

// CompleteBody is the result of a try.
type CompleteBody struct {
	Success  *bool  `json:"success" nullable:"false" doc:"Whether the work is done. If not, the job is tried again while tries remain."`
	Details  Object `json:"details,omitempty" doc:"Whatever the worker has to say, such as {\"snapshot\": \"/path\"}."`
	WorkerID string `json:"worker_id,omitempty" maxLength:"100" doc:"Who speaks."`
	Fence    *int64 `json:"fence,omitempty" minimum:"0" doc:"The number of the lease. Without it the result is taken only while the lease is current."`
}

// SubmitWorkBody hands work over for validation.
type SubmitWorkBody struct {
	Details  Object `json:"details,omitempty" doc:"Whatever the worker has to say."`
	WorkerID string `json:"worker_id,omitempty" maxLength:"100" doc:"Who speaks."`
	Fence    *int64 `json:"fence,omitempty" minimum:"0" doc:"The number of the lease."`
}

// StreamBody is a piece of progress.
type StreamBody struct {
	Chunk    string `json:"chunk" maxLength:"65536" doc:"Text of at most 64 KiB."`
	Final    bool   `json:"final,omitempty" doc:"Whether it is the last."`
	WorkerID string `json:"worker_id,omitempty" maxLength:"100" doc:"Who speaks."`
}

func (a *API) registerWork() {
	post := func(verb, id, summary, detail string, body, example any, optional bool) route {
		return route{
			method: http.MethodPost, path: "/jobs/{id}/" + verb, action: policy.Work, id: id, tag: "work",
			summary: summary, detail: detail, body: body, example: example, optional: optional,
		}
	}
	register(a, post("claim", "claimJob", "Claim a job", "One winner; the others get 409. The worker's id comes from the query, a bare JSON string, or an object. The answer has the fence and the deadline of the lease.", HolderBody{}, "worker_default", true), a.claim)
	register(a, post("heartbeat", "heartbeatJob", "Extend the lease of a job", "", HolderBody{}, "worker_default", true), a.heartbeat)
	register(a, post("stream", "streamJob", "Report progress of a job", "Stored as an event of type job.stream.", StreamBody{}, map[string]any{"chunk": "half way there", "final": false}, false), a.stream)
	register(a, post("complete", "completeJob", "Report the result of a job", "", CompleteBody{}, map[string]any{"success": true, "details": map[string]any{}}, false), a.complete)
	register(a, post("submit", "submitJob", "Hand a job over for validation", "", SubmitWorkBody{}, map[string]any{"details": map[string]any{}}, true), a.submitWork)
	register(a, post("validate", "validateJob", "Judge submitted work", "All ticks passed with a confidence of at least 0.7 completes the job; anything else escalates it. Whoever submitted the work cannot judge it.", ValidateBody{}, map[string]any{"worker_id": "validator_service", "ticks": map[string]any{"tests": true}, "confidence": 0.9}, false), a.validate)
}

func (a *API) claim(ctx context.Context, in *WorkerPath) (*JobOutput, error) {
	var b HolderBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	worker, err := in.worker(b.WorkerID, true)
	if err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.Claim(ctx, in.ID, worker))
}

func (a *API) heartbeat(ctx context.Context, in *WorkerPath) (*JobOutput, error) {
	var b HolderBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	worker, err := in.worker(b.WorkerID, true)
	if err != nil {
		return nil, err
	}
	if err := checkFence(b.Fence); err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.Heartbeat(ctx, in.ID, worker, b.Fence))
}

func (a *API) stream(ctx context.Context, in *WorkerPath) (*JobOutput, error) {
	var b StreamBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	if len(b.Chunk) > maxChunk {
		return nil, fault.Field("chunk", "is %d bytes long; at most %d are allowed", len(b.Chunk), maxChunk)
	}
	worker, err := in.worker(b.WorkerID, false)
	if err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.Stream(ctx, in.ID, worker, b.Chunk, b.Final))
}

func (a *API) complete(ctx context.Context, in *WorkerPath) (*JobOutput, error) {
	var b CompleteBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	worker, err := in.result(b.WorkerID, b.Fence, b.Details)
	if err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.Complete(ctx, in.ID, worker, b.Fence, *b.Success, json.RawMessage(b.Details)))
}

func (a *API) submitWork(ctx context.Context, in *WorkerPath) (*JobOutput, error) {
	var b SubmitWorkBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	worker, err := in.result(b.WorkerID, b.Fence, b.Details)
	if err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.SubmitWork(ctx, in.ID, worker, b.Fence, json.RawMessage(b.Details)))
}

func (a *API) validate(ctx context.Context, in *WorkerPath) (*JobOutput, error) {
	var b ValidateBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	worker, err := in.worker(b.WorkerID, true)
	if err != nil {
		return nil, err
	}
	v := job.Validation{WorkerID: worker, Ticks: b.Ticks, Confidence: *b.Confidence}
	if err := v.Check(); err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.Validate(ctx, in.ID, v))
}

// worker returns who speaks.
func (in *WorkerPath) worker(body string, demanded bool) (string, error) {
	worker, err := one("worker_id", in.WorkerID, body)
	if err != nil {
		return "", err
	}
	if demanded {
		return worker, demandWord("worker_id", worker)
	}
	return worker, checkWord("worker_id", worker)
}

// result checks what a result comes with, and returns who speaks.
func (in *WorkerPath) result(worker string, fence *int64, details Object) (string, error) {
	if err := checkFence(fence); err != nil {
		return "", err
	}
	if len(details) > maxDetails {
		return "", fault.Field("details", "is %d bytes long; at most %d are allowed", len(details), maxDetails)
	}
	return in.worker(worker, false)
}

func checkFence(fence *int64) error {
	if fence != nil && *fence < 0 {
		return fault.Field("fence", "must not be negative")
	}
	return nil
}
