package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/image/debiantest"
)

// The requests are laid out as people type them from a page of documentation:
// over several lines, the address by name, at the default port.
const (
	curlPython = `curl -X POST "http://localhost:8000/run" \
  -H "Content-Type: application/json" \
  -d '{
    "code": "print(\"A greeting from Python\")",
    "language": "python",
    "timeout": 30,
    "readonly": true
  }'`
	curlNode = `curl -X POST "http://localhost:8000/run" \
  -H "Content-Type: application/json" \
  -d '{
    "code": "console.log(\"A greeting from Node\")",
    "language": "javascript",
    "timeout": 20
  }'`
	curlEverything = `curl -X POST http://localhost:8000/run \
  -H 'Content-Type: application/json' \
  -d '{
    "code": "read -r a < a.txt; echo $a; echo no >&2; echo left > $AUREA_ARTIFACTS/b.txt; exit 3",
    "language": "bash",
    "timeout": 10,
    "files": {"a.txt": "given\n"},
    "readonly": true,
    "capture_artifacts": true
  }'`
	curlLate = `curl -X POST http://localhost:8000/run -H 'Content-Type: application/json' \
  -d '{"code": "print(1, flush=True)\nwhile True: pass", "timeout": 1}'`
)

// TestCurl speaks to `aurea up` at its default address, as clients of a plain
// code runner do, and looks at every field that those know, and at its type.
func TestCurl(t *testing.T) {
	t.Parallel()
	up := newVillage(t)
	for _, one := range []struct {
		name, typed string
		want        map[string]any
	}{
		{"python", curlPython, plainAnswer(30, "A greeting from Python\n")},
		{"node", curlNode, plainAnswer(20, "A greeting from Node\n")},
		{"everything", curlEverything, map[string]any{
			"success": false, "exit_code": "3", "stdout": "given\n", "stderr": "no\n", "timed_out": false, "timeout": "10", "artifacts": map[string]any{"b.txt": "left\n"},
		}},
		{"late", curlLate, map[string]any{
			"success": false, "exit_code": "-1", "stdout": "1\n", "stderr": "", "timed_out": true, "timeout": "1", "artifacts": map[string]any{},
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			got := up.typed(t, one.typed)
			if id, ok := got["run_id"].(string); !ok || len(id) != 36 {
				t.Errorf("run_id is %v", got["run_id"])
			}
			if n, ok := got["execution_time"].(json.Number); !ok || !fraction(n) {
				t.Errorf("execution_time is %v", got["execution_time"])
			}
			demand(t, got, one.want)
		})
	}
	demand(t, up.typed(t, "curl http://localhost:8000/"), map[string]any{"name": "Aurea Sandbox Orchestrator", "version": "dev"})
	health := up.typed(t, "curl http://localhost:8000/health")
	demand(t, health, map[string]any{"status": "healthy", "sandbox_available": true, "docker_version": nil})
	for _, page := range []string{"docs", "redoc"} {
		if said := up.shell(t, "curl --fail http://localhost:8000/"+page); !strings.Contains(said, "<html") {
			t.Errorf("/%s is no page: %.200s", page, said)
		}
	}
}

func plainAnswer(timeout int, stdout string) map[string]any {
	return map[string]any{
		"success": true, "exit_code": "0", "stdout": stdout, "stderr": "", "timed_out": false, "timeout": strconv.Itoa(timeout), "artifacts": map[string]any{},
	}
}

// fraction reports whether a number is a count of seconds that a short program
// may have taken.
func fraction(n json.Number) bool {
	f, err := n.Float64()
	return err == nil && f > 0 && f < patience.Seconds()
}

// demand compares the fields that are wanted: whole numbers, as they were
// written, stand as text.
func demand(t *testing.T, got, want map[string]any) {
	t.Helper()
	for name, value := range want {
		found, ok := got[name]
		if n, is := found.(json.Number); is {
			found = n.String()
		} else if _, is := found.(string); is && (name == "exit_code" || name == "timeout") {
			t.Errorf("%s is text", name)
		}
		if !ok || fmt.Sprintf("%T %v", found, found) != fmt.Sprintf("%T %v", value, value) {
			t.Errorf("%s is %#v, want %#v in %v", name, found, value, got)
		}
	}
}

// village is `aurea up` with nothing but its data folder said, in a network of
// its own, where the default ports are free.
type village struct{ up *process }

func newVillage(t *testing.T) *village {
	t.Helper()
	needGVisor(t)
	store, err := debiantest.Store(t.Context(), debiantest.Languages)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dataFolder(t), "data")
	cmd := exec.Command("unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", filepath.Join(binaries, "aurea"), "up", "--data", data)
	env, err := bases.env([]string{"SANDBOX_IMAGE=" + store.DefaultName()}, cmd.Args[6:])
	if err != nil {
		t.Fatal(err)
	}
	v := &village{}
	if v.up, err = launch(cmd, env, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if code, err := v.up.stop(); err != nil || code != 0 {
			t.Errorf("up ends with %d, %v", code, err)
		}
		if t.Failed() {
			t.Log(v.up.said())
		}
	})
	if err := v.up.expect("Ctrl-C stops everything in order."); err != nil {
		t.Fatal(err)
	}
	eventually(t, "everything is well", func() (bool, string) {
		health := v.typed(t, "curl http://localhost:8000/health")
		return health["status"] == "healthy", fmt.Sprint(health)
	})
	return v
}

// shell does what somebody types on that machine.
func (v *village) shell(t *testing.T, typed string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", "--target", strconv.Itoa(v.up.pid()), "--net", "sh", "-c", typed)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/"}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", typed, err, out, &said)
	}
	return string(out)
}

// typed is shell, of something that prints a JSON object.
func (v *village) typed(t *testing.T, typed string) map[string]any {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(v.shell(t, typed)))
	in.UseNumber()
	var got map[string]any
	if err := in.Decode(&got); err != nil {
		t.Fatalf("%s: %v", typed, err)
	}
	return got
}
