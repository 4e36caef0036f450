package machinesapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/machinesapi"
)

func TestApps(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.admin("GET", "/apps/mobvibe-sandboxes", "").refused(404)
	s.admin("GET", machines, "").refused(404)
	s.admin("POST", "/apps", `{"app_name":"other","org_slug":"personal"}`).into(201, nil)
	s.admin("POST", "/apps", `{"app_name":"other"}`).refused(409)
	s.admin("POST", "/apps", `{"app_name":"../other"}`).refused(400)
	s.create(`{"config":{"image":"x"}}`) // makes its app
	s.create(`{"config":{"image":"x"}}`)
	var list struct {
		Total int `json:"total_apps"`
		Apps  []struct {
			Name  string
			Count int `json:"machine_count"`
		}
	}
	s.admin("GET", "/apps?org_slug=personal", "").into(200, &list)
	if fmt.Sprint(list) != "{2 [{mobvibe-sandboxes 2} {other 0}]}" {
		t.Errorf("apps %v", list)
	}
	s.admin("DELETE", "/apps/mobvibe-sandboxes", "").into(202, nil)
	s.admin("GET", "/apps/mobvibe-sandboxes", "").refused(404)
	if s.open() != 0 {
		t.Errorf("%d sandboxes are left", s.open())
	}
}

// TestOwners holds that a key sees and touches only its own, and does only what
// its kind may.
func TestOwners(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(asked)
	at := machines + "/" + m.ID
	every := []struct{ method, path, body string }{
		{"GET", "", ""},
		{"POST", "", `{"config":{"image":"x"}}`},
		{"DELETE", "", ""},
		{"GET", "/wait", ""},
		{"POST", "/start", ""},
		{"POST", "/stop", ""},
		{"POST", "/suspend", ""},
		{"POST", "/restart", ""},
		{"POST", "/signal", `{"signal":"SIGTERM"}`},
		{"POST", "/exec", `{"command":["echo"]}`},
		{"GET", "/ps", ""},
		{"GET", "/events", ""},
		{"GET", "/metadata", ""},
		{"POST", "/metadata/k", `{"value":"v"}`},
		{"DELETE", "/metadata/k", ""},
		{"GET", "/lease", ""},
		{"POST", "/lease", ""},
		{"DELETE", "/lease", ""},
		{"POST", "/cordon", ""},
		{"POST", "/uncordon", ""},
	}
	for _, call := range every {
		s.ask("", call.method, at+call.path, call.body).refused(401)
		s.ask("nonsense", call.method, at+call.path, call.body).refused(401)
		s.ask("sandbox:x", call.method, at+call.path, call.body).refused(403)
		if status := s.ask("bridge:other", call.method, at+call.path, call.body).status; status != 404 && status != 403 {
			t.Errorf("another's %s %s: %d", call.method, call.path, status)
		}
		if call.method != http.MethodGet || call.path == "/ps" {
			s.ask("auditor:x", call.method, at+call.path, call.body).refused(403)
		}
		wrong := "/apps/another/machines/" + m.ID + call.path
		if status := s.admin(call.method, wrong, call.body).status; status != 404 {
			t.Errorf("in another app %s %s: %d", call.method, call.path, status)
		}
		for _, id := range []string{"x", "..%2f..", strings.Repeat("0", 14), strings.Repeat("9", 4000)} {
			if status := s.admin(call.method, machines+"/"+id+call.path, call.body).status; status != 404 {
				t.Errorf("%s %.20s %s: %d", call.method, id, call.path, status)
			}
		}
	}
	if s.state(m.ID) != "started" {
		t.Error("it was touched")
	}
	var theirs machinesapi.Machine
	s.ask("bridge:other", "POST", machines, asked).into(200, &theirs) // the same app, the same name, and theirs alone
	var list []machinesapi.Machine
	s.ask("bridge:other", "GET", machines, "").into(200, &list)
	if len(list) != 1 || list[0].ID != theirs.ID {
		t.Errorf("they see %+v", list)
	}
	s.ask("FlyV1", "GET", machines, "", "Authorization", "FlyV1 admin:a").into(200, &list)
	if len(list) != 2 {
		t.Errorf("the administrator sees %d", len(list))
	}
}
