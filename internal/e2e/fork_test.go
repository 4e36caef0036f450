package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestForksOfAKilledManager kills a manager with -9 in the middle of a fork. The
// forks that nobody was told of are ended, and nothing is left of the snapshot
// that they were made from; what was forked goes on.
func TestForksOfAKilledManager(t *testing.T) {
	p := newPair(t, "AUREA_POOL=")
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
	n := p.counts(x.ID, e.ID, 5)

	told := make(chan []string, 1)
	go func() {
		var forks []box
		ids := []string{x.ID}
		if p.post(t.Context(), base+"/fork", map[string]any{"count": 12}, &forks) == nil {
			for _, f := range forks {
				ids = append(ids, f.ID)
			}
		}
		told <- ids
	}()
	open := func() (ids []string) {
		var list []box
		if err := p.get(t.Context(), "/api/v1/sandboxes?open=true", &list); err != nil {
			return nil
		}
		for _, b := range list {
			ids = append(ids, b.ID)
		}
		return ids
	}
	var made []string
	eventually(t, "the first forks are made", func() (bool, string) {
		made = open()
		return len(made) >= 3, fmt.Sprint(made)
	})
	if err := p.manager.kill(); err != nil {
		t.Fatal(err)
	}
	// Whoever was told has them; this is the rule, whenever the kill came.
	want := <-told
	p.startManager()
	slices.Sort(want)
	eventually(t, "those that nobody was told of are ended", func() (bool, string) {
		got := open()
		slices.Sort(got)
		return slices.Equal(got, want), fmt.Sprint(got)
	})
	checkpoints := filepath.Join(p.folder, "worker", "checkpoints", "*")
	none := func() (bool, string) {
		rest, err := filepath.Glob(checkpoints)
		return err == nil && len(rest) == 0, fmt.Sprint(rest, err)
	}
	eventually(t, "their snapshot is gone", none)
	for _, id := range made {
		var f struct{ State, Outcome, Reason string }
		if err := p.get(t.Context(), "/api/v1/sandboxes/"+id, &f); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(want, id) && (f.State != "FAILED" || f.Outcome == "" || f.Reason == "") {
			t.Errorf("fork %s is %+v", id, f)
		}
	}
	n = p.counts(x.ID, e.ID, n+5)

	// What a sandbox was put aside as goes with it.
	if a, err := p.ask(t.Context(), http.MethodPost, base+"/pause", []byte(`{"mode":"checkpoint"}`)); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s, %v", a, err)
	}
	if rest, err := filepath.Glob(checkpoints); err != nil || len(rest) != 1 || !strings.HasSuffix(rest[0], x.ID) {
		t.Errorf("put aside as %q, %v", rest, err)
	}
	if a, err := p.ask(t.Context(), http.MethodPost, base+"/resume", nil); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s, %v", a, err)
	}
	p.counts(x.ID, e.ID, n+5)
	for _, id := range want {
		if a, err := p.ask(t.Context(), http.MethodDelete, "/api/v1/sandboxes/"+id, nil); err != nil || a.status != http.StatusOK {
			t.Errorf("delete: %s, %v", a, err)
		}
	}
	eventually(t, "nothing is left on disk", none)
	eventually(t, "no sandbox process is left", func() (bool, string) {
		rest, err := filepath.Glob(filepath.Join(p.folder, "worker", "driver", "gvisor", "box", "*"))
		return err == nil && len(rest) == 0, fmt.Sprint(rest, err)
	})
}
