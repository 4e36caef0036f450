package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// door is an API over a fake manager, for requests without a network.
type door struct {
	t *testing.T
	*fake
	api *httpapi.API
}

func open(t *testing.T) door {
	t.Helper()
	f := newFake()
	api, err := httpapi.New(httpapi.Config{Manager: f, Version: "1.2.3", Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	return door{t, f, api}
}

type answer struct {
	t      *testing.T
	Code   int
	Header http.Header
	Body   string
}

// ask sends a request; headers come as pairs.
func (d door) ask(method, path, body string, headers ...string) answer {
	d.t.Helper()
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.api.ServeHTTP(w, r)
	return answer{d.t, w.Code, w.Header(), w.Body.String()}
}

// into demands a status and reads the body.
func (a answer) into(status int, v any) {
	a.t.Helper()
	if a.Code != status {
		a.t.Fatalf("answers %d, want %d: %s", a.Code, status, a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), v); err != nil {
		a.t.Fatalf("%v: %s", err, a.Body)
	}
}

// problem demands a problem.
func (a answer) problem(status int) problem.Problem {
	a.t.Helper()
	var p problem.Problem
	a.into(status, &p)
	if a.Header.Get("Content-Type") != problem.ContentType || p.Status != status || p.Detail == "" || p.Code == "" || p.Title == "" || p.Type == "" {
		a.t.Fatalf("not a whole problem (%s): %s", a.Header.Get("Content-Type"), a.Body)
	}
	return p
}

// submit stores a plan with n tasks and returns the ids of their jobs.
func (d door) submit(n int) []string {
	d.t.Helper()
	tasks := strings.TrimSuffix(strings.Repeat(`{"role":"Employee","payload":{"action":"create file"}},`, n), ",")
	var out httpapi.AcceptedBody
	d.ask("POST", "/prds", `{"project_id":1,"title":"Test PRD","tasks":[`+tasks+`]}`).into(201, &out)
	return out.JobIDs
}

func TestSourceStory(t *testing.T) {
	t.Parallel()
	d := open(t)
	ids := d.submit(1)
	if len(ids) != 1 {
		t.Fatalf("made %d jobs", len(ids))
	}
	// A worker of the first generation: poll, claim with a bare string, work, complete.
	d.ask("POST", "/jobs/"+ids[0]+"/assign", `"employee_ollama"`).into(200, &struct{}{})
	var list []map[string]any
	d.ask("GET", "/jobs?status=ASSIGNED", "").into(200, &list)
	if len(list) != 1 || list[0]["id"] != ids[0] {
		t.Fatalf("polls %v", list)
	}
	var got httpapi.JobBody
	d.ask("POST", "/jobs/"+ids[0]+"/claim", `"employee_ollama"`, "Content-Type", "application/json").into(200, &got)
	if got.Status != job.InProgress || got.Fence != 1 || got.LeaseUntil == nil || *got.WorkerID != "employee_ollama" {
		t.Fatalf("claims %+v", got)
	}
	if p := d.ask("POST", "/jobs/"+ids[0]+"/claim", `"another"`).problem(409); p.Code != "wrong_state" {
		t.Fatalf("the loser gets %+v", p)
	}
	d.ask("POST", "/jobs/"+ids[0]+"/complete", `{"success":true,"details":{"snapshot":"/sandbox/snapshots/x.tar"}}`).into(200, &got)
	if got.Status != job.Completed || string(got.Details) != `{"snapshot":"/sandbox/snapshots/x.tar"}` {
		t.Fatalf("completes %+v", got)
	}
	if want := (result{"", nil, true, json.RawMessage(`{"snapshot":"/sandbox/snapshots/x.tar"}`)}); !cmp.Equal(d.last, want) {
		t.Fatal(cmp.Diff(want, d.last))
	}
}

func TestJobShape(t *testing.T) {
	t.Parallel()
	d := open(t)
	id := d.submit(1)[0]
	var got map[string]any
	d.ask("GET", "/api/v1/jobs/"+id, "").into(200, &got)
	want := []string{
		"assigned_model", "attempt", "completed_at", "created_at", "depends_on", "details", "fence", "id", "key", "lease_until", "max_retries",
		"outcome", "payload", "priority", "project_id", "retry_count", "role", "root_job_id", "session_id", "started_at", "status",
		"timeout_seconds", "title", "type", "updated_at", "validate", "worker_id",
	}
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatal(diff)
	}
	for _, name := range []string{"assigned_model", "outcome", "details", "completed_at", "worker_id", "key"} {
		if got[name] != nil {
			t.Errorf("%s is %v, want null", name, got[name])
		}
	}
	if !cmp.Equal(got["payload"], map[string]any{"action": "create file"}) || !cmp.Equal(got["depends_on"], []any{}) ||
		got["timeout_seconds"] != 900.0 || got["max_retries"] != 3.0 || got["title"] != "Test PRD" {
		t.Errorf("%v", got)
	}
}

func TestSubmission(t *testing.T) {
	t.Parallel()
	d := open(t)
	const body = `{"title":"Plan","extra":{"kept":true},"tasks":[{"key":"a","type":"IMPLEMENT","timeout_seconds":5,"max_retries":0,"priority":-2,
		"validate":true,"session_id":"s","depends_on":["b"],"payload":{"action":"exec","command":["ls"]}},{"key":"b","role":null}]}`
	var out httpapi.AcceptedBody
	// curl -d sends JSON under the name of a form.
	a := d.ask("POST", "/prds", body, "Content-Type", "application/x-www-form-urlencoded", "Idempotency-Key", "k 1")
	a.into(201, &out)
	if len(out.JobIDs) != 2 || out.RootJobID == "" || out.Message == "" || a.Header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%+v", out)
	}
	prd := d.last.(job.PRD)
	five, zero := 5*time.Second, 0
	want := job.Task{
		Key: "a", Type: "IMPLEMENT", Payload: json.RawMessage(`{"action":"exec","command":["ls"]}`), Priority: -2, DependsOn: []string{"b"},
		Timeout: &five, MaxRetries: &zero, Validate: true, SessionID: "s",
	}
	if diff := cmp.Diff(want, prd.Tasks[0]); diff != "" {
		t.Fatal(diff)
	}
	if string(prd.Source) != body {
		t.Fatalf("the source became %s", prd.Source)
	}
	var again httpapi.AcceptedBody
	a = d.ask("POST", "/api/v1/prds", body, "Idempotency-Key", "k 1")
	a.into(201, &again)
	if !cmp.Equal(out, again) || a.Header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("said again: %+v", again)
	}
	if p := d.ask("POST", "/prds", strings.Replace(body, "Plan", "Other", 1), "Idempotency-Key", "k 1").problem(409); p.Code != "idempotency_mismatch" {
		t.Fatalf("%+v", p)
	}
	for _, key := range []string{strings.Repeat("k", 201), "tab\tkey", "bad\xff"} {
		if p := d.ask("POST", "/prds", body, "Idempotency-Key", key).problem(422); p.Errors[0].Location != "header.Idempotency-Key" {
			t.Errorf("key %q: %+v", key, p)
		}
	}
}

func TestListing(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.submit(4)
	var seen []string
	next := "/jobs?limit=2&status=queued&project_id=1&role=Employee"
	for pages := 0; next != ""; pages++ {
		if pages > 3 {
			t.Fatal("the pages do not end")
		}
		a := d.ask("GET", next, "")
		var page []httpapi.JobBody
		a.into(200, &page)
		for _, j := range page {
			seen = append(seen, j.ID)
		}
		next = ""
		if m := regexp.MustCompile(`^<(/jobs\?.*)>; rel="next"$`).FindStringSubmatch(a.Header.Get("Link")); m != nil {
			next = m[1]
		}
	}
	if len(seen) != 4 || len(slices.Compact(slices.Sorted(slices.Values(seen)))) != 4 {
		t.Fatalf("saw %v", seen)
	}
	var none []httpapi.JobBody
	if a := d.ask("GET", "/jobs?project_id=0", ""); a.Code != 200 || strings.TrimSpace(a.Body) != "[]" {
		t.Fatalf("no jobs: %s", a.Body)
	}
	d.ask("GET", "/jobs?status=completed", "").into(200, &none)
	for query, where := range map[string]string{
		"status=DONE": "query.status", "limit=0": "query.limit", "limit=1001": "query.limit", "limit=x": "query.limit", "limit=1.5": "query.limit",
		"limit=99999999999999999999": "query.limit", "cursor=%00": "query.cursor", "cursor=ajE6LTE": "query.cursor", "project_id=one": "query.project_id",
		"statsu=QUEUED": "query.statsu", "role=%00": "query.role",
	} {
		if p := d.ask("GET", "/jobs?"+query, "").problem(422); len(p.Errors) == 0 || p.Errors[0].Location != where || !strings.Contains(p.Detail, where) {
			t.Errorf("%s: %+v", query, p)
		}
	}
	for _, id := range []string{"nope", "%00", strings.Repeat("a", 5000), "0198e1a4-0000-7000-8000-000000000000"} {
		d.ask("GET", "/jobs/"+id, "").problem(404)
	}
}

func TestDeadLettersAndStats(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.submit(5)
	for i := range d.jobs {
		switch i {
		case 1, 4:
			d.jobs[i].State, d.jobs[i].Outcome = job.Failed, job.OutcomeFailed
		case 2:
			d.jobs[i].State, d.jobs[i].Outcome = job.Failed, job.OutcomeLost
		case 3:
			d.jobs[i].State, d.jobs[i].Outcome = job.Failed, job.OutcomeCancelled
		}
	}
	var dead []httpapi.JobBody
	a := d.ask("GET", "/api/v1/queue/dead?limit=2", "")
	a.into(200, &dead)
	if len(dead) != 2 || dead[0].ID != d.jobs[4].ID || dead[1].ID != d.jobs[2].ID || a.Header.Get("Link") == "" {
		t.Fatalf("%+v", dead)
	}
	link := strings.TrimPrefix(strings.Split(a.Header.Get("Link"), ">")[0], "<")
	d.ask("GET", link, "").into(200, &dead)
	if len(dead) != 1 || dead[0].ID != d.jobs[1].ID {
		t.Fatalf("%+v", dead)
	}
	var stats httpapi.StatsBody
	d.ask("GET", "/api/v1/queue/stats", "").into(200, &stats)
	if stats.Counts["QUEUED"] != 1 || stats.Counts["FAILED"] != 4 || stats.Counts["COMPLETED"] != 0 || stats.Total != 5 || stats.OldestQueuedAt == nil {
		t.Fatalf("%+v", stats)
	}
	if a := d.ask("GET", "/api/v1/workers", ""); a.Code != 200 || !strings.Contains(a.Body, `"drivers":[]`) || strings.Contains(a.Body, "secret") {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
}

func TestSystem(t *testing.T) {
	t.Parallel()
	d := open(t)
	var root map[string]string
	d.ask("GET", "/", "").into(200, &root)
	if root["name"] != "Aurea Sandbox Orchestrator" || root["version"] != "1.2.3" {
		t.Fatal(root)
	}
	var h map[string]any
	d.ask("GET", "/health", "").into(200, &h)
	if v, there := h["docker_version"]; !there || v != nil || h["status"] != "healthy" || h["sandbox_available"] != true || h["version"] != "1.2.3" ||
		h["uptime_seconds"] != 60.0 || h["timestamp"] == nil || h["workers"] != 1.0 {
		t.Fatal(h)
	}
	d.ask("GET", "/ready", "").into(200, &h)
	if h["ready"] != true {
		t.Fatal(h)
	}
	d.health = job.Health{Workers: 1, Drivers: []string{"docker"}, Proofs: []job.Driver{{Name: "docker", Version: "20.10.24"}}}
	d.ask("GET", "/health", "").into(200, &h)
	if h["docker_version"] != "20.10.24" || h["status"] != "healthy" {
		t.Error(h)
	}
	d.health = job.Health{Workers: 1, Proofs: []job.Driver{{Name: "gvisor", Degraded: "a hole", Tried: 3, Stopped: 2}}}
	d.ask("GET", "/health", "").into(200, &h)
	of, _ := h["driver_status"].([]any)
	if h["status"] != "degraded" || h["sandbox_available"] != false || len(of) != 1 {
		t.Fatal(h)
	}
	if one, _ := of[0].(map[string]any); one["status"] != "degraded" || one["reason"] != "a hole" || one["tried"] != 3.0 || one["stopped"] != 2.0 {
		t.Fatal(h)
	}
	d.health = job.Health{Workers: 1, Drivers: []string{"gvisor"}, Paused: []string{"w: low disk"}}
	d.ask("GET", "/health", "").into(200, &h)
	if why, _ := h["paused"].([]any); h["status"] != "degraded" || h["sandbox_available"] != false || len(why) != 1 || why[0] != "w: low disk" {
		t.Fatal(h)
	}
	d.health = job.Health{}
	d.ask("GET", "/api/v1/health", "").into(200, &h)
	if h["status"] != "degraded" || h["sandbox_available"] != false {
		t.Fatal(h)
	}
	d.down = errDisk
	d.ask("GET", "/health", "").into(200, &h)
	if h["status"] != "degraded" {
		t.Fatal(h)
	}
	a := d.ask("GET", "/ready", "")
	if p := a.problem(503); p.Code != "not_ready" || a.Header.Get("Retry-After") == "" || strings.Contains(a.Body, "fire") {
		t.Fatalf("%+v", p)
	}
	if p := d.ask("GET", "/nowhere", "").problem(404); p.Code != "no_such_path" {
		t.Fatalf("%+v", p)
	}
	a = d.ask("DELETE", "/jobs", "")
	if a.problem(405); a.Header.Get("Allow") != "GET, HEAD" {
		t.Fatal(a.Header)
	}
}

// TestEveryRouteNamesItsAction holds the list of ways in, and what each asks
// of its caller, against accidents.
func TestEveryRouteNamesItsAction(t *testing.T) {
	t.Parallel()
	d := open(t)
	var got []string
	for _, r := range d.api.Routes() {
		action := string(r.Action)
		if action == "" {
			action = "public"
		}
		got = append(got, fmt.Sprintf("%s %s %s", r.Method, r.Path, action))
	}
	slices.Sort(got)
	want := []string{
		"POST /api/v1/keys manage", "GET /api/v1/keys manage", "DELETE /api/v1/keys/{key} manage",
		"GET /api/v1/audit audit", "GET /api/v1/audit/verify audit", "GET /api/v1/audit/proof audit", "GET /api/v1/audit/checkpoint audit", "GET /api/v1/audit/export audit", "POST /api/v1/audit/purge purge",
		"POST /api/v1/gc manage", "GET /api/v1/queue/dead read", "GET /api/v1/queue/stats read", "GET /api/v1/workers read", "GET /api/v1/languages read", "GET /api/v1/pool read",
		"GET /api/v1/kill-switch read", "POST /api/v1/kill-switch stop", "POST /api/v1/kill-switch/rearm rearm", "POST /api/v1/kill-switch/unfreeze stop",
		"GET /{$} public", "GET /docs public", "GET /docs/start.js public", "GET /docs/swagger-ui-bundle.js public", "GET /docs/swagger-ui.css public",
		"GET /redoc public", "GET /redoc/page.css public", "GET /redoc/redoc.standalone.js public", "GET /redoc/start.js public",
		"GET /openapi.json public", "GET /openapi.yaml public",
	}
	for _, both := range []string{
		"GET /events read", "GET /health public", "GET /jobs read", "GET /jobs/{id} read", "GET /jobs/{id}/artifacts read",
		"GET /jobs/{id}/artifacts/{name} read", "GET /jobs/{id}/events read", "GET /jobs/{id}/evidence read", "GET /jobs/{id}/logs read",
		"GET /jobs/{id}/snapshot read", "GET /ready public", "GET /ws/events read", "GET /ws/job/{id} read", "POST /jobs/{id}/assign control", "POST /jobs/{id}/cancel control",
		"GET /admin/pause read", "POST /admin/pause stop", "POST /admin/resume rearm",
		"POST /jobs/{id}/claim work", "POST /jobs/{id}/complete work", "POST /jobs/{id}/heartbeat work", "POST /jobs/{id}/retry control",
		"POST /build-image manage", "POST /jobs/{id}/stream work", "POST /jobs/{id}/submit work", "POST /jobs/{id}/validate work", "POST /prds submit",
		"GET /runs read", "GET /runs/{id} read", "GET /runs/{id}/artifacts/{name} read", "GET /runs/{id}/evidence read", "GET /runs/{id}/output read", "POST /run submit", "POST /runs submit",
		"POST /runs/{id}/cancel control",
	} {
		want = append(want, both, strings.Replace(both, " /", " /api/v1/", 1))
	}
	for _, route := range []string{
		"POST submit", "GET read", "GET /{sandbox} read", "PATCH /{sandbox} control", "DELETE /{sandbox} control", "POST /{sandbox}/cancel control",
		"POST /{sandbox}/pause control", "POST /{sandbox}/resume control", "GET /{sandbox}/stats read", "GET /{sandbox}/tar read", "GET /{sandbox}/files read", "DELETE /{sandbox}/files control", "GET /{sandbox}/files/stat read",
		"GET /{sandbox}/files/content read", "PUT /{sandbox}/files/content control", "POST /{sandbox}/files/mkdir control", "POST /{sandbox}/files/move control",
		"POST /{sandbox}/files/copy control", "GET /{sandbox}/files/watch read", "POST /{sandbox}/files/patch control", "POST /{sandbox}/ports/{port}/links control", "* /{sandbox}/ports/{port}/ control", "PUT /{sandbox}/tar control",
		"POST /{sandbox}/snapshots control", "GET /{sandbox}/snapshots read", "GET /{sandbox}/diff read", "POST /{sandbox}/restore control", "POST /{sandbox}/fork submit",
		"POST /{sandbox}/execs submit", "GET /{sandbox}/execs read", "GET /{sandbox}/execs/{exec} read", "GET /{sandbox}/execs/{exec}/output read",
		"GET /{sandbox}/execs/{exec}/attach control", "POST /{sandbox}/execs/{exec}/input control", "POST /{sandbox}/execs/{exec}/resize control",
		"POST /{sandbox}/execs/{exec}/signal control", "POST /{sandbox}/execs/{exec}/kill control",
		"POST /{sandbox}/token control", "POST /{sandbox}/sync control", "POST /{sandbox}/sync/resolve control",
	} {
		method, rest, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(rest, "/") {
			rest = " " + rest
		}
		want = append(want, method+" /api/v1/sandboxes"+rest)
	}
	for _, route := range []string{
		"POST  submit", "GET  read", "GET /{session} read", "POST /{session}/continue submit", "POST /{session}/exec submit",
		"POST /{session}/pause control", "POST /{session}/resume control", "POST /{session}/stop control",
	} {
		want = append(want, strings.Replace(route, " ", " /api/v1/sessions", 1))
	}
	for _, route := range []string{
		"POST /manifests govern", "POST /workers govern", "GET /workers read", "GET /workers/{worker} read", "DELETE /workers/{worker} govern",
		"POST /workers/{worker}/heartbeat govern", "POST /workers/{worker}/replicate govern", "POST /workers/{worker}/enforce govern",
		"POST /workers/{worker}/quarantine govern", "POST /workers/{worker}/notes govern", "POST /workers/{worker}/release govern",
		"POST /workers/{worker}/terminate govern", "POST /workers/{worker}/deregister govern", "POST /workers/{worker}/decommission govern",
		"GET /workers/{worker}/forensics read", "POST /kill-all govern", "POST /reap govern", "GET /lineage read", "POST /contracts manage", "GET /contracts read",
		"GET /templates read", "GET /keys read", "POST /keys manage", "DELETE /keys/{key} manage",
		"GET /triggers read", "POST /triggers manage", "GET /triggers/presets read", "POST /triggers/presets/{preset} manage", "GET /triggers/firings read",
		"GET /triggers/{trigger} read", "PATCH /triggers/{trigger} manage", "DELETE /triggers/{trigger} manage",
		"POST /workers/{worker}/fire govern", "POST /workers/{worker}/revive govern",
	} {
		want = append(want, strings.Replace(route, " ", " /api/v1/fleet", 1))
	}
	want = append(want, "GET /api/v1/usage read", "GET /api/v1/snapshots/{snapshot} read", "DELETE /api/v1/snapshots/{snapshot} control",
		"GET /api/v1/storage/{session} read", "GET /api/v1/storage/{session}/content read", "PUT /api/v1/storage/{session}/content control",
		"DELETE /api/v1/storage/{session}/content control", "GET /api/v1/storage/{session}/versions read", "GET /api/v1/storage/{session}/diff read")
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestOurOwnFailureIsAProblem(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.down = errDisk
	a := d.ask("GET", "/events", "")
	if p := a.problem(500); strings.Contains(a.Body, "fire") || p.Code != "internal" {
		t.Fatal(a.Body)
	}
}

func TestDocs(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, path := range []string{"/docs", "/redoc"} {
		a := d.ask("GET", path, "")
		if a.Code != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || !strings.Contains(a.Header.Get("Content-Security-Policy"), "script-src 'self'") {
			t.Errorf("%s: %d %v", path, a.Code, a.Header)
		}
	}
	var spec struct {
		OpenAPI string
		Paths   map[string]any
	}
	d.ask("GET", "/openapi.json", "").into(200, &spec)
	if spec.OpenAPI != "3.1.0" || len(spec.Paths) < 20 {
		t.Errorf("%s, %d paths", spec.OpenAPI, len(spec.Paths))
	}
	yaml, err := httpapi.Spec()
	if err != nil || d.ask("GET", "/openapi.yaml", "").Body != string(yaml) {
		t.Errorf("the served description is another one (%v)", err)
	}
}
