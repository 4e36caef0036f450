package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/store"
)

// talks keeps one session, and writes down what it is asked.
type talks struct {
	mu    sync.Mutex
	asked []string
	err   error // in place of every answer
}

func (k *talks) note(format string, args ...any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, fmt.Sprintf(format, args...))
	return k.err
}

func (k *talks) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.asked) == 0 {
		return ""
	}
	return k.asked[len(k.asked)-1]
}

func aSession() live.Session {
	return live.Session{ID: "s1", State: live.SessionActive, Sandbox: "b1", Job: "j1", Prompt: "say hello", CreatedAt: time.Unix(1, 0).UTC(), ActiveAt: time.Unix(2, 0).UTC()}
}

func (k *talks) StartSession(_ context.Context, r live.SessionRequest) (live.Session, bool, error) {
	return aSession(), r.ID == "", k.note("start %q %q %q %v %d", r.ID, r.Project, r.Prompt, r.Spec.Env, r.Spec.Limits.Memory)
}

func (k *talks) Session(_ context.Context, id string) (live.Session, error) {
	return aSession(), k.note("get %s", id)
}

func (k *talks) Sessions(_ context.Context, f store.SessionFilter) ([]live.Session, error) {
	return []live.Session{aSession()}, k.note("list %q %q %t %d", f.State, f.Project, f.Open, f.Limit)
}

func (k *talks) ContinueSession(_ context.Context, id, prompt string) (live.Session, error) {
	return aSession(), k.note("continue %s %s", id, prompt)
}

func (k *talks) ExecSession(_ context.Context, id string, c live.Command) (live.Exec, error) {
	return live.Exec{ID: anExec, Sandbox: "b1", State: live.Running, Command: c.Command}, k.note("exec %s %q", id, c.Command)
}

func (k *talks) PauseSession(_ context.Context, id string) (live.Session, error) {
	return aSession(), k.note("pause %s", id)
}

func (k *talks) ResumeSession(_ context.Context, id string) (live.Session, error) {
	return aSession(), k.note("resume %s", id)
}

func (k *talks) StopSession(_ context.Context, id string) (live.Session, error) {
	return aSession(), k.note("stop %s", id)
}

func (k *talks) FailSession(_ context.Context, id, reason string) (live.Session, error) {
	return aSession(), k.note("fail %s %s", id, reason)
}

func serveSessions(t *testing.T, k httpapi.Sessions) *httptest.Server {
	t.Helper()
	api, err := httpapi.New(httpapi.Config{Manager: newFake(), Keeper: newEchoing(), Sessions: k, Version: "test", Loopback: true, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api)
	t.Cleanup(func() {
		api.EndStreams()
		s.Client().CloseIdleConnections()
		s.Close()
		api.Close()
	})
	return s
}

// TestSessionsOverHTTP holds each route to what it asks.
func TestSessionsOverHTTP(t *testing.T) {
	t.Parallel()
	k := &talks{}
	s := serveSessions(t, k)
	const base = "/api/v1/sessions"
	for _, tc := range []struct {
		method, path, body string
		status             int
		asked, location    string
	}{
		{"POST", base, "", 201, `start "" "" "" map[] 0`, base + "/s1"},
		{"POST", base, `{"id":"s1","project_id":"p","prompt":"say hello","env":{"A":"b"},"memory_limit":"1k"}`, 200, `start "s1" "p" "say hello" map[A:b] 1024`, base + "/s1"},
		{"GET", base, "", 200, `list "" "" false 100`, ""},
		{"GET", base + "?state=active&project_id=p&open=true&limit=5", "", 200, `list "active" "p" true 5`, ""},
		{"GET", base + "/s1", "", 200, "get s1", ""},
		{"POST", base + "/s1/continue", `{"prompt":"and again"}`, 200, "continue s1 and again", ""},
		{"POST", base + "/s1/exec", `{"command":["echo","Hello from sandbox"]}`, 200, `exec s1 ["echo" "Hello from sandbox"]`, "/api/v1/sandboxes/b1/execs/" + anExec},
		{"POST", base + "/s1/pause", "", 200, "pause s1", ""},
		{"POST", base + "/s1/resume", "", 200, "resume s1", ""},
		{"POST", base + "/s1/stop", "", 200, "stop s1", ""},
	} {
		status, header, text := answered(t, s, tc.method, tc.path, tc.body)
		if status != tc.status || k.last() != tc.asked || header.Get("Location") != tc.location {
			t.Errorf("%s %s: %d %v %s\nasked %s", tc.method, tc.path, status, header, text, k.last())
		}
	}
}

// TestBadSessionRequests are refused by the door, by name.
func TestBadSessionRequests(t *testing.T) {
	t.Parallel()
	k := &talks{}
	s := serveSessions(t, k)
	for _, tc := range []struct{ method, path, body, names string }{
		{"POST", "", `{"state":"active"}`, "state"},
		{"POST", "", `{"memory_limit":"-1"}`, "memory_limit"},
		{"POST", "", `{"cpu_limit":0}`, "cpu_limit"},
		{"POST", "", `{"project_id":"\u0000"}`, "project_id"},
		{"POST", "/s1/continue", `{}`, "prompt"},
		{"POST", "/s1/exec?wait=-1", `{"command":["true"]}`, "wait"},
		{"GET", "?state=sleepy", "", "state"},
		{"GET", "?limit=1001", "", "limit"},
		{"GET", "?before=yesterday", "", "before"},
	} {
		status, _, text := answered(t, s, tc.method, "/api/v1/sessions"+tc.path, tc.body)
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, tc.names) {
			t.Errorf("%s %s %s: %d %s", tc.method, tc.path, tc.body, status, text)
		}
	}
	if asked := k.last(); asked != "" {
		t.Errorf("the sessions were asked %s", asked)
	}
}

// TestSessionsThatAreOver answer as their clients know it: 400 for one that
// ended, 410 for one that expired, 404 for one that never was.
func TestSessionsThatAreOver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		status int
		code   string
	}{
		{fault.New(fault.Conflict, "it has ended").WithCode("session_ended"), 400, "session_ended"},
		{fault.New(fault.Gone, "it has expired").WithCode("session_expired"), 410, "session_expired"},
		{fault.New(fault.NotFound, "there is none").WithCode("not_found"), 404, "not_found"},
	} {
		s := serveSessions(t, &talks{err: tc.err})
		for path, body := range map[string]string{"": "", "/s1/continue": `{"prompt":"and again"}`, "/s1/exec": `{"command":["true"]}`, "/s1/pause": "", "/s1/resume": ""} {
			status, _, text := answered(t, s, http.MethodPost, "/api/v1/sessions"+path, body)
			var p struct{ Code string }
			if err := json.Unmarshal([]byte(text), &p); status != tc.status || p.Code != tc.code || err != nil {
				t.Errorf("%s of one that is %s: %d %s", path, tc.code, status, text)
			}
		}
	}
}

// TestSessionThatNobodyKnowsIsEnded fails a session that could not be started,
// unless its caller has named it and can start it again.
func TestSessionThatNobodyKnowsIsEnded(t *testing.T) {
	t.Parallel()
	k := &talks{err: fault.Field("limits.processes", "can be at most 4096").WithCode("over_limit")}
	s := serveSessions(t, k)
	for body, want := range map[string]string{
		`{}`:          "fail s1 it could not be started: ",
		`{"id":"s1"}`: `start "s1"`,
	} {
		resp, err := s.Client().Post(s.URL+"/api/v1/sessions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := k.last(); resp.StatusCode != 422 || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %d, and last it was asked %q", body, resp.StatusCode, got)
		}
	}
}
