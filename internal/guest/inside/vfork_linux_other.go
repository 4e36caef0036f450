//go:build linux && !amd64

package inside

import "syscall"

// canVfork says that vfork is not there.
const canVfork = false

func (*trips) vfork(path string, args []string, attr *syscall.ProcAttr, _ *birth) (pid int, err error) {
	return syscall.ForkExec(path, args, attr)
}
