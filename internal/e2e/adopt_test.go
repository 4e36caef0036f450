package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// counted is a job that prints numbered lines on both streams and ends with a
// code of its own.
type counted struct {
	id    string
	lines int
	pad   string // makes a line long
	code  int
}

func (c *counted) payload(i int) map[string]any {
	// Whether it runs through, has ended meanwhile, or floods, is different for
	// each. The one that floods goes over what a guest holds, more than once.
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "out $i"; echo "err $i" >&2; sleep 0.25; done; exit %d`, c.lines, c.code)
	payload := map[string]any{"action": "exec"}
	switch i % 10 {
	case 3:
		script = fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "out $i%s"; echo "err $i%s" >&2; done; sleep 3; exit %d`, c.lines, c.pad, c.pad, c.code)
	case 7:
		script = "cat > f; " + script
		payload["stdin"] = "hello\n"
	}
	payload["command"] = []string{"sh", "-c", script}
	return payload
}

// TestAdoption kills a worker with -9 while twenty sandboxes work, and starts
// it again, once as a newer release; then it stops one that is to keep them. No
// byte and no exit code is missing, and no try was spent.
func TestAdoption(t *testing.T) {
	needGVisor(t)
	upgrade := newerRelease(t)
	for i := range number(t, "ADOPTIONS", 2) {
		t.Run(fmt.Sprint(i), func(t *testing.T) { adoption(t, upgrade) })
	}
}

// newerRelease is a folder with the same binaries but for a sentry with
// something behind its end, which makes it another file.
func newerRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"aurea", "aurea-guest", "aurea-sentry"} {
		body, err := os.ReadFile(filepath.Join(binaries, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "aurea-sentry" {
			body = append(body, "newer"...)
		}
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func adoption(t *testing.T, upgrade string) {
	const sandboxes = 20
	k := loneManager(t)
	base := filepath.Join(dataFolder(t), "worker")
	live := startWorker(t, k, binaries, base, sandboxes)

	jobs := make([]*counted, sandboxes)
	for i := range jobs {
		jobs[i] = &counted{lines: 4 + 2*i, code: 10 + i}
		if i%10 == 3 {
			jobs[i].lines, jobs[i].pad = 3000, strings.Repeat(" padded", 30)
		}
		task := map[string]any{"role": "Employee", "max_retries": 0, "payload": jobs[i].payload(i)}
		body, _ := json.Marshal(map[string]any{"title": fmt.Sprint("count ", i), "tasks": []any{task}})
		jobs[i].id = submit(t, k, string(body)).Jobs[0]
	}
	eventually(t, "all print", func() (bool, string) {
		for _, j := range jobs {
			a, err := k.ask(t.Context(), http.MethodGet, "/jobs/"+j.id+"/logs?stream=stderr", nil)
			if err != nil || len(a.body) == 0 {
				return false, fmt.Sprintf("%s: %s, %v", j.id, a, err)
			}
		}
		return true, ""
	})
	for _, release := range []string{upgrade, binaries, upgrade} {
		if release == binaries {
			if code, err := live.stop(); err != nil || code != 0 || !strings.Contains(live.said(), "sandboxes are kept for the next start") {
				t.Fatalf("a worker that keeps its sandboxes ends with %d, %v", code, err)
			}
		} else if err := live.kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // they go on without a worker
		live = startWorker(t, k, release, base, sandboxes)
		time.Sleep(300 * time.Millisecond)
	}
	adopted := 0
	for i, j := range jobs {
		adopted += j.check(t, k, i)
	}
	if adopted < sandboxes/2 {
		t.Errorf("only %d sandboxes were taken over", adopted)
	}
	if err := live.kill(); err != nil { // else it would keep nothing
		t.Fatal(err)
	}
	live = startWorker(t, k, binaries, base, sandboxes, "AUREA_ON_STOP=end")
	if code, err := live.stop(); err != nil || code != 0 {
		t.Errorf("the worker ends with %d, %v:\n%s", code, err, live.said())
	}
	if found := left(base); len(found) > 0 {
		t.Errorf("left running:\n%s", strings.Join(found, "\n"))
	}
	for _, folder := range []string{"leases", "spool", "driver/gvisor/box"} {
		if rest, err := filepath.Glob(filepath.Join(base, folder, "*")); err != nil || len(rest) > 0 {
			t.Errorf("left in %s: %q, %v", folder, rest, err)
		}
	}
}

func startWorker(t *testing.T, k *asker, release, base string, slots int, env ...string) *process {
	t.Helper()
	p, err := startFrom(release, append([]string{
		"SANDBOX_BASE=" + base, "WORKER_ID=worker_a", "MANAGER_URL=" + k.base, "AUREA_DRIVER=gvisor", fmt.Sprint("AUREA_CONCURRENCY=", slots),
		"AUREA_ON_STOP=keep",
	}, env...), nil, "worker")
	if err == nil {
		t.Cleanup(func() {
			_ = p.kill()
			if t.Failed() {
				t.Logf("a worker said:\n%s", p.said())
			}
		})
		err = p.expect("registered with the manager")
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// check waits for the end of the job and looks at all that is known of it. It
// returns how often its sandbox was taken over.
func (c *counted) check(t *testing.T, k *asker, i int) (adopted int) {
	t.Helper()
	var job struct {
		Status  string
		Attempt int
		Details struct {
			ExitCode int `json:"exit_code"`
			Verdict  string
			Error    string
		}
	}
	eventually(t, fmt.Sprintf("job %d (%s) ends", i, c.id), func() (bool, string) {
		err := k.get(t.Context(), "/jobs/"+c.id, &job)
		return err == nil && job.Status == "FAILED", fmt.Sprintf("%+v, %v", job, err)
	})
	want, verdict := c.code, "failed"
	var out, errs strings.Builder
	for n := 1; n <= c.lines; n++ {
		fmt.Fprintf(&out, "out %d%s\n", n, c.pad)
		fmt.Fprintf(&errs, "err %d%s\n", n, c.pad)
	}
	if job.Attempt != 1 || job.Details.ExitCode != want || job.Details.Verdict != verdict || job.Details.Error != "" {
		t.Errorf("job %d: %+v", i, job)
	}
	for name, text := range map[string]string{"stdout.log": out.String(), "stderr.log": errs.String()} {
		a, err := k.ask(t.Context(), http.MethodGet, "/jobs/"+c.id+"/artifacts/"+name, nil)
		if err != nil || a.status != http.StatusOK || string(a.body) != text {
			t.Errorf("job %d: %s has %d bytes, want %d: %d, %v", i, name, len(a.body), len(text), a.status, err)
		}
	}
	var events []struct{ Type string }
	if err := k.get(t.Context(), "/jobs/"+c.id+"/events", &events); err != nil {
		t.Fatal(err)
	}
	var story []string
	for _, e := range events {
		if e.Type == "sandbox.adopted" {
			adopted++
			continue
		}
		story = append(story, e.Type)
	}
	whole := []string{
		"job.created", "job.assigned", "job.claimed", "job.started", "sandbox.created", "exec.started", "exec.ended",
		"sandbox.destroyed", "snapshot.stored", "job.failed",
	}
	if !slices.Equal(story, whole) {
		t.Errorf("job %d: the events are %q", i, story)
	}
	return adopted
}
