package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
)

// TestRunsInContainers does runs on a real Docker Engine, with no pool: the
// same requests and answers, in a container each.
func TestRunsInContainers(t *testing.T) {
	t.Parallel()
	if lack := dockertest.Missing(); lack != "" {
		if inCI() {
			t.Fatal(lack)
		}
		t.Skip("left out: " + lack)
	}
	engine, err := dockertest.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	up, err := start([]string{"DOCKER_HOST=" + engine.Host, "SANDBOX_IMAGE=" + dockertest.Image, "AUREA_POOL="}, nil,
		"up", "--data", filepath.Join(dataFolder(t), "data"), "--driver", "docker", "--port", "0", "--bridge-port", "0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if code, err := up.stop(); err != nil || code != 0 {
			t.Errorf("up ends with %d, %v", code, err)
		}
		if t.Failed() {
			t.Log(up.said())
		}
	})
	url, err := up.after("API     ")
	if err != nil {
		t.Fatal(err)
	}
	k := newAsker(t, url)
	eventually(t, "everything is well", func() (bool, string) {
		var health struct {
			Status string
			Docker *string `json:"docker_version"`
			Pool   []any
		}
		err := k.get(t.Context(), "/health", &health)
		return err == nil && health.Status == "healthy" && health.Docker != nil && len(health.Pool) == 0, fmt.Sprintf("%+v, %v", health, err)
	})
	for _, one := range []struct {
		sent, stdout, verdict string
		code                  int
		left                  map[string]string
	}{
		{`{"code": "import sys; print(sys.argv[1], open('a.txt').read(), sys.stdin.read())", "args": ["x"], "files": {"a.txt": "A"}, "stdin": "in", "driver": "docker"}`, "x A in\n", "ok", 0, nil},
		{`{"code": "echo hello > $AUREA_ARTIFACTS/b.txt; echo no > main.sh || exit 3", "language": "bash", "driver": "docker"}`, "", "failed", 3, map[string]string{"b.txt": "hello\n"}},
		{`{"code": "print(1, flush=True)\nwhile True: pass", "timeout": 2}`, "1\n", "timeout", -1, nil},
	} {
		a, err := k.ask(t.Context(), http.MethodPost, "/run", []byte(one.sent))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Stdout, Stderr, Verdict, Driver, Image string
			Code                                   int `json:"exit_code"`
			Warm                                   bool
			Artifacts                              map[string]string
		}
		if err := a.into(http.StatusOK, &got); err != nil {
			t.Fatal(err)
		}
		if got.Stdout != one.stdout || got.Verdict != one.verdict || got.Code != one.code || got.Driver != "docker" || got.Warm || fmt.Sprint(got.Artifacts) != fmt.Sprint(one.left) {
			t.Errorf("%s came to %+v", one.sent, got)
		}
	}
	// On a shared database a worker with that driver may be connected to another
	// manager, so the run waits for one.
	status, code := http.StatusServiceUnavailable, "driver_unavailable"
	if onPostgres() {
		status, code = http.StatusTooManyRequests, "no_room"
	}
	a, err := k.ask(t.Context(), http.MethodPost, "/run?queue_timeout=2", []byte(`{"code": "print(1)", "driver": "gvisor"}`))
	if err != nil || a.status != status || a.problem() != code {
		t.Errorf("another driver: %v, %v", a, err)
	}
}
