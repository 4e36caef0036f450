package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	const crowd = 12
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
			destroy(t, d, b)
		}
	}
}
