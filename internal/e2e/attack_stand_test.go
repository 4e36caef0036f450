package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// fort is a manager and a worker with real sandboxes that are attacked over
// HTTP. Keyed, it asks for keys as it does where others can reach it.
type fort struct {
	*pair
	admin, bridge string // keys; "" where none is asked for
}

func newFort(t *testing.T, keyed bool, settings ...string) *fort {
	t.Helper()
	needGVisor(t)
	sock, url, err := socket()
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, sock: sock, folder: dataFolder(t), asker: newAsker(t, url)}
	t.Cleanup(func() { bury(p.folder) }) // those that wait in a pool outlive a worker that is killed
	t.Cleanup(func() {
		if t.Failed() && p.manager != nil {
			t.Logf("the manager said:\n%s", p.manager.said())
		}
		_ = p.manager.kill()
		_ = sock.Close()
	})
	f := &fort{pair: p}
	data := filepath.Join(p.folder, "data")
	env := []string{"AUREA_LISTEN_FD=3", "AUREA_DATA=" + data}
	if keyed {
		env = append(env, "HOST=0.0.0.0")
	}
	if p.manager, err = start(env, sock, "manager"); err == nil {
		err = p.manager.expect("manager serves")
	}
	if err != nil {
		t.Fatal(err)
	}
	var worker []string
	if keyed {
		keys, err := filepath.Glob(filepath.Join(data, "*", "*", "*.key"))
		if err != nil || len(keys) == 0 {
			keys, _ = filepath.Glob(filepath.Join(data, "*", "*.key"))
		}
		for _, path := range keys {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			switch secret := strings.TrimSpace(string(text)); filepath.Base(path) {
			case "admin.key":
				f.admin = secret
			case "bridge.key":
				f.bridge = secret
			case "worker.key":
				worker = []string{"AUREA_KEY_FILE=" + path}
			}
		}
		if f.admin == "" || f.bridge == "" || worker == nil {
			t.Fatalf("there are no keys, only %q", keys)
		}
	}
	if settings == nil {
		settings = []string{"AUREA_POOL="}
	}
	p.startWorker(append(worker, settings...)...)
	t.Cleanup(func() { f.endAll() })
	return f
}

// endAll ends the sandboxes before their processes are killed.
func (f *fort) endAll() {
	var open []box
	a, err := f.ask(context.Background(), http.MethodGet, "/api/v1/sandboxes?open=true&limit=1000", nil, f.own()...)
	if err == nil {
		err = a.into(http.StatusOK, &open)
	}
	if err != nil {
		f.t.Errorf("list what is open: %v", err)
	}
	for _, x := range open {
		if a, err := f.ask(context.Background(), http.MethodDelete, "/api/v1/sandboxes/"+x.ID, nil, f.own()...); err != nil || a.status != http.StatusOK {
			f.t.Errorf("end %s: %s, %v", x.ID, a, err)
		}
	}
}

// own are the headers of the one whom the sandboxes belong to.
func (f *fort) own() []string { return bearer(f.admin) }

func bearer(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + key}
}

// sandbox makes one.
func (f *fort) sandbox(body map[string]any) box {
	f.t.Helper()
	if body == nil {
		body = map[string]any{}
	}
	text, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	var x box
	eventually(f.t, "a sandbox is made", func() (bool, string) {
		a, err := f.ask(f.t.Context(), http.MethodPost, "/api/v1/sandboxes", text, f.own()...)
		if a.status == http.StatusUnprocessableEntity {
			f.t.Fatal(a)
		}
		if err == nil {
			err = a.into(http.StatusCreated, &x)
		}
		return err == nil, fmt.Sprint(err)
	})
	return x
}

func (x box) path() string { return "/api/v1/sandboxes/" + x.ID }

// run runs a line in a sandbox to its end and returns what it printed.
func (f *fort) run(x box, line string) string {
	f.t.Helper()
	text, err := json.Marshal(map[string]any{"shell": line})
	if err != nil {
		f.t.Fatal(err)
	}
	a, err := f.patient(http.MethodPost, x.path()+"/execs?wait=60", text, f.own()...)
	var e struct {
		State          string
		ExitCode       int `json:"exit_code"`
		Stdout, Stderr struct{ Text string }
	}
	if err == nil {
		err = a.into(http.StatusCreated, &e)
	}
	if err != nil || e.State != "ENDED" || e.ExitCode != 0 {
		f.t.Fatalf("%s: %s, %v", line, a, err)
	}
	return e.Stdout.Text
}

// begin starts a command that goes on.
func (f *fort) begin(x box, body map[string]any) command {
	f.t.Helper()
	body["timeout"] = 0
	text, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	var e command
	a, err := f.patient(http.MethodPost, x.path()+"/execs", text, f.own()...)
	if err == nil {
		err = a.into(http.StatusCreated, &e)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return e
}

// patient is ask for what may take long on a busy machine.
func (f *fort) patient(method, path string, body []byte, header ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, f.base+path, strings.NewReader(string(body)))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	return do(f.http, req, 64<<20)
}

// do makes a request and reads at most so much of the answer. Redirects are
// answers.
func do(c *http.Client, req *http.Request, most int64) (answer, error) {
	one := *c
	one.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := one.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(io.LimitReader(res.Body, most))
	return answer{res.StatusCode, res.Header, all}, err
}

// expect demands one of some statuses; 0 is any below 500.
func (f *fort) demand(t *testing.T, what string, statuses []int, method, path, body string, header ...string) answer {
	t.Helper()
	var bytes []byte
	if body != "" {
		bytes = []byte(body)
	}
	a, err := f.patient(method, path, bytes, header...)
	if err != nil || !slices.Contains(statuses, a.status) && (!slices.Contains(statuses, 0) || a.status >= 500) {
		t.Errorf("%s: want %v, got %d %.300s, %v", what, statuses, a.status, a.body, err)
	}
	return a
}

// operation is a route as the description of the server names it.
type operation struct{ method, path string }

// operations are those whose path begins with one of some words, with these ids
// in place of the parameters.
func (f *fort) operations(ids map[string]string, prefixes ...string) (all []operation) {
	f.t.Helper()
	var doc struct {
		Paths map[string]map[string]any
	}
	a, err := f.patient(http.MethodGet, "/openapi.json", nil, f.own()...)
	if err == nil {
		err = a.into(http.StatusOK, &doc)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\{(\w+)\}`)
	for path, methods := range doc.Paths {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) }) {
			continue
		}
		path = parameter.ReplaceAllStringFunc(path, func(p string) string {
			id, ok := ids[strings.Trim(p, "{}")]
			if !ok {
				f.t.Fatalf("nothing is known for %s of %s", p, path)
			}
			return id
		})
		for method := range methods {
			all = append(all, operation{strings.ToUpper(method), path})
		}
	}
	if len(all) < 30 {
		f.t.Fatalf("there are only %d routes", len(all))
	}
	return all
}

// body is one that the route could take.
func (o operation) body() string {
	for part, text := range map[string]string{
		"/execs": `{"command":["true"]}`, "/mkdir": `{"path":"/workspace/x"}`, "/move": `{"from":"/workspace/a","to":"/workspace/b"}`,
		"/copy": `{"from":"/workspace/a","to":"/workspace/b"}`, "/resize": `{"cols":80,"rows":24}`, "/signal": `{"signal":9}`,
	} {
		if o.method == http.MethodPost && strings.HasSuffix(o.path, part) {
			return text
		}
	}
	return "{}"
}

// query is what the route cannot do without.
func (o operation) query() string {
	if strings.HasSuffix(o.path, "/diff") {
		return "?from=none"
	}
	for _, part := range []string{"/files", "/stat", "/content", "/watch"} {
		if strings.HasSuffix(o.path, part) {
			return "?path=/workspace/a"
		}
	}
	return ""
}

// socket opens a WebSocket and returns the code that it was closed with, or the
// status of what was no socket.
func (f *fort) socket(path string, header http.Header, host string) int {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(f.base, "http")+path, &websocket.DialOptions{HTTPClient: f.http, HTTPHeader: header, Host: host})
	if err != nil {
		if res == nil {
			f.t.Errorf("dial %s: %v", path, err)
			return 0
		}
		return res.StatusCode
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			return int(websocket.CloseStatus(err))
		}
	}
}

// rss is how much memory a process holds, in bytes.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(rest, "kB")
	kib, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// bounded demands that manager and worker hold no more memory than they may,
// whatever was done to them. What is garbage may lie there for a while.
func (f *fort) bounded(t *testing.T, what string) {
	t.Helper()
	const most = 600 << 20
	for role, p := range map[string]*process{"manager": f.manager, "worker": f.worker} {
		if n := rss(t, p.pid()); n > most {
			t.Errorf("%s: the %s holds %d MiB", what, role, n>>20)
		} else {
			t.Logf("%s: the %s holds %d MiB", what, role, n>>20)
		}
	}
}

// well demands that a sandbox works as if nothing had been.
func (f *fort) well(t *testing.T, x box) {
	t.Helper()
	began := time.Now()
	if got := f.run(x, "echo well; cat mine"); got != "well\nmy own\n" {
		t.Errorf("the neighbour says %q", got)
	}
	t.Logf("the neighbour answers in %s", time.Since(began).Round(time.Millisecond))
}

// neighbour is a sandbox that nobody attacks.
func (f *fort) neighbour() box {
	return f.sandbox(map[string]any{"name": "neighbour", "files": map[string]string{"mine": "my own\n"}})
}
