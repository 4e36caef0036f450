package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"

	"github.com/aurea-dev/aurea/internal/fault"
)

const (
	problemType = "application/problem+json"
	// maxProblem bounds what is read of a refusal.
	maxProblem = 64 << 10
)

// problem is a fault as it crosses.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Kind   string `json:"kind"`
	Field  string `json:"field,omitempty"`
}

// kindOf reads a status that came without a kind: from the middleware in
// front, or from a proxy. What we do not know is worth another try.
func kindOf(status int) fault.Kind {
	switch status {
	case http.StatusBadRequest, http.StatusUnsupportedMediaType:
		return fault.Invalid
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return fault.Unavailable
	}
	for _, k := range fault.Kinds() {
		if k.Status() == status {
			return k
		}
	}
	return fault.Unavailable
}

// problemOf describes err. What is inside an internal error stays in the log
// of the end where it happened. A call that was given up half-way says
// nothing about the caller, nor about us.
func problemOf(err error) problem {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		f = fault.New(fault.Unavailable, "the call was given up: %w", err)
	default:
		f = fault.New(fault.Internal, "unlabelled")
	}
	p := problem{Type: "about:blank", Status: f.Kind.Status(), Detail: f.Message, Code: f.Code, Kind: f.Kind.String(), Field: f.Field}
	if f.Kind == fault.Internal {
		p.Detail, p.Field = "something broke on the other end; its log says what", ""
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// fault returns what the problem describes. Everything in it is outside input.
func (p problem) fault() *fault.Error {
	kind := kindOf(p.Status)
	for _, k := range fault.Kinds() {
		if p.Kind == k.String() {
			kind = k
		}
	}
	detail := p.Detail
	if detail == "" {
		detail = "the other end answered " + http.StatusText(p.Status)
	}
	f := fault.New(kind, "%s", printable(detail))
	if p.Code != "" {
		f = f.WithCode(printable(p.Code))
	}
	f.Field = printable(p.Field)
	return f
}

// printable makes a text from outside fit for a log line.
func printable(s string) string {
	const most = 4096
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
}

func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	w.Header().Set("Content-Type", problemType)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a caller that is gone is nobody's error
}

// readProblem makes a fault of an answer that is not a success.
func readProblem(resp *http.Response) *fault.Error {
	var p problem
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil || (kind != problemType && kind != "application/json") || json.Unmarshal(body, &p) != nil {
		p = problem{}
	}
	p.Status = resp.StatusCode
	return p.fault()
}
