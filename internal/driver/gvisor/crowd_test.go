package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Sandboxes that are made at once are each in groups of their own, and none
// holds a descriptor of another's, or of any group.
func TestEachInItsOwn(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := openWith(t, gvisor.Config{StateDir: folder, Spawners: 4})
	t.Cleanup(func() { d.Close() })
	const crowd = 50
	boxes := make([]sandbox.Box, crowd)
	var group sync.WaitGroup
	for i := range boxes {
		group.Go(func() {
			b, err := d.Create(t.Context(), sandbox.Spec{ID: fmt.Sprintf("crowd%d", i), Limits: sandbox.Limits{
				Memory: int64(64+i) << 20, MilliCPU: 500, Processes: 30, Disk: 8 << 20, OpenFiles: 100,
			}}, func(sandbox.Handle) error { return nil })
			if err != nil {
				t.Error(err)
				return
			}
			boxes[i] = b
		})
	}
	group.Wait()
	for i, b := range boxes {
		if b == nil {
			continue
		}
		sentry := made(t, folder, b).Sentry.PID
		id := b.Handle().ID
		in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", sentry))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(in), "/"+id+"\n"); got == 0 || got != strings.Count(string(in), "/crowd") {
			t.Errorf("%s is in\n%s", id, in)
		}
		if got := say(t, b, "grep MemTotal /proc/meminfo | tr -dc 0-9"); got != fmt.Sprint((64+i)<<10) {
			t.Errorf("%s sees %s kB", id, got)
		}
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", sentry))
		if err != nil || len(fds) == 0 {
			t.Fatal(fds, err)
		}
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if err != nil {
				continue // closed meanwhile
			}
			if strings.Contains(target, "cgroup") || strings.Contains(target, "/crowd") && !strings.Contains(target+"/", "/"+id+"/") {
				t.Errorf("%s holds %s", id, target)
			}
		}
	}
	for _, b := range boxes {
		if b != nil {
			drivertest.Destroy(t, d, b)
		}
	}
}

// Sandboxes that come and go one after the other leave nothing: no process,
// mount, control group or file, and no descriptor, goroutine or memory of the
// worker's. It measures this process, so no other test may run beside it.
func TestManyInARow(t *testing.T) { //nolint:paralleltest // said above
	folder := stateDir(t)
	d := openWith(t, gvisor.Config{StateDir: folder, Spawners: 2})
	defer d.Close()
	const warm, all = 20, 200
	var before, after traces
	for i := range all {
		if i == warm {
			before = remains(t, folder)
		}
		b := drivertest.Create(t, d, sandbox.Spec{Limits: sandbox.Limits{
			Memory: 128 << 20, MilliCPU: 1000, Processes: 30, Disk: 8 << 20, OpenFiles: 100,
		}})
		if i%10 == 0 {
			if got := say(t, b, "echo up"); got != "up" {
				t.Errorf("%q", got)
			}
		}
		drivertest.Destroy(t, d, b)
		if i%25 == 0 {
			if left := drivertest.Traces(t, filepath.Join(folder, "box")); len(left) > 0 {
				t.Fatalf("left after %d: %q", i, left)
			}
		}
	}
	after = remains(t, folder)
	const slack = 2 << 20 // of the heap, which is never quite the same
	if after.memory > before.memory+slack {
		t.Errorf("the worker's memory grew from %d to %d bytes", before.memory, after.memory)
	}
	after.memory = before.memory
	if after != before {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
}

// traces is what sandboxes could leave behind.
type traces struct {
	memory                                uint64
	descriptors, goroutines, groups, left int
}

func remains(t *testing.T, folder string) traces {
	t.Helper()
	var now traces
	count := func(pattern string) int {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	owner, err := os.ReadFile(filepath.Join(folder, "owner"))
	if err != nil {
		t.Fatal(err)
	}
	now.descriptors, now.left = count("/proc/self/fd/*"), count(filepath.Join(folder, "*", "*"))
	now.groups, now.goroutines = len(groupsOf(string(owner))), runtime.NumGoroutine()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	now.memory = m.HeapAlloc
	return now
}
