package spawn_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/aurea-dev/aurea/internal/spawn"
)

// Where the kernel lets nobody make a user namespace, that is said, with the
// setting that forbids it.
func TestRootlessIsForbidden(t *testing.T) {
	t.Parallel()
	const setting = "/proc/sys/user/max_user_namespaces"
	if os.Getenv("AUREA_TEST_FORBIDDEN") == "" {
		if os.Geteuid() != 0 {
			t.Skip("left out: it needs root")
		}
		// The setting holds below the namespace in which it is made.
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestRootlessIsForbidden$")
		cmd.Env = []string{"AUREA_TEST_FORBIDDEN=yes"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: all, GidMappings: all}
		if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), "--- PASS: TestRootlessIsForbidden") {
			t.Errorf("%v: %s", err, said)
		}
		return
	}
	if err := spawn.Rootless(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := os.WriteFile(setting, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	if err := spawn.Rootless(); err == nil || !strings.Contains(err.Error(), "sysctl user.max_user_namespaces=") {
		t.Errorf("then: %v", err)
	}
}
