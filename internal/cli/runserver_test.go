package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/client"
)

// runs answers as a manager would that does runs: the program's code says what
// it does, in words of our own.
type runs struct {
	mu   sync.Mutex
	last int
	all  map[string]client.Run
}

func (s *runs) handle(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/v1/runs", s.submit)
	mux.HandleFunc("GET /api/v1/runs/{id}", s.get)
	mux.HandleFunc("GET /api/v1/runs/{id}/output", s.output)
	mux.HandleFunc("GET /api/v1/languages", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, []map[string]any{
			{"name": "python", "aliases": []string{"py"}, "file": "main.py", "active": true},
			{"name": "c", "aliases": []string{}, "file": "main.c", "active": false, "reason": "the image host has no cc"},
		})
	})
	mux.HandleFunc("GET /api/v1/pool", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, []map[string]any{{
			"worker_id": "worker_default", "driver": "gvisor", "image": "host", "language": "python", "wanted": 2, "waiting": 1, "making": 1,
			"hits": 40, "misses": 2, "discards": 0, "oldest_seconds": 12.5,
		}})
	})
}

func (s *runs) submit(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		Runs []client.Run `json:"runs"`
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || len(sent.Runs) != 1 {
		reply(w, http.StatusUnprocessableEntity, map[string]any{"detail": fmt.Sprint("one run, please: ", err)})
		return
	}
	req := sent.Runs[0]
	if req.Language == "cobol" {
		reply(w, http.StatusUnprocessableEntity, map[string]any{"status": 422, "code": "unknown_language", "detail": "language: \"cobol\" is not known here; use one of python, c"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id := fmt.Sprintf("run-%d", s.last)
	s.all[id] = req
	reply(w, http.StatusAccepted, map[string]any{"runs": []any{map[string]any{"run_id": id, "status": "QUEUED"}}})
}

func (s *runs) find(r *http.Request) client.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[r.PathValue("id")]
}

// output prints what was asked, so that a script can see it.
func (s *runs) output(w http.ResponseWriter, r *http.Request) {
	req := s.find(r)
	req.Code = ""
	asked, _ := json.Marshal(req)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, piece := range []struct{ stream, text string }{{"stdout", string(asked) + "\n"}, {"stderr", "on stderr\n"}} {
		data, _ := json.Marshal(map[string]any{"offset": 0, "data": piece.text})
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", piece.stream, data)
	}
	_, _ = io.WriteString(w, "event: end\ndata: {}\n\n")
}

func (s *runs) get(w http.ResponseWriter, r *http.Request) {
	code := strings.TrimSpace(s.find(r).Code)
	code = strings.TrimPrefix(code[strings.LastIndex(code, "\n")+1:], "# ")
	result := map[string]any{"run_id": r.PathValue("id"), "success": false, "exit_code": 0, "verdict": "failed", "step": "run", "timed_out": false, "timeout": 30}
	state := map[string]any{"run_id": r.PathValue("id"), "status": "COMPLETED", "result": result, "reason": nil}
	switch code {
	case "exit 3":
		result["exit_code"] = 3
	case "killed":
		result["exit_code"], result["verdict"] = 137, "oom"
	case "slow":
		result["exit_code"], result["verdict"], result["timed_out"] = -1, "timeout", true
	case "lost":
		state["status"], state["result"], state["reason"] = "FAILED", nil, "the worker was lost"
	default:
		result["success"], result["verdict"] = true, "ok"
		result["artifacts"] = map[string]string{"a/b.txt": "text\n", "c.bin": "AAEC", "../d": "out"}
		result["artifact_info"] = map[string]any{"a/b.txt": map[string]any{"encoding": "text"}, "c.bin": map[string]any{"encoding": "base64"}}
		if code != "climb" {
			delete(result["artifacts"].(map[string]string), "../d") //nolint:forcetypeassert // it was just made
		}
	}
	reply(w, http.StatusOK, state)
}
