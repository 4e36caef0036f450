package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// An interrupt ends the run at the server, not only the command.
func TestAnInterruptCancelsTheRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "main.py")
	if err := os.WriteFile(program, []byte("while True: pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cancelled := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/runs", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusAccepted, map[string]any{"runs": []any{map[string]string{"run_id": "run-1"}}})
	})
	mux.HandleFunc("GET /api/v1/runs/{id}/output", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event: stdout\ndata: {\"offset\":0,\"data\":\"going on\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		cancel(errInterrupted)
		<-r.Context().Done()
	})
	mux.HandleFunc("POST /api/v1/runs/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		cancelled <- r.PathValue("id")
		reply(w, http.StatusOK, map[string]string{})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	t.Setenv("AUREA_SERVER", server.URL)
	var out, errs bytes.Buffer
	code := Run(ctx, Program{}, []string{"run", program}, Streams{In: http.NoBody, Out: &out, Err: &errs}, nil)
	if code != ExitInterrupted || <-cancelled != "run-1" {
		t.Errorf("ended with %d: %s %s", code, &out, &errs)
	}
}

// A server that somebody named is not replaced by one of our own.
func TestOnlyTheDefaultServerIsReplaced(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "main.py")
	if err := os.WriteFile(program, []byte("print('hello')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	p := Program{Once: func(context.Context, Start, func(context.Context, string) error) error {
		t.Error("a server was started")
		return nil
	}}
	streams := Streams{In: http.NoBody, Out: io.Discard, Err: io.Discard}
	if code := Run(t.Context(), p, []string{"run", program, "--server", gone.URL}, streams, nil); code != ExitUnavailable {
		t.Errorf("ended with %d", code)
	}
}
