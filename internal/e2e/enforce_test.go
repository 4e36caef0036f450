package e2e

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestBoundsOfAWorkerHold has workers of the fleet try to use more than their
// manifests say, in real sandboxes.
func TestBoundsOfAWorkerHold(t *testing.T) {
	t.Parallel()
	p := newPair(t, "AUREA_POOL=") // so that a sandbox's groups have its own name
	p.awaitSandboxes()
	const memory = 64 // megabytes
	// tail keeps a line without end in memory.
	hog := map[string]any{"shell": "head -c 200000000 /dev/zero | tail | wc -c", "timeout": 60}

	t.Run("memory", func(t *testing.T) {
		w := p.member(1, memory)
		var e command
		if err := p.post(t.Context(), w.sandbox()+"/execs?wait=60", hog, &e); err == nil && e.State == "exited" && e.ExitCode == 0 {
			t.Errorf("200 MB fit into %d: %+v", memory, e)
		}
		eventually(t, "the kernel ends it, and so does the law", func() (bool, string) {
			var gone member
			err := p.get(t.Context(), "/api/v1/fleet/workers/"+w.WorkerID, &gone)
			return err == nil && gone.Status == "killed" && gone.Reason != nil && *gone.Reason == "sandbox_ended", fmt.Sprintf("%+v %v", gone, err)
		})
	})
	t.Run("processors", func(t *testing.T) {
		w := p.member(0.2, memory)
		if err := p.post(t.Context(), w.sandbox()+"/execs", map[string]any{"shell": "while :; do :; done"}, &command{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is throttled", func() (bool, string) {
			text := w.group(t, "cpu.stat")
			_, rest, _ := strings.Cut(text, "nr_throttled ")
			n, _, _ := strings.Cut(rest, "\n")
			return n != "" && n != "0", text
		})
		if got := p.enforce(w); got.Name != "resource_enforced" || got.Value != 1 || got.Breach != "" || got.Labels["cpu"] != "0.2" {
			t.Errorf("enforced as %+v", got)
		}
	})
	t.Run("more than the paper says", func(t *testing.T) {
		w := p.member(1, memory)
		a, err := p.ask(t.Context(), http.MethodPatch, w.sandbox(), []byte(`{"memory_limit":"512m"}`))
		if err != nil || a.status != http.StatusConflict || a.problem() != "of_the_fleet" {
			t.Errorf("its limits are changed: %v %v", a, err)
		}
		// Somebody on the host lifts the bound, so that only the law is left.
		w.lift(t)
		var e command
		if err := p.post(t.Context(), w.sandbox()+"/execs?wait=60", hog, &e); err != nil || e.ExitCode != 0 {
			t.Fatalf("%+v: %v", e, err)
		}
		got := p.enforce(w)
		if got.Name != "resource_enforced" || !strings.HasPrefix(got.Breach, "memory: ") || got.measured() <= memory {
			t.Errorf("enforced as %+v", got)
		}
		var gone member
		if err := p.get(t.Context(), "/api/v1/fleet/workers/"+w.WorkerID, &gone); err != nil || gone.Status != "killed" || gone.Reason == nil || !strings.HasPrefix(*gone.Reason, "resource_exceeded: memory") {
			t.Errorf("it is %+v: %v", gone, err)
		}
		var x struct{ State string }
		if err := p.get(t.Context(), w.sandbox(), &x); err != nil || x.State != "FAILED" {
			t.Errorf("its sandbox is %+v: %v", x, err)
		}
		var records []struct{ Action, Severity, Category, Target, Message string }
		if err := p.get(t.Context(), "/api/v1/audit?action=resource_breach&target="+w.WorkerID, &records); err != nil || len(records) != 1 || records[0].Severity != "critical" || records[0].Category != "violation" {
			t.Errorf("the audit has %+v: %v", records, err)
		}
		if a, err := p.ask(t.Context(), http.MethodGet, "/metrics", nil); err != nil || !strings.Contains(string(a.body), `aurea_fleet_resource_enforced_total{breach="yes"} 1`) {
			t.Errorf("the figures do not count it: %v", err)
		}
	})
}

func (p *pair) awaitSandboxes() {
	p.t.Helper()
	eventually(p.t, "the worker serves", func() (bool, string) {
		var h struct {
			Available bool `json:"sandbox_available"`
		}
		err := p.get(p.t.Context(), "/health", &h)
		return err == nil && h.Available, fmt.Sprint(h, err)
	})
}

// member launches a worker of the fleet with these bounds.
func (p *pair) member(processors float64, megabytes int) (w member) {
	p.t.Helper()
	var m paper
	ask := map[string]any{"resources": map[string]any{"cpu_limit": processors, "memory_limit_mb": megabytes}}
	err := p.post(p.t.Context(), "/api/v1/fleet/manifests", ask, &m)
	if err == nil {
		err = p.post(p.t.Context(), "/api/v1/fleet/workers", m, &w)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return w
}

type enforcement struct {
	Name   string
	Value  float64
	Labels map[string]string
	Breach string
}

func (e enforcement) measured() int64 {
	n, _ := strconv.ParseInt(e.Labels["measured_memory"], 10, 64)
	return n
}

func (p *pair) enforce(w member) (e enforcement) {
	p.t.Helper()
	a, err := p.ask(p.t.Context(), http.MethodPost, "/api/v1/fleet/workers/"+w.WorkerID+"/enforce", nil)
	var got struct {
		Enforced bool
		Metric   enforcement
	}
	if err == nil {
		err = a.into(http.StatusOK, &got)
	}
	if err != nil || !got.Enforced {
		p.t.Fatalf("enforce: %v %v", a, err)
	}
	return got.Metric
}

func (w member) sandbox() string { return "/api/v1/sandboxes/" + *w.SandboxID }

// groupFile is the path of a file of its control group, under the first version
// of control groups or the second.
func (w member) groupFile(t *testing.T, file string) (path string, second bool) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	_ = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || path != "" || !d.IsDir() || !strings.Contains(filepath.Base(at), *w.SandboxID) {
			return nil //nolint:nilerr // groups come and go
		}
		if _, err := os.Stat(filepath.Join(at, file)); err == nil {
			path = filepath.Join(at, file)
		}
		return nil
	})
	if path == "" {
		t.Fatalf("the sandbox %s has no group with %s", *w.SandboxID, file)
	}
	_, err := os.Stat(filepath.Join(filepath.Dir(path), "cgroup.controllers"))
	return path, err == nil
}

func (w member) group(t *testing.T, file string) string {
	t.Helper()
	path, _ := w.groupFile(t, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lift takes the bound of its memory away, as only somebody on the host can.
func (w member) lift(t *testing.T) {
	t.Helper()
	path, second := w.groupFile(t, "memory.stat")
	files := []string{"memory.memsw.limit_in_bytes", "memory.limit_in_bytes"} // in this order; the first is not everywhere
	none := "-1"
	if second {
		files, none = []string{"memory.max"}, "max"
	}
	for i, file := range files {
		err := os.WriteFile(filepath.Join(filepath.Dir(path), file), []byte(none), 0o600)
		if err != nil && i == len(files)-1 {
			t.Fatal(err)
		}
	}
}
