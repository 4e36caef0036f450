package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

// maxReason bounds why a job is cancelled.
const maxReason = 1000

// Assignment says whom a job is bound to.
type Assignment struct {
	Model string `json:"model,omitempty" maxLength:"100" doc:"The worker or model; as the role map says when empty."`
}

// AssignBody is an Assignment, or a bare string that is the model.
type AssignBody struct{ Assignment }

func (m *AssignBody) bind(b *binding, path string, raw json.RawMessage) {
	if kind(raw) == "a string" {
		m.Model = text(raw)
		return
	}
	b.object(path, raw, reflect.ValueOf(&m.Assignment).Elem())
}

// Schema describes both forms.
func (AssignBody) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, Description: "The worker or model."},
		r.Schema(reflect.TypeFor[Assignment](), true, "Assignment"),
	}}
}

// CancelBody says why.
type CancelBody struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the record."`
}

// EmptyBody is an object without fields.
type EmptyBody struct{}

type assignInput struct {
	JobPath
	Model string `query:"model" maxLength:"100" doc:"The worker or model, unless the body says so."`
}

func (a *API) registerControl() {
	post := func(verb, id, summary string, body any) route {
		return route{
			method: http.MethodPost, path: "/jobs/{id}/" + verb, action: policy.Control, id: id, tag: "jobs",
			summary: summary, body: body, optional: true,
		}
	}
	register(a, post("assign", "assignJob", "Bind a job to a worker or model", AssignBody{}), a.assign)
	register(a, post("cancel", "cancelJob", "Cancel a job, and stop it where it runs", CancelBody{}), a.cancel)
	register(a, post("retry", "retryJob", "Give a failed job another life", EmptyBody{}), a.retry)
}

func (a *API) assign(ctx context.Context, in *assignInput) (*JobOutput, error) {
	var b AssignBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	model, err := one("model", in.Model, b.Model)
	if err != nil {
		return nil, err
	}
	if err := checkWord("model", model); err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.Assign(ctx, in.ID, model))
}

func (a *API) cancel(ctx context.Context, in *JobPath) (*JobOutput, error) {
	var b CancelBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	if len(b.Reason) > maxReason {
		return nil, fault.Field("reason", "is %d bytes long; at most %d are allowed", len(b.Reason), maxReason)
	}
	return answerJob(a.cfg.Manager.Cancel(ctx, in.ID, b.Reason))
}

func (a *API) retry(ctx context.Context, in *JobPath) (*JobOutput, error) {
	if err := in.maybeInto(&EmptyBody{}); err != nil {
		return nil, err
	}
	return answerJob(a.cfg.Manager.Retry(ctx, in.ID))
}
