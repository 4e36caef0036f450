package e2e

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// paper is a manifest as a client sees it.
type paper map[string]any

// member is a worker of the fleet as a client sees it.
type member struct {
	WorkerID  string  `json:"worker_id"`
	Status    string  `json:"status"`
	StartedAt *string `json:"started_at"`
	Reason    *string `json:"reason"`
	SandboxID *string `json:"sandbox_id"`
	Resources struct {
		CPULimit float64 `json:"cpu_limit"`
		Memory   int64   `json:"memory_limit_mb"`
	} `json:"resources"`
}

// TestTheFleetOverHTTP issues, launches and kills a worker, with a manager that
// is killed in between.
func TestTheFleetOverHTTP(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"fake", "gvisor"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			if driver == "gvisor" {
				needGVisor(t)
			}
			tellOfTheFleet(t, driver)
		})
	}
}

func tellOfTheFleet(t *testing.T, driver string) {
	t.Helper()
	sock, url, err := socket()
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, sock: sock, folder: dataFolder(t), asker: newAsker(t, url)}
	t.Cleanup(func() {
		_ = p.manager.kill()
		_ = sock.Close()
		bury(p.folder)
	})
	p.startManager()
	p.worker = startWorker(t, p.asker, binaries, filepath.Join(p.folder, "worker"), 4, "AUREA_DRIVER="+driver, "AUREA_ON_STOP=end")
	const fleet = "/api/v1/fleet"
	refused := func(what string, m paper, code string) {
		t.Helper()
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := p.ask(t.Context(), http.MethodPost, fleet+"/workers", text); err != nil || a.status != http.StatusForbidden || a.problem() != code {
			t.Errorf("%s: %v %v, want 403 %s", what, a, err, code)
		}
	}
	active := func() (n int) {
		t.Helper()
		var got struct{ Active int }
		if err := p.get(t.Context(), fleet+"/workers", &got); err != nil {
			t.Fatal(err)
		}
		return got.Active
	}

	resources := map[string]any{"cpu_limit": 0.5, "memory_limit_mb": 256, "network_policy": map[string]any{"allow_external": false}}
	refused("the literal manifest", paper{
		"worker_id": "w1", "parent_id": nil, "depth": 0, "state_snapshot": map[string]any{}, "issued_at": "2026-01-01T00:00:00Z", "resources": resources, "signature": "signed",
	}, "reject_manifest_signature")
	var m, spare paper
	for _, into := range []*paper{&m, &spare} {
		if err := p.post(t.Context(), fleet+"/manifests", map[string]any{"depth": 0, "state_snapshot": map[string]any{"task": "<x>&é"}, "resources": resources}, into); err != nil {
			t.Fatal(err)
		}
	}
	altered := paper{}
	for k, v := range m {
		altered[k] = v
	}
	altered["resources"] = map[string]any{"cpu_limit": 4, "memory_limit_mb": 256, "network_policy": map[string]any{}}
	refused("an altered manifest", altered, "reject_manifest_signature")
	if n := active(); n != 0 {
		t.Errorf("%d are there before the launch", n)
	}

	var w member
	eventually(t, "a worker is launched", func() (bool, string) { // the worker's drivers may still be proved
		err := p.post(t.Context(), fleet+"/workers", m, &w)
		if err == nil {
			return true, ""
		}
		if err := p.post(t.Context(), fleet+"/manifests", map[string]any{"resources": resources}, &m); err != nil {
			t.Fatal(err) // the paper of a launch that failed is used
		}
		return false, err.Error()
	})
	if w.Status != "running" || w.StartedAt == nil || w.Reason != nil || w.Resources.CPULimit != 0.5 || w.Resources.Memory != 256 || active() != 1 {
		t.Errorf("launched %+v, %d are there", w, active())
	}
	refused("a used manifest", m, "reject_manifest_replay")
	var x struct {
		State  string
		Limits struct {
			Memory int64 `json:"memory_bytes"`
			CPU    float64
		}
	}
	if err := p.get(t.Context(), "/api/v1/sandboxes/"+*w.SandboxID, &x); err != nil || x.State != "RUNNING" || x.Limits.Memory != 256<<20 || x.Limits.CPU != 0.5 {
		t.Errorf("its sandbox is %+v: %v", x, err)
	}

	_ = p.manager.kill()
	p.startManager()
	if n := active(); n != 1 {
		t.Errorf("%d are there after the manager was killed", n)
	}
	eventually(t, "the worker answers again", func() (bool, string) {
		a, err := p.ask(t.Context(), http.MethodPost, fleet+"/workers/"+w.WorkerID+"/enforce", nil)
		return err == nil && a.status == http.StatusOK && strings.Contains(string(a.body), "resource_enforced"), a.String()
	})
	a, err := p.ask(t.Context(), http.MethodPost, fleet+"/workers/"+w.WorkerID+"/heartbeat", nil)
	if err != nil || a.status != http.StatusOK || !strings.Contains(string(a.body), `"accepted":true`) {
		t.Errorf("a heartbeat: %v %v", a, err)
	}
	if driver == "gvisor" {
		p.quarantine(fleet+"/workers/"+w.WorkerID, *w.SandboxID)
	}
	for i, want := range []string{`"killed":true`, `"killed":false`} {
		a, err := p.ask(t.Context(), http.MethodDelete, fleet+"/workers/"+w.WorkerID+"?reason=done", nil)
		if err != nil || a.status != http.StatusOK || !strings.Contains(string(a.body), want) {
			t.Errorf("kill number %d: %v %v", i+1, a, err)
		}
	}
	if err := p.get(t.Context(), fleet+"/workers/"+w.WorkerID, &w); err != nil || w.Status != "killed" || w.Reason == nil || *w.Reason != "done" || active() != 0 {
		t.Errorf("killed %+v, %d are there: %v", w, active(), err)
	}
	if err := p.get(t.Context(), "/api/v1/sandboxes/"+*w.SandboxID, &x); err != nil || x.State != "FAILED" {
		t.Errorf("its sandbox is %+v: %v", x, err)
	}
}

// quarantine puts a worker under quarantine and lets it go on: meanwhile it
// stands still, has no children, and its files are put aside.
func (p *pair) quarantine(worker, sandbox string) {
	p.t.Helper()
	post := func(verb, body string) answer {
		p.t.Helper()
		a, err := p.ask(p.t.Context(), http.MethodPost, worker+"/"+verb, []byte(body))
		if err != nil {
			p.t.Fatal(err)
		}
		return a
	}
	var got struct {
		Standing   string
		Quarantine struct {
			Status       string
			Restrictions map[string]bool
			Bundle       struct {
				Files  string `json:"files_sha256"`
				Record string `json:"record_sha256"`
			}
		}
	}
	if err := post("quarantine", `{"reason":"odd","severity":"high"}`).into(http.StatusOK, &got); err != nil {
		p.t.Fatal(err)
	}
	if q := got.Quarantine; got.Standing != "QUARANTINED" || !q.Restrictions["task_execution_paused"] || !q.Restrictions["replication_blocked"] || q.Bundle.Files == "" || q.Bundle.Record == "" {
		p.t.Errorf("the quarantine is %+v", got)
	}
	var x struct{ Paused *string }
	if err := p.get(p.t.Context(), "/api/v1/sandboxes/"+sandbox, &x); err != nil || x.Paused == nil {
		p.t.Errorf("its sandbox is not frozen: %+v, %v", x, err)
	}
	for verb, code := range map[string]string{"replicate": "deny_quarantined", "heartbeat": "deny_quarantined"} {
		if a := post(verb, `{}`); a.status != http.StatusForbidden || a.problem() != code {
			p.t.Errorf("%s under quarantine: %v", verb, a)
		}
	}
	if err := post("release", `{"resolution":"harmless"}`).into(http.StatusOK, &got); err != nil || got.Quarantine.Status != "released" || got.Standing != "ACTIVE" {
		p.t.Errorf("released: %+v, %v", got, err)
	}
}
