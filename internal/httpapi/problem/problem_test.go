package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

func TestEveryKindHasItsStatus(t *testing.T) {
	t.Parallel()
	want := map[fault.Kind]int{
		fault.Internal: 500, fault.Invalid: 422, fault.NotFound: 404, fault.Conflict: 409, fault.Unauthenticated: 401,
		fault.Denied: 403, fault.TooLarge: 413, fault.Exhausted: 429, fault.Unavailable: 503, fault.Gone: 410,
	}
	for _, k := range fault.Kinds() {
		p := problem.From(fmt.Errorf("do it: %w", fault.New(k, "because of %d", 7).WithCode("own_code")))
		if p.Status != want[k] {
			t.Errorf("%s: status %d, want %d", k, p.Status, want[k])
		}
		if k == fault.Internal {
			if p.Code != "internal" || strings.Contains(p.Detail, "because") {
				t.Errorf("an internal fault shows %q, %q", p.Code, p.Detail)
			}
		} else if p.Code != "own_code" || p.Detail != "because of 7" {
			t.Errorf("%s: %q, %q", k, p.Code, p.Detail)
		}
	}
}

func TestOurOwnErrorsStayInTheLog(t *testing.T) {
	t.Parallel()
	secret := errors.New("password is hunter2")
	p := problem.From(fmt.Errorf("open: %w", secret))
	if p.Status != 500 || strings.Contains(p.Detail, "hunter2") {
		t.Fatalf("shows %+v", p)
	}
	if !errors.Is(p, secret) {
		t.Fatal("the log cannot see the cause")
	}
	if p := problem.From(context.Canceled); p.Status != 503 {
		t.Fatalf("cancelled request: %d", p.Status)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	problem.From(problem.Faults{fault.Field("tasks[0].role", "must be a string"), fault.Field("title", "is missing")}).Write(w)
	if w.Code != 422 || w.Header().Get("Content-Type") != problem.ContentType {
		t.Fatalf("%d %q", w.Code, w.Header().Get("Content-Type"))
	}
	var p problem.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if p.Detail != "tasks[0].role: must be a string" || len(p.Errors) != 2 || p.Errors[1].Location != "title" ||
		p.Type != "urn:aurea:problem:invalid" || p.Title != "Unprocessable Entity" {
		t.Fatalf("%+v", p)
	}
	for status, header := range map[fault.Kind]string{fault.Unavailable: "Retry-After", fault.Exhausted: "Retry-After", fault.Unauthenticated: "WWW-Authenticate"} {
		w := httptest.NewRecorder()
		problem.From(fault.New(status, "no")).Write(w)
		if w.Header().Get(header) == "" {
			t.Errorf("%s: no %s", status, header)
		}
	}
	if problem.New(http.StatusTeapot, "x", "y").Error() != "y" {
		t.Error("a problem's error is its detail")
	}
}

// TestLimitsAreNamedAsAskedFor: nobody can mend a field that no request has.
func TestLimitsAreNamedAsAskedFor(t *testing.T) {
	t.Parallel()
	for held, asked := range map[string]string{
		"limits.milli_cpu": "cpu_limit", "limits.memory_bytes": "memory_limit", "limits.disk_bytes": "limits.disk", "limits.cpu_time_ns": "limits.cpu_time",
		"limits.processes": "limits.processes", "image": "image",
	} {
		p := problem.From(fmt.Errorf("make it: %w", fault.Field(held, "ask for at least 10").WithCode("limit_too_small")))
		if len(p.Errors) != 1 || p.Errors[0].Location != asked || !strings.HasPrefix(p.Detail, asked+": ask for at least 10") || p.Code != "limit_too_small" {
			t.Errorf("%s: %+v", held, p)
		}
	}
}
