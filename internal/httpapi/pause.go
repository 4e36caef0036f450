package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/policy"
)

// Organisation pauses everything at once. Each call finds its caller in ctx.
type Organisation interface {
	Pause(ctx context.Context) (policy.Pause, error)
	SetPause(ctx context.Context, paused bool, reason string) (policy.Pause, error)
}

// PauseReasonBody says why.
type PauseReasonBody struct {
	Reason string `json:"reason" maxLength:"1000" doc:"Why; it is on record." example:"an incident is being looked into"`
}

// OrganisationBody says whether the organisation is paused.
type OrganisationBody struct {
	Paused    bool       `json:"paused"`
	Reason    *string    `json:"reason" doc:"Of the last change; null before the first."`
	Actor     *string    `json:"actor" doc:"Who changed it last."`
	ChangedAt *time.Time `json:"changed_at"`
}

type (
	pauseInput  struct{ Exchange }
	pauseOutput struct{ Body OrganisationBody }
)

func (a *API) registerPause() {
	register(a, route{
		method: http.MethodGet, path: "/admin/pause", action: policy.Read, id: "getPause", tag: "governance", summary: "Say whether the organisation is paused",
	}, func(ctx context.Context, _ *struct{}) (*pauseOutput, error) {
		p, err := a.cfg.Access.Pause(ctx)
		return pauseAnswer(p), err
	})
	register(a, route{
		method: http.MethodPost, path: "/admin/pause", action: policy.Stop, id: "pauseOrganisation", tag: "governance", summary: "Pause the organisation",
		detail: "From now on, also after a restart, plans, runs, sandboxes, sessions, machines, builds and fleet workers are refused with 503 and the code ORG_PAUSED, and the queue hands out nothing. What runs goes on, and everything can be looked at.",
		body:   PauseReasonBody{},
	}, a.setPause(true))
	register(a, route{
		method: http.MethodPost, path: "/admin/resume", action: policy.Rearm, id: "resumeOrganisation", tag: "governance", summary: "Let the organisation go on",
		body: PauseReasonBody{},
	}, a.setPause(false))
}

func (a *API) setPause(paused bool) func(context.Context, *pauseInput) (*pauseOutput, error) {
	return func(ctx context.Context, in *pauseInput) (*pauseOutput, error) {
		var body PauseReasonBody
		if err := in.into(&body); err != nil {
			return nil, err
		}
		p, err := a.cfg.Access.SetPause(ctx, paused, body.Reason)
		return pauseAnswer(p), err
	}
}

func pauseAnswer(p policy.Pause) *pauseOutput {
	return &pauseOutput{Body: OrganisationBody{Paused: p.Paused, Reason: orNull(p.Reason), Actor: orNull(p.Actor), ChangedAt: timeOrNull(p.At)}}
}
