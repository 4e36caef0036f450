package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/client"
)

// What a way in that changes something leaves beside a record of its own.
const (
	// work is ordinary work: what was submitted, done and written is in the
	// events, the evidence and the sandbox.
	work = "(work)"
	// shownElsewhere is recorded, and needs more than this test has: a build needs a
	// Docker Engine, a fork and a restore a driver that keeps memory (see
	// TestForksShareNothingTheyShouldNot).
	shownElsewhere = "(elsewhere)"
)

// recorded is what each way in that changes something leaves in the audit. A new
// one belongs here, and an act of control into TestEveryActLeavesARecord.
func recorded() map[string]string {
	const api, box, session, fleet = "/api/v1", "/api/v1/sandboxes/{sandbox}", "/api/v1/sessions/{session}", "/api/v1/fleet"
	const member, it = fleet + "/workers/{worker}", "/v1/apps/{app}/machines/{id}"
	return map[string]string{
		"POST " + api + "/prds": work, "POST " + api + "/run": work, "POST " + api + "/runs": work, "POST " + api + "/sandboxes": work, "POST " + api + "/sessions": work,
		"POST " + api + "/jobs/{id}/claim": work, "POST " + api + "/jobs/{id}/complete": work, "POST " + api + "/jobs/{id}/heartbeat": work,
		"POST " + api + "/jobs/{id}/stream": work, "POST " + api + "/jobs/{id}/submit": work, "POST " + api + "/jobs/{id}/validate": work,
		"POST " + api + "/jobs/{id}/assign": "job.assign", "POST " + api + "/jobs/{id}/cancel": "job.cancel", "POST " + api + "/jobs/{id}/retry": "job.retry",
		"POST " + api + "/runs/{id}/cancel": "run.cancel", "POST " + api + "/build-image": shownElsewhere, "POST " + api + "/gc": "history.collect",
		"POST " + api + "/keys": "key.created", "DELETE " + api + "/keys/{key}": "key.revoked", "POST " + api + "/audit/purge": "refuse_retention",
		"POST " + api + "/admin/pause": "organisation.paused", "POST " + api + "/admin/resume": "organisation.resumed",
		"POST " + api + "/kill-switch": "kill_switch_engaged", "POST " + api + "/kill-switch/unfreeze": "kill_switch_released", "POST " + api + "/kill-switch/rearm": "kill_switch_released",

		"PATCH " + box: "sandbox.updated", "DELETE " + box: "sandbox.end", "POST " + box + "/cancel": "sandbox.end", "POST " + box + "/pause": "sandbox.paused",
		"POST " + box + "/resume": "sandbox.resumed", "POST " + box + "/snapshots": "sandbox.snapshotted", "POST " + box + "/restore": shownElsewhere,
		"POST " + box + "/fork": shownElsewhere, "DELETE " + api + "/snapshots/{snapshot}": "snapshot.delete", "POST " + box + "/token": "token.create",
		"POST " + box + "/ports/{port}/links": "link.create", "POST " + box + "/execs": work, "POST " + box + "/execs/{exec}/input": work, "POST " + box + "/execs/{exec}/resize": work,
		"POST " + box + "/execs/{exec}/signal": "exec.signal", "POST " + box + "/execs/{exec}/kill": "exec.kill",
		"DELETE " + box + "/files": work, "PUT " + box + "/files/content": work, "POST " + box + "/files/copy": work, "POST " + box + "/files/mkdir": work,
		"POST " + box + "/files/move": work, "POST " + box + "/files/patch": work, "PUT " + box + "/tar": work, "POST " + box + "/sync": work, "POST " + box + "/sync/resolve": "sync.resolve",
		"PUT " + api + "/storage/{session}/content": work, "DELETE " + api + "/storage/{session}/content": "file.delete",
		"POST " + session + "/continue": work, "POST " + session + "/exec": work, "POST " + session + "/pause": "session.paused", "POST " + session + "/resume": "session.active",
		"POST " + session + "/stop": "session.completed",

		"POST " + fleet + "/manifests": "manifest_issued", "POST " + fleet + "/workers": "worker_registered", "DELETE " + member: "container_killed", "POST " + member + "/heartbeat": work,
		"POST " + member + "/replicate": "replication_requested", "POST " + member + "/enforce": work, "POST " + member + "/quarantine": "quarantine", "POST " + member + "/notes": "quarantine_note",
		"POST " + member + "/release": "quarantine_released", "POST " + member + "/terminate": "container_killed", "POST " + member + "/deregister": "container_killed",
		"POST " + member + "/decommission": "container_killed", "POST " + fleet + "/kill-all": "kill_all", "POST " + fleet + "/reap": "reap",
		"POST " + fleet + "/triggers": "trigger_added", "POST " + fleet + "/triggers/presets/{preset}": "trigger_added", "PATCH " + fleet + "/triggers/{trigger}": "trigger_changed",
		"DELETE " + fleet + "/triggers/{trigger}": "trigger_removed", "POST " + member + "/fire": "trigger_fired", "POST " + member + "/revive": "worker_revived",
		"POST " + fleet + "/contracts": "contract_put", "POST " + fleet + "/keys": "manifest_key_made", "DELETE " + fleet + "/keys/{key}": "manifest_key_revoked",

		"POST /v1/apps": work, "DELETE /v1/apps/{app}": "app.deleted", "POST /v1/apps/{app}/machines": work, "POST " + it: "machine.updated", "DELETE " + it: "machine.moved",
		"POST " + it + "/start": "machine.moved", "POST " + it + "/stop": "machine.moved", "POST " + it + "/suspend": "machine.moved", "POST " + it + "/restart": "machine.moved",
		"POST " + it + "/signal": "exec.signal", "POST " + it + "/exec": work, "POST " + it + "/metadata/{key}": "machine.updated", "DELETE " + it + "/metadata/{key}": "machine.updated",
		"POST " + it + "/lease": "machine.leased", "DELETE " + it + "/lease": "machine.leased", "POST " + it + "/cordon": "machine.updated", "POST " + it + "/uncordon": "machine.updated",
	}
}

// TestEveryChangeIsInTheTable finds ways in that change something and of which
// nobody has said what they leave in the audit.
func TestEveryChangeIsInTheTable(t *testing.T) {
	t.Parallel()
	table := recorded()
	d := openDoors(t)
	all := d.api.Patterns()
	for _, p := range all {
		method, path, both := strings.Cut(p, " ")
		if !both || method == http.MethodGet || strings.HasPrefix(path, "/wire/") { // what workers say is work
			continue
		}
		if _, ok := table[p]; !ok && table[method+" /api/v1"+path] == "" {
			t.Errorf("%s changes something, and recorded does not say what it leaves in the audit", p)
		}
	}
	for p := range table {
		if !slices.Contains(all, p) {
			t.Errorf("%s is in the table, and leads nowhere", p)
		}
	}
}

// narrator does things over HTTP, and finds each in the audit.
type narrator struct {
	t    *testing.T
	base string
	n    int
	told map[string]bool
	// nonce is that of a lease, under which a machine is steered.
	nonce string
}

// do sends a request by a pattern, whose names are replaced, and demands that it
// left its record. What it answers is returned.
func (s *narrator) do(pattern, body string, names ...string) map[string]any {
	s.t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	query := ""
	if path, query, _ = strings.Cut(path, "?"); query != "" {
		query = "?" + query
	}
	key := method + " " + path
	s.n++
	id := fmt.Sprintf("narrated-%03d", s.n)
	text := askPlain(s.t, method, s.base+strings.NewReplacer(names...).Replace(path)+query, body, "X-Request-ID", id, "Authorization", "Bearer any", "Fly-Machine-Lease-Nonce", s.nonce)
	want, known := recorded()[key]
	if !known {
		s.t.Fatalf("%s is in no table", key)
	}
	s.told[key] = true
	answer := map[string]any{}
	_ = json.Unmarshal([]byte(text), &answer) // lists and nothing at all are answers too
	if want == work {
		return answer
	}
	var list []struct{ Action, Actor, Target, Outcome string }
	if err := json.Unmarshal([]byte(askPlain(s.t, http.MethodGet, s.base+"/api/v1/audit?request_id="+id, "")), &list); err != nil {
		s.t.Fatal(err)
	}
	for _, r := range list {
		if r.Action == want && r.Actor != "" && r.Target != "" && (r.Outcome == "done") == !strings.HasPrefix(want, "refuse_") {
			return answer
		}
	}
	s.t.Errorf("%s answers %.300s and leaves %+v, want %s", pattern, text, list, want)
	return answer
}

// made is the id in an answer.
func (s *narrator) made(name string, answer map[string]any) string {
	s.t.Helper()
	id, _ := answer[name].(string)
	if id == "" {
		s.t.Errorf("there is no %s in %v", name, answer)
	}
	return id
}

// TestEveryActLeavesARecord does every act of control once, through a server with
// sandboxes, and finds it in the audit under the id of its request.
func TestEveryActLeavesARecord(t *testing.T) {
	t.Parallel()
	_, base, _ := up(t, dataFolder(t))
	s := &narrator{t: t, base: base, told: map[string]bool{}}
	s.ofJobs()
	s.ofSandboxes()
	s.ofSessions()
	s.ofMachines()
	s.ofTheFleet()
	s.ofTheServer()
	for pattern, action := range recorded() {
		if action != work && action != shownElsewhere && !s.told[pattern] {
			t.Errorf("nobody did %s", pattern)
		}
	}
	var report struct{ OK bool }
	if err := json.Unmarshal([]byte(askPlain(t, http.MethodGet, base+"/api/v1/audit/verify", "")), &report); err != nil || !report.OK {
		t.Errorf("the audit does not verify: %v", err)
	}
}

func (s *narrator) ofJobs() {
	const job = "POST /api/v1/jobs/{id}/"
	const more = 12 // than the worker has places: the last one waits
	task := `{"payload":{"action":"exec","command":["sleep","600"]}}`
	plan := s.do("POST /api/v1/prds", `{"title":"a plan to steer","tasks":[`+strings.Repeat(task+",", more-1)+task+`]}`)
	ids, _ := plan["job_ids"].([]any)
	if len(ids) != more {
		s.t.Fatalf("the plan is %v", plan)
	}
	waits, _ := ids[more-1].(string)
	s.do(job+"assign", `{"model":"employee_ollama"}`, "{id}", waits)
	s.do(job+"cancel", `{"reason":"why"}`, "{id}", waits)
	s.do(job+"retry", `{}`, "{id}", waits)
	s.do(job+"cancel", `{"reason":"all of it"}`, "{id}", s.made("root_job_id", plan))
	run := s.do("POST /api/v1/runs", `{"language":"python","code":"1","env":{"FAKE_SLEEP":"600s"}}`)
	s.do("POST /api/v1/runs/{id}/cancel", `{"reason":"why"}`, "{id}", s.made("run_id", run))
}

func (s *narrator) ofSandboxes() {
	const make, box, storage = "POST /api/v1/sandboxes", "/api/v1/sandboxes/{sandbox}", "/api/v1/storage/{session}/content?path=notes.txt"
	id := s.made("id", s.do(make, `{}`))
	on := func(pattern, body string, more ...string) map[string]any {
		s.t.Helper()
		return s.do(pattern, body, append([]string{"{sandbox}", id}, more...)...)
	}
	on("PATCH "+box, `{"ttl":3600}`)
	on("POST "+box+"/token", `{}`)
	on("POST "+box+"/ports/{port}/links", `{}`, "{port}", "8080")
	for _, verb := range []string{"signal", "kill"} {
		exec := s.made("id", on("POST "+box+"/execs", `{"command":["sleep","600"]}`))
		on("POST "+box+"/execs/{exec}/"+verb, map[string]string{"signal": `{"signal":10}`, "kill": `{}`}[verb], "{exec}", exec)
	}
	on("POST "+box+"/pause", `{}`)
	on("POST "+box+"/resume", `{}`)
	snapshot := s.made("id", on("POST "+box+"/snapshots", `{"kind":"files"}`))
	s.do("DELETE /api/v1/snapshots/{snapshot}", "", "{snapshot}", snapshot)
	s.conflict(func() { on("PUT "+box+"/files/content?path=/workspace/notes.txt", "mine") }, func() { s.do("PUT "+storage, "stored", "{session}", "s") }, func() {
		on("POST "+box+"/sync", `{"session":"s","strategy":"manual"}`)
	})
	on("POST "+box+"/sync/resolve", `{"session":"s","path":"notes.txt","keep":"sandbox"}`)
	s.do("DELETE "+storage, "", "{session}", "s")
	on("DELETE "+box, "")
	s.do("POST "+box+"/cancel", `{"reason":"why"}`, "{sandbox}", s.made("id", s.do(make, `{}`)))
}

// conflict does steps after which both sides have a file that the other lacks.
func (s *narrator) conflict(steps ...func()) {
	for _, step := range steps {
		step()
	}
}

func (s *narrator) ofSessions() {
	const session = "/api/v1/sessions/{session}"
	begun := s.do("POST /api/v1/sessions", `{"prompt":"a prompt of some length"}`)
	id := s.made("id", begun)
	s.done(s.made("job_id", begun)) // a job that begins wakes a session that is paused
	for _, verb := range []string{"pause", "resume", "stop"} {
		s.do("POST "+session+"/"+verb, `{}`, "{session}", id)
	}
}

// done waits for the end of a job.
func (s *narrator) done(job string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for e, err := range newClient(s.t, s.base, "").Follow(ctx, client.EventFilter{JobID: job}, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Type == "job.completed" || e.Type == "job.failed" {
			return
		}
	}
}

func (s *narrator) ofMachines() {
	const machines = "/v1/apps/{app}/machines"
	const it = machines + "/{id}"
	s.do("POST /v1/apps", `{"app_name":"narrated","org_slug":"personal"}`)
	id := s.made("id", s.do("POST "+machines, `{"config":{"image":"host","init":{"exec":["sleep","600"]}}}`, "{app}", "narrated"))
	on := func(pattern, body string) map[string]any {
		s.t.Helper()
		return s.do(pattern, body, "{app}", "narrated", "{id}", id, "{key}", "colour")
	}
	settle := func(state string) {
		s.t.Helper()
		answer := askPlain(s.t, http.MethodGet, s.base+"/v1/apps/narrated/machines/"+id+"/wait?timeout=60&state="+state, "", "Authorization", "Bearer any")
		if !strings.Contains(answer, "true") {
			s.t.Errorf("the machine is not %s: %s", state, answer)
		}
	}
	settle("started")
	on("POST "+it+"/metadata/{key}", `{"value":"red"}`)
	on("DELETE "+it+"/metadata/{key}", "")
	on("POST "+it+"/cordon", "")
	on("POST "+it+"/uncordon", "")
	lease, _ := on("POST "+it+"/lease", `{"ttl":60}`)["data"].(map[string]any)
	s.nonce, _ = lease["nonce"].(string)
	on("DELETE "+it+"/lease", "")
	s.nonce = ""
	on("POST "+it+"/stop", `{}`)
	settle("stopped")
	on("POST "+it+"/start", `{}`)
	settle("started")
	on("POST "+it+"/suspend", `{}`)
	settle("suspended")
	on("POST "+it+"/start", `{}`)
	settle("started")
	on("POST "+it+"/restart", ``)
	settle("started")
	on("POST "+it+"/signal", `{"signal":"SIGUSR1"}`)
	on("POST "+it, `{"config":{"image":"host","init":{"exec":["sleep","600"]}}}`)
	on("DELETE "+it+"?force=true", "")
	on("DELETE /v1/apps/{app}", "")
}

func (s *narrator) ofTheFleet() {
	const fleet, member = "/api/v1/fleet", "/api/v1/fleet/workers/{worker}"
	s.do("POST "+fleet+"/contracts", `{"name":"narrated","max_depth":2,"max_replicas":10,"cooldown_seconds":0}`)
	launch := func() string {
		s.t.Helper()
		paper, err := json.Marshal(s.do("POST "+fleet+"/manifests", `{"contract":"narrated"}`))
		if err != nil {
			s.t.Fatal(err)
		}
		return s.made("worker_id", s.do("POST "+fleet+"/workers", string(paper)))
	}
	id := launch()
	on := func(verb, body string) {
		s.t.Helper()
		s.do("POST "+member+"/"+verb, body, "{worker}", id)
	}
	on("replicate", `{"reason":"more hands"}`)
	on("quarantine", `{"reason":"odd","severity":"low"}`)
	on("notes", `{"text":"look at it"}`)
	on("release", `{"resolution":"harmless"}`)
	on("quarantine", `{"reason":"odd","severity":"low"}`)
	on("terminate", `{"resolution":"guilty"}`)
	for _, verb := range []string{"deregister", "decommission"} {
		id = launch()
		on(verb, `{}`)
	}
	s.do("DELETE "+member+"?reason=done", "", "{worker}", launch())
	s.ofTriggers(launch())
	s.do("POST "+fleet+"/reap", `{}`)
	s.do("POST "+fleet+"/kill-all", `{"reason":"enough"}`)
	key := s.do("POST "+fleet+"/keys", `{}`)
	s.do("DELETE "+fleet+"/keys/{key}", "", "{key}", s.made("id", key))
}

func (s *narrator) ofTriggers(worker string) {
	const fleet, member = "/api/v1/fleet", "/api/v1/fleet/workers/{worker}"
	rule := s.made("id", s.do("POST "+fleet+"/triggers", `{"kind":"manual","strategy":"suspend","label":"narrated"}`))
	s.do("PATCH "+fleet+"/triggers/{trigger}", `{"label":"told"}`, "{trigger}", rule)
	s.do("POST "+member+"/fire", fmt.Sprintf(`{"trigger_id":%q}`, rule), "{worker}", worker)
	s.do("POST "+member+"/revive", `{"reason":"harmless"}`, "{worker}", worker)
	s.do("DELETE "+fleet+"/triggers/{trigger}", "", "{trigger}", rule)
	s.do("POST "+fleet+"/triggers/presets/{preset}", "", "{preset}", "conservative")
}

func (s *narrator) ofTheServer() {
	const api = "/api/v1"
	key := s.do("POST "+api+"/keys", `{"kind":"viewer","name":"narrated"}`)
	s.do("DELETE "+api+"/keys/{key}", "", "{key}", s.made("id", key))
	s.do("POST "+api+"/gc", `{}`)
	s.do("POST "+api+"/audit/purge", `{"reason":"why"}`)
	s.do("POST "+api+"/admin/pause", `{"reason":"why"}`)
	s.do("POST "+api+"/admin/resume", `{"reason":"why"}`)
	s.do("POST "+api+"/kill-switch", `{"level":"freeze","scope":"all","reason":"why"}`)
	s.do("POST "+api+"/kill-switch/unfreeze", `{"reason":"why"}`)
	s.do("POST "+api+"/kill-switch", `{"level":"kill","scope":"all","reason":"why"}`)
	s.do("POST "+api+"/kill-switch/rearm", `{"reason":"why"}`)
}

// TestRefusalsHaveRecords is refused at both doors because of states, and floods
// the server with wrong keys: the audit tells of them, and does not fill up.
func TestRefusalsHaveRecords(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	const api = "/api/v1"
	records := func(action string) (list []auditLine) {
		t.Helper()
		d.answers("auditor", api+"/audit?outcome=denied&action="+action, &list)
		return list
	}
	d.asks("operator", http.MethodPost, api+"/sessions/"+d.ids["session"]+"/stop", "")
	d.asks("operator", http.MethodDelete, api+"/sandboxes/"+d.ids["sandbox"], "")
	for _, refused := range []struct{ key, path, body, action string }{
		{"operator", api + "/sessions/" + d.ids["session"] + "/pause", "", "refuse_session_ended"},
		{"admin", api + "/sandboxes/" + d.ids["sandbox"] + "/token", "{}", "refuse_sandbox_ended"},
		{"a", "/v1/apps", `{"app_name":"` + d.ids["app"] + `","org_slug":"personal"}`, "refuse_app_exists"},
		{"viewer", "/v1/apps/" + d.ids["app"] + "/machines", "{}", "refuse_denied"},
	} {
		for range 3 {
			if got := d.asks(refused.key, http.MethodPost, refused.path, refused.body); got.Code != http.StatusConflict && got.Code != http.StatusForbidden && got.Code != http.StatusBadRequest {
				t.Errorf("%s: %d %s", refused.path, got.Code, got.Body)
			}
		}
		if list := records(refused.action); len(list) != 1 {
			t.Errorf("%s left %+v, want one %s", refused.path, list, refused.action)
		}
	}
	for i := range 300 {
		d.keys["wrong"] = fmt.Sprint("aurea_admin_", i/2)
		if got := d.asks("wrong", http.MethodGet, api+"/jobs", ""); got.Code != http.StatusUnauthorized && got.Code != http.StatusTooManyRequests {
			t.Fatalf("a wrong key: %d %s", got.Code, got.Body)
		}
	}
	if list := records("deny_key"); len(list) != 5 {
		t.Errorf("wrong keys left %d records", len(list))
	}
	if text := d.asks("auditor", http.MethodGet, api+"/audit?action=deny_key", "").Body.String(); strings.Contains(text, "aurea_admin_") || !strings.Contains(text, `"address":"192.0.2.1"`) || !strings.Contains(text, `"unknown-`) {
		t.Errorf("the records are %.400s", text)
	}
}
