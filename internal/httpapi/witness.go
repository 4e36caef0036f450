package httpapi

import (
	"errors"
	"net/http"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/notary"
)

// witnessed puts into the audit what was refused at any door because of a state
// that forbids it, or for want of permission, unless whoever refused it has done
// so already.
func (a *API) witnessed(next http.Handler) http.Handler {
	if a.cfg.Audit == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		actor, err := guard.Noted(r.Context())
		if actor == "" || err == nil || audit.Noted(r.Context()) {
			return
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if fault.Is(err, fault.Denied) || ofState(err) && !reads {
			a.cfg.Audit.Deny(r.Context(), notary.Refusal{Actor: actor, Action: "refuse_" + codeOf(err), Target: subjectOf(r), Request: requestOf(r), Why: err})
		}
	})
}

// ofState reports whether something was refused because of how it stands. That a
// session has ended is 400 for those who know sessions from elsewhere.
func ofState(err error) bool {
	return fault.Is(err, fault.Conflict) || fault.Is(err, fault.Gone) || codeOf(err) == "session_ended"
}

// codeOf is the code that the answer to an error has.
func codeOf(err error) string {
	var p *problem.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return fault.CodeOf(err)
}

// subjectOf is the id of what a request is about, or the request where its path
// names nothing.
func subjectOf(r *http.Request) string {
	for _, name := range []string{"sandbox", "session", "snapshot", "worker", "id", "app", "key"} {
		if id := r.PathValue(name); id != "" {
			return clip(id, audit.MaxName)
		}
	}
	return requestOf(r)
}

// requestOf is what a record says of a request.
func requestOf(r *http.Request) string { return r.Method + " " + clip(r.URL.Path, audit.MaxName) }
