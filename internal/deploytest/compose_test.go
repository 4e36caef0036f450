//go:build !race

package deploytest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
)

// testCompose starts deploy/compose.yaml in a real engine, sends the first plan
// of all through the bridge, and looks for what it leaves.
func testCompose(t *testing.T, root string, engine *dockertest.Engine) {
	compose := filepath.Join(root, "bin", "docker-compose")
	demand(t, missing(compose, "run `make bin/docker-compose`"))
	d := deployment{t: t, engine: engine, compose: compose, root: copyOf(t, root)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.try("logs"))
		}
		d.try("down", "--volumes")
	})
	d.do("up", "--build", "--detach", "--wait")

	key := filepath.Join(t.TempDir(), "admin.key")
	d.do("cp", "manager:/data/manager/keys/admin.key", key)
	secret := strings.TrimSpace(read(t, key))
	jobs := d.submit(secret)
	for _, id := range jobs {
		d.await(secret, id)
	}
	for i, id := range jobs {
		workspace := filepath.Join(d.root, "deploy", "sandbox", "workspaces", id)
		if i == 0 && !strings.Contains(read(t, filepath.Join(workspace, "result.txt")), "success") {
			t.Error("result.txt has no success sentence")
		}
		if _, err := os.Stat(filepath.Join(d.root, "deploy", "sandbox", "snapshots", id+".tar")); err != nil {
			t.Error(err)
		}
	}
	if said := d.curl("-H", "Authorization: Bearer "+secret, "-s", "http://127.0.0.1:9000/health"); !strings.Contains(said, "ok") {
		t.Errorf("the bridge says of its health: %s", said)
	}
	if said := d.curl("-s", "-X", "POST", "-d", `{"project_id":1}`, "http://127.0.0.1:9000/mcp/command"); !strings.Contains(said, "no_key") {
		t.Errorf("a command without a key was answered: %s", said)
	}
	d.checkWalls(secret)
}

// deployment is a copy of the repository that is brought up.
type deployment struct {
	t       *testing.T
	engine  *dockertest.Engine
	compose string
	root    string
}

func (d *deployment) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.compose, append([]string{"-f", filepath.Join(d.root, "deploy", "compose.yaml")}, args...)...)
	// The engine's old builder needs no plugin of the client.
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.engine.Host, "BASE="+dockertest.WorkerBase, "DOCKER_BUILDKIT=0", "HOME="+d.root)
	return cmd
}

func (d *deployment) do(args ...string) string {
	d.t.Helper()
	out, err := d.command(d.t.Context(), args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("docker compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// try is do where nothing can be done about a failure.
func (d *deployment) try(args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := d.command(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

func (d *deployment) curl(args ...string) string {
	d.t.Helper()
	out, err := d.engine.Inside(d.t.Context(), "curl", append([]string{"--max-time", "30"}, args...)...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("curl: %v\n%s", err, out)
	}
	return string(out)
}

// submit sends a plan through the published port of the bridge: the plan that
// every description of the system begins with, and one that runs code.
func (d *deployment) submit(secret string) []string {
	d.t.Helper()
	said := d.curl("-s", "-X", "POST", "http://127.0.0.1:9000/mcp/command", "-H", "Authorization: Bearer "+secret, "-H", "Content-Type: application/json", "-d",
		`{"project_id":1,"title":"Test PRD","tasks":[{"role":"Employee","payload":{"action":"create file"}},
		  {"role":"Employee","payload":{"action":"run","language":"python","code":"import os; print(os.uname().release)"}}]}`)
	var answer struct {
		JobIDs []string `json:"job_ids"`
	}
	if err := json.Unmarshal([]byte(said), &answer); err != nil || len(answer.JobIDs) != 2 {
		d.t.Fatalf("the bridge answers %s", said)
	}
	return answer.JobIDs
}

// ask runs a command of aurea in the container of the bridge, which has no key
// of its own and lends none.
func (d *deployment) ask(secret string, args ...string) string {
	d.t.Helper()
	in := append([]string{"exec", "-T", "-e", "AUREA_KEY=" + secret, "-e", "AUREA_SERVER=http://manager:8000", "mcp", "/aurea"}, args...)
	return d.do(in...)
}

// await waits for the end of a job.
func (d *deployment) await(secret, id string) {
	d.t.Helper()
	const tries = 300
	for range tries {
		var job struct {
			Status  string `json:"status"`
			Details any    `json:"details"`
		}
		said := d.ask(secret, "jobs", "show", id, "--json")
		if err := json.Unmarshal([]byte(said), &job); err != nil {
			d.t.Fatalf("jobs show: %v: %s", err, said)
		}
		switch job.Status {
		case "COMPLETED":
			return
		case "FAILED", "ESCALATED":
			d.t.Fatalf("the job ended %s: %v", job.Status, job.Details)
		}
		time.Sleep(200 * time.Millisecond) // between two looks
	}
	d.t.Fatal("the job did not end")
}

// checkWalls looks at what the containers may do: the worker's isolation was
// proved inside it, and the manager and the bridge hold no right at all.
func (d *deployment) checkWalls(secret string) {
	d.t.Helper()
	var health struct {
		Status []struct {
			Name, Status   string
			Tried, Stopped int
		} `json:"driver_status"`
	}
	if err := json.Unmarshal([]byte(d.ask(secret, "health", "--json")), &health); err != nil {
		d.t.Fatal(err)
	}
	if len(health.Status) != 1 || health.Status[0].Name != "gvisor" || health.Status[0].Status != "served" || health.Status[0].Tried == 0 || health.Status[0].Tried != health.Status[0].Stopped {
		d.t.Errorf("the worker's drivers: %+v", health.Status)
	}
	for service, want := range map[string]string{"manager": "0000000000000000", "mcp": "0000000000000000", "worker": "00000000002000e3"} {
		if got := d.capabilities(service); got != want {
			d.t.Errorf("%s may have the capabilities %s, want %s", service, got, want)
		}
	}
}

// capabilities reads what the first process of a service may ever have.
func (d *deployment) capabilities(service string) string {
	d.t.Helper()
	id := strings.TrimSpace(d.do("ps", "--quiet", service))
	cmd := exec.CommandContext(d.t.Context(), "docker", "inspect", "--format", "{{.State.Pid}}", id)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.engine.Host)
	pid, err := cmd.Output()
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(read(d.t, "/proc/"+strings.TrimSpace(string(pid))+"/status")) {
		if set, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			return strings.TrimSpace(set)
		}
	}
	d.t.Fatal("the process has no capability set")
	return ""
}
