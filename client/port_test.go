package client

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestPortTransport holds requests to a port to where they may go.
func TestPortTransport(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.EscapedPath()+"?"+r.URL.RawQuery+" "+string(body))
	})
	web := http.Client{Transport: c.PortTransport("b1", 8080)}
	for asked, want := range map[string]string{
		"http://box/":             "POST /api/v1/sandboxes/b1/ports/8080/? hi",
		"http://box":              "POST /api/v1/sandboxes/b1/ports/8080/? hi",
		"http://box/a%2Fb/c?d=e":  "POST /api/v1/sandboxes/b1/ports/8080/a%2Fb/c?d=e hi",
		"http://elsewhere/x%20y/": "POST /api/v1/sandboxes/b1/ports/8080/x%20y/? hi",
	} {
		res, err := web.Post(asked, "text/plain", strings.NewReader("hi"))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(got) != want {
			t.Errorf("%s went to %q, not to %q", asked, got, want)
		}
	}
	for _, out := range []string{"http://box/../../b2/files", "http://box/a/%2e%2e/%2e%2e/x"} {
		if res, err := web.Get(out); err == nil {
			_ = res.Body.Close()
			t.Errorf("%s leads out of the port", out)
		}
	}
}

// TestWatchFiles reads changes as they are sent.
func TestWatchFiles(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/api/v1/sandboxes/b1/files/watch?path=%2Fworkspace&recursive=true" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ":\n\nevent: created\ndata: {\"path\":\"/workspace/a\",\"type\":\"file\"}\n\n:\n\nevent: renamed\ndata: {\"path\":\"/workspace/b\",\"from\":\"/workspace/a\"}\n\n")
	})
	var got []FileChange
	ready := false
	for change, err := range c.WatchFiles(t.Context(), "b1", "/workspace", true, func() { ready = true }) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, change)
	}
	want := []FileChange{{Kind: "created", Path: "/workspace/a", Type: "file"}, {Kind: "renamed", Path: "/workspace/b", From: "/workspace/a"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] || !ready {
		t.Errorf("got %+v", got)
	}
	refused := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusGone, map[string]any{"code": "sandbox_ended", "detail": "over"})
	})
	for _, err := range refused.WatchFiles(t.Context(), "b1", "/", false, nil) {
		if err == nil || err.Error() != "over" {
			t.Errorf("got %v", err)
		}
	}
}
