package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// TestTriggersOverRealSandboxes lets workers of the fleet run in circles: a
// trigger freezes the first, which really takes its processors away, and another
// kills both.
func TestTriggersOverRealSandboxes(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const fleet = "/api/v1/fleet"
	post := func(path string, body map[string]any, status int, into any) {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		a, err := p.ask(t.Context(), http.MethodPost, path, text)
		if err == nil {
			err = a.into(status, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	rule := func(strategy string) (id string) {
		t.Helper()
		var made struct{ ID string }
		post(fleet+"/triggers", map[string]any{
			"kind": "resource_cpu", "threshold": 5, "sustained_seconds": 2, "strategy": strategy, "cooldown_seconds": 0, "preserve_state": true, "label": "in circles",
		}, http.StatusCreated, &made)
		return made.ID
	}
	outcome := func(w member) string {
		t.Helper()
		var list []struct {
			Outcome *string
			Kind    string
		}
		if err := p.get(t.Context(), fleet+"/triggers/firings?limit=1&worker="+w.WorkerID, &list); err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 || list[0].Outcome == nil {
			_, _ = p.ask(t.Context(), http.MethodPost, fleet+"/workers/"+w.WorkerID+"/heartbeat", nil) // so that nothing else ends it
			return ""
		}
		return list[0].Kind + " " + *list[0].Outcome
	}
	ends := func(w member, want string) {
		t.Helper()
		eventually(t, "the trigger fires", func() (bool, string) {
			got := outcome(w)
			return got == want, got
		})
	}
	cpu := func(w member) (seconds float64) {
		t.Helper()
		var u struct {
			CPU float64 `json:"cpu_seconds"`
		}
		if err := p.get(t.Context(), "/api/v1/sandboxes/"+*w.SandboxID+"/stats", &u); err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}

	suspends := rule("suspend")
	first := p.circle(fleet)
	ends(first, "resource_cpu suspended")
	if a, err := p.ask(t.Context(), http.MethodDelete, fleet+"/triggers/"+suspends, nil); err != nil || a.status != http.StatusNoContent {
		t.Fatalf("remove the trigger: %v %v", a, err)
	}
	if a, err := p.ask(t.Context(), http.MethodPost, "/api/v1/sandboxes/"+*first.SandboxID+"/resume", nil); err != nil || a.status != http.StatusConflict {
		t.Errorf("its owner resumes what is suspended: %v %v", a, err)
	}
	frozen := cpu(first)
	second := p.circle(fleet)
	eventually(t, "another uses a second of a processor meanwhile", func() (bool, string) {
		n := cpu(second)
		return n > 1, fmt.Sprint(n)
	})
	if now := cpu(first); now-frozen > 0.1 {
		t.Errorf("the frozen one has used %f seconds more", now-frozen)
	}

	rule("forceful")
	ends(second, "resource_cpu killed")
	var w struct{ Status, Standing string }
	if err := p.get(t.Context(), fleet+"/workers/"+first.WorkerID, &w); err != nil || w.Standing != "SUSPENDED" {
		t.Errorf("the first is %+v: %v", w, err)
	}
	post(fleet+"/workers/"+first.WorkerID+"/revive", map[string]any{"reason": "once more"}, http.StatusOK, &w)
	ends(first, "resource_cpu killed")
	for _, x := range []member{first, second} {
		if err := p.get(t.Context(), fleet+"/workers/"+x.WorkerID, &w); err != nil || w.Status != "killed" {
			t.Errorf("%s is %+v: %v", x.WorkerID, w, err)
		}
		var left struct{ State, Outcome string }
		if err := p.get(t.Context(), "/api/v1/sandboxes/"+*x.SandboxID, &left); err != nil || left.State != "FAILED" || left.Outcome != "killed" {
			t.Errorf("the sandbox of %s is %+v: %v", x.WorkerID, left, err)
		}
		var forensic struct {
			Worker json.RawMessage `json:"worker"`
		}
		if err := p.get(t.Context(), fleet+"/workers/"+x.WorkerID+"/forensics", &forensic); err != nil || len(forensic.Worker) == 0 {
			t.Errorf("nothing was put aside of %s: %v", x.WorkerID, err)
		}
	}
}

// circle launches a worker that runs in circles.
func (p *pair) circle(fleet string) (w member) {
	p.t.Helper()
	eventually(p.t, "a worker is launched", func() (bool, string) { // the worker's drivers may still be proved
		var m paper
		err := p.post(p.t.Context(), fleet+"/manifests", map[string]any{}, &m)
		if err == nil {
			err = p.post(p.t.Context(), fleet+"/workers", m, &w)
		}
		return err == nil, fmt.Sprint(err)
	})
	if err := p.post(p.t.Context(), "/api/v1/sandboxes/"+*w.SandboxID+"/execs", map[string]any{"shell": "while :; do :; done"}, &command{}); err != nil {
		p.t.Fatal(err)
	}
	return w
}
