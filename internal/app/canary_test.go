package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsStayWhereTheyBelong plants secrets wherever people hand us some, and
// looks for them where they must not be: in what is logged, at the lowest level,
// in answers, errors, lists, events and the audit, and in the arguments of
// processes. What is only ever compared is not in the files of the manager either;
// variables and input are data of their run or sandbox, and kept with it.
func TestSecretsStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	canary := strings.ToLower(rand.Text())
	director, header, env, stdin := canary+"-director", canary+"-header", canary+"-env", canary+"-stdin"
	data := dataFolder(t)
	p, api, _ := up(t, data, "LOG_LEVEL=debug", "DIRECTOR_API_KEY="+director)
	ask := func(method, path, body string, headers ...string) string {
		t.Helper()
		return askPlain(t, method, api+path, body, append(headers, "X-API-Key", header)...)
	}
	look := func(where, text string) {
		t.Helper()
		if i := strings.Index(text, canary); i >= 0 {
			t.Errorf("%s holds a secret: …%s…", where, text[max(0, i-200):min(len(text), i+60)])
		}
	}

	quoted, _ := json.Marshal(map[string]string{"SECRET": env})
	look("a run", ask("POST", "/run", fmt.Sprintf(`{"language":"python","code":"1","env":%s,"stdin":%q}`, quoted, stdin)))
	made := ask("POST", "/api/v1/sandboxes", fmt.Sprintf(`{"env":%s}`, quoted))
	look("a new sandbox", made)
	var box struct{ ID string }
	if err := json.Unmarshal([]byte(made), &box); err != nil || box.ID == "" {
		t.Fatalf("no sandbox: %s", made)
	}
	look("an exec", ask("POST", "/api/v1/sandboxes/"+box.ID+"/execs?wait=30", fmt.Sprintf(`{"command":["true"],"env":%s}`, quoted)))
	look("a plan", ask("POST", "/prds", fmt.Sprintf(`{"title":"canary plan","tasks":[{"payload":{"action":"exec","command":["true"],"env":%s}}]}`, quoted)))
	look("a key", ask("POST", "/api/v1/keys", `{"kind":"viewer"}`, "X-Director-Key", director))
	for what, answer := range map[string]string{
		"a bad name":        ask("POST", "/run", fmt.Sprintf(`{"language":"python","code":"1","env":{"A=B":%q}}`, env)),
		"a bad value":       ask("POST", "/run", fmt.Sprintf(`{"language":"python","code":"1","env":{"A":"%s\u0000"}}`, env)),
		"a wrong director":  ask("POST", "/admin/resume", `{"reason":"r"}`, "X-Director-Key", canary+"-wrong"),
		"a good director":   ask("POST", "/admin/pause", `{"reason":"r"}`, "X-Director-Key", director),
		"a refused sandbox": ask("POST", "/api/v1/sandboxes", fmt.Sprintf(`{"env":%s}`, quoted)),
	} {
		look("the answer to "+what, answer)
	}
	for _, path := range []string{"/events?after=0&limit=1000", "/api/v1/audit", "/runs", "/jobs", "/api/v1/sandboxes", "/api/v1/sandboxes/" + box.ID, "/api/v1/sandboxes/" + box.ID + "/execs", "/api/v1/keys", "/api/v1/workers", "/metrics"} {
		look(path, ask("GET", path, "", "Accept", "application/json"))
	}
	for where, want := range map[string]string{"/events?after=0&limit=1000": box.ID, "/api/v1/audit": "organisation.paused", "/runs": "python", "/jobs": "canary plan", "/api/v1/keys": "viewer"} {
		if got := ask("GET", where, "", "Accept", "application/json"); !strings.Contains(got, want) {
			t.Errorf("%s does not show what was done, so that nothing was looked at: %s", where, got)
		}
	}
	for role, pid := range children(t, p.Process.Pid) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			t.Fatal(err)
		}
		look("the arguments of the "+role, string(line))
	}
	look("the log", p.said())
	never := [][]byte{[]byte(director), []byte(header), []byte(canary + "-wrong")}
	err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, secret := range never {
			if bytes.Contains(text, secret) {
				t.Errorf("%s holds %s", path, secret)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// askPlain sends a request and returns what came, whatever it is.
func askPlain(t *testing.T, method, url, body string, headers ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
