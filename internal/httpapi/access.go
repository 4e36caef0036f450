package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/policy"
)

// maxSecret bounds what is taken for a key.
const maxSecret = 512

// admit says who asks, and refuses who may not. It returns the context that
// carries the caller.
func (a *API) admit(r *http.Request, action policy.Action) (context.Context, error) {
	ctx := r.Context()
	if action == public {
		return ctx, nil
	}
	caller, err := a.caller(r)
	if err != nil {
		return nil, err
	}
	guard.NoteCaller(ctx, caller.ID)
	if !caller.May(action) {
		return nil, fault.New(fault.Denied, "A key of kind %q may not do this; it needs the permission %q.", caller.Kind, action)
	}
	return policy.With(ctx, caller), nil
}

func (a *API) caller(r *http.Request) (policy.Caller, error) {
	if !a.cfg.Keys {
		return policy.LocalCaller(), nil
	}
	secret := secretOf(r)
	if secret == "" || len(secret) > maxSecret {
		return policy.Caller{}, fault.New(fault.Unauthenticated,
			"This server asks for a key: send it as \"Authorization: Bearer KEY\" or \"X-API-Key: KEY\".").WithCode("no_key")
	}
	return a.cfg.Manager.Authenticate(r.Context(), secret)
}

func secretOf(r *http.Request) string {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest)
	}
	return strings.TrimSpace(r.Header.Get("X-API-Key"))
}

// admitted lets through who may.
func (a *API) admitted(action policy.Action, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := a.admit(r, action)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx)) //nolint:contextcheck // the caller is put into the request's own context
	})
}

// admission is admitted for the routes that are described to OpenAPI. What is
// no job id at all never reaches the manager.
func (a *API) admission(action policy.Action) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(hc)
		ctx, err := a.admit(r, action)
		if err == nil && strings.Contains(hc.Operation().Path, "{id}") {
			noun := "job"
			if strings.Contains(hc.Operation().Path, "/runs/") {
				noun = "run"
			}
			err = checkID(noun, r.PathValue("id"))
		}
		if err == nil {
			err = checkPath(hc, r)
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		next(huma.WithContext(hc, ctx))
	}
}

func checkID(noun, id string) error {
	if len(id) == 36 && uuid.Validate(id) == nil && id == strings.ToLower(id) {
		return nil
	}
	return fault.New(fault.NotFound, "No %s has the id %q.", noun, clip(id, 60))
}

// refuse answers with a problem and leaves the reason in the log.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	guard.NoteError(r.Context(), err)
	problem.From(err).Write(w)
}

// nowhere answers for paths that do not exist, and for methods that a path
// does not know.
func (a *API) nowhere(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := a.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		problem.New(http.StatusNotFound, "no_such_path", "There is nothing at this path; /docs lists what there is.").Write(w)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem.New(http.StatusMethodNotAllowed, "method_not_allowed", "This path takes "+strings.Join(allowed, ", ")+".").Write(w)
}
