package client

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

func TestRunsAreSubmittedWaitedForAndCancelled(t *testing.T) {
	t.Parallel()
	var submits, waits atomic.Int64
	keys := make(chan string, 4)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /run":
			answer(w, 200, map[string]any{"run_id": "r", "success": true, "stdout": "hi\n", "artifacts": map[string]string{}})
		case "POST /api/v1/runs":
			keys <- r.Header.Get("Idempotency-Key")
			if submits.Add(1) == 1 {
				answer(w, 503, map[string]any{"detail": "away"})
				return
			}
			answer(w, 202, map[string]any{"runs": []any{map[string]any{"run_id": "r", "status": "QUEUED", "position": 2}}})
		case "GET /api/v1/runs/r":
			status := "RUNNING"
			if waits.Add(1) > 1 {
				status = "COMPLETED"
			}
			answer(w, 200, map[string]any{"run_id": "r", "status": status, "result": map[string]any{"exit_code": 3}})
		case "POST /api/v1/runs/r/cancel":
			answer(w, 200, map[string]any{"run_id": "r", "status": "CANCELLED"})
		case "GET /api/v1/runs":
			if r.URL.Query().Get("cursor") == "" {
				w.Header().Set("Link", `</api/v1/runs?cursor=a>; rel="next"`)
				answer(w, 200, []any{map[string]any{"run_id": "a"}})
				return
			}
			answer(w, 200, []any{map[string]any{"run_id": "b"}})
		default:
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
	})
	ctx := t.Context()
	if got, err := c.Run(ctx, Run{Code: "print('hi')"}); err != nil || got.Stdout != "hi\n" || !got.Success {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.SubmitRuns(ctx, Run{Code: "x"}); err != nil || len(got) != 1 || *got[0].Position != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if first, second := <-keys, <-keys; first == "" || first != second {
		t.Errorf("the keys are %q and %q", first, second)
	}
	if got, err := c.WaitRun(ctx, "r"); err != nil || got.Status != Completed || got.Result.ExitCode != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.CancelRun(ctx, "r", "enough"); err != nil || !got.Ended() {
		t.Errorf("%+v, %v", got, err)
	}
	var ids string
	for s, err := range c.Runs(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		ids += s.RunID
	}
	if ids != "ab" {
		t.Errorf("listed are %s", ids)
	}
	if _, err := c.GetRun(ctx, "r", time.Minute); err != nil {
		t.Error(err)
	}
}

// TestOutputOfARunIsFollowedAcrossALostConnection has a server that hangs up
// in the middle.
func TestOutputOfARunIsFollowedAcrossALostConnection(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/runs/r" {
			answer(w, 200, map[string]any{"run_id": "r", "status": "COMPLETED"})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if calls.Add(1) == 1 {
			_, _ = fmt.Fprint(w, "id: 0-0\n\nid: 5-0\nevent: stdout\ndata: {\"offset\":0,\"data\":\"hello\"}\n\n")
			return
		}
		if last := r.Header.Get("Last-Event-ID"); last != "5-0" {
			t.Errorf("it goes on at %q", last)
		}
		_, _ = fmt.Fprint(w, "id: 5-1\nevent: stderr\ndata: {\"offset\":0,\"data\":\"/w==\",\"encoding\":\"base64\"}\n\nid: 5-1\nevent: end\ndata: {}\n\n")
	})
	var stdout, stderr bytes.Buffer
	s, err := c.FollowRun(t.Context(), "r", &stdout, &stderr)
	if err != nil || s.Status != Completed || stdout.String() != "hello" || stderr.String() != "\xff" {
		t.Errorf("%+v, %v, %q, %q", s, err, stdout.String(), stderr.String())
	}
}
