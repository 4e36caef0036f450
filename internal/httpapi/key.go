package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Access looks after who may do what. Each call finds its caller in ctx.
type Access interface {
	Organisation
	CreateKey(ctx context.Context, req policy.KeyRequest) (k policy.Key, secret string, err error)
	// Keys lists the keys, oldest first.
	Keys(ctx context.Context) ([]policy.Key, error)
	RevokeKey(ctx context.Context, id string) (policy.Key, error)
	// SandboxToken makes a token that opens what is a sandbox's own.
	SandboxToken(ctx context.Context, id string, ttl time.Duration) (token string, until time.Time, err error)
}

// CreateKeyBody asks for a key.
type CreateKeyBody struct {
	Kind    string       `json:"kind" enum:"admin,director,operator,auditor,viewer,bridge,worker" doc:"What it may do; see docs/access.md."`
	Name    string       `json:"name,omitempty" maxLength:"100" doc:"For people."`
	TTL     *float64     `json:"ttl,omitempty" minimum:"1" doc:"Seconds that it is good for; for ever where it is left out."`
	Actions []ActionName `json:"actions,omitempty" maxItems:"16" nullable:"false" doc:"The only actions that it may take, of those of its kind; all of them where it is left out."`
	Owner   string       `json:"owner,omitempty" maxLength:"64" doc:"For whom it acts: what it makes is theirs, and it sees nothing else."`
	Project int64        `json:"project_id,omitempty" minimum:"0" doc:"The only project in which it sees, changes and makes things; on top of kind, actions and owner."`
}

// ActionName is an action of the policy.
type ActionName string

// KeyBody is a key, without its secret.
type KeyBody struct {
	ID        string       `json:"id"`
	Kind      string       `json:"kind"`
	Name      string       `json:"name"`
	Actions   []ActionName `json:"actions" nullable:"false" doc:"What it may do."`
	Owner     string       `json:"owner,omitempty" doc:"For whom it acts, where it is narrowed to that."`
	Project   *int64       `json:"project_id" doc:"The project that it is narrowed to; null is none."`
	CreatedAt time.Time    `json:"created_at"`
	CreatedBy string       `json:"created_by,omitempty"`
	ExpiresAt *time.Time   `json:"expires_at" doc:"null is never."`
	RevokedAt *time.Time   `json:"revoked_at"`
	UsedAt    *time.Time   `json:"used_at" doc:"To about a minute."`
	Good      bool         `json:"good" doc:"Whether it can be used now."`
}

// NewKeyBody is a key that was just made.
type NewKeyBody struct {
	KeyBody
	Secret string `json:"secret" doc:"What is sent as Authorization: Bearer. It is shown this once: only its hash is kept."`
}

// TokenBody asks for a token of a sandbox.
type TokenBody struct {
	TTL *float64 `json:"ttl,omitempty" minimum:"1" maximum:"86400" doc:"Seconds that it is good for; 3600 where it is left out."`
}

// SandboxTokenBody is a token of a sandbox.
type SandboxTokenBody struct {
	Token     string    `json:"token" doc:"Sent as Authorization: Bearer. It opens what is the sandbox's own, to look at, and ends with the sandbox."`
	ExpiresAt time.Time `json:"expires_at"`
}

type (
	createKeyInput  struct{ Exchange }
	createKeyOutput struct{ Body NewKeyBody }
	listKeysOutput  struct {
		Body []KeyBody `nullable:"false"`
	}
	keyPath struct {
		Key string `path:"key" maxLength:"100" doc:"The id of the key."`
	}
	keyOutput   struct{ Body KeyBody }
	tokenInput  struct{ SandboxPath }
	tokenOutput struct{ Body SandboxTokenBody }
)

func (a *API) registerKeys() {
	register(a, route{
		method: http.MethodPost, path: "/keys", action: policy.Manage, id: "createKey", tag: "access", status: http.StatusCreated, summary: "Make a key",
		detail: "Nobody makes a key that can do more than their own; a key that is narrowed makes none.",
		body:   CreateKeyBody{}, example: map[string]any{"kind": "viewer", "name": "wall display", "ttl": 86400},
	}, a.createKey)
	register(a, route{
		method: http.MethodGet, path: "/keys", action: policy.Manage, id: "listKeys", tag: "access", summary: "List the keys, oldest first",
		detail: "Without their secrets, which nobody has.",
	}, a.listKeys)
	register(a, route{
		method: http.MethodDelete, path: "/keys/{key}", action: policy.Manage, id: "revokeKey", tag: "access", summary: "Revoke a key",
		detail: "It ends at once, at other managers within seconds. The last admin key that does not expire is kept, with 409.",
	}, a.revokeKey)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/token", action: policy.Control, id: "createSandboxToken", tag: "access", status: http.StatusCreated,
		summary: "Make a token for a sandbox", body: TokenBody{}, optional: true,
		detail: "For the programs in it: it lets them look at their own sandbox and its execs, and at nothing else. It ends with the sandbox.",
	}, a.createSandboxToken)
}

func (a *API) createKey(ctx context.Context, in *createKeyInput) (*createKeyOutput, error) {
	var b CreateKeyBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	req := policy.KeyRequest{Kind: policy.Kind(b.Kind), Name: b.Name, Scope: policy.Scope{Owner: b.Owner, Project: b.Project}}
	for _, action := range b.Actions {
		req.Scope.Actions = append(req.Scope.Actions, policy.Action(action))
	}
	if b.TTL != nil {
		const most = 10 * 365 * 24 * 3600
		if *b.TTL < 1 || *b.TTL > most {
			return nil, fault.Field("ttl", "must be from 1 second to ten years")
		}
		req.ExpiresAt = a.cfg.Now().Add(time.Duration(*b.TTL * float64(time.Second)))
	}
	k, secret, err := a.cfg.Access.CreateKey(ctx, req)
	if err != nil {
		return nil, err
	}
	return &createKeyOutput{Body: NewKeyBody{KeyBody: a.keyBody(&k), Secret: secret}}, nil
}

func (a *API) listKeys(ctx context.Context, _ *struct{}) (*listKeysOutput, error) {
	list, err := a.cfg.Access.Keys(ctx)
	if err != nil {
		return nil, err
	}
	out := &listKeysOutput{Body: []KeyBody{}}
	for i := range list {
		out.Body = append(out.Body, a.keyBody(&list[i]))
	}
	return out, nil
}

func (a *API) revokeKey(ctx context.Context, in *keyPath) (*keyOutput, error) {
	k, err := a.cfg.Access.RevokeKey(ctx, in.Key)
	if err != nil {
		return nil, err
	}
	return &keyOutput{Body: a.keyBody(&k)}, nil
}

func (a *API) keyBody(k *policy.Key) KeyBody {
	b := KeyBody{
		ID: k.ID, Kind: string(k.Kind), Name: k.Name, Actions: []ActionName{}, Owner: k.Scope.Owner, CreatedAt: k.CreatedAt.UTC(), CreatedBy: k.CreatedBy,
		ExpiresAt: timeOrNull(k.ExpiresAt), RevokedAt: timeOrNull(k.RevokedAt), UsedAt: timeOrNull(k.UsedAt), Good: k.Good(a.cfg.Now()),
	}
	c := k.Caller()
	if k.Scope.Project != 0 {
		b.Project = &k.Scope.Project
	}
	for _, action := range policy.Actions(k.Kind) {
		if c.May(action) {
			b.Actions = append(b.Actions, ActionName(action))
		}
	}
	return b
}

func (a *API) createSandboxToken(ctx context.Context, in *tokenInput) (*tokenOutput, error) {
	var body TokenBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	ttl := time.Hour
	if body.TTL != nil {
		d, err := seconds("ttl", body.TTL)
		if err != nil {
			return nil, err
		}
		ttl = *d
	}
	token, until, err := a.cfg.Access.SandboxToken(ctx, in.ID, ttl)
	if err != nil {
		return nil, err
	}
	return &tokenOutput{Body: SandboxTokenBody{Token: token, ExpiresAt: until}}, nil
}
