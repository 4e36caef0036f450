package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSecretsStay looks for secrets everywhere but in the sandbox: in answers,
// events, logs, command lines, environments and files.
func TestSecretsStay(t *testing.T) {
	t.Parallel()
	f := newFort(t, false)
	// Where each may lie, and why. Nobody else can read those folders.
	const (
		ofSandbox = "canary-of-the-sandbox-5f1c" // the manager's database: forks and workers get it from there; the worker's journal: the next process needs it
		ofExec    = "canary-of-the-exec-77ab"    // the worker's journal of the command, until its end was told
		ofInput   = "canary-of-the-input-90de"   // nowhere
	)
	x := f.sandbox(map[string]any{"env": map[string]string{"SECRET": ofSandbox}, "secrets": []string{"SECRET"}})
	e := f.begin(x, map[string]any{"command": []string{"sh", "-c", "read line; test -n \"$SECRET$MINE\"; exec sleep 1000"}, "env": map[string]string{"MINE": ofExec}, "stdin": ofInput + "\n"})
	var l struct{ Token string }
	a := f.demand(t, "a link", []int{201}, http.MethodPost, x.path()+"/ports/8080/links", "")
	if err := a.into(http.StatusCreated, &l); err != nil {
		t.Fatal(err)
	}
	f.demand(t, "use it", []int{502}, http.MethodGet, x.path()+"/ports/8080/?aurea_token="+l.Token, "")
	f.demand(t, "fail with it", []int{422}, http.MethodPost, x.path()+"/execs", `{"command":["true"],"env":{"A B":"`+ofExec+`"}}`)
	f.demand(t, "fail with it", []int{201, 400, 404, 422}, http.MethodPost, x.path()+"/execs", `{"command":["/none"],"env":{"MINE":"`+ofExec+`"},"stdin":"`+ofInput+`"}`)
	secrets := []string{ofSandbox, ofExec, ofInput, l.Token}
	holds := func(what string, text []byte, allowed ...string) {
		t.Helper()
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s)) && !slices.Contains(allowed, s) {
				t.Errorf("%s holds %q", what, s)
			}
		}
	}
	for _, path := range []string{x.path(), "/api/v1/sandboxes", x.path() + "/execs", x.path() + "/execs/" + e.ID, "/api/v1/workers", "/api/v1/usage", "/metrics", x.path() + "/stats", "/api/v1/events?limit=1000"} {
		holds(path, f.demand(t, path, []int{200}, http.MethodGet, path, "", "Accept", "application/json").body)
	}
	holds("the manager's log", []byte(f.manager.said()))
	holds("the worker's log", []byte(f.worker.said()))
	for pid, args := range processes() {
		line := strings.Join(args, " ")
		if pid == os.Getpid() || strings.Contains(line, "e2e.test") {
			continue
		}
		holds("a command line", []byte(line))
		if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil {
			holds(fmt.Sprintf("the environment of %s", line), environ)
		}
	}
	err := filepath.WalkDir(f.folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // it is gone by now
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // it is gone by now
		}
		var allowed []string
		switch in, _ := filepath.Rel(f.folder, path); {
		case strings.HasPrefix(in, "data/") && strings.Contains(filepath.Base(in), ".db"):
			allowed = []string{ofSandbox}
		case strings.HasPrefix(in, "worker/"):
			allowed = []string{ofSandbox, ofExec}
		}
		holds(path, text, allowed...)
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s)) && !private(f.folder, path) {
				t.Errorf("%s holds %q and others can read it", path, s)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// private reports whether a file below a folder is nobody's but its owner's.
func private(folder, path string) bool {
	for at := path; at != folder; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return true // it is gone
		}
		if info.IsDir() && info.Mode().Perm()&0o011 == 0 || !info.IsDir() && info.Mode().Perm()&0o044 == 0 {
			return true
		}
	}
	return false
}

// TestForksShareNothingTheyShouldNot forks a sandbox and looks for what the
// forks have in common, and for what opens more than one of them.
func TestForksShareNothingTheyShouldNot(t *testing.T) {
	t.Parallel()
	f := newFort(t, true)
	x := f.sandbox(map[string]any{"env": map[string]string{"SECRET": "hidden", "OPEN": "shown"}, "secrets": []string{"SECRET"}, "memory_limit": "256m", "files": map[string]string{"f": "one"}})
	y := f.sandbox(map[string]any{"memory_limit": "256m"})
	var l struct{ Token string }
	if err := f.demand(t, "a link", []int{201}, http.MethodPost, x.path()+"/ports/8080/links", "", f.own()...).into(http.StatusCreated, &l); err != nil {
		t.Fatal(err)
	}
	type snapshot struct {
		ID         string
		Generation int64
	}
	var s, later snapshot
	if err := f.demand(t, "a snapshot", []int{201}, http.MethodPost, x.path()+"/snapshots", `{"kind":"full"}`, f.own()...).into(http.StatusCreated, &s); err != nil {
		t.Fatal(err)
	}
	fork := func(body map[string]any) (made []box) {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.demand(t, "fork", []int{201}, http.MethodPost, x.path()+"/fork", string(text), f.own()...).into(http.StatusCreated, &made); err != nil {
			t.Fatal(err)
		}
		return made
	}
	t.Run("H92 what is its own", func(t *testing.T) {
		seen := map[string]string{}
		forks := fork(map[string]any{"count": 2, "snapshot": s.ID})
		for _, z := range append(forks, x) {
			for what, line := range map[string]string{"name": "hostname", "randomness": "head -c 16 /dev/urandom | od -An -tx1", "uuid": "cat /proc/sys/kernel/random/uuid || head -c 16 /dev/urandom | od -An -tx1", "python": "python3 -c 'import random, uuid; print(random.random(), uuid.uuid4())'"} {
				got := f.run(z, line)
				if other, twice := seen[what+got]; twice {
					t.Errorf("%s and %s have the same %s: %s", z.ID, other, what, got)
				}
				seen[what+got] = z.ID
			}
		}
		for _, z := range forks {
			f.demand(t, "the link of its parent", []int{401}, http.MethodGet, z.path()+"/ports/8080/?aurea_token="+l.Token, "")
			f.demand(t, "another's key", []int{404, 403}, http.MethodGet, z.path(), "", bearer(f.bridge)...)
			// H93: nothing that was named a secret reaches what starts there.
			if got := f.run(z, "echo ${SECRET:-none} $OPEN; tr '\\0' '\\n' < /proc/1/environ 2>/dev/null | grep -c hidden || true"); got != "none shown\n0\n" {
				t.Errorf("a fork says %q", got)
			}
			f.run(z, "echo two > f")
			f.demand(t, "end", []int{200}, http.MethodDelete, z.path(), "", f.own()...)
		}
		if got := f.run(x, "cat f; echo $SECRET"); got != "onehidden\n" {
			t.Errorf("the parent says %q", got)
		}
		asked := fork(map[string]any{"snapshot": s.ID, "secrets": true})
		if got := f.run(asked[0], "echo $SECRET"); got != "hidden\n" {
			t.Errorf("a fork that was to have them says %q", got)
		}
		f.demand(t, "end", []int{200}, http.MethodDelete, asked[0].path(), "", f.own()...)
		f.demand(t, "restore", []int{200}, http.MethodPost, x.path()+"/restore", fmt.Sprintf(`{"snapshot":%q}`, s.ID), f.own()...)
		for _, action := range []string{"sandbox.fork", "sandbox.restored"} {
			a := f.demand(t, "the audit", []int{200}, http.MethodGet, "/api/v1/audit?action="+action+"&target="+x.ID, "", f.own()...)
			if !bytes.Contains(a.body, []byte(action)) {
				t.Errorf("%s left no record", action)
			}
		}
	})
	t.Run("F75 H97 snapshots of others", func(t *testing.T) {
		body := fmt.Sprintf(`{"snapshot":%q}`, s.ID)
		for _, do := range []string{"/fork", "/restore"} {
			f.demand(t, "another sandbox's snapshot "+do, []int{404, 409, 422}, http.MethodPost, y.path()+do, body, f.own()...)
			f.demand(t, "by another"+do, []int{403, 404}, http.MethodPost, x.path()+do, body, bearer(f.bridge)...)
			for _, id := range []string{"../" + s.ID, "none", "", x.ID, "%2e%2e"} {
				if do == "/restore" || id != "" {
					f.demand(t, do+id, []int{404, 409, 422}, http.MethodPost, x.path()+do, fmt.Sprintf(`{"snapshot":%q}`, id), f.own()...)
				}
			}
		}
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			f.demand(t, "by another", []int{403, 404}, method, "/api/v1/snapshots/"+s.ID, "", bearer(f.bridge)...)
			f.demand(t, "without a key", []int{401}, method, "/api/v1/snapshots/"+s.ID, "")
		}
	})
	t.Run("H95 generations", func(t *testing.T) {
		if err := f.demand(t, "a snapshot", []int{201}, http.MethodPost, x.path()+"/snapshots", `{"kind":"full"}`, f.own()...).into(http.StatusCreated, &later); err != nil {
			t.Fatal(err)
		}
		if later.Generation <= s.Generation {
			t.Errorf("generation %d comes after %d", later.Generation, s.Generation)
		}
		f.run(x, "echo last > f; sync")
		f.demand(t, "put it aside", []int{200}, http.MethodPost, x.path()+"/pause", `{"mode":"checkpoint"}`, f.own()...)
		f.demand(t, "resume", []int{200}, http.MethodPost, x.path()+"/resume", "", f.own()...)
		if got := f.run(x, "cat f"); got != "last\n" {
			t.Errorf("after a resume it holds %q, not what was acknowledged", got)
		}
	})
}
