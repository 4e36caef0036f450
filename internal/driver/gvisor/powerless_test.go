package gvisor_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every thread of a sandbox's process is nobody on the host, or the worker's own
// user where that is not root, with no capability and behind a filter, though it
// had a few to begin with.
func TestSentryIsPowerless(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := open(t, folder)
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	say(t, b, "true") // some threads more
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(made(t, folder, b).Sentry.PID) + "/task/*/status")
	if err != nil || len(threads) < 2 {
		t.Fatal(threads, err)
	}
	user := 65534
	if os.Geteuid() != 0 {
		user = os.Geteuid()
	}
	ids := strings.Repeat("\t"+strconv.Itoa(user), 4)
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if os.IsNotExist(err) {
			continue // it has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"Uid:" + ids, "Gid:" + ids, "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
			"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
		} {
			if !strings.Contains(string(status), want+"\n") {
				t.Errorf("%s lacks %q", thread, want)
			}
		}
	}
}
