package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
)

// TestAnyManagerReachesAnySandbox asks each of two managers for everything that
// needs the worker of a sandbox, which has its own stream at one of them; then
// that one is killed.
func TestAnyManagerReachesAnySandbox(t *testing.T) {
	t.Parallel()
	p := newCluster(t)
	ask := map[string]*asker{}
	for _, name := range p.managers {
		ask[name] = newAsker(t, "http://"+p.proxies[name].Address())
	}
	echo := func(name, id string, n int) (bool, string) {
		a, err := ask[name].ask(t.Context(), http.MethodPost, "/api/v1/sandboxes/"+id+"/execs?wait=10", fmt.Appendf(nil, `{"command":["echo","number %d"]}`, n))
		return err == nil && a.status == http.StatusCreated && bytes.Contains(a.body, fmt.Appendf(nil, `"text":"number %d\n"`, n)), fmt.Sprintf("%s: %s, %v", name, a, err)
	}
	boxes := map[string]box{} // by the manager that made it
	for _, name := range p.managers {
		var x box
		eventually(t, "a sandbox is made", func() (bool, string) {
			err := ask[name].post(t.Context(), "/api/v1/sandboxes", map[string]any{"driver": "fake"}, &x)
			return err == nil, fmt.Sprint(err)
		})
		boxes[name] = x
	}
	for _, x := range boxes {
		for _, name := range p.managers { // a second stream is open a moment after the first
			eventually(t, "a command runs", func() (bool, string) { return echo(name, x.ID, 0) })
		}
		for n := range 10 {
			for _, name := range p.managers {
				if ok, seen := echo(name, x.ID, n); !ok {
					t.Error(seen)
				}
			}
		}
		content := "/api/v1/sandboxes/" + x.ID + "/files/content?path=/workspace/f"
		if a, err := ask["manager_a"].ask(t.Context(), http.MethodPut, content, []byte("from a"), "Content-Type", "application/octet-stream"); err != nil || a.status >= 300 {
			t.Errorf("%s, %v", a, err)
		}
		if a, err := ask["manager_b"].ask(t.Context(), http.MethodGet, content, nil); err != nil || string(a.body) != "from a" {
			t.Errorf("%s, %v", a, err)
		}
	}
	for _, name := range p.managers {
		for _, x := range boxes {
			for _, verb := range []string{"/pause", "/resume"} {
				if a, err := ask[name].ask(t.Context(), http.MethodPost, "/api/v1/sandboxes/"+x.ID+verb, nil); err != nil || a.status != http.StatusOK {
					t.Errorf("%s%s: %s, %v", name, verb, a, err)
				}
			}
		}
	}

	if err := p.live["manager_a"].kill(); err != nil {
		t.Fatal(err)
	}
	for _, x := range boxes {
		eventually(t, "a command runs without the other manager", func() (bool, string) { return echo("manager_b", x.ID, 99) })
		if a, err := ask["manager_b"].ask(t.Context(), http.MethodDelete, "/api/v1/sandboxes/"+x.ID, nil); err != nil || a.status != http.StatusOK || !bytes.Contains(a.body, []byte("COMPLETED")) {
			t.Errorf("delete: %s, %v", a, err)
		}
	}
}
