package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machine"
	papers "github.com/aurea-dev/aurea/internal/manifest" // a manifest here is that of a backup
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// kindsFor is whom a permission lets in. It says again what the policy says, in
// other words, so that a change of one is a change of both. A sandbox's token is
// in none of them: it opens the routes of ownRoutes.
func kindsFor() map[string]string {
	return map[string]string{
		"public":  "admin director operator auditor viewer bridge worker sandbox none",
		"read":    "admin director operator auditor viewer bridge worker",
		"submit":  "admin director operator bridge",
		"control": "admin director operator",
		"work":    "admin director operator worker",
		"host":    "admin worker",
		"manage":  "admin director",
		"audit":   "admin director auditor",
		"stop":    "admin director operator",
		"rearm":   "admin director",
		"purge":   "admin director",
		"govern":  "admin director operator",
		"oversee": "admin director operator auditor worker",
	}
}

// ownRoutes are open to a sandbox's token, for that sandbox.
func ownRoutes() []string {
	const box = "GET /api/v1/sandboxes/{sandbox}"
	return []string{box, box + "/stats", box + "/execs", box + "/execs/{exec}", box + "/execs/{exec}/output"}
}

// otherDoors is what the routes ask that the native door does not list: those of
// the doors behind it. The native door's own are in TestEveryRouteNamesItsAction.
func otherDoors() map[string]string {
	const apps, machines, it = "/v1/apps", "/v1/apps/{app}/machines", "/v1/apps/{app}/machines/{id}"
	return map[string]string{
		"/": "", "/v1/": "", // nothing is there
		"GET /metrics": "oversee",

		"/wire/": "host", "POST /wire/v1/register": "host", "POST /wire/v1/lease": "host", "POST /wire/v1/extend": "host", "POST /wire/v1/report": "host",
		"POST /wire/v1/finish": "host", "POST /wire/v1/tell": "host", "POST /wire/v1/leave": "host", "PUT /wire/v1/blobs/{sha256}": "host", "GET /wire/v1/commands": "host", "GET /wire/v1/beside": "host", "GET /wire/v1/line": "host",

		"GET " + apps: "read", "POST " + apps: "submit", "GET /v1/apps/{app}": "read", "DELETE /v1/apps/{app}": "control",
		"GET " + machines: "read", "POST " + machines: "submit", "GET " + it: "read", "POST " + it: "submit", "DELETE " + it: "control",
		"GET " + it + "/wait": "read", "POST " + it + "/start": "control", "POST " + it + "/stop": "control", "POST " + it + "/suspend": "control",
		"POST " + it + "/restart": "control", "POST " + it + "/signal": "control", "POST " + it + "/exec": "submit", "GET " + it + "/ps": "submit",
		"GET " + it + "/events": "read", "GET " + it + "/metadata": "read", "POST " + it + "/metadata/{key}": "control",
		"DELETE " + it + "/metadata/{key}": "control", "GET " + it + "/lease": "read", "POST " + it + "/lease": "control",
		"DELETE " + it + "/lease": "control", "POST " + it + "/cordon": "control", "POST " + it + "/uncordon": "control",
	}
}

// The owner and the project of everything in the table, and what marks it.
const (
	ownerA   = "owner-a"
	projectA = 8
	mark     = "belongs-to-a"
)

// doors is all of a manager's doors over a real database, with a key of every
// kind and one of everything that can be somebody's.
type doors struct {
	t    *testing.T
	api  *httpapi.API
	m    *managing
	keys map[string]string // by kind; "a" and "b" are admins narrowed to an owner, others to a project
	ids  map[string]string
}

func openDoors(t *testing.T, environ ...string) *doors {
	t.Helper()
	cfg, err := config.Load(config.Sources{Role: config.Manager, Environ: append([]string{"HOST=0.0.0.0"}, environ...), Flags: map[string]string{"data": t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := makeManagerDirs(cfg); err != nil {
		t.Fatal(err)
	}
	start := cli.Start{Config: cfg, Version: "test", Stdout: io.Discard, Stderr: io.Discard}
	m, err := newManaging(t.Context(), start, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.kept.Close(); m.tracer.Close() })
	api, door, err := managerDoor(start, m, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close(); door.Close() })
	api.EndStreams() // so that streams answer and end
	d := &doors{t: t, api: api, m: m, keys: map[string]string{}}
	d.fill()
	d.makeKeys()
	return d
}

func (d *doors) makeKeys() {
	d.t.Helper()
	ctx := policy.With(d.t.Context(), policy.LocalCaller())
	key := func(name string, req policy.KeyRequest) {
		_, secret, err := d.m.manager.CreateKey(ctx, req)
		if err != nil {
			d.t.Fatal(err)
		}
		d.keys[name] = secret
	}
	for _, kind := range policy.Kinds() {
		if kind != policy.Sandbox {
			key(string(kind), policy.KeyRequest{Kind: kind})
		}
	}
	key("a", policy.KeyRequest{Kind: policy.Admin, Scope: policy.Scope{Owner: ownerA}})
	key("b", policy.KeyRequest{Kind: policy.Admin, Scope: policy.Scope{Owner: "owner-b"}})
	for name, scope := range projectScopes() {
		key(name, policy.KeyRequest{Kind: policy.Admin, Scope: scope})
	}
	token, _, err := d.m.manager.SandboxToken(ctx, d.ids["sandbox"], time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	d.keys["sandbox"] = token
}

// fill puts one of everything of an owner into the database.
func (d *doors) fill() {
	d.t.Helper()
	ctx, now := d.t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	id := job.NewID
	d.ids = map[string]string{"job": id(), "run": id(), "exec": id(), "sandbox": "aaaaaaaaaaaaaaaaaaaa1", "snapshot": "aaaaaaaaaaaaaaaaaaaa2", "session": id(), "machine": "aaaaaaaaaaaaa1", "app": "app-of-a", "worker": "aaaaaaaa"}
	box := live.Sandbox{ID: d.ids["sandbox"], Owner: ownerA, Name: mark, State: sandbox.StateRunning, Spec: live.Spec{Labels: map[string]string{live.LabelProject: "8"}}, LinkKey: live.NewLinkKey(), CreatedAt: now, StartedAt: now, ActiveAt: now, Worker: "w"}
	key, err := file.Key(ownerA, d.ids["session"])
	if err != nil {
		d.t.Fatal(err)
	}
	err = d.m.kept.store.Update(ctx, func(tx store.Tx) error {
		for _, step := range []func() error{
			func() error {
				return tx.Jobs().Add(ctx, &job.Job{ID: d.ids["job"], RootID: d.ids["job"], Owner: ownerA, ProjectID: projectA, Title: mark, State: job.Queued, Payload: json.RawMessage(`{}`), CreatedAt: now, ReadyAt: now, UpdatedAt: now})
			},
			func() error {
				return tx.Runs().Add(ctx, &run.Run{ID: d.ids["run"], Owner: ownerA, Project: projectA, State: run.Queued, Language: "python", Webhook: mark, CreatedAt: now}, nil)
			},
			func() error { return tx.Sandboxes().Add(ctx, &box) },
			func() error {
				return tx.Execs().Add(ctx, &live.Exec{ID: d.ids["exec"], Sandbox: box.ID, Owner: ownerA, Command: []string{mark}, State: live.Running, CreatedAt: now}, nil)
			},
			func() error {
				return tx.Sandboxes().AddSnapshot(ctx, &live.Snapshot{ID: d.ids["snapshot"], Sandbox: box.ID, Owner: ownerA, Kind: live.Files, Label: mark, CreatedAt: now})
			},
			func() error {
				return tx.Sessions().Add(ctx, &live.Session{ID: d.ids["session"], Owner: ownerA, Project: "8", State: live.SessionActive, Prompt: mark, Sandbox: box.ID, CreatedAt: now, ActiveAt: now, ExpiresAt: now.Add(time.Hour)})
			},
			func() error {
				_, err := tx.Machines().AddApp(ctx, machine.App{Owner: ownerA, Name: d.ids["app"], CreatedAt: now})
				return err
			},
			func() error {
				return tx.Machines().Add(ctx, &machine.Machine{ID: d.ids["machine"], App: d.ids["app"], Owner: ownerA, Name: mark, State: machine.Stopped, Config: json.RawMessage(`{"image":"host"}`), CreatedAt: now, UpdatedAt: now})
			},
			func() error {
				paper := papers.Manifest{WorkerID: d.ids["worker"], IssuedAt: now, State: json.RawMessage(`{}`), Signature: mark}
				return tx.Fleet().Add(ctx, &papers.Worker{Manifest: paper, Terms: papers.Terms{Contract: papers.DefaultContract, Owner: ownerA}, State: papers.Ended, Reason: mark, EndedAt: now, UpdatedAt: now})
			},
			func() error {
				return tx.Files().Put(ctx, &file.File{Session: key, Path: mark, SHA256: strings.Repeat("a", 64), Modified: now}, 0)
			},
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// patterns lists every way in with what it asks.
func (d *doors) patterns() map[string]string {
	d.t.Helper()
	asks := otherDoors()
	for _, r := range d.api.Routes() {
		pattern := strings.TrimPrefix(r.Method+" "+strings.TrimSuffix(r.Path, "/{name}"), "* ")
		if strings.HasSuffix(r.Path, "/{name}") {
			pattern += "/{name...}"
		}
		if _, ok := asks[pattern]; !ok && r.Action != "elsewhere" && !strings.HasPrefix(r.Path, "GET ") {
			asks[pattern] = string(r.Action)
			if r.Action == "" {
				asks[pattern] = "public"
			}
		}
	}
	all := d.api.Patterns()
	for _, p := range all {
		if _, ok := asks[p]; !ok {
			d.t.Errorf("%s is a way in that no table knows; say in TestEveryRouteNamesItsAction or in otherDoors what it asks", p)
		}
	}
	for p := range asks {
		if !slices.Contains(all, p) {
			d.t.Errorf("%s is in a table, and leads nowhere", p)
		}
	}
	return asks
}

// path fills in a pattern with ids of the owner's, or with such as nobody has.
func (d *doors) path(pattern string, theirs bool) (method, path string) {
	method, path, both := strings.Cut(pattern, " ")
	if !both {
		method, path = http.MethodGet, pattern
	}
	ids := d.ids
	if !theirs {
		ids = map[string]string{"job": job.NewID(), "run": job.NewID(), "exec": job.NewID(), "sandbox": "nnnnnnnnnnnnnnnnnnnn1", "snapshot": "nnnnnnnnnnnnnnnnnnnn2", "session": job.NewID(), "machine": "bbbbbbbbbbbbb1", "app": "app-of-none", "worker": "bbbbbbbb"}
	}
	id := ids["job"]
	switch {
	case strings.Contains(path, "/runs/"):
		id = ids["run"]
	case strings.Contains(path, "/machines/"):
		id = ids["machine"]
	}
	path = strings.NewReplacer("{id}", id, "{sandbox}", ids["sandbox"], "{exec}", ids["exec"], "{snapshot}", ids["snapshot"], "{session}", ids["session"],
		"{app}", ids["app"], "{worker}", ids["worker"], "{port}", "80", "{name...}", "x", "{key}", "k", "{trigger}", "t", "{preset}", "none", "{sha256}", strings.Repeat("0", 64), "{$}", "").Replace(path)
	return method, path + queries()[pattern]
}

// queries and bodies are what a route needs to get as far as to look whose
// something is.
func queries() map[string]string {
	const box, storage = " /api/v1/sandboxes/{sandbox}", " /api/v1/storage/{session}"
	return map[string]string{
		"GET" + box + "/diff": "?from=aaaaaaaaaaaaaaaaaaaa2", "GET" + box + "/tar": "?path=/workspace", "PUT" + box + "/tar": "?path=/workspace", "GET" + box + "/files": "?path=/workspace", "DELETE" + box + "/files": "?path=/workspace/x",
		"GET" + box + "/files/stat": "?path=/workspace", "GET" + box + "/files/content": "?path=/workspace/x", "PUT" + box + "/files/content": "?path=/workspace/x",
		"GET" + box + "/files/watch": "?path=/workspace", "POST" + box + "/files/patch": "?path=/workspace", "GET" + storage + "/content": "?path=" + mark, "PUT" + storage + "/content": "?path=x", "DELETE" + storage + "/content": "?path=" + mark,
		"GET" + storage + "/versions": "?path=" + mark, "GET" + storage + "/diff": "?path=" + mark + "&from=1&to=1", "GET /v1/apps/{app}/machines/{id}/wait": "?state=started&timeout=1",
		"POST" + box + "/execs/{exec}/input": "?offset=0",
	}
}

func bodies() map[string]string {
	const box, it = "POST /api/v1/sandboxes/{sandbox}", "POST /v1/apps/{app}/machines/{id}"
	return map[string]string{
		"PATCH /api/v1/sandboxes/{sandbox}": `{"ttl":60}`, box + "/files/mkdir": `{"path":"/workspace/d"}`, box + "/files/move": `{"from":"/workspace/a","to":"/workspace/b"}`,
		box + "/files/copy": `{"from":"/workspace/a","to":"/workspace/b"}`, box + "/execs": `{"command":["true"]}`, box + "/execs/{exec}/resize": `{"cols":80,"rows":24}`,
		box + "/execs/{exec}/signal": `{"signal":15}`, box + "/snapshots": `{}`, box + "/restore": `{"snapshot":"aaaaaaaaaaaaaaaaaaaa2"}`, box + "/sync": `{"session":"s"}`,
		box + "/sync/resolve": `{"path":"x","keep":"sandbox"}`, box + "/files/patch": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
		"POST /api/v1/sessions/{session}/continue": `{"prompt":"a prompt of some length"}`, "POST /api/v1/sessions/{session}/exec": `{"command":["true"]}`,
		it: `{"config":{"image":"host"}}`, it + "/exec": `{"command":["true"]}`, it + "/signal": `{"signal":"SIGTERM"}`, it + "/metadata/{key}": `{"value":"x"}`,
		"POST /v1/apps/{app}/machines": `{"config":{"image":"host"}}`, "POST /api/v1/jobs/{id}/assign": `{"model":"m"}`, "POST /api/v1/fleet/workers/{worker}/fire": `{"trigger_id":"t"}`,
	}
}

type answered struct {
	status int
	code   string
	body   string
}

// ask sends a request with a key.
func (d *doors) ask(pattern, key string, theirs bool) answered {
	d.t.Helper()
	method, path := d.path(pattern, theirs)
	return d.send(key, method, path, bodies()[strings.Replace(pattern, " /jobs/", " /api/v1/jobs/", 1)])
}

// send is ask with a path and a body of its own.
func (d *doors) send(key, method, path, body string, headers ...string) answered {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.t.Context(), method, path, strings.NewReader(body))
	if secret := d.keys[key]; secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.api.ServeHTTP(w, r)
	var problem struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &problem) // other doors have another shape
	return answered{w.Code, problem.Code, w.Body.String()}
}

// TestEveryWayInWithEveryKey walks every route of every door with a key of every
// kind. Only those get through whom the table names.
func TestEveryWayInWithEveryKey(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	who := kindsFor()
	for pattern, asks := range d.patterns() {
		if asks == "" {
			continue
		}
		kinds, known := who[asks]
		if !known {
			t.Errorf("%s asks for %q, of which nobody knows who has it", pattern, asks)
		}
		for _, kind := range []string{"admin", "director", "operator", "auditor", "viewer", "bridge", "worker", "sandbox", "none"} {
			may := slices.Contains(strings.Fields(kinds), kind) || kind == "sandbox" && slices.Contains(ownRoutes(), pattern)
			// Ids that nobody has: the walk is to change nothing. A sandbox's token
			// opens only its own.
			got := d.ask(pattern, kind, kind == "sandbox")
			switch {
			case may && (got.status == http.StatusUnauthorized || got.status == http.StatusForbidden && !ofTheLaw(got.code)):
				t.Errorf("%s refuses %s: %d %s", pattern, kind, got.status, got.body)
			case !may && kind == "none" && got.status != http.StatusUnauthorized:
				t.Errorf("%s without a key: %d %s", pattern, got.status, got.body)
			case !may && kind != "none" && got.status != http.StatusForbidden:
				t.Errorf("%s lets %s in: %d %s", pattern, kind, got.status, got.body)
			}
		}
	}
}

// ofTheLaw reports whether a code is that of a decision about the fleet, which
// is 403 too: whoever gets it was let in.
func ofTheLaw(code string) bool { return slices.Contains(governor.Codes(), code) }

// TestNobodySeesWhatIsAnothers walks every route with the ids of somebody else:
// they are answered as ids that nobody has are, and nothing of theirs is shown.
func TestNobodySeesWhatIsAnothers(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	for pattern, asks := range d.patterns() {
		if asks == "" || asks == "public" || strings.HasPrefix(pattern, "/wire/") || strings.Contains(pattern, " /wire/") {
			continue
		}
		for _, key := range []string{"b", "viewer", "bridge"} {
			theirs, nobodys := d.ask(pattern, key, true), d.ask(pattern, key, false)
			if theirs.status != nobodys.status || theirs.code != nobodys.code {
				t.Errorf("%s as %s: %d %s for what is another's, %d %s for what is nobody's", pattern, key, theirs.status, theirs.code, nobodys.status, nobodys.code)
			}
			if strings.Contains(theirs.body, mark) || strings.Contains(theirs.body, ownerA) {
				t.Errorf("%s as %s shows what is another's: %s", pattern, key, theirs.body)
			}
			want := http.StatusNotFound
			if !slices.Contains([]string{"read", "submit", "control"}, asks) {
				want = http.StatusForbidden // a key that acts for one owner has no say in what is everybody's
			}
			if key == "b" && strings.Contains(pattern, "{") && theirs.status != want && !ownNames(pattern) {
				t.Errorf("%s as another owner: %d %s", pattern, theirs.status, theirs.body)
			}
		}
		if method, _, _ := strings.Cut(pattern, " "); method == http.MethodGet && strings.Contains(pattern, "{") && filled(pattern) && !ownNames(pattern) {
			if mine, nobodys := d.ask(pattern, "a", true), d.ask(pattern, "a", false); mine.status == nobodys.status && mine.body == nobodys.body {
				t.Errorf("%s shows its owner nothing: %d %s", pattern, mine.status, mine.body)
			}
		}
	}
}

// filled reports whether fill has one of what a pattern names, whose owner then
// is to see it.
func filled(pattern string) bool {
	for _, noun := range []string{"/jobs/", "/runs/", "/sandboxes/", "/snapshots/", "/sessions/", "/v1/apps/"} {
		if strings.Contains(pattern, noun) {
			return true
		}
	}
	return false
}

// ownNames reports whether the ids in a pattern are names of the caller's own
// choice: what another has under the same name is another thing.
func ownNames(pattern string) bool {
	return strings.Contains(pattern, "/storage/") || strings.HasSuffix(pattern, "/v1/apps/{app}") || strings.HasSuffix(pattern, "/v1/apps/{app}/machines") || isSocket(pattern)
}

// isSocket reports whether a pattern is a WebSocket's, which looks further only
// when it is one: see TestNobodyFollowsWhatIsAnothers.
func isSocket(pattern string) bool {
	return strings.Contains(pattern, "/ws/") || strings.HasSuffix(pattern, "/attach")
}

// TestNobodyFollowsWhatIsAnothers opens every WebSocket that names something
// with the key of another owner.
func TestNobodyFollowsWhatIsAnothers(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	server := httptest.NewServer(d.api)
	defer server.Close()
	for pattern := range d.patterns() {
		if !isSocket(pattern) || !strings.Contains(pattern, "{") {
			continue
		}
		_, path := d.path(pattern, true)
		conn, _, err := websocket.Dial(t.Context(), server.URL+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + d.keys["b"]}}}) //nolint:bodyclose // the library closes it
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		var said []byte
		for err == nil { // it says why before it ends
			var more []byte
			_, more, err = conn.Read(t.Context())
			said = append(said, more...)
		}
		if strings.Contains(string(said), mark) || strings.Contains(string(said), ownerA) {
			t.Errorf("%s shows what is another's: %s", pattern, said)
		}
		if code := websocket.CloseStatus(err); code != 4404 {
			t.Errorf("%s ends with %d: %v", pattern, code, err)
		}
		_ = conn.CloseNow()
	}
}
