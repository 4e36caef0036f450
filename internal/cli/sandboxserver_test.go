package cli

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// boxes answers as a manager would that keeps one sandbox, called mine. What a
// command does is told by its first word, in words of our own.
type boxes struct {
	mu      sync.Mutex
	started []map[string]any
	signals chan string   // what was sent to commands
	waits   chan struct{} // a command waits for a signal
	hit     chan string   // and gets it
	files   map[string]string
	packed  []byte // what a folder of it is
	sizes   chan string
	gone    chan struct{} // closed when no terminal can be reached any more
}

func newBoxes() *boxes {
	return &boxes{signals: make(chan string, 8), waits: make(chan struct{}, 1), hit: make(chan string, 8), sizes: make(chan string, 64), gone: make(chan struct{}), files: map[string]string{"/workspace/notes.txt": "remember\n"}}
}

func (b *boxes) serve(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	b.handle(mux)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func aSandbox() map[string]any {
	return map[string]any{"id": "b1", "name": "mine", "state": "RUNNING", "image": "host", "created_at": noon(), "expires_at": noon(), "generation": 2}
}

func (b *boxes) handle(mux *http.ServeMux) {
	const base = "/api/v1/sandboxes"
	one := func(w http.ResponseWriter, r *http.Request) {
		s := aSandbox()
		switch {
		case r.PathValue("id") != "b1" && r.PathValue("id") != "":
			refuse(w, http.StatusNotFound, "not_found", "No sandbox has the id.")
			return
		case r.Method == http.MethodDelete:
			s["state"], s["outcome"] = "COMPLETED", "cancelled"
		case r.PathValue("verb") == "pause":
			s["paused"] = "freeze"
		}
		reply(w, http.StatusOK, s)
	}
	mux.HandleFunc("POST "+base, func(w http.ResponseWriter, r *http.Request) {
		asked, _ := io.ReadAll(r.Body)
		s := aSandbox()
		s["reason"] = string(asked)
		reply(w, http.StatusCreated, s)
	})
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, r *http.Request) {
		list := []any{aSandbox()}
		if r.URL.Query().Get("open") == "" {
			list = append(list, map[string]any{"id": "b0", "state": "FAILED", "outcome": "lost", "created_at": noon()})
		}
		reply(w, http.StatusOK, list)
	})
	mux.HandleFunc("GET "+base+"/{id}", one)
	mux.HandleFunc("DELETE "+base+"/{id}", one)
	mux.HandleFunc("POST "+base+"/{id}/{verb}", one)
	mux.HandleFunc("POST "+base+"/b1/snapshots", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusCreated, map[string]any{"id": "s1", "kind": "full"})
	})
	mux.HandleFunc("GET "+base+"/b1/diff", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("from") != "s1" {
			refuse(w, http.StatusUnprocessableEntity, "no_such_snapshot", "is not a snapshot of this sandbox")
			return
		}
		reply(w, http.StatusOK, map[string]any{"from": "s1", "to": q.Get("to"), "added": 1, "modified": 1, "deleted": 1, "truncated": q.Get("to") == "s2", "changes": []any{
			map[string]any{"path": "/workspace/a\x1b[2J", "change": "added", "type": "file", "omitted": "binary"},
			map[string]any{"path": "/workspace/b", "change": "modified", "type": "file", "diff": "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+\x1b[2Jy\n"},
			map[string]any{"path": "/workspace/c", "change": "deleted", "type": "dir"},
			map[string]any{"path": "/workspace/d", "change": "added", "type": "link"},
			map[string]any{"path": "/workspace/e", "change": "modified", "type": "file"},
		}})
	})
	mux.HandleFunc("POST "+base+"/b1/fork", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusCreated, []any{map[string]any{"id": "b2"}, map[string]any{"id": "b3"}})
	})
	mux.HandleFunc("GET "+base+"/b1/stats", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"cpu_seconds": 1.5, "memory_bytes": 1_000_000, "peak_memory_bytes": 2_000_000, "disk_bytes": 3_000_000, "processes": nil, "execs": 1})
	})
	mux.HandleFunc("GET /api/v1/usage", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, []any{map[string]any{"owner": "local", "sandboxes": 2, "sandbox_seconds": 60, "cpu_seconds": 1.25, "gigabyte_seconds": 30, "disk_bytes": 4000}})
	})
	b.handleExecs(mux, base+"/b1/execs")
	b.handleFiles(mux, base+"/b1")
}

func (b *boxes) handleExecs(mux *http.ServeMux, base string) {
	mux.HandleFunc("POST "+base, func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		b.mu.Lock()
		b.started = append(b.started, asked)
		id := fmt.Sprintf("e%d", len(b.started))
		b.mu.Unlock()
		reply(w, http.StatusCreated, map[string]any{"id": id, "sandbox_id": "b1", "state": "RUNNING"})
	})
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, []any{
			map[string]any{"id": "e2", "fork_of": "e0", "state": "RUNNING", "command": []string{"sleep", "\x1b[2J9"}, "started_at": noon()},
			map[string]any{"id": "e1", "state": "ENDED", "command": []string{"true"}, "exit_code": 0, "verdict": "ok", "started_at": noon()},
		})
	})
	mux.HandleFunc("GET "+base+"/{exec}", func(w http.ResponseWriter, r *http.Request) {
		e := map[string]any{"id": r.PathValue("exec"), "sandbox_id": "b1", "state": "ENDED", "exit_code": 0, "verdict": "ok"}
		switch b.word(r, 0) {
		case "fail":
			e["exit_code"], e["verdict"] = 3, "failed"
		case "slow":
			e["exit_code"], e["verdict"], e["timeout"] = -1, "timeout", 2
		case "wait":
			e["exit_code"], e["verdict"] = 130, "signal"
		case "deaf":
			e["exit_code"], e["verdict"], e["cause"] = 137, "killed", "local"
		case "sh":
			e["exit_code"], e["verdict"] = 7, "failed"
		}
		reply(w, http.StatusOK, e)
	})
	mux.HandleFunc("GET "+base+"/{exec}/output", b.output)
	mux.HandleFunc("GET "+base+"/{exec}/attach", b.attach)
	mux.HandleFunc("POST "+base+"/{exec}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.signals <- r.PathValue("verb") + " " + string(body)
		b.hit <- r.PathValue("verb")
		reply(w, http.StatusOK, map[string]any{"id": r.PathValue("exec"), "state": "ENDED"})
	})
}

// word is a word of an exec's command.
func (b *boxes) word(r *http.Request, i int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(r.PathValue("exec"), "e%d", &n); err != nil || n < 1 || n > len(b.started) {
		return ""
	}
	command, _ := b.started[n-1]["command"].([]any)
	if i >= len(command) {
		return ""
	}
	text, _ := command[i].(string)
	return text
}

func (b *boxes) output(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "event-stream") {
		w.Header().Set("X-Output-Ended", "true")
		_, _ = io.WriteString(w, map[string]string{"stdout": "hello\n", "stderr": "oops\n"}[r.URL.Query().Get("stream")])
		return
	}
	for _, p := range []struct{ stream, text string }{{"stdout", "hello\n"}, {"stderr", "oops\n"}} {
		if s := r.URL.Query().Get("stream"); s != "" && s != p.stream {
			continue
		}
		data, _ := json.Marshal(map[string]any{"offset": 0, "data": p.text})
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", p.stream, data)
	}
	_ = http.NewResponseController(w).Flush()
	if word := b.word(r, 0); word == "wait" || word == "deaf" {
		b.waits <- struct{}{}
		for word == "deaf" && <-b.hit != "kill" {
			b.waits <- struct{}{} // for something stronger
		}
		if word == "wait" {
			<-b.hit
		}
	}
	_, _ = io.WriteString(w, "event: end\ndata: {}\n\n")
}

// attach prints what is typed in capitals, until it is told to exit.
func (b *boxes) attach(w http.ResponseWriter, r *http.Request) {
	select {
	case <-b.gone:
		refuse(w, http.StatusServiceUnavailable, "not_ready", "away")
		return
	default:
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	over := make(chan struct{})
	defer func() { <-over }()
	defer cancel(nil)
	go func() {
		defer close(over)
		select {
		case <-b.gone:
			_ = conn.CloseNow()
		case <-ctx.Done():
		}
	}()
	var fed, printed uint64
	say := func(text string) {
		message := binary.BigEndian.AppendUint64([]byte{1}, printed)
		printed += uint64(len(text))
		_ = conn.Write(ctx, websocket.MessageBinary, append(message, text...))
	}
	say("$ ")
	line := ""
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		last := false
		switch {
		case kind == websocket.MessageBinary && strings.HasPrefix(b.word(r, 0), "torn"):
			_ = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"error","of":"input","status":409,"code":"input_unknown","error":"how much of it arrived is not known"}`))
			continue
		case kind == websocket.MessageBinary:
			fed += uint64(len(data))
			say(strings.ToUpper(string(data)))
			line += string(data)
			last = strings.Contains(line, "exit\r")
		case strings.Contains(string(data), "resize"):
			b.sizes <- string(data)
			continue
		case strings.Contains(string(data), "close_stdin"):
			last = true
		}
		_ = conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"input","offset":%d}`, fed))
		if last {
			_ = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"end"}`))
			_ = conn.Close(websocket.StatusNormalClosure, "ended")
			return
		}
	}
}

func (b *boxes) handleFiles(mux *http.ServeMux, base string) {
	mux.HandleFunc("GET "+base+"/files", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]any{"path": r.URL.Query().Get("path"), "files": []any{
			map[string]any{"name": "notes.txt", "type": "file", "size": 9, "mode": "0644", "modified_at": noon()},
			map[string]any{"name": "to", "type": "link", "size": 4, "mode": "0777", "modified_at": noon(), "target": "/etc"},
		}})
	})
	mux.HandleFunc("GET "+base+"/files/stat", func(w http.ResponseWriter, r *http.Request) {
		at := strings.TrimSuffix(r.URL.Query().Get("path"), "/")
		b.mu.Lock()
		_, file := b.files[at]
		b.mu.Unlock()
		switch {
		case file:
			reply(w, http.StatusOK, map[string]any{"path": at, "type": "file"})
		case at == "/workspace" || at == "/workspace/folder":
			reply(w, http.StatusOK, map[string]any{"path": at, "type": "dir"})
		default:
			refuse(w, http.StatusNotFound, "no_file", "There is no "+at+".")
		}
	})
	mux.HandleFunc("GET "+base+"/files/content", func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, _ = io.WriteString(w, b.files[r.URL.Query().Get("path")])
	})
	mux.HandleFunc("PUT "+base+"/files/content", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.files[r.URL.Query().Get("path")] = string(data)
		reply(w, http.StatusOK, map[string]any{})
	})
	mux.HandleFunc("GET "+base+"/tar", func(w http.ResponseWriter, _ *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, _ = w.Write(b.packed)
	})
	mux.HandleFunc("PUT "+base+"/tar", func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for in := tar.NewReader(r.Body); ; {
			h, err := in.Next()
			if err != nil {
				break
			}
			data, _ := io.ReadAll(in)
			b.files[r.URL.Query().Get("path")+"/"+h.Name] = string(data) + h.Linkname
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
