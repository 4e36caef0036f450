// Package problem is the one shape in which our HTTP doors say that something
// went wrong: RFC 9457, with a stable code, what was wrong, and what to do
// about it. It maps the kinds of package fault to statuses, once.
//
// Every door imports it; it knows no route and no use case.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/aurea-dev/aurea/internal/fault"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// maxErrors bounds how many faulty fields one answer names.
const maxErrors = 20

// Problem is an error as a client reads it. Detail is always there.
type Problem struct {
	Type   string  `json:"type" doc:"A URI that names the kind of problem." example:"urn:aurea:problem:unknown_action"`
	Title  string  `json:"title" doc:"The same for every problem of this status." example:"Unprocessable Entity"`
	Status int     `json:"status" doc:"The HTTP status." example:"422"`
	Detail string  `json:"detail" doc:"What was wrong, and what to do about it."`
	Code   string  `json:"code" doc:"Stable and machine-readable." example:"unknown_action"`
	Errors []Field `json:"errors,omitempty" nullable:"false" doc:"The inputs that were wrong, where they can be named."`

	cause error // for the log; never shown
}

// Field is one input that was wrong.
type Field struct {
	Location string `json:"location" doc:"Where: a path into the body, or query.name, path.name, header.name." example:"tasks[0].payload.action"`
	Message  string `json:"message" doc:"What is wrong with it."`
}

// New returns a problem with a status and a code of its own.
func New(status int, code, detail string) *Problem {
	return &Problem{Type: typeOf(code), Title: http.StatusText(status), Status: status, Detail: detail, Code: code}
}

func typeOf(code string) string { return "urn:aurea:problem:" + code }

// From returns the problem that an error is to a client. An error that is no
// fault is ours: its text stays in the log.
func From(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var many Faults
	if errors.As(err, &many) && len(many) > 0 {
		return many.problem()
	}
	var f *fault.Error
	switch {
	case errors.As(err, &f) && f.Kind != fault.Internal:
		f = asAsked(f)
		p = New(f.Kind.Status(), f.Code, f.Error())
		if f.Field != "" {
			p.Errors = []Field{{Location: f.Field, Message: f.Message}}
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p = New(http.StatusServiceUnavailable, "interrupted", "The request ended before it was answered; try again.")
	default:
		p = New(http.StatusInternalServerError, fault.Internal.String(),
			"Something broke on our side. The server's log has the reason under the id in the X-Request-ID header.")
	}
	p.cause = err
	return p
}

// CodeMissing is the code of a body in which fields are missing.
const CodeMissing = "MISSING_FIELDS"

// Faults are several faults of one request, so that a client can mend them all
// at once.
type Faults []*fault.Error

// Error returns the first of them.
func (fs Faults) Error() string {
	if len(fs) == 0 {
		return "no fault"
	}
	return fs[0].Error()
}

// problem is all of them as one. Fields that are missing come before what else
// is wrong.
func (fs Faults) problem() *Problem {
	first := fs[max(slices.IndexFunc(fs, func(f *fault.Error) bool { return f.Code == CodeMissing }), 0)]
	p := New(first.Kind.Status(), first.Code, first.Error())
	for _, f := range fs[:min(len(fs), maxErrors)] {
		p.Errors = append(p.Errors, Field{Location: f.Field, Message: f.Message})
	}
	p.cause = fs
	return p
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// Unwrap returns the error that the problem was made from.
func (p *Problem) Unwrap() error { return p.cause }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns the headers that belong to the status: when to try again,
// how to authenticate.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.FormatInt(p.retryAfter(), 10))
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="aurea"`)
	}
	return h
}

// retryAfter is when to come again, in whole seconds.
func (p *Problem) retryAfter() int64 {
	const most = 3600
	var f *fault.Error
	if !errors.As(p.cause, &f) {
		return 1
	}
	return min(max(int64(math.Ceil(f.RetryAfter.Seconds())), 1), most)
}

// ContentType returns the media type of a problem, whatever was asked for.
func (p *Problem) ContentType(string) string { return ContentType }

// Write answers a request with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range p.GetHeaders() {
		h[name] = values
	}
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers only: cannot happen
		body = []byte(`{"type":"urn:aurea:problem:internal","title":"Internal Server Error","status":500,"detail":"Internal error.","code":"internal"}`)
	}
	h.Del("Content-Length")
	h.Set("Content-Type", ContentType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no answer
}
