package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/client"
)

// noon is the one moment at which everything happens here.
func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func some(s string) *string { return &s }

func exampleJobs() []client.Job {
	at := noon()
	return []client.Job{
		{
			ID: "job-2", RootJobID: "plan-1", ProjectID: 1, Title: "Hostile \x1b[2J title", Role: "Employee", Status: client.Failed, Outcome: some("failed"),
			Payload: json.RawMessage(`{"action":"exec","command":["false"]}`), WorkerID: some("worker_default"), Attempt: 4, RetryCount: 3, MaxRetries: 3, CreatedAt: at, StartedAt: &at, CompletedAt: &at,
			Details: json.RawMessage(`{"exit_code":1}`), DependsOn: []string{"job-1"},
		},
		{
			ID: "job-1", RootJobID: "plan-1", ProjectID: 1, Title: "First", Role: "Employee", Status: client.Completed, Outcome: some("ok"),
			Payload: json.RawMessage(`{}`), WorkerID: some("worker_default"), Attempt: 1, MaxRetries: 3, CreatedAt: at, StartedAt: &at, CompletedAt: &at,
		},
	}
}

// newServer answers as a manager would, from memory.
func newServer() *httptest.Server {
	mux := http.NewServeMux()
	(&runs{all: map[string]client.Run{}}).handle(mux)
	newBoxes().handle(mux)
	mux.HandleFunc("POST /prds", submit)
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, map[string]bool{"ready": true}) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, client.Health{Status: "healthy", Version: "1", Workers: 1, Drivers: []string{"gvisor", "docker"}})
	})
	mux.HandleFunc("GET /jobs", func(w http.ResponseWriter, r *http.Request) {
		jobs := []client.Job{}
		for _, j := range exampleJobs() {
			if s := r.URL.Query().Get("status"); s == "" || s == string(j.Status) {
				jobs = append(jobs, j)
			}
		}
		reply(w, http.StatusOK, jobs)
	})
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch id := r.PathValue("id"); id {
		case "plan-ok", "plan-bad":
			j := client.Job{ID: id, RootJobID: id, Status: client.Completed, Outcome: some("ok")}
			if id == "plan-bad" {
				j.Status, j.Outcome = client.Failed, some("failed")
			}
			reply(w, http.StatusOK, j)
		case "job-of-session", "job-of-old-session":
			j := client.Job{ID: id, Status: client.Completed, AssignedModel: some("@session"), Details: json.RawMessage(`{"sandbox_id":"b1","exec_id":"e1","stdout":"the first of it\n","stderr":""}`)}
			if id == "job-of-old-session" {
				j.Details = bytes.ReplaceAll(j.Details, []byte("b1"), []byte("b0"))
			}
			reply(w, http.StatusOK, j)
		default:
			for _, j := range exampleJobs() {
				if j.ID == id {
					reply(w, http.StatusOK, j)
					return
				}
			}
			refuse(w, http.StatusNotFound, "not_found", "there is no job "+id)
		}
	})
	mux.HandleFunc("POST /jobs/{id}/{verb}", act)
	mux.HandleFunc("GET /jobs/{id}/logs", func(w http.ResponseWriter, r *http.Request) {
		text := map[string]string{"stdout": "hello\n", "stderr": "oops\n"}[r.URL.Query().Get("stream")]
		if strings.HasSuffix(r.PathValue("id"), "session") {
			text = "" // what it printed is its exec's
		}
		var from int
		_, _ = fmt.Sscan(r.URL.Query().Get("offset"), &from)
		_, _ = io.WriteString(w, text[min(from, len(text)):])
	})
	mux.HandleFunc("GET /events", events)
	mux.HandleFunc("GET /secret/jobs", func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer aurea_good":
			reply(w, http.StatusOK, []client.Job{})
		case "Bearer viewer":
			refuse(w, http.StatusForbidden, "denied", "the key may not do this")
		default:
			refuse(w, http.StatusUnauthorized, "unauthenticated", "no key was shown")
		}
	})
	mux.HandleFunc("/away/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusServiceUnavailable, "not_ready", "the database does not answer")
	})
	return httptest.NewServer(mux)
}

func submit(w http.ResponseWriter, r *http.Request) {
	var prd client.PRD
	if err := json.NewDecoder(r.Body).Decode(&prd); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "malformed_json", "the body is not JSON")
		return
	}
	if len(prd.Tasks) == 0 {
		reply(w, http.StatusUnprocessableEntity, client.Problem{
			Detail: "tasks: names no task", Code: "invalid", Errors: []client.Field{{Location: "tasks", Message: "names no task"}, {Location: "title", Message: "is missing"}},
		})
		return
	}
	root := "plan-ok"
	if strings.Contains(prd.Title, "bad") {
		root = "plan-bad"
	}
	reply(w, http.StatusCreated, client.Submission{RootJobID: root, JobIDs: []string{"job-1"}})
}

func act(w http.ResponseWriter, r *http.Request) {
	for _, j := range exampleJobs() {
		if j.ID != r.PathValue("id") {
			continue
		}
		if r.PathValue("verb") == "cancel" {
			refuse(w, http.StatusConflict, "wrong_state", "cannot cancel job "+j.ID+": it is "+string(j.Status))
			return
		}
		j.Status = client.Queued
		reply(w, http.StatusOK, j)
		return
	}
	refuse(w, http.StatusNotFound, "not_found", "there is no job "+r.PathValue("id"))
}

func events(w http.ResponseWriter, r *http.Request) {
	root := r.URL.Query().Get("root_job_id")
	if root == "" {
		root = "plan-ok"
	}
	end, to := "job.completed", "COMPLETED"
	if root == "plan-bad" {
		end, to = "job.failed", "FAILED"
	}
	move := func(from, to string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"from":%q,"to":%q}`, from, to))
	}
	list := []client.Event{
		{Seq: 1, Type: "job.created", Entity: "job", EntityID: root, JobID: root, RootJobID: root, Actor: "local", At: noon(), Details: move("", "IN_PROGRESS")},
		{Seq: 2, Type: "job.created", Entity: "job", EntityID: "job-1", JobID: "job-1", RootJobID: root, Actor: "local", At: noon(), Details: move("", "QUEUED")},
		{Seq: 3, Type: end, Entity: "job", EntityID: "job-1", JobID: "job-1", RootJobID: root, Actor: "worker_default", At: noon(), Details: move("IN_PROGRESS", to)},
		{Seq: 4, Type: end, Entity: "job", EntityID: root, JobID: root, RootJobID: root, Actor: "system", At: noon(), Details: move("IN_PROGRESS", to)},
	}
	var after int64
	_, _ = fmt.Sscan(r.URL.Query().Get("after"), &after)
	list = list[min(int(after), len(list)):]
	if r.Header.Get("Accept") == "application/json" {
		reply(w, http.StatusOK, list)
		return
	}
	for _, e := range list {
		data, _ := json.Marshal(e)
		_, _ = fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Type, data)
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, code, detail string) {
	reply(w, status, client.Problem{Status: status, Code: code, Detail: detail})
}
