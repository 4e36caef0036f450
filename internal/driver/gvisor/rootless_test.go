package gvisor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/spawn"
)

// somebody is a user without any rights, and without a name.
const somebody = 54321

// rootless runs tests of this package as somebody, in the given control groups.
// All must pass.
func rootless(t *testing.T, tests string, groups []string) {
	t.Helper()
	body, err := os.ReadFile("/proc/self/exe") // which may be where nobody else gets to
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(binaries, fmt.Sprintf("tests%d", len(groups)))
	if err := os.WriteFile(own, body, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(own, "-test.v", "-test.count=1", "-test.timeout=5m", "-test.run=^("+tests+")$")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "AUREA_TEST_BINARIES=" + binaries, "AUREA_TEST_BECOME=" + strings.Join(groups, ":")}
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, said)
	}
	for test := range strings.SplitSeq(tests, "|") {
		if !strings.Contains(string(said), "\n--- PASS: "+test+" ") {
			t.Errorf("%s did not pass", test)
		}
	}
}

// become joins control groups, becomes somebody and runs the tests.
func become(groups string) int {
	for file := range strings.SplitSeq(groups, ":") {
		if file == "" {
			continue
		}
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	err := errors.Join(os.Unsetenv("AUREA_TEST_BECOME"), syscall.Setgroups(nil), syscall.Setgid(somebody), syscall.Setuid(somebody))
	if err == nil {
		err = syscall.Exec(os.Args[0], os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// delegate makes control groups that are somebody's, as a service manager does,
// and returns the files to join them by.
func delegate(t *testing.T) []string {
	t.Helper()
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("aurea-test-%d", os.Getpid())
	var files []string
	for line := range strings.Lines(string(list)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		keys := strings.Split(fields[1], ",")
		dir := path.Join("/sys/fs/cgroup", fields[1], fields[2])
		switch {
		case fields[1] == "":
			dir = unifiedDir(t)
		case !slices.ContainsFunc(keys, func(key string) bool { return slices.Contains([]string{"cpu", "memory", "pids", "cpuacct"}, key) }):
			continue
		}
		given := filepath.Join(dir, name)
		join := filepath.Join(given, "worker")
		if err := os.MkdirAll(join, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeGroups(t, given) })
		if err := filepath.WalkDir(given, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, somebody, somebody))
		}); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(join, "cgroup.procs"))
	}
	return files
}

// unifiedDir is where version 2 is mounted, with what it has for all.
func unifiedDir(t *testing.T) string {
	t.Helper()
	dir := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err != nil {
		dir = filepath.Join(dir, "unified") // beside version 1, which has them
	}
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(list)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
			t.Log(err) // the tests need three of them, and say so
		}
	}
	return dir
}

// removeGroups removes a group with those below it, which the kernel lets go of
// a moment after their last process.
func removeGroups(t *testing.T, group string) {
	t.Helper()
	for range 200 {
		var found []string
		_ = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				found = append(found, path)
			}
			return nil
		})
		slices.Reverse(found)
		for _, path := range found {
			_ = os.Remove(path)
		}
		if _, err := os.Lstat(group); os.IsNotExist(err) {
			return
		}
		time.Sleep(5 * time.Millisecond) // a group can be removed once its last process is reaped
	}
	t.Errorf("%s is left", group)
}

// A user without rights makes sandboxes where everybody may make namespaces:
// the whole contract holds, but for the limits that the host's control groups
// keep. Those are refused, or kept where the groups are the user's.
func TestRootless(t *testing.T) {
	needRoot(t)
	if os.Geteuid() != 0 {
		t.Skip("this is the run without root")
	}
	t.Parallel()
	t.Run("without groups", func(t *testing.T) {
		t.Parallel()
		rootless(t, "TestContract|TestWalls|TestSentryIsPowerless|TestUpgrade|TestProcessLimit|TestOpenFilesLimit|TestNobodyKeepsLimits", nil)
	})
	t.Run("with groups", func(t *testing.T) {
		t.Parallel()
		rootless(t, "TestOutOfMemory|TestCPULimit|TestGroupsAreSweptAndFound", delegate(t))
	})
}

// TestNobodyKeepsLimits is the part of TestRootless in which no control group
// is the user's: the driver says so, and does not promise what it cannot keep.
func TestNobodyKeepsLimits(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("it is run by TestRootless")
	}
	t.Parallel()
	if err := spawn.Rootless(); err != nil {
		t.Fatal(err)
	}
	d := open(t, stateDir(t))
	defer d.Close()
	c := d.Capabilities()
	if c.CPU || c.Memory || c.CPUTime || !c.Processes || !c.Disk || !c.OpenFiles {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"cpu", "memory", "cpu time"} {
		if d.Lacks()[name] == "" {
			t.Errorf("nothing is said of %s", name)
		}
	}
}
