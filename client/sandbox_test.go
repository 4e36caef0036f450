package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asked is a request as a server sees it.
type asked struct{ Line, Body string }

// record serves one answer to everything and keeps what was asked.
func record(t *testing.T, status int, body any) (*Client, func() asked) {
	t.Helper()
	seen := make(chan asked, 16)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		seen <- asked{r.Method + " " + r.URL.String(), string(raw)}
		if body == nil {
			w.WriteHeader(status)
			return
		}
		answer(w, status, body)
	})
	return c, func() asked { return <-seen }
}

// TestCallsAboutSandboxes holds each call to its request.
func TestCallsAboutSandboxes(t *testing.T) {
	t.Parallel()
	ctx, hour := t.Context(), 3600.0
	one := func(call func(c *Client) (Sandbox, error)) func(*Client) error {
		return func(c *Client) error {
			s, err := call(c)
			if err == nil && s.ID != "b1" {
				t.Errorf("the answer is %+v", s)
			}
			return err
		}
	}
	sandbox := map[string]any{"id": "b1", "state": "RUNNING"}
	for _, tc := range []struct {
		call func(c *Client) error
		gets any
		want asked
	}{
		{one(func(c *Client) (Sandbox, error) {
			return c.CreateSandbox(ctx, NewSandbox{Name: "mine", TTL: &hour, MemoryLimit: "512m", Labels: map[string]string{"a": "b"}})
		}), sandbox, asked{"POST /api/v1/sandboxes", `{"name":"mine","labels":{"a":"b"},"ttl":3600,"memory_limit":"512m"}`}},
		{one(func(c *Client) (Sandbox, error) { return c.Sandbox(ctx, "b1") }), sandbox, asked{"GET /api/v1/sandboxes/b1", ""}},
		{one(func(c *Client) (Sandbox, error) { return c.UpdateSandbox(ctx, "b1", SandboxChange{TTL: &hour}) }), sandbox, asked{"PATCH /api/v1/sandboxes/b1", `{"ttl":3600}`}},
		{one(func(c *Client) (Sandbox, error) { return c.DeleteSandbox(ctx, "b1") }), sandbox, asked{"DELETE /api/v1/sandboxes/b1", ""}},
		{one(func(c *Client) (Sandbox, error) { return c.PauseSandbox(ctx, "b1", Checkpoint) }), sandbox, asked{"POST /api/v1/sandboxes/b1/pause", `{"mode":"checkpoint"}`}},
		{one(func(c *Client) (Sandbox, error) { return c.ResumeSandbox(ctx, "b1") }), sandbox, asked{"POST /api/v1/sandboxes/b1/resume", `{}`}},
		{one(func(c *Client) (Sandbox, error) { return c.RestoreSandbox(ctx, "b1", "s1") }), sandbox, asked{"POST /api/v1/sandboxes/b1/restore", `{"snapshot":"s1"}`}},
		{func(c *Client) error { _, err := c.TakeSnapshot(ctx, "b1", FullSnapshot, "x"); return err }, map[string]any{"id": "s1"}, asked{"POST /api/v1/sandboxes/b1/snapshots", `{"kind":"full","label":"x"}`}},
		{func(c *Client) error { return c.DeleteSnapshot(ctx, "s1") }, nil, asked{"DELETE /api/v1/snapshots/s1", ""}},
		{func(c *Client) error { _, err := c.ForkSandbox(ctx, "b1", Fork{Count: 3}); return err }, []any{sandbox}, asked{"POST /api/v1/sandboxes/b1/fork", `{"count":3}`}},
		{func(c *Client) error { _, err := c.DiffSandbox(ctx, "b1", "s1", ""); return err }, map[string]any{"added": 1}, asked{"GET /api/v1/sandboxes/b1/diff?from=s1", ""}},
		{func(c *Client) error { _, err := c.DiffSandbox(ctx, "b1", "s1", "s2"); return err }, map[string]any{"added": 1}, asked{"GET /api/v1/sandboxes/b1/diff?from=s1&to=s2", ""}},
		{func(c *Client) error {
			_, err := c.PatchFiles(ctx, "b1", "/workspace", strings.NewReader("--- a"))
			return err
		}, []any{}, asked{"POST /api/v1/sandboxes/b1/files/patch?path=%2Fworkspace", "--- a"}},
		{func(c *Client) error { _, err := c.LinkPort(ctx, "b1", 8080, time.Minute); return err }, map[string]any{"url": "u"}, asked{"POST /api/v1/sandboxes/b1/ports/8080/links", `{"ttl":60}`}},
		{func(c *Client) error { _, err := c.SandboxStats(ctx, "b1"); return err }, map[string]any{"execs": 1}, asked{"GET /api/v1/sandboxes/b1/stats", ""}},
		{func(c *Client) error { _, err := c.Usage(ctx, time.Unix(0, 0)); return err }, []any{}, asked{"GET /api/v1/usage?since=1970-01-01T00%3A00%3A00Z", ""}},
		{func(c *Client) error {
			_, err := c.StartExec(ctx, "b1", Command{Command: []string{"cat"}, Stdin: []byte("hi"), TTY: true, Cols: 80}, 2*time.Second)
			return err
		}, map[string]any{"id": "e1"}, asked{"POST /api/v1/sandboxes/b1/execs?wait=2.000", `{"command":["cat"],"stdin_base64":"aGk=","tty":true,"cols":80}`}},
		{func(c *Client) error { _, err := c.Exec(ctx, "b1", "e1", 0); return err }, map[string]any{"id": "e1"}, asked{"GET /api/v1/sandboxes/b1/execs/e1", ""}},
		{func(c *Client) error { return c.FeedExec(ctx, "b1", "e1", 7, []byte("x"), true) }, nil, asked{"POST /api/v1/sandboxes/b1/execs/e1/input?close=true&offset=7", "x"}},
		{func(c *Client) error { return c.ResizeExec(ctx, "b1", "e1", 80, 24) }, nil, asked{"POST /api/v1/sandboxes/b1/execs/e1/resize", `{"cols":80,"rows":24}`}},
		{func(c *Client) error { return c.SignalExec(ctx, "b1", "e1", 2, true) }, nil, asked{"POST /api/v1/sandboxes/b1/execs/e1/signal", `{"signal":2,"tree":true}`}},
		{func(c *Client) error { _, err := c.KillExec(ctx, "b1", "e1"); return err }, map[string]any{"id": "e1"}, asked{"POST /api/v1/sandboxes/b1/execs/e1/kill", `{}`}},
		{func(c *Client) error { return c.UploadFiles(ctx, "b1", "/workspace/a b", strings.NewReader("tar")) }, nil, asked{"PUT /api/v1/sandboxes/b1/tar?path=%2Fworkspace%2Fa+b", "tar"}},
	} {
		status := http.StatusOK
		if tc.gets == nil {
			status = http.StatusNoContent
		}
		c, seen := record(t, status, tc.gets)
		if err := tc.call(c); err != nil {
			t.Errorf("%s: %v", tc.want.Line, err)
		} else if d := cmp.Diff(tc.want, seen()); d != "" {
			t.Error(d)
		}
	}
}

// TestListsGoThroughAllPages walks as the Link headers say.
func TestListsGoThroughAllPages(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("label") != "k=v" && strings.HasSuffix(r.URL.Path, "/sandboxes") || q.Get("limit") == "" && q.Get("cursor") != "" && q.Get("label") != "" {
			t.Errorf("asked for %s", r.URL)
		}
		if q.Get("cursor") == "" {
			q.Set("cursor", "a")
			w.Header().Set("Link", "<"+r.URL.Path+"?"+q.Encode()+`>; rel="next"`)
			answer(w, 200, []any{map[string]any{"id": "a"}})
			return
		}
		answer(w, 200, []any{map[string]any{"id": "b"}})
	})
	var ids string
	for s, err := range c.Sandboxes(t.Context(), SandboxFilter{Labels: map[string]string{"k": "v"}, Open: true, PageSize: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		ids += s.ID
	}
	for e, err := range c.Execs(t.Context(), "b1", "RUNNING") {
		if err != nil {
			t.Fatal(err)
		}
		ids += e.ID
	}
	for s, err := range c.Snapshots(t.Context(), "b1") {
		if err != nil {
			t.Fatal(err)
		}
		ids += s.ID
	}
	if ids != "ababab" {
		t.Errorf("listed are %s", ids)
	}
}

// TestAnExecIsStartedOnceAndWaitedFor repeats itself while the server is away.
func TestAnExecIsStartedOnceAndWaitedFor(t *testing.T) {
	t.Parallel()
	var starts, looks atomic.Int64
	keys := make(chan string, 4)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			keys <- r.Header.Get("Idempotency-Key")
			if starts.Add(1) == 1 {
				answer(w, 503, map[string]any{"detail": "away"})
				return
			}
			answer(w, 201, map[string]any{"id": "e1", "state": "RUNNING"})
			return
		}
		switch looks.Add(1) {
		case 1:
			answer(w, 502, map[string]any{"detail": "away"})
		case 2:
			answer(w, 200, map[string]any{"id": "e1", "state": "RUNNING"})
		default:
			answer(w, 200, map[string]any{"id": "e1", "state": "ENDED", "exit_code": 3, "stdout": map[string]any{"text": "x"}})
		}
	})
	e, err := c.StartExec(t.Context(), "b1", Command{Shell: "true"}, 0)
	if err != nil || e.ID != "e1" || e.Ended() {
		t.Fatalf("%+v, %v", e, err)
	}
	if first, second := <-keys, <-keys; first == "" || first != second {
		t.Errorf("the keys are %q and %q", first, second)
	}
	e, err = c.WaitExec(t.Context(), "b1", "e1")
	if err != nil || !e.Ended() || *e.ExitCode != 3 || *e.Stdout.Text != "x" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestATarThatBreaksIsNoWholeTar: its reader gets an error, not an end.
func TestATarThatBreaksIsNoWholeTar(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("path") != "/workspace" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	body, err := c.DownloadFiles(t.Context(), "b1", "/workspace")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	if data, err := io.ReadAll(body); err == nil {
		t.Errorf("it ended well with %q", data)
	}
}

// TestOutputIsReadFromAnOffset tells where to go on, and whether to.
func TestOutputIsReadFromAnOffset(t *testing.T) {
	t.Parallel()
	const text = "hello"
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("stream") != Stderr {
			t.Errorf("asked for %s", r.URL)
		}
		var from int
		_ = json.Unmarshal([]byte(r.URL.Query().Get("offset")), &from)
		if from > 0 {
			w.Header().Set("X-Output-Ended", "true")
		}
		_, _ = io.WriteString(w, text[from:min(len(text), from+3)])
	})
	var out bytes.Buffer
	next, ended, err := c.ExecOutput(t.Context(), "b1", "e1", Stderr, 0, &out)
	if next != 3 || ended || err != nil {
		t.Fatalf("%d, %v, %v", next, ended, err)
	}
	next, ended, err = c.ExecOutput(t.Context(), "b1", "e1", Stderr, next, &out)
	if next != 5 || !ended || err != nil || out.String() != text {
		t.Errorf("%d, %v, %v, %q", next, ended, err, out.String())
	}
}
