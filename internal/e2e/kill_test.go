package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// alive counts the processes that are sandboxes of this pair.
func (p *pair) alive() (n int) {
	for _, args := range processes() {
		if len(args) > 0 && strings.HasPrefix(args[0], "runsc-sandbox") && strings.Contains(strings.Join(args, " "), p.folder) {
			n++
		}
	}
	return n
}

// TestTheKillSwitchOverRealSandboxes kills live sandboxes with jobs under way and
// others that wait, and then everything else: nothing starts afterwards, until the
// switch is re-armed. SANDBOXES=200 JOBS=1000 is what the design asks for.
func TestTheKillSwitchOverRealSandboxes(t *testing.T) {
	boxes, jobs := number(t, "SANDBOXES", 20), number(t, "JOBS", 50)
	p := newPair(t)
	if err := p.worker.kill(); err != nil {
		t.Fatal(err)
	}
	env := []string{"SANDBOX_MEMORY_LIMIT=64m", "AUREA_MEMORY=64g"}
	p.startWorker(env...)
	ids := p.fill(boxes)
	tasks := make([]map[string]any, jobs)
	for i := range tasks {
		tasks[i] = map[string]any{"title": fmt.Sprint(i), "payload": map[string]any{"action": "exec", "command": []string{"sleep", "600"}}}
	}
	if err := p.post(t.Context(), "/api/v1/prds", map[string]any{"title": "work", "tasks": tasks}, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "jobs run beside the sandboxes", func() (bool, string) {
		n := p.alive()
		return n > boxes, fmt.Sprint(n, " live")
	})

	began := time.Now()
	report := p.pull("", map[string]any{"level": "kill", "scope": "all", "reason": "fire"})
	eventually(t, "all are dead", func() (bool, string) {
		n := p.alive()
		return n == 0, fmt.Sprint(n, " live")
	})
	t.Logf("killed %d of %d sandboxes and %d jobs, seen within %s", report.Killed, boxes, jobs, time.Since(began))
	if report.Killed < boxes || !report.Persisted || len(report.Unreachable) != 0 {
		t.Errorf("the kill switch answered %+v", report)
	}
	for _, kill := range []*process{p.manager, p.worker} {
		if err := kill.kill(); err != nil {
			t.Fatal(err)
		}
	}
	p.startManager()
	p.startWorker(env...)
	p.refuses()
	for _, id := range ids {
		var x struct{ State, Outcome, Reason string }
		eventually(t, "the sandbox has ended", func() (bool, string) {
			err := p.get(t.Context(), "/api/v1/sandboxes/"+id, &x)
			return err == nil && x.State == "FAILED" && x.Outcome == "killed" && strings.Contains(x.Reason, "fire"), fmt.Sprintf("%+v, %v", x, err)
		})
	}
	if n := p.alive(); n != 0 {
		t.Errorf("%d sandboxes live after the restart", n)
	}
	p.pull("/rearm", map[string]any{"reason": "it is out"})
	eventually(t, "a sandbox is made again", func() (bool, string) {
		err := p.post(t.Context(), "/api/v1/sandboxes", map[string]any{}, &box{})
		return err == nil, fmt.Sprint(err)
	})
	p.pull("", map[string]any{"level": "kill", "scope": "all", "reason": "the end"})
}

// fill makes so many sandboxes, with a command that runs in each.
func (p *pair) fill(n int) []string {
	p.t.Helper()
	ids, errs := make([]string, n), make([]error, n)
	turns := make(chan struct{}, 4)
	var group sync.WaitGroup
	eventually(p.t, "the worker serves", func() (bool, string) {
		var h struct {
			Available bool `json:"sandbox_available"`
		}
		err := p.get(p.t.Context(), "/health", &h)
		return err == nil && h.Available, fmt.Sprint(h, err)
	})
	for i := range n {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			var x box
			errs[i] = p.post(p.t.Context(), "/api/v1/sandboxes", map[string]any{}, &x)
			if ids[i] = x.ID; errs[i] == nil {
				errs[i] = p.post(p.t.Context(), "/api/v1/sandboxes/"+x.ID+"/execs", map[string]any{"command": []string{"sleep", "600"}}, &command{})
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return ids
}

type stopReport struct {
	Killed      int
	Persisted   bool
	Unreachable []string
}

func (p *pair) pull(verb string, body map[string]any) (r stopReport) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	a, err := p.ask(p.t.Context(), http.MethodPost, "/api/v1/kill-switch"+verb, text)
	if err == nil {
		err = a.into(http.StatusOK, &r)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// refuses demands that nothing new begins.
func (p *pair) refuses() {
	p.t.Helper()
	for path, body := range map[string]string{
		"/api/v1/sandboxes": `{}`, "/run": `{"code":"1"}`, "/prds": `{"title":"x","tasks":[{"title":"x","payload":{"action":"exec","command":["true"]}}]}`,
	} {
		a, err := p.ask(p.t.Context(), http.MethodPost, path, []byte(body))
		if err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.String(), "KILL_SWITCH") {
			p.t.Errorf("%s under the kill switch: %s, %v", path, a, err)
		}
	}
}
