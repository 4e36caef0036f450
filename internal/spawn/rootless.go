package spawn

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rootless says why this user, who is not root, can start no sandbox: a sandbox
// then is root in namespaces of its own, which not every kernel lets everybody
// make. It tries, and leaves nothing.
func Rootless() error {
	// The child is cloned and confined, and then finds no program: that it
	// came so far is the answer.
	const nothing = "/proc/self/nothing"
	_, err := os.StartProcess(nothing, []string{nothing}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Chroot:      "/proc",
	}})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	for _, setting := range []struct{ file, forbids, remedy string }{
		{"user/max_user_namespaces", "0", "user.max_user_namespaces=10000"},
		{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if value, readErr := os.ReadFile("/proc/sys/" + setting.file); readErr == nil && strings.TrimSpace(string(value)) == setting.forbids {
			return fmt.Errorf("the kernel forbids user namespaces: %w (sysctl %s)", err, setting.remedy)
		}
	}
	return fmt.Errorf("make namespaces: %w", err)
}
