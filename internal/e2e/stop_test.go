package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ends waits until a sandbox has ended as killed, with a word of the reason.
func (p *pair) ends(id, reason string) {
	p.t.Helper()
	var x struct{ State, Outcome, Reason string }
	eventually(p.t, "the sandbox has ended", func() (bool, string) {
		err := p.get(p.t.Context(), "/api/v1/sandboxes/"+id, &x)
		return err == nil && x.State == "FAILED" && x.Outcome == "killed" && strings.Contains(x.Reason, reason), fmt.Sprintf("%+v, %v", x, err)
	})
}

// makes waits until a sandbox can be made.
func (p *pair) makes() (x box) {
	p.t.Helper()
	eventually(p.t, "a sandbox is made", func() (bool, string) {
		err := p.post(p.t.Context(), "/api/v1/sandboxes", map[string]any{}, &x)
		return err == nil, fmt.Sprint(err)
	})
	return x
}

// TestATripWithoutAWorker kills what a worker has left that was killed itself. It
// needs neither a manager nor a worker, and the next worker tells of it.
func TestATripWithoutAWorker(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	ids := p.fill(3)
	for _, one := range []*process{p.manager, p.worker} {
		if err := one.kill(); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.alive(); n < len(ids) {
		t.Fatalf("%d sandboxes outlived their worker", n)
	}
	base := filepath.Join(p.folder, "worker")
	trip := func(code int, word string, args ...string) {
		t.Helper()
		one, err := start([]string{"SANDBOX_BASE=" + base}, nil, append([]string{"kill-switch", "trip"}, args...)...)
		if err == nil {
			err = one.wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := one.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(one.said(), word) {
			t.Errorf("trip %q: exit %d, %s", args, got, one.said())
		}
	}
	trip(6, "no worker runs here that could freeze", "--freeze", "wait")
	if n := p.alive(); n < len(ids) {
		t.Errorf("%d sandboxes outlived what could not be done", n)
	}
	seen := p.watchExits()
	trip(0, "everything that one has left has ended", "a leaked key")
	seen.await(t)
	if n := p.alive(); n != 0 {
		t.Errorf("%d sandboxes live after the trip", n)
	}
	trip(0, "everything that one has left has ended", "a leaked key") // also where nothing is left
	if _, err := os.Stat(filepath.Join(base, "trip")); err != nil {
		t.Errorf("the next worker does not find it: %v", err)
	}

	p.startManager()
	p.startWorker()
	for _, id := range ids {
		p.ends(id, "a leaked key")
	}
	p.refuses()
	p.pull("/rearm", map[string]any{"reason": "the key is changed"})
	p.makes()
}

// TestAPartitionEndsSandboxes kills the manager for longer than the worker goes on
// without one.
func TestAPartitionEndsSandboxes(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, one := range []*process{p.manager, p.worker} {
		if err := one.kill(); err != nil {
			t.Fatal(err)
		}
	}
	const term = "AUREA_LEASE_TERM=3s"
	p.startManager(term)
	p.startWorker("AUREA_PARTITION_LIMIT=4s")
	ids := p.fill(3)
	if err := p.manager.kill(); err != nil {
		t.Fatal(err)
	}
	seen := p.watchExits() // the processes were there after the manager was gone
	if len(seen.fds) < len(ids) {
		t.Errorf("%d processes of %d sandboxes outlived the manager", len(seen.fds), len(ids))
	}
	seen.await(t)
	p.startManager(term)
	for _, id := range ids {
		p.ends(id, "no manager could be reached for 4s")
	}
	p.makes() // it goes on by itself
	var s struct{ Engaged bool }
	if err := p.get(t.Context(), "/api/v1/kill-switch", &s); err != nil || s.Engaged {
		t.Errorf("the manager took it for a switch: %+v, %v", s, err)
	}
}

// TestTheSubtreeOfAFleetIsKilled kills a member of the fleet with all below it, in
// real sandboxes, and leaves the others alone.
func TestTheSubtreeOfAFleetIsKilled(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.makes() // the worker's drivers are proved
	const fleet = "/api/v1/fleet"
	contract := map[string]any{"name": "wide", "max_depth": 3, "max_replicas": 10, "cooldown_seconds": 0, "expiration_seconds": 0}
	if a, err := p.ask(t.Context(), http.MethodPost, fleet+"/contracts", encode(t, contract)); err != nil || a.status >= http.StatusBadRequest {
		t.Fatalf("a contract: %v, %v", a, err)
	}
	launch := func(parent string) (w member) {
		t.Helper()
		asked := map[string]any{"contract": "wide"}
		if parent != "" {
			asked["parent_id"] = parent
		}
		var m paper
		err := p.post(t.Context(), fleet+"/manifests", asked, &m)
		if err == nil {
			err = p.post(t.Context(), fleet+"/workers", m, &w)
		}
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	root := launch("")
	child := launch(root.WorkerID)
	grandchild := launch(child.WorkerID)
	sibling, other := launch(root.WorkerID), launch("")
	var late paper
	if err := p.post(t.Context(), fleet+"/manifests", map[string]any{"parent_id": grandchild.WorkerID}, &late); err != nil {
		t.Fatal(err)
	}
	report := p.pull("", map[string]any{"level": "kill", "scope": "subtree", "root": child.WorkerID, "reason": "rogue"})
	if report.Killed != 2 {
		t.Errorf("the kill switch answered %+v", report)
	}
	for _, w := range []member{child, grandchild} {
		p.ends(*w.SandboxID, "rogue")
	}
	for _, w := range []member{root, sibling, other} {
		var x box
		if err := p.get(t.Context(), "/api/v1/sandboxes/"+*w.SandboxID, &x); err != nil || x.State != "RUNNING" {
			t.Errorf("one that was not meant is %+v, %v", x, err)
		}
	}
	for path, body := range map[string]any{fleet + "/manifests": map[string]any{"parent_id": child.WorkerID}, fleet + "/workers": late} {
		if a, err := p.ask(t.Context(), http.MethodPost, path, encode(t, body)); err != nil || a.status != http.StatusForbidden || !strings.HasPrefix(a.problem(), "deny_") {
			t.Errorf("%s below the dead: %v, %v", path, a, err)
		}
	}
	launch(root.WorkerID) // above it the law goes on
	p.pull("/rearm", map[string]any{"reason": "it is gone"})
	p.pull("", map[string]any{"level": "kill", "scope": "all", "reason": "the end"})
}

func encode(t *testing.T, body any) []byte {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
