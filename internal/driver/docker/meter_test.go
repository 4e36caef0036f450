package docker

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The engine sometimes knows of no processor time; the host's groups do.
func TestMeterFindsProcessorTime(t *testing.T) {
	t.Parallel()
	for name, tree := range map[string]map[string]string{
		"version 1": {
			"proc/7/cgroup":                         "9:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n",
			"cg/memory/docker/x/memory.oom_control": "oom_kill 0\n",
			"cg/cpu,cpuacct/docker/x/cpuacct.usage": "1500000000\n",
		},
		"version 2": {
			"proc/7/cgroup":             "0::/docker/x\n",
			"cg/docker/x/memory.events": "oom_kill 0\n",
			"cg/docker/x/cpu.stat":      "usage_usec 1500000\nuser_usec 1\n",
		},
	} {
		dir := t.TempDir()
		for path, text := range tree {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := newMeter(filepath.Join(dir, "proc"), filepath.Join(dir, "cg"), 7)
		if got := m.cpuTime(); got != 1500*time.Millisecond {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := (meter{}).cpuTime(); got != -1 {
		t.Errorf("without a group: %s", got)
	}
}
