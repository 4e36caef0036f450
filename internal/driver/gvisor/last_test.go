package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// tree returns the processes of the host below one, and itself, each with its
// start time, as they are in /proc/PID/stat.
func tree(t testing.TB, pid int) map[string]string {
	t.Helper()
	found := map[string]string{}
	var walk func(pid string)
	walk = func(pid string) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return
		}
		found[pid] = startOf(string(stat))
		children, err := filepath.Glob("/proc/" + pid + "/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range children {
			list, _ := os.ReadFile(path)
			for _, child := range strings.Fields(string(list)) {
				walk(child)
			}
		}
	}
	walk(fmt.Sprint(pid))
	return found
}

func startOf(stat string) string {
	const start = 19 // behind the name
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[start]
}

// When Destroy returns, no process of the sandbox is left, not even one that
// nobody has waited for, with and without control groups to find them by.
func TestDestroyLeavesNoProcess(t *testing.T) {
	t.Parallel()
	for name, root := range map[string]string{"with groups": "", "without": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := stateDir(t)
			d := openWith(t, gvisor.Config{StateDir: folder, HostRoot: root})
			t.Cleanup(func() { d.Close() })
			for range 10 {
				b := drivertest.Create(t, d, sandbox.Spec{})
				say(t, b, "for i in 1 2 3 4 5 6; do sleep 1000 >/dev/null 2>&1 & done; echo up")
				all := tree(t, made(t, folder, b).Sentry.PID)
				if len(all) < 3 {
					t.Fatalf("only %d processes were found", len(all))
				}
				drivertest.Destroy(t, d, b)
				for pid, start := range all {
					if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && startOf(string(stat)) == start {
						t.Errorf("left of %d: %.40s", len(all), stat)
					}
				}
			}
		})
	}
}
