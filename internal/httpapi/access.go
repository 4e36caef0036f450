package httpapi

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/notary"
	"github.com/aurea-dev/aurea/internal/policy"
)

// maxSecret bounds what is taken for a key.
const maxSecret = 512

// directorHeader carries the director's secret.
const directorHeader = "X-Director-Key"

// admit says who asks, and refuses who may not. It returns the context that
// carries the caller.
func (a *API) admit(w http.ResponseWriter, r *http.Request, action policy.Action) (context.Context, error) {
	return a.admitTo(w, r, route{action: action})
}

// admitTo is admit for a route that says more.
func (a *API) admitTo(w http.ResponseWriter, r *http.Request, rt route) (context.Context, error) {
	ctx := r.Context()
	if rt.action == public {
		return ctx, nil
	}
	caller, err := a.caller(r)
	if err != nil {
		return nil, err
	}
	guard.NoteCaller(ctx, caller.Actor())
	if err := a.allow(r, caller, rt); err != nil {
		if a.cfg.Audit != nil && fault.Is(err, fault.Denied) {
			a.cfg.Audit.Deny(ctx, notary.Refusal{Actor: caller.Actor(), Kind: string(caller.Kind), Action: "deny_" + string(rt.action), Target: requestOf(r), Why: err})
		}
		return nil, err
	}
	if err := a.limit(w, caller, rt); err != nil {
		return nil, err
	}
	return policy.With(ctx, caller), nil
}

// allow refuses a caller that a route is not for.
func (a *API) allow(r *http.Request, c policy.Caller, rt route) error {
	switch {
	case c.Kind == policy.Sandbox && rt.own:
		if r.PathValue("sandbox") != c.Sandbox {
			return fault.New(fault.Denied, "The token of a sandbox opens that sandbox and no other.").WithCode("other_sandbox")
		}
		return nil
	case c.Project() != 0 && !ofProjects(r):
		return c.NoProject("the things here")
	case !c.May(rt.action):
		return fault.New(fault.Denied, "A key of kind %q may not do this; it needs the permission %q.", c.Kind, rt.action)
	case c.Kind == policy.Local && a.cfg.DirectorKey != "" && (rt.action == policy.Rearm || rt.action == policy.Purge):
		return fault.New(fault.Denied, "Only a director does this; send the director's key as %q.", directorHeader).WithCode("director_only")
	}
	return nil
}

// ofProjects reports whether what a request is about belongs to projects, so that
// the manager tells those of one from those of another. Whatever is not listed
// is closed to keys that are narrowed to a project.
func ofProjects(r *http.Request) bool {
	_, path, _ := strings.Cut(r.Pattern, "/")
	path = strings.TrimPrefix("/"+path, version) + "/"
	for _, below := range []string{"/prds/", "/jobs/", "/queue/dead/", "/events/", "/ws/", "/sandboxes/", "/snapshots/", "/usage/", "/sessions/", "/run/", "/runs/", "/languages/", "/pool/"} {
		if strings.HasPrefix(path, below) {
			return true
		}
	}
	return false
}

// caller says who sends a request. The director's key makes a director of them
// for this request.
func (a *API) caller(r *http.Request) (policy.Caller, error) {
	secret := r.Header.Get(directorHeader)
	if secret == "" {
		return a.keyCaller(r)
	}
	if a.suspect(r) {
		return policy.Caller{}, a.tooManyFailures()
	}
	given, want := policy.HashKey(secret), policy.HashKey(a.cfg.DirectorKey)
	if a.cfg.DirectorKey == "" || len(secret) > maxSecret || subtle.ConstantTimeCompare(given[:], want[:]) != 1 {
		return policy.Caller{}, a.failed(r, "director", secret, fault.New(fault.Denied, "The director's key is wrong.").WithCode("bad_director_key"))
	}
	director := policy.Caller{Kind: policy.Director, ID: string(policy.Director), Key: string(policy.Director)}
	if a.cfg.Keys && secretOf(r) == "" {
		return director, nil
	}
	c, err := a.keyCaller(r)
	switch {
	case err != nil || c.Kind == policy.Admin && c.Scope.Empty():
		return c, err
	case c.Kind == policy.Local:
		director.ID = c.ID // what is theirs stays theirs
	}
	return director, nil
}

func (a *API) keyCaller(r *http.Request) (policy.Caller, error) {
	if !a.cfg.Keys {
		return policy.LocalCaller(), nil
	}
	secret := secretOf(r)
	if secret == "" || len(secret) > maxSecret {
		return policy.Caller{}, fault.New(fault.Unauthenticated,
			"This server asks for a key: send it as \"Authorization: Bearer KEY\" or \"X-API-Key: KEY\".").WithCode("no_key")
	}
	c, err := a.cfg.Manager.Authenticate(r.Context(), secret)
	if fault.Is(err, fault.Unauthenticated) {
		err = a.failed(r, "unknown", secret, err)
	}
	return c, err
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
		ctx, err := a.admit(w, r, action)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx)) //nolint:contextcheck // the caller is put into the request's own context
	})
}

// admission is admitted for the routes that are described to OpenAPI. What is
// no job id at all never reaches the manager.
func (a *API) admission(rt route) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(hc)
		ctx, err := a.admitTo(w, r, rt)
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
