package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// synced is what a pass did, as the native door shows it.
type synced struct {
	Uploaded, Downloaded, Deleted []string
	Conflicts                     []struct{ Path, Winner string }
	Errors                        []struct{ Path, Code string }
	Duration                      float64
}

// TestFilesOutliveSandboxes writes in a real sandbox, and finds the files in the
// next one of the session, on request and as they change.
func TestFilesOutliveSandboxes(t *testing.T) {
	p := newPair(t)
	x := p.box(map[string]any{"name": "first"})
	p.shell(x, "mkdir src && echo one > src/a && echo '#!/bin/sh' > run && chmod 755 run && ln -s /etc/passwd link && head -c 11000000 /dev/zero > big")
	asked := map[string]any{"session": "story", "strategy": "ask"}
	r := p.sync(x, "", asked)
	if !slices.Equal(r.Uploaded, []string{"run", "src/a"}) || len(r.Errors) != 1 || r.Errors[0].Path != "big" || r.Errors[0].Code != "file_too_large" {
		t.Errorf("the first pass: %+v", r)
	}
	for _, keep := range []string{"sandbox", "stored"} {
		p.shell(x, "echo inside "+keep+" > src/a")
		p.must(http.MethodPut, "/api/v1/storage/story/content?path=src/a", []byte("outside "+keep+"\n"), http.StatusOK, nil)
		if r = p.sync(x, "", asked); len(r.Conflicts) != 1 || r.Conflicts[0].Winner != "" {
			t.Errorf("a conflict: %+v", r)
		}
		p.sync(x, "/resolve", map[string]any{"session": "story", "path": "src/a", "keep": keep})
		want := map[string]string{"sandbox": "inside sandbox\n", "stored": "outside stored\n"}[keep]
		if got := p.stored("story", "src/a"); got != want {
			t.Errorf("%s was to be kept: %q", keep, got)
		}
		p.shell(x, fmt.Sprintf("test \"$(cat src/a)\" = %q", want[:len(want)-1]))
	}
	p.must(http.MethodDelete, "/api/v1/sandboxes/"+x, nil, http.StatusOK, nil)

	y := p.box(map[string]any{"sync": map[string]any{"session": "story", "continuous": true}})
	eventually(t, "the next sandbox has the files", func() (bool, string) {
		a, err := p.ask(t.Context(), http.MethodGet, "/api/v1/sandboxes/"+y+"/files/content?path=/workspace/src/a", nil)
		return err == nil && a.status == http.StatusOK && string(a.body) == "outside stored\n", fmt.Sprint(a, err)
	})
	p.shell(y, "test -x run && echo soon > later")
	eventually(t, "what is written inside is stored", func() (bool, string) {
		return p.stored("story", "later") == "soon\n", ""
	})
	p.shell(y, "echo last > last")
	p.must(http.MethodDelete, "/api/v1/sandboxes/"+y, nil, http.StatusOK, nil)
	if got := p.stored("story", "last"); got != "last\n" {
		t.Errorf("what was written before the end: %q", got)
	}
}

func (p *pair) must(method, path string, body []byte, status int, into any) {
	p.t.Helper()
	a, err := p.ask(p.t.Context(), method, path, body)
	if err == nil && a.status != status {
		err = fmt.Errorf("%s %s: %s", method, path, a)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(a.body, into)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) box(body map[string]any) (id string) {
	p.t.Helper()
	var x box
	eventually(p.t, "a sandbox is made", func() (bool, string) {
		err := p.post(p.t.Context(), "/api/v1/sandboxes", body, &x)
		return err == nil, fmt.Sprint(err)
	})
	return x.ID
}

// shell runs a line in a sandbox, which must succeed.
func (p *pair) shell(id, line string) {
	p.t.Helper()
	var e command
	if err := p.post(p.t.Context(), "/api/v1/sandboxes/"+id+"/execs?wait=10", map[string]any{"shell": line}, &e); err != nil || e.State != "ENDED" || e.ExitCode != 0 {
		p.t.Fatalf("%s: %+v: %v", line, e, err)
	}
}

func (p *pair) sync(id, what string, body map[string]any) (r synced) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	p.must(http.MethodPost, "/api/v1/sandboxes/"+id+"/sync"+what, text, http.StatusOK, &r)
	return r
}

// stored is what a session has under a path; "" is nothing.
func (p *pair) stored(session, path string) string {
	p.t.Helper()
	a, err := p.ask(p.t.Context(), http.MethodGet, "/api/v1/storage/"+session+"/content?path="+path, nil)
	if err != nil || a.status != http.StatusOK && a.status != http.StatusNotFound {
		p.t.Fatal(a, err)
	}
	if a.status == http.StatusNotFound {
		return ""
	}
	return string(a.body)
}
