package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/cli"
)

func TestUpDoesAJobAndStopsInOrder(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	p, api, bridge := up(t, data)
	res, err := http.Post("http"+bridge+"/mcp/command", "application/json", strings.NewReader(
		`{"project_id": 1, "title": "Test PRD", "tasks": [{"role": "Employee", "payload": {"action": "create file"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("the bridge answers %s", res.Status)
	}
	j := finish(t, newClient(t, api, ""))
	if j.Status != client.Completed {
		t.Fatalf("job: %+v", j)
	}
	for _, path := range []string{"workspaces/" + j.ID + "/result.txt", "snapshots/" + j.ID + ".tar"} {
		if _, err := os.Stat(filepath.Join(data, "sandbox", path)); err != nil {
			t.Error(err)
		}
	}

	second := aurea(t, nil, nil, "up", "--data", data, "--driver", "fake", "--port", "0", "--bridge-port", "0")
	if code := second.exit(t); code != cli.ExitConflict {
		t.Errorf("a second up ends with %d", code)
	}
	want := fmt.Sprintf("aurea: the data folder %s is in use by process %d;", data, p.Process.Pid)
	if said := strings.TrimSpace(second.said()); !strings.HasPrefix(said, want) || strings.Contains(said, "\n") {
		t.Errorf("a second up says %q", said)
	}

	kids := children(t, p.Process.Pid)
	fds := map[string]int{}
	for _, role := range []string{"manager", "bridge", "worker"} {
		fds[role] = watched(t, kids[role])
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "bridge", fds["bridge"])
	if !hasEnded(t, fds["worker"]) {
		t.Error("the bridge ends before the worker has drained")
	}
	awaitEnd(t, "manager", fds["manager"])
	if !hasEnded(t, fds["worker"]) || !hasEnded(t, fds["bridge"]) {
		t.Error("the manager ends before those who need it")
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("up ends with %d", code)
	}
	if strings.Contains(p.said(), "killed") {
		t.Error("somebody had to be killed")
	}
}

func TestUpStartsAgainWhatIsKilled(t *testing.T) {
	t.Parallel()
	p, api, _ := up(t, dataFolder(t))
	c := newClient(t, api, "")
	before := finish(t, c)
	kids := children(t, p.Process.Pid)
	for _, role := range []string{"manager", "worker", "bridge"} {
		fd := watched(t, kids[role])
		if err := syscall.Kill(kids[role], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, role, fd)
		if j := finish(t, c); j.Status != client.Completed {
			t.Errorf("after the death of the %s: %+v", role, j)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if again, err := c.Job(ctx, before.ID); err != nil || again.Status != client.Completed || again.CompletedAt == nil || !again.CompletedAt.Equal(*before.CompletedAt) {
		t.Errorf("what was done before: %+v, %v", again, err)
	}
}

func TestDeathOfUpStopsItsChildren(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	p, _, _ := up(t, data)
	fds := map[string]int{}
	for role, pid := range children(t, p.Process.Pid) {
		fds[role] = watched(t, pid)
	}
	if len(fds) != 3 {
		t.Fatalf("children: %v", fds)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for role, fd := range fds {
		awaitEnd(t, role, fd)
	}
	// The folder is free again, and what is in it is whole.
	_, api, _ := up(t, data)
	if j := finish(t, newClient(t, api, "")); j.Status != client.Completed {
		t.Errorf("%+v", j)
	}
}

// needRoot skips where privileges cannot be dropped because there are none.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	for _, e := range os.Environ() {
		if e == "CI=true" {
			t.Fatal("this test needs root, and CI must not leave it out")
		}
	}
	t.Skip("left out: needs root, to see privileges being dropped")
}

func TestUpAsRootDropsPrivileges(t *testing.T) {
	t.Parallel()
	needRoot(t)
	data := dataFolder(t)
	secretive := []string{"DATABASE_URL=sqlite:" + filepath.Join(data, "manager", "own.db"), "AUREA_KEY=aurea_x_secret", "GITHUB_TOKEN=t0ken", "JWT_SECRET=s3cret"}
	p, _, _ := up(t, data, secretive...)
	kids := children(t, p.Process.Pid)
	who, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"manager", "bridge", "worker"} {
		status := proc(t, kids[role], "status")
		environ := strings.Split(proc(t, kids[role], "environ"), "\x00")
		own := fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n", who.uid, who.gid)
		if role == "worker" {
			own = "Uid:\t0\t0\t0\t0\n"
		} else {
			for _, line := range []string{"NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "Groups:\t \n"} {
				if !strings.Contains(status, line) {
					t.Errorf("the status of the %s has no %q", role, line)
				}
			}
		}
		if !strings.Contains(status, own) {
			t.Errorf("the %s runs as\n%s", role, status)
		}
		for _, v := range environ {
			name, value, _ := strings.Cut(v, "=")
			if name == "DATABASE_URL" && role != "manager" || name == "AUREA_KEY" || name == "HOME" && role != "worker" ||
				strings.Contains(value, "t0ken") || strings.Contains(value, "s3cret") || strings.Contains(value, "secret") {
				t.Errorf("the %s sees %s", role, v)
			}
		}
	}
	if !slices.Contains(strings.Split(proc(t, kids["manager"], "environ"), "\x00"), secretive[0]) {
		t.Error("the manager does not get its database")
	}
	for path, mode := range map[string]fs.FileMode{"manager": 0o700, "manager/keys": 0o700, "sandbox": 0o700} {
		info, err := os.Stat(filepath.Join(data, path))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
			continue
		}
		st, _ := info.Sys().(*syscall.Stat_t)
		if isManagers := strings.HasPrefix(path, "manager"); isManagers != (st.Uid == who.uid) {
			t.Errorf("%s belongs to %d", path, st.Uid)
		}
	}
}

func proc(t *testing.T, pid int, file string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Bound to anything but loopback, the manager makes keys once and asks for
// them. The socket is on loopback all the same: a supervisor handed it down.
func TestManagerBoundElsewhereAsksForKeys(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	sock, url := socket(t)
	env := []string{"AUREA_DATA=" + data, "HOST=192.0.2.1", "AUREA_LISTEN_FD=3"}
	p := aurea(t, env, sock, "manager")
	p.expect(t, "manager serves")
	p.expect(t, "made a key")
	var admin string
	for kind, may := range map[string]bool{"admin": true, "worker": false, "bridge": true} {
		path := filepath.Join(data, "manager", "keys", kind+".key")
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", path, info, err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		key := strings.TrimSpace(string(raw))
		if kind == "admin" {
			admin = key
		}
		// Nobody sits at a terminal here, so what is said may be a log for ever.
		if strings.Contains(p.said(), key) {
			t.Errorf("the %s key was shown", kind)
		}
		_, err = newClient(t, url, key).SubmitPRD(t.Context(), client.PRD{Title: "T", Tasks: []client.Task{{}}}, "")
		if (err == nil) != may {
			t.Errorf("submit with the %s key: %v", kind, err)
		}
	}
	for _, key := range []string{"", "aurea_admin_wrong"} {
		_, err := newClient(t, url, key).QueueStats(t.Context())
		var problem *client.Problem
		if !errors.As(err, &problem) || problem.Status != http.StatusUnauthorized {
			t.Errorf("with key %q: %v", key, err)
		}
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Fatalf("manager ends with %d", code)
	}

	again := aurea(t, env, sock, "manager")
	again.expect(t, "manager serves")
	if strings.Contains(again.said(), "made a key") {
		t.Error("keys were made a second time")
	}
	if _, err := newClient(t, url, admin).QueueStats(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartsStopWithOneLine(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	for name, tc := range map[string]struct {
		env  []string
		args []string
		code int
		want string
	}{
		"unknown driver":      {nil, []string{"worker", "--data", data, "--driver", "magic"}, cli.ExitInvalid, "not one of gvisor, docker, fake"},
		"missing key file":    {[]string{"AUREA_KEY_FILE=/does/not/exist"}, []string{"bridge"}, cli.ExitInvalid, "does not exist"},
		"keeping what cannot": {[]string{"AUREA_ON_STOP=keep"}, []string{"worker", "--data", data, "--driver", "fake"}, cli.ExitInvalid, "cannot find its sandboxes again"},
		"another database":    {[]string{"DATABASE_URL=mysql://h/d"}, []string{"up", "--data", data}, cli.ExitInvalid, "must be sqlite:PATH or postgres:"},
		"address of others":   {nil, []string{"manager", "--data", data, "--host", "192.0.2.1"}, cli.ExitFailed, "listen on 192.0.2.1:8000"},
		"folder is a file":    {nil, []string{"up", "--data", "/proc/self/exe"}, cli.ExitFailed, "make the data folder"},
		"both ways to say it": {nil, []string{"up", "--keep", "--end"}, cli.ExitInvalid, "cannot both be given"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := aurea(t, tc.env, nil, tc.args...)
			if code := p.exit(t); code != tc.code {
				t.Errorf("ends with %d, want %d", code, tc.code)
			}
			last := lastOf(p.said(), "aurea: ")
			if !strings.Contains(last, tc.want) {
				t.Errorf("says %q", last)
			}
		})
	}
}

// lastOf returns the last line that begins with a prefix.
func lastOf(text, prefix string) string {
	last := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			last = line
		}
	}
	return last
}
