package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// counter prints a number every 50 ms.
var counter = []string{"perl", "-e", `$| = 1; for (1..100000) { print "$_\n"; select(undef, undef, undef, 0.05) }`}

// TestCounterGoesOn has a command count through everything that stops a sandbox
// and lets it go on. Its output has no gap and no repeat, in it and in its forks.
func TestCounterGoesOn(t *testing.T) {
	p := newPair(t)
	var x box
	eventually(t, "a sandbox is made", func() (bool, string) {
		err := p.post(t.Context(), "/api/v1/sandboxes", map[string]any{"memory_limit": "64m"}, &x)
		return err == nil, fmt.Sprint(err)
	})
	base := "/api/v1/sandboxes/" + x.ID
	var e command
	if err := p.post(t.Context(), base+"/execs", map[string]any{"command": counter, "timeout": 3600}, &e); err != nil {
		t.Fatal(err)
	}
	do := func(what, path, body string, status int) answer {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience) // twenty forks take their time beside other tests
		defer cancel()
		a, err := p.insist(ctx, http.MethodPost, base+path, []byte(body))
		if err != nil || a.status != status {
			t.Fatalf("%s: %s, %v", what, a, err)
		}
		return a
	}
	n := p.counts(x.ID, e.ID, 5)
	do("freeze", "/pause", `{"mode":"freeze"}`, 200)
	do("resume", "/resume", "", 200)
	n = p.counts(x.ID, e.ID, n+5)
	do("checkpoint", "/pause", `{"mode":"checkpoint"}`, 200)
	do("resume", "/resume", "", 200)
	n = p.counts(x.ID, e.ID, n+5)
	var snap struct{ ID string }
	if err := do("snapshot", "/snapshots", `{"kind":"full"}`, 201).into(201, &snap); err != nil {
		t.Fatal(err)
	}
	p.counts(x.ID, e.ID, n+20)
	do("restore", "/restore", fmt.Sprintf(`{"snapshot":%q}`, snap.ID), 200)
	n = p.counts(x.ID, e.ID, n+10)

	count := number(t, "FORKS", 20)
	var forks []box
	if err := do("fork", "/fork", fmt.Sprintf(`{"count":%d}`, count), 201).into(201, &forks); err != nil || len(forks) != count {
		t.Fatalf("%d forks, %v", len(forks), err)
	}
	hosts := map[string]bool{}
	for _, f := range forks {
		var execs []struct {
			ID     string
			ForkOf string `json:"fork_of"`
		}
		if err := p.get(t.Context(), "/api/v1/sandboxes/"+f.ID+"/execs", &execs); err != nil || len(execs) != 1 || execs[0].ForkOf != e.ID {
			t.Fatalf("the execs of a fork are %+v, %v", execs, err)
		}
		p.counts(f.ID, execs[0].ID, n+5)
		a, err := p.ask(t.Context(), http.MethodPost, "/api/v1/sandboxes/"+f.ID+"/execs?wait=30", []byte(`{"shell":"hostname; od -An -N8 -tx8 /dev/urandom"}`))
		if err != nil || a.status != http.StatusCreated {
			t.Fatalf("%s, %v", a, err)
		}
		_, text, _ := strings.Cut(string(a.body), `"text":"`)
		text, _, _ = strings.Cut(text, `"`)
		if hosts[text] || len(text) < 20 {
			t.Errorf("two forks say %q", text)
		}
		hosts[text] = true
	}
	p.counts(x.ID, e.ID, n+5)
	for _, f := range append(forks, x) {
		if a, err := p.ask(t.Context(), http.MethodDelete, "/api/v1/sandboxes/"+f.ID, nil); err != nil || a.status != http.StatusOK {
			t.Errorf("delete: %s, %v", a, err)
		}
	}
}

// counts waits until a counter has come so far, and looks at all that it has
// printed.
func (p *pair) counts(sandbox, exec string, far int) (n int) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("the counter comes to %d", far), func() (bool, string) {
		a, err := p.ask(p.t.Context(), http.MethodGet, "/api/v1/sandboxes/"+sandbox+"/execs/"+exec+"/output", nil)
		if err != nil || a.status != http.StatusOK || len(a.body) == 0 {
			return false, fmt.Sprintf("%s, %v", a, err)
		}
		lines := strings.Split(strings.TrimSuffix(string(a.body), "\n"), "\n")
		for i, line := range lines {
			if line != fmt.Sprint(i+1) {
				p.t.Fatalf("line %d is %q", i+1, line)
			}
		}
		n = len(lines)
		return n >= far, fmt.Sprintf("%d lines", n)
	})
	return n
}
