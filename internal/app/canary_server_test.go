package app

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// planted are the secrets of an installation and of its users, by what they are.
// Each has a word of its own that is in nothing else.
type planted map[string]string

// find names the secrets that a text holds, but those that may be there.
func (p planted) find(text string, allowed ...string) (found []string) {
	for what, secret := range p {
		if strings.Contains(text, secret) && !slices.Contains(allowed, what) {
			found = append(found, what)
		}
	}
	slices.Sort(found)
	return found
}

// canaries is a server that was given a secret of every kind.
type canaries struct {
	t        *testing.T
	p        *process
	data     string
	api      string
	database string
	env      []string
	secrets  planted
}

// plantServer starts everything over PostgreSQL with every secret that an
// installation can have.
func plantServer(t *testing.T) *canaries {
	t.Helper()
	server := testServer(t)
	address, err := server.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &canaries{t: t, data: dataFolder(t), database: address, secrets: planted{}}
	for _, what := range []string{"database", "bucket", "bucket session", "webhooks", "manifests", "director", "environment", "environment of an exec", "input", "address of a webhook", "address of a hook"} {
		c.secrets[what] = strings.ToLower(rand.Text())
	}
	s := c.secrets
	c.env = []string{
		"LOG_LEVEL=debug", "DATABASE_URL=" + address + "&password=" + s["database"], "AWS_ACCESS_KEY_ID=somebody", "AWS_SECRET_ACCESS_KEY=" + s["bucket"], "AWS_SESSION_TOKEN=" + s["bucket session"],
		"AUREA_WEBHOOK_PRIVATE=on", "AUREA_WEBHOOK_SECRET_FILE=" + namedSecret(t, c.data, "webhook.secret", s["webhooks"]),
		"AUREA_MANIFEST_SECRET_FILE=" + namedSecret(t, c.data, "manifest.secret", s["manifests"]+"\n"), "AUREA_DIRECTOR_KEY_FILE=" + namedSecret(t, c.data, "director.secret", s["director"]),
	}
	c.p, c.api, _ = up(t, filepath.Join(c.data, "aurea"), c.env...)
	return c
}

// ask sends a request and returns the answer, in which no secret may be but those
// that it is there to show.
func (c *canaries) ask(method, path, body string, headers ...string) string {
	c.t.Helper()
	answer := askPlain(c.t, method, c.api+path, body, append([]string{"Accept", "application/json"}, headers...)...)
	c.clean(method+" "+path, answer)
	return answer
}

func (c *canaries) clean(where, text string, allowed ...string) {
	c.t.Helper()
	if found := c.secrets.find(text, allowed...); found != nil {
		c.t.Errorf("%s holds the secret of: %s", where, strings.Join(found, ", "))
	}
}

// made reads one field of an answer.
func (c *canaries) made(answer, field string) string {
	c.t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(answer), &all); err != nil {
		c.t.Fatalf("%s: %v", answer, err)
	}
	text, _ := all[field].(string)
	if text == "" {
		c.t.Fatalf("there is no %s in %s", field, answer)
	}
	return text
}

// TestSecretsOfTheServerStayWhereTheyBelong plants every secret that an
// installation or a user hands us, does what there is to do with them, and looks
// for them everywhere else. SECURITY.md says what may be where.
func TestSecretsOfTheServerStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	c := plantServer(t)
	told := make(chan string, 64)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what came is looked through
		told <- fmt.Sprint(r.Header, string(body))
		_, _ = io.WriteString(w, `{"abort":true,"reason":"it is only a canary"}`)
	}))
	defer hook.Close()
	key := c.made(c.ask("POST", "/api/v1/keys", `{"kind":"operator","name":"canary","project_id":7}`), "secret")
	env := fmt.Sprintf(`{"SECRET":%q}`, c.secrets["environment"])
	box := "/api/v1/sandboxes/" + c.made(c.ask("POST", "/api/v1/sandboxes", `{"env":`+env+`,"secrets":["SECRET"]}`), "id")
	token := c.made(c.ask("POST", box+"/token", ""), "token")
	link := c.made(c.ask("POST", box+"/ports/8080/links", ""), "token")
	c.secrets["key"], c.secrets["token of a sandbox"], c.secrets["link to a port"] = key, token, link
	c.ask("GET", box, "", "Authorization", "Bearer "+token)
	c.ask("GET", box+"/ports/8080/?aurea_token="+link, "")
	exec := fmt.Sprintf(`{"command":["true"],"env":{"MINE":%q},"stdin":%q}`, c.secrets["environment of an exec"], c.secrets["input"])
	c.ask("POST", box+"/execs?wait=30", exec)
	c.ask("POST", box+"/snapshots", `{"kind":"files"}`)
	c.ask("POST", box+"/fork", `{}`)
	c.ask("POST", "/run", `{"language":"python","code":"1","env":`+env+`}`)
	c.ask("POST", "/prds", `{"title":"canary plan","tasks":[{"payload":{"action":"exec","command":["true"],"env":`+env+`}}]}`)
	c.ask("POST", "/admin/resume", `{"reason":"r"}`, "X-Director-Key", c.secrets["director"])
	askPlain(t, "POST", c.api+"/api/v1/runs", fmt.Sprintf(`{"language":"python","code":"1","webhook":"%s/hook?token=%s"}`, hook.URL, c.secrets["address of a webhook"]))
	c.hear("a webhook", told)
	worker := c.fleetWorker(exec, hook.URL, told)

	shown := map[string]string{
		"/events?after=0&limit=1000": worker, "/api/v1/audit?limit=1000": "token.create", "/api/v1/audit/export?format=jsonl": "token.create", "/api/v1/audit/export?format=csv": "token.create",
		"/api/v1/fleet/workers/" + worker + "/forensics": worker, "/api/v1/fleet/workers": worker, "/api/v1/fleet/triggers": hook.URL, "/api/v1/fleet/triggers/firings": worker, "/api/v1/fleet/keys": "", "/api/v1/keys": "canary", "/jobs": "canary plan", "/api/v1/sandboxes": box[len("/api/v1/sandboxes/"):],
		box: "SECRET", box + "/execs": "true", box + "/snapshots": "files", "/api/v1/workers": "fake", "/metrics": "aurea", "/health": "fake", "/api/v1/usage": "", "/api/v1/kill-switch": "",
	}
	for path, want := range shown {
		if got := c.ask("GET", path, ""); !strings.Contains(got, want) {
			t.Errorf("%s does not show what was done, so that nothing was looked at: %s", path, got)
		}
	}
	c.processes()
	c.rows()
	c.files()
	c.bundle()
	c.clean("the log", c.p.said())
}

// hear waits until a hook was called, and looks through what it was told.
func (c *canaries) hear(what string, told <-chan string) {
	c.t.Helper()
	select {
	case said := <-told:
		c.clean(what, said)
	case <-time.After(patience):
		c.t.Errorf("%s was not called, so that nothing was looked at", what)
	}
}

// fleetWorker has a worker of the fleet run something, fires a trigger at it whose
// hook keeps it from harm, and puts it under quarantine.
func (c *canaries) fleetWorker(exec, hook string, told <-chan string) string {
	c.t.Helper()
	paper := c.ask("POST", "/api/v1/fleet/manifests", `{"state_snapshot":{"a":1}}`)
	started := c.ask("POST", "/api/v1/fleet/workers", paper)
	id := c.made(started, "worker_id")
	c.ask("POST", "/api/v1/sandboxes/"+c.made(started, "sandbox_id")+"/execs?wait=30", exec)
	address := hook + "/hook?token=" + c.secrets["address of a hook"]
	trigger := c.made(c.ask("POST", "/api/v1/fleet/triggers", fmt.Sprintf(`{"kind":"manual","strategy":"forceful","hooks":{"pre_kill":%q,"notify":%q}}`, address, address)), "id")
	c.ask("POST", "/api/v1/fleet/workers/"+id+"/fire", fmt.Sprintf(`{"trigger_id":%q}`, trigger))
	c.hear("a hook of a trigger", told)
	c.ask("POST", "/api/v1/fleet/workers/"+id+"/quarantine", `{"reason":"a canary","severity":"low"}`)
	return id
}

// processes looks at the arguments and the environment of everything that was
// started. The supervisor has what it was started with, the manager what it
// needs; no other process has any of it.
func (c *canaries) processes() {
	c.t.Helper()
	of := []string{"database", "bucket", "bucket session"}
	roles := children(c.t, c.p.Process.Pid)
	if len(roles) != 3 {
		c.t.Errorf("the processes are %v", roles)
	}
	for _, pid := range descendants(c.t, c.p.Process.Pid) {
		line, environ := proc(c.t, pid, "cmdline"), proc(c.t, pid, "environ")
		name := strings.ReplaceAll(line, "\x00", " ")
		c.clean("the arguments of "+name, line)
		if pid == c.p.Process.Pid || pid == roles["manager"] {
			c.clean("the environment of "+name, environ, of...)
		} else {
			c.clean("the environment of "+name, environ)
		}
	}
}

// descendants lists a process and all below it.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if child, _ := strconv.Atoi(filepath.Base(dir)); err == nil && bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", pid)) {
			all = append(all, descendants(t, child)...)
		}
	}
	return all
}

// rows looks through every row of every table: variables are data of their
// sandbox, run or job, the address of a webhook that of its run.
func (c *canaries) rows() {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.database)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close(c.t.Context()) }()
	list := func(query string) []string {
		rows, err := conn.Query(c.t.Context(), query)
		if err != nil {
			c.t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			c.t.Fatal(err)
		}
		return texts
	}
	looked := 0
	for _, table := range list(`SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()`) {
		for _, row := range list(`SELECT t::text FROM ` + pgx.Identifier{table}.Sanitize() + ` t`) {
			looked++
			allowed := []string{}
			switch table {
			case "sandbox", "sandbox_snapshot", "job":
				allowed = []string{"environment"}
			case "run", "run_hook":
				allowed = []string{"environment", "address of a webhook"}
			case "fleet_trigger", "fleet_firing", "fleet_notice":
				allowed = []string{"address of a hook"}
			}
			c.clean("a row of "+table, row, allowed...)
		}
	}
	if looked < 20 {
		c.t.Errorf("there were %d rows to look through", looked)
	}
}

// files looks through the data folder. The worker's journals of what it was told
// to do are its own; the secrets that were put there by us are not below it.
func (c *canaries) files() {
	c.t.Helper()
	data := filepath.Join(c.data, "aurea")
	err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var allowed []string
		if strings.HasPrefix(path, filepath.Join(data, "sandbox")+"/") {
			allowed = []string{"environment", "environment of an exec"}
		}
		c.clean(path, string(text), allowed...)
		return err
	})
	if err != nil {
		c.t.Error(err)
	}
}

// bundle has support's bundle and what else the command line tells of the
// settings, with a log in which every secret stands without a word around it that
// would tell, and a bucket that refuses.
func (c *canaries) bundle() {
	c.t.Helper()
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<Error><Code>AccessDenied</Code><Message>%s</Message></Error>", url.QueryEscape(r.Header.Get("X-Amz-Security-Token")))
	}))
	defer bucket.Close()
	log, file := filepath.Join(c.data, "some.log"), filepath.Join(c.data, "bundle.tar.gz")
	ours := []string{"database", "bucket", "bucket session", "webhooks", "manifests", "director"}
	var text strings.Builder
	for _, what := range ours {
		_, _ = fmt.Fprintf(&text, "it said %s and went on\n", c.secrets[what])
	}
	if err := os.WriteFile(log, []byte(text.String()+"the last line\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	env := append(slices.Clone(c.env), "AUREA_BLOBS=s3://somewhere", "AWS_ENDPOINT_URL_S3="+bucket.URL, "AUREA_DATA="+filepath.Join(c.data, "aurea"))
	for _, args := range [][]string{{"diagnose", "--output", file, "--log", log}, {"doctor"}, {"config", "show"}} {
		p := aurea(c.t, env, nil, args...)
		p.exit(c.t) // the doctor finds that the bucket cannot be reached
		c.clean("aurea "+args[0], p.said())
	}
	packed, err := os.Open(file)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		c.t.Fatal(err)
	}
	last := false
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			c.t.Fatal(err)
		}
		c.clean(h.Name+" of the bundle", string(body))
		last = last || bytes.Contains(body, []byte("the last line"))
	}
	if !last {
		c.t.Error("the bundle does not have the log, so that nothing was looked at")
	}
}

// TestAddressesOfDatabasesAreNotSaid starts managers with addresses that lead
// nowhere: what they say of them has no password in it.
func TestAddressesOfDatabasesAreNotSaid(t *testing.T) {
	t.Parallel()
	secret := strings.ToLower(rand.Text())
	for _, address := range []string{
		"postgres://u:" + secret + "@h:port/d", "postgres://u:" + secret + "@[::1/d", "postgres://u:" + secret + "%zz@h/d", "postgresql://h/d?sslmode=odd&password=" + secret, "mysql://u:" + secret + "@h/d",
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			sock, _ := socket(t)
			p := aurea(t, []string{"AUREA_LISTEN_FD=3", "AUREA_DATA=" + dataFolder(t), "DATABASE_URL=" + address}, sock, "manager")
			if code := p.exit(t); code == 0 {
				t.Error("it starts")
			}
			if strings.Contains(p.said(), secret) {
				t.Errorf("of an address it says %s", p.said())
			}
		})
	}
}
