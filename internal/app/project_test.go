package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/aurea-dev/aurea/internal/policy"
)

// projectScopes are keys that are narrowed to a project: to that of everything in
// the table, to another, and to another for the owner of it all.
func projectScopes() map[string]policy.Scope {
	return map[string]policy.Scope{
		"in":        {Project: projectA},
		"outside":   {Project: 7},
		"a outside": {Project: 7, Owner: ownerA},
		"b inside":  {Project: projectA, Owner: "owner-b"},
	}
}

// ofProject reports whether a pattern is about what belongs to projects. It says
// again what the door says: everything else is closed to such keys.
func ofProject(pattern string) bool {
	_, path, _ := strings.Cut(pattern, "/")
	path = strings.TrimPrefix(path, "api/v1/")
	word, rest, _ := strings.Cut(path, "/")
	return slices.Contains([]string{"prds", "jobs", "events", "ws", "sandboxes", "snapshots", "usage", "sessions", "run", "runs", "languages", "pool"}, word) || word == "queue" && rest == "dead"
}

// TestEveryWayInWithTheKeyOfAProject walks every route with keys that are narrowed
// to a project: what belongs to another is as what nobody has, whoever's it is,
// and what belongs to no project is closed.
func TestEveryWayInWithTheKeyOfAProject(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	for pattern, asks := range d.patterns() {
		if asks == "" || asks == "public" {
			continue
		}
		open := ofProject(pattern) && slices.Contains([]string{"read", "submit", "control"}, asks)
		for name := range projectScopes() {
			nobodys := d.ask(pattern, name, false)
			if refused := nobodys.status == http.StatusForbidden; refused == open {
				t.Errorf("%s as %q: %d %s", pattern, name, nobodys.status, nobodys.body)
			}
			if name == "in" {
				continue
			}
			theirs := d.ask(pattern, name, true)
			if theirs.status != nobodys.status || theirs.code != nobodys.code {
				t.Errorf("%s as %q: %d %s for what is another's, %d %s for what is nobody's", pattern, name, theirs.status, theirs.code, nobodys.status, nobodys.code)
			}
			if strings.Contains(theirs.body, mark) || strings.Contains(theirs.body, `"`+ownerA+`"`) {
				t.Errorf("%s as %q shows what is another's: %s", pattern, name, theirs.body)
			}
			if strings.Contains(pattern, "{") && !isSocket(pattern) && theirs.status != http.StatusForbidden && theirs.status != http.StatusNotFound {
				t.Errorf("%s as %q: %d %s", pattern, name, theirs.status, theirs.body)
			}
		}
		if method, _, _ := strings.Cut(pattern, " "); open && method == http.MethodGet && strings.Contains(pattern, "{") && filled(pattern) && !isSocket(pattern) {
			if mine, nobodys := d.ask(pattern, "in", true), d.ask(pattern, "in", false); mine.status == nobodys.status && mine.body == nobodys.body {
				t.Errorf("%s shows its project nothing: %d %s", pattern, mine.status, mine.body)
			}
		}
	}
}

// TestNobodyFollowsAnotherProject opens every WebSocket that names something with
// the keys of another project.
func TestNobodyFollowsAnotherProject(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	server := httptest.NewServer(d.api)
	defer server.Close()
	for pattern := range d.patterns() {
		if !isSocket(pattern) || !strings.Contains(pattern, "{") {
			continue
		}
		_, path := d.path(pattern, true)
		for _, name := range []string{"outside", "a outside", "b inside"} {
			if said, code := d.listen(server.URL+path, name); code != 4404 || strings.Contains(said, mark) {
				t.Errorf("%s as %q ends with %d: %s", pattern, name, code, said)
			}
		}
	}
}

// listen reads a WebSocket to its end.
func (d *doors) listen(url, key string) (said string, code websocket.StatusCode) {
	d.t.Helper()
	conn, _, err := websocket.Dial(d.t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + d.keys[key]}}}) //nolint:bodyclose // the library closes it
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	for err == nil {
		var more []byte
		_, more, err = conn.Read(d.t.Context())
		said += string(more)
	}
	return said, websocket.CloseStatus(err)
}

// TestNobodyMakesThingsInAnotherProject names another project wherever a request
// can.
func TestNobodyMakesThingsInAnotherProject(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	box := "/api/v1/sandboxes/" + d.ids["sandbox"]
	for _, c := range []struct{ key, method, path, body string }{
		{"outside", "POST", "/prds", `{"project_id":8,"title":"t","tasks":[{"payload":{"action":"create file"}}]}`},
		{"outside", "POST", "/api/v1/sandboxes", `{"labels":{"project":"8"}}`},
		{"outside", "POST", "/api/v1/sandboxes", `{"labels":{"project":"07"}}`},
		{"outside", "POST", "/api/v1/sessions", `{"project_id":"8"}`},
		{"outside", "POST", "/api/v1/sessions", `{"project_id":"a word"}`},
		{"outside", "POST", "/run", `{"code":"1","project_id":8}`},
		{"outside", "POST", "/api/v1/runs", `{"runs":[{"code":"1"},{"code":"1","project_id":8}]}`},
		{"outside", "GET", "/runs?project_id=8", ""},
		{"outside", "GET", "/jobs?project_id=8", ""},
		{"outside", "GET", "/events?project_id=8", ""},
		{"outside", "GET", "/api/v1/sessions?project_id=8", ""},
		{"outside", "GET", "/api/v1/sandboxes?label=project%3D8", ""},
	} {
		if got := d.send(c.key, c.method, c.path, c.body, "Accept", "application/json"); got.status != http.StatusForbidden || got.code != policy.CodeOtherProject {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.status, got.body)
		}
	}
	for _, c := range []struct{ key, method, path, body string }{
		{"in", "POST", "/api/v1/sandboxes", `{"sync":{"session":"s"}}`},
		{"in", "PATCH", box, `{"sync":{"session":"s"}}`},
		{"in", "GET", "/api/v1/storage/s", ""},
		{"in", "POST", "/api/v1/keys", `{"kind":"viewer"}`},
		{"in", "POST", "/api/v1/kill-switch", `{"level":"kill","reason":"r"}`},
	} {
		if got := d.send(c.key, c.method, c.path, c.body, "Accept", "application/json"); got.status != http.StatusForbidden {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.status, got.body)
		}
	}
	// Names are an owner's: that of a session of another project cannot be had,
	// and no task gets into it.
	if got := d.send("a outside", "POST", "/api/v1/sessions", `{"id":"`+d.ids["session"]+`"}`); got.status != http.StatusConflict || strings.Contains(got.body, mark) {
		t.Errorf("the name of a session of another project: %d %s", got.status, got.body)
	}
	task := `{"title":"t","tasks":[{"session_id":"` + d.ids["session"] + `","payload":{"action":"create file"}}]}`
	if got := d.send("a outside", "POST", "/prds", task); got.status != http.StatusUnprocessableEntity {
		t.Errorf("a task in a session of another project: %d %s", got.status, got.body)
	}
}

// TestWhatAKeyMakesBelongsToItsProject makes things without naming a project.
func TestWhatAKeyMakesBelongsToItsProject(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	const plan = `{"title":"a plan","tasks":[{"payload":{"action":"create file"}}]}`
	if got := d.send("outside", "POST", "/prds", plan); got.status != http.StatusCreated {
		t.Fatalf("a plan: %d %s", got.status, got.body)
	}
	if got := d.send("outside", "POST", "/api/v1/runs", `{"language":"python","code":"1"}`); got.status != http.StatusAccepted {
		t.Fatalf("a run: %d %s", got.status, got.body)
	}
	type thing struct {
		ProjectID int64 `json:"project_id"`
		Entity    string
	}
	list := func(key, path string) (all []thing) {
		t.Helper()
		got := d.send(key, "GET", path, "", "Accept", "application/json")
		if err := json.Unmarshal([]byte(got.body), &all); err != nil {
			t.Fatalf("%s as %q: %d %s", path, key, got.status, got.body)
		}
		return all
	}
	for path, want := range map[string]int{"/jobs": 2, "/api/v1/runs": 1, "/events?after=0": 3} {
		mine := list("outside", path)
		if len(mine) < want {
			t.Errorf("%s shows the key of the project only %v", path, mine)
		}
		for _, x := range mine {
			if x.ProjectID != 7 {
				t.Errorf("%s shows what is of project %d", path, x.ProjectID)
			}
		}
		if theirs := list("b inside", path); len(theirs) != 0 {
			t.Errorf("%s shows another project %v", path, theirs)
		}
	}
	if jobs := list("in", "/jobs"); len(jobs) != 1 || jobs[0].ProjectID != projectA {
		t.Errorf("the key of a project sees %v", jobs)
	}
}
