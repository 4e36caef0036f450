package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const switchPath = "/api/v1/kill-switch"

// demands sends a request and demands a status, and a code or another word.
func (d *doors) demands(kind, path, body string, status int, word string) map[string]any {
	d.t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	w := d.asks(kind, method, path, body)
	if w.Code != status || !strings.Contains(w.Body.String(), word) {
		d.t.Errorf("%s %s %s: %d %s, want %d and %q", kind, path, body, w.Code, w.Body, status, word)
	}
	var got map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &got) // an answer that is no object has failed above
	return got
}

// TestTheKillSwitchRefusesWrongBodies sends every mistake that a body can have.
// None of them engages or releases anything.
func TestTheKillSwitchRefusesWrongBodies(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	long := strings.Repeat("x", 1001)
	for body, word := range map[string]string{
		`{}`:                                                                            "level",
		`{"level":"stop","reason":"r"}`:                                                 "level",
		`{"level":"","reason":"r"}`:                                                     "level",
		`{"level":7,"reason":"r"}`:                                                      "level",
		`{"level":"kill"}`:                                                              "reason",
		`{"level":"kill","reason":""}`:                                                  "reason",
		`{"level":"kill","reason":" \t\n"}`:                                             "reason",
		`{"level":"kill","reason":"` + long + `"}`:                                      "reason",
		`{"level":"kill","reason":null}`:                                                "reason",
		`{"level":"kill","reason":"r","scope":"galaxy"}`:                                "scope",
		`{"level":"kill","reason":"r","scope":"project"}`:                               "project_id",
		`{"level":"kill","reason":"r","scope":"project","project_id":"7"}`:              "project_id",
		`{"level":"kill","reason":"r","scope":"label"}`:                                 "label",
		`{"level":"kill","reason":"r","scope":"label","label":"novalue"}`:               "label",
		`{"level":"kill","reason":"r","scope":"label","label":"=v"}`:                    "label",
		`{"level":"kill","reason":"r","scope":"label","label":"` + long + `=v"}`:        "label",
		`{"level":"kill","reason":"r","scope":"subtree"}`:                               "root",
		`{"level":"kill","reason":"r","scope":"subtree","root":"` + long + `"}`:         "root",
		`{"level":"kill","reason":"r","scope":"all","project_id":7}`:                    "project_id",
		`{"level":"kill","reason":"r","label":"a=b"}`:                                   "label",
		`{"level":"kill","reason":"r","scope":"label","label":"a=b","root":"x"}`:        "root",
		`{"level":"kill","reason":"r","by":"somebody else"}`:                            "by",
		`{"level":"kill","reason":"r","members":["a"]}`:                                 "members",
		`{"level":"kill","reason":"r","director":true}`:                                 "director",
		`{"level":"kill","reason":"r","reason":"s"} {"level":"freeze","reason":"more"}`: "",
		`[]`: "", `"kill"`: "", `null`: "", `{`: "",
	} {
		if w := d.asks("operator", http.MethodPost, switchPath, body); w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), word) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	for _, verb := range []string{"/rearm", "/unfreeze"} {
		for body, word := range map[string]string{
			`{}`: "reason", `{"reason":""}`: "reason", `{"reason":" "}`: "reason", `{"reason":7}`: "reason", `{"reason":"` + long + `"}`: "reason",
			`{"reason":"r","id":"` + long + `"}`: "", `{"reason":"r","level":"kill"}`: "level", `null`: "", `[]`: "", `{`: "",
			`{"reason":"r"}`: "not_engaged", `{"reason":"r","id":"nobody"}`: "not_engaged",
		} {
			if w := d.asks("director", http.MethodPost, switchPath+verb, body); w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), word) {
				t.Errorf("%s %s: %d %s", verb, body, w.Code, w.Body)
			}
		}
	}
	if got := d.demands("viewer", switchPath, "", http.StatusOK, `"switches":[]`); got["engaged"] != false {
		t.Errorf("a mistake has engaged something: %v", got)
	}
}

// id is the id of the switch in an answer.
func switchID(got map[string]any) string {
	one, _ := got["switch"].(map[string]any)
	id, _ := one["id"].(string)
	return id
}

// TestWhoReleasesWhat has what each rank has stopped released by the others.
func TestWhoReleasesWhat(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	freeze := func(kind string) string {
		t.Helper()
		return switchID(d.demands(kind, switchPath, `{"level":"freeze","scope":"label","label":"a=b","reason":"look"}`, http.StatusOK, `"persisted":true`))
	}
	named := func(id string) string { return `{"reason":"go on","id":"` + id + `"}` }
	for _, above := range []string{"director", "admin"} {
		id := freeze(above)
		d.demands("operator", switchPath+"/unfreeze", named(id), http.StatusForbidden, "director_needed")
		own := freeze("operator")
		// Not half of them: who names none means all.
		d.demands("operator", switchPath+"/unfreeze", `{"reason":"go on"}`, http.StatusForbidden, "director_needed")
		d.demands("viewer", switchPath, "", http.StatusOK, own)
		d.demands("operator", switchPath+"/unfreeze", named(own), http.StatusOK, `"director":false`)
		d.demands("viewer", switchPath, "", http.StatusOK, `"director":true`)
		d.demands("director", switchPath+"/unfreeze", named(id), http.StatusOK, id)
	}
	for _, kind := range []string{"operator", "director", "admin"} {
		d.demands(kind, switchPath+"/unfreeze", named(freeze("operator")), http.StatusOK, `"persisted":true`)
	}
	// A kill is released by no operator, whoever engaged it.
	killed := switchID(d.demands("operator", switchPath, `{"level":"kill","scope":"label","label":"a=b","reason":"look"}`, http.StatusOK, `"director":true`))
	d.demands("operator", switchPath+"/rearm", named(killed), http.StatusForbidden, "")
	d.demands("operator", switchPath+"/unfreeze", named(killed), http.StatusConflict, "not_engaged")
	d.demands("director", switchPath+"/rearm", named(killed), http.StatusOK, killed)
	if got := d.demands("viewer", switchPath, "", http.StatusOK, `"release_reason":"go on"`); got["engaged"] != false {
		t.Errorf("something is left: %v", got)
	}
}

// TestThePauseOverHTTP pauses the organisation, with every mistake that a body
// can have, and asks for something new of each sort.
func TestThePauseOverHTTP(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	const pause, resume, manifests = "/admin/pause", "/admin/resume", "/api/v1/fleet/manifests"
	long := strings.Repeat("x", 1001)
	wrong := func(verb string) {
		t.Helper()
		for _, body := range []string{`{}`, `{"reason":""}`, `{"reason":" "}`, `{"reason":7}`, `{"reason":"` + long + `"}`, `{"reason":"r","paused":true}`, `null`, `[]`, `{`} {
			if w := d.asks("director", http.MethodPost, verb, body); w.Code < 400 || w.Code >= 500 {
				t.Errorf("%s %s: %d %s", verb, body, w.Code, w.Body)
			}
		}
	}
	wrong(pause)
	d.demands("director", resume, `{"reason":"r"}`, http.StatusConflict, "not_paused")
	d.demands("viewer", pause, "", http.StatusOK, `"paused":false`)
	paper := d.asks("operator", http.MethodPost, manifests, `{"resources":{"cpu_limit":0.5,"memory_limit_mb":64}}`)
	if paper.Code != http.StatusCreated {
		t.Fatalf("a manifest: %d %s", paper.Code, paper.Body)
	}
	d.demands("operator", pause, `{"reason":"an incident"}`, http.StatusOK, `"paused":true`)
	d.demands("operator", pause, `{"reason":"again"}`, http.StatusConflict, "already_paused")
	for path, body := range map[string]string{
		manifests: `{}`, "/api/v1/fleet/workers": paper.Body.String(),
		"/prds": `{"title":"x","tasks":[{}]}`, "/api/v1/runs": `{"code":"1"}`, "/run": `{"code":"1"}`, "/api/v1/sandboxes": `{}`,
	} {
		if got := d.demands("operator", path, body, http.StatusServiceUnavailable, "ORG_PAUSED"); !strings.Contains(got["detail"].(string), "an incident") {
			t.Errorf("%s does not say why: %v", path, got)
		}
	}
	for _, path := range []string{"/jobs", "/api/v1/sandboxes", "/api/v1/fleet/workers", "/api/v1/runs"} { // it can be looked at
		d.answers("viewer", path, nil)
	}
	wrong(resume)
	d.demands("operator", resume, `{"reason":"over"}`, http.StatusForbidden, "")
	d.demands("director", resume, `{"reason":"over"}`, http.StatusOK, `"paused":false`)
	d.demands("operator", manifests, `{}`, http.StatusCreated, "signature")
}

// TestTheFleetUnderTheKillSwitch is refused by the real switch, with the code of
// the law.
func TestTheFleetUnderTheKillSwitch(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	if err := d.m.manager.Fleet.Publish(t.Context()); err != nil { // as its start does
		t.Fatal(err)
	}
	const manifests, workers = "/api/v1/fleet/manifests", "/api/v1/fleet/workers"
	paper := d.asks("operator", http.MethodPost, manifests, `{}`)
	if paper.Code != http.StatusCreated {
		t.Fatalf("a manifest: %d %s", paper.Code, paper.Body)
	}
	for _, level := range []string{"freeze", "kill"} {
		release := map[string]string{"freeze": "/unfreeze", "kill": "/rearm"}[level]
		d.demands("director", switchPath, `{"level":"`+level+`","reason":"fire"}`, http.StatusOK, `"persisted":true`)
		d.demands("operator", manifests, `{}`, http.StatusForbidden, "deny_kill_switch")
		d.demands("operator", workers, paper.Body.String(), http.StatusForbidden, "deny_kill_switch")
		d.demands("director", switchPath+release, `{"reason":"out"}`, http.StatusOK, "")
	}
	// A switch for somebody else's subtree is none for this one.
	d.demands("director", switchPath, `{"level":"kill","scope":"subtree","root":"somebody","reason":"fire"}`, http.StatusOK, "")
	d.demands("operator", manifests, `{}`, http.StatusCreated, "signature")
}
