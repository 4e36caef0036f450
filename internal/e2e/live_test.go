package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// box is a sandbox as the native door shows it.
type box struct {
	ID, Name, State string
	ExpiresAt       time.Time `json:"expires_at"`
}

// command is an exec as the native door shows it.
type command struct {
	ID       string
	State    string
	Verdict  string
	ExitCode int `json:"exit_code"`
	Stdout   struct {
		Bytes     int64
		SHA256    string
		Truncated bool
	}
}

func (k *asker) post(ctx context.Context, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	a, err := k.ask(ctx, http.MethodPost, path, text)
	if err != nil {
		return err
	}
	return a.into(http.StatusCreated, into)
}

// pair is a manager and a worker with real sandboxes, each of which can be
// killed and comes back.
type pair struct {
	*asker
	t       *testing.T
	sock    *os.File
	folder  string
	manager *process
	worker  *process
}

func newPair(t *testing.T, worker ...string) *pair {
	t.Helper()
	needGVisor(t)
	sock, url, err := socket()
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, sock: sock, folder: dataFolder(t), asker: newAsker(t, url)}
	t.Cleanup(func() {
		_ = p.manager.kill()
		_ = sock.Close()
		bury(p.folder)
	})
	p.startManager()
	p.startWorker(worker...)
	return p
}

func (p *pair) startManager(env ...string) {
	p.t.Helper()
	m, err := start(append([]string{"AUREA_LISTEN_FD=3", "AUREA_DATA=" + filepath.Join(p.folder, "data")}, env...), p.sock, "manager")
	if err == nil {
		p.manager = m
		err = m.expect("manager serves")
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) startWorker(env ...string) {
	p.t.Helper()
	p.worker = startWorker(p.t, p.asker, binaries, filepath.Join(p.folder, "worker"), 4, env...)
}

// TestOutputIsReadOnce cuts a reader off ten times while a command prints 50 MB,
// and kills the manager and the worker meanwhile. It reads every byte once.
func TestOutputIsReadOnce(t *testing.T) {
	const steps, each = 10, 650_000
	p := newPair(t)
	var x box
	eventually(t, "a sandbox is made", func() (bool, string) {
		err := p.post(t.Context(), "/api/v1/sandboxes", map[string]any{"name": "printer"}, &x)
		return err == nil, fmt.Sprint(err)
	})
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do seq $((i*%d+1)) $(((i+1)*%d)); i=$((i+1)); sleep 0.3; done; exit 7`, steps, each, each)
	var e command
	if err := p.post(t.Context(), "/api/v1/sandboxes/"+x.ID+"/execs", map[string]any{"shell": script}, &e); err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for i := 1; i <= steps*each; i++ {
		fmt.Fprintln(sum, i)
	}
	want := hex.EncodeToString(sum.Sum(nil))

	r := &reader{pair: p, path: "/api/v1/sandboxes/" + x.ID + "/execs/" + e.ID, sum: sha256.New()}
	cuts := 0
	for !r.ended {
		most := int64(1 << 40)
		if cuts < 10 {
			most = rand.Int64N(6 << 20)
		}
		if err := r.read(t.Context(), most); err != nil && !errors.Is(err, errCut) {
			t.Logf("at %d: %v", r.at, err)
			pause(t.Context(), 100*time.Millisecond)
			continue
		}
		switch cuts++; cuts {
		case 3:
			if err := p.manager.kill(); err != nil {
				t.Fatal(err)
			}
			p.startManager()
		case 6:
			if err := p.worker.kill(); err != nil {
				t.Fatal(err)
			}
			p.startWorker()
		}
	}
	if cuts < 10 {
		t.Errorf("it was cut off only %d times", cuts)
	}
	if got := hex.EncodeToString(r.sum.Sum(nil)); got != want {
		t.Errorf("%d bytes were read, with digest %s in place of %s", r.at, got, want)
	}
	eventually(t, "the exec has ended", func() (bool, string) {
		err := p.get(t.Context(), r.path, &e)
		return err == nil && e.State == "ENDED", fmt.Sprintf("%+v, %v", e, err)
	})
	if e.Verdict != "failed" || e.ExitCode != 7 || e.Stdout.SHA256 != want || e.Stdout.Bytes != r.at || e.Stdout.Truncated {
		t.Errorf("it ended as %+v", e)
	}
	if a, err := p.ask(t.Context(), http.MethodDelete, "/api/v1/sandboxes/"+x.ID, nil); err != nil || a.status != http.StatusOK {
		t.Errorf("delete: %s, %v", a, err)
	}
	// What it printed stays.
	again := &reader{pair: p, path: r.path, sum: sha256.New()}
	if err := again.read(t.Context(), 1<<40); err != nil || hex.EncodeToString(again.sum.Sum(nil)) != want {
		t.Errorf("after the end %d bytes were read, %v", again.at, err)
	}
}

// reader reads the output of an exec from where it stands.
type reader struct {
	*pair
	path  string
	at    int64
	sum   hash.Hash
	ended bool
}

var errCut = errors.New("the connection was cut")

// read reads until so many bytes came, which then cuts the connection, or to
// the end.
func (r *reader) read(ctx context.Context, most int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s%s/output?follow=true&offset=%d", r.base, r.path, r.at), nil)
	if err != nil {
		return err
	}
	res, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return fmt.Errorf("%d: %s", res.StatusCode, text)
	}
	n, err := io.Copy(r.sum, io.LimitReader(res.Body, most))
	r.at += n
	switch {
	case err != nil:
		return err
	case n == most:
		return errCut
	}
	r.ended = true
	return nil
}

// TestAllAreAdopted has many sandboxes print while everything but them is killed
// with -9, and starts it again: all of them go on, with their names, execs,
// output, files and times.
func TestAllAreAdopted(t *testing.T) {
	needGVisor(t)
	count := number(t, "SANDBOXES", 10)
	up := &supervisor{t: t, folder: dataFolder(t), port: freePort(t)}
	up.asker = newAsker(t, fmt.Sprintf("http://127.0.0.1:%d", up.port))
	t.Cleanup(up.bury)
	up.start()
	boxes, execs := make([]box, count), make([]command, count)
	var group sync.WaitGroup
	turns := make(chan struct{}, 4)
	for i := range count {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			up.fill(i, &boxes[i], &execs[i])
		})
	}
	if group.Wait(); t.Failed() {
		return
	}
	up.killAll()
	up.start()
	began := time.Now()
	var list []box
	for i := range boxes {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			eventually(t, "it is there again", func() (bool, string) {
				a, err := up.ask(t.Context(), http.MethodPost, "/api/v1/sandboxes/"+boxes[i].ID+"/execs?wait=10", []byte(`{"command":["cat","mine"]}`))
				return err == nil && a.status == http.StatusCreated && bytes.Contains(a.body, fmt.Appendf(nil, "file %d", i)), fmt.Sprintf("%d: %s, %v", i, a, err)
			})
		})
	}
	if group.Wait(); t.Failed() {
		return
	}
	eventually(t, "all are there again", func() (bool, string) {
		err := up.get(t.Context(), "/api/v1/sandboxes?open=true&limit=1000", &list)
		return err == nil && len(list) == count, fmt.Sprintf("%d are open, %v", len(list), err)
	})
	t.Logf("%d sandboxes answer %s after the processes are back", count, time.Since(began).Round(time.Millisecond))
	for i := range boxes {
		up.check(i, boxes[i], execs[i])
	}
	for i := range boxes {
		if a, err := up.ask(t.Context(), http.MethodDelete, "/api/v1/sandboxes/"+boxes[i].ID, nil); err != nil || a.status != http.StatusOK {
			t.Errorf("delete: %s, %v", a, err)
		}
	}
	if code, err := up.one.stop(); err != nil || code != 0 {
		t.Errorf("up ends with %d, %v:\n%s", code, err, up.one.said())
	}
	if found := left(up.folder); len(found) > 0 {
		t.Errorf("left running:\n%s", strings.Join(found, "\n"))
	}
	for _, folder := range []string{"spool", "driver/gvisor/box"} { // what was told is swept behind a delay
		if rest, err := filepath.Glob(filepath.Join(up.folder, "data", "sandbox", folder, "*")); err != nil || len(rest) > 0 {
			t.Errorf("left in %s: %q, %v", folder, rest, err)
		}
	}
}

// supervisor is `aurea up` with real sandboxes.
type supervisor struct {
	*asker
	t      *testing.T
	folder string
	port   int
	one    *process
}

func (u *supervisor) start() {
	u.t.Helper()
	one, err := start([]string{"AUREA_POOL=", "AUREA_ON_STOP=keep"}, nil, "up", "--data", filepath.Join(u.folder, "data"), "--port", fmt.Sprint(u.port), "--bridge-port", "0")
	if err == nil {
		u.one = one
		err = one.expect("Ctrl-C stops everything in order.")
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

// bury kills what is left of it, its sandboxes too.
func (u *supervisor) bury() {
	if u.one != nil {
		_ = u.one.kill()
	}
	bury(u.folder)
}

// bury kills the sandboxes of a folder, which outlive their worker.
func bury(folder string) {
	for pid, args := range processes() {
		if strings.Contains(strings.Join(args, " "), folder) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// killAll kills the supervisor and its children at once.
func (u *supervisor) killAll() {
	u.t.Helper()
	kids := children(u.one.pid())
	_ = syscall.Kill(u.one.pid(), syscall.SIGKILL)
	for _, pid := range kids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := u.one.wait(); err != nil {
		u.t.Fatal(err)
	}
}

// fill makes a sandbox with a file and a command that counts.
func (u *supervisor) fill(i int, x *box, e *command) {
	eventually(u.t, "a sandbox is made", func() (bool, string) {
		err := u.post(u.t.Context(), "/api/v1/sandboxes", map[string]any{
			"name": fmt.Sprint("box-", i), "memory_limit": "64m", "ttl": 3600, "files": map[string]string{"mine": fmt.Sprint("file ", i)},
		}, x)
		return err == nil, fmt.Sprint(err)
	})
	count := []string{"perl", "-e", `$| = 1; for (1..100000) { print "$_\n"; select(undef, undef, undef, 0.5) }`} // without a process for each pause
	if err := u.post(u.t.Context(), "/api/v1/sandboxes/"+x.ID+"/execs", map[string]any{"command": count, "timeout": 3600}, e); err != nil {
		u.t.Error(err)
	}
}

// check looks at one that was adopted: what it was, and that it counts on.
func (u *supervisor) check(i int, x box, e command) {
	u.t.Helper()
	var now box
	if err := u.get(u.t.Context(), "/api/v1/sandboxes/"+x.ID, &now); err != nil || now.Name != fmt.Sprint("box-", i) || now.State != "RUNNING" || !now.ExpiresAt.Equal(x.ExpiresAt) {
		u.t.Errorf("sandbox %d was %+v and is %+v, %v", i, x, now, err)
	}
	path := "/api/v1/sandboxes/" + x.ID + "/execs/" + e.ID
	var before int
	grown := func() (bool, string) {
		a, err := u.ask(u.t.Context(), http.MethodGet, path+"/output", nil)
		if err != nil || a.status != http.StatusOK || len(a.body) == 0 {
			return false, fmt.Sprintf("%s, %v", a, err)
		}
		lines := strings.Split(strings.TrimSuffix(string(a.body), "\n"), "\n")
		for n, line := range lines {
			if line != fmt.Sprint(n+1) {
				u.t.Fatalf("sandbox %d: line %d is %q", i, n+1, line)
			}
		}
		if before == 0 {
			before = len(lines)
		}
		return len(lines) > before, fmt.Sprintf("%d lines", len(lines))
	}
	eventually(u.t, fmt.Sprintf("sandbox %d counts on", i), grown)
}

// send makes a request with a body that is no JSON.
func (p *pair) send(method, path, body string, header ...string) (answer, error) {
	return p.ask(p.t.Context(), method, path, []byte(body), header...)
}

// TestFilesAndPorts reaches the files and ports of a real sandbox as users do.
func TestFilesAndPorts(t *testing.T) {
	p := newPair(t)
	var x box
	eventually(t, "a sandbox is made", func() (bool, string) {
		err := p.post(t.Context(), "/api/v1/sandboxes", map[string]any{"files": map[string]string{"old": "one\ntwo\n"}}, &x)
		return err == nil, fmt.Sprint(err)
	})
	base := "/api/v1/sandboxes/" + x.ID
	content := base + "/files/content?path=/workspace/"
	want := func(what string, status int, text string, a answer, err error) {
		t.Helper()
		if err != nil || a.status != status || !strings.Contains(string(a.body), text) {
			t.Errorf("%s: %s, %v", what, a, err)
		}
	}
	ask := func(what, method, path, body string, status int, text string, header ...string) {
		t.Helper()
		a, err := p.send(method, path, body, header...)
		want(what, status, text, a, err)
	}
	ask("write", "PUT", content+"deep/new%20file&mode=0640", "hello", 200, `"mode":"0640"`)
	ask("read", "GET", content+"deep/new%20file", "", 200, "hello")
	ask("a range", "GET", content+"deep/new%20file", "", 206, "ell", "Range", "bytes=1-3")
	ask("list", "GET", base+"/files?path=/workspace&depth=2", "", 200, "/workspace/deep/new file")
	ask("patch", "POST", base+"/files/patch", "--- a/old\n+++ b/old\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n", 200, "modified")
	ask("patched", "GET", content+"old", "", 200, "one\nthree\n")
	ask("a patch that does not fit", "POST", base+"/files/patch", "--- a/old\n+++ b/old\n@@ -1,2 +1,2 @@\n one\n-two\n+four\n", 409, "patch_conflict")
	ask("a patch that leads out", "POST", base+"/files/patch", "--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", 422, "")
	ask("move", "POST", base+"/files/move", `{"from":"/workspace/old","to":"/workspace/moved"}`, 204, "")
	ask("copy", "POST", base+"/files/copy", `{"from":"/workspace/moved","to":"/workspace/copied"}`, 204, "")
	ask("remove", "DELETE", base+"/files?path=/workspace/deep&recursive=true", "", 204, "")
	ask("what is gone", "GET", base+"/files/stat?path=/workspace/deep", "", 404, "")
	ask("a device", "GET", base+"/files/content?path=/dev/zero", "", 422, "")
	ask("a relative path", "GET", base+"/files/content?path=x", "", 422, "bad_path")
	ask("without a right", "PUT", base+"/files/content?path=/etc/passwd", "x", 403, "")

	var e command
	if err := p.post(t.Context(), base+"/execs", map[string]any{"command": []string{"python3", "-m", "http.server", "8080"}, "timeout": 0}, &e); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the port answers", func() (bool, string) {
		a, err := p.send("GET", base+"/ports/8080/moved", "")
		return err == nil && a.status == 200 && string(a.body) == "one\nthree\n", fmt.Sprintf("%s, %v", a, err)
	})
	a, err := p.send("GET", base+"/ports/8080/", "")
	if want("a page", 200, "copied", a, err); !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("a page of the sandbox has our origin: %v", a.header)
	}
	ask("nobody listens", "GET", base+"/ports/9/", "", 502, "port_closed")
	host, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.base+"/moved", nil)
	if err != nil {
		t.Fatal(err)
	}
	host.Host = fmt.Sprintf("8080-%s.localhost", x.ID)
	res, err := p.http.Do(host)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 200 || string(text) != "one\nthree\n" {
		t.Errorf("by host name: %d %q", res.StatusCode, text)
	}
	ask("end", "DELETE", base, "", 200, "cancelled")
}
