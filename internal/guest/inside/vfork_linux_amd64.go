package inside

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/trip"
)

// The Go library starts a program with a pipe for what goes wrong, takes the
// handlers of signals back one by one, and holds signals off meanwhile. Where a
// system call is a trip to a kernel outside, that costs more than half as much as
// the program. A child that has its parent's memory can say what went wrong by
// writing it there, and the kernel gives it no handlers if it is asked.

// canVfork says that vfork is there.
const canVfork = true

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd uint64
	_            uint64 // where the child finds its number
	pid          uint64 // where the parent does
	exitSignal   uint64
	_            [5]uint64 // its stack, its thread's memory, and numbers to take
	cgroup       uint64
}

// report is what a child and the kernel say: the step at which the child gave up,
// and why, and its descriptor. It also holds what the steps have the addresses of,
// which so lies where it stays.
type report struct {
	step, errno  uintptr
	pidfd        int32
	birth        *birth
	program, dir *byte
	argv, envv   []*byte
}

// vforkRun starts a child that makes the steps, together if that is not 0, and
// returns when it has become another program, or has given up.
func vforkRun(args *cloneArgs, steps *trip.Call, count, together uintptr, says *report) (pid int, errno uintptr)

// vforkWait is vforkRun that lets the guest's other goroutines run on, however long
// it takes.
//
//go:nosplit
func vforkWait(args *cloneArgs, steps *trip.Call, count, together uintptr, says *report) (pid int, errno uintptr) {
	entersyscall()
	pid, errno = vforkRun(args, steps, count, together, says)
	exitsyscall()
	return pid, errno
}

// entersyscall and exitsyscall are what every system call of the library's begins
// and ends with.
//
//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// vfork starts a program as syscall.ForkExec does. Of attr it knows what the guest
// uses. The descriptors that the child gets are none of its first three, and its
// limits are the guest's: in a sandbox Go finds nothing to raise.
//
// It waits for as long as the child does to become the program, which for a pipe by
// a program's name is for ever: b tells others the child's number meanwhile. With a
// number it returns an error of a child that gave up and is to be collected.
func (s *trips) vfork(path string, args []string, attr *syscall.ProcAttr, b *birth) (pid int, err error) {
	const none = ^uintptr(0)
	says := &report{step: none, birth: b}
	if says.dir, err = unix.BytePtrFromString(attr.Dir); err != nil {
		return 0, errNoFolder
	}
	if says.program, err = unix.BytePtrFromString(path); err != nil {
		return 0, err
	}
	if says.argv, err = syscall.SlicePtrFromStrings(args); err != nil {
		return 0, err
	}
	if says.envv, err = syscall.SlicePtrFromStrings(attr.Env); err != nil {
		return 0, err
	}
	clone := cloneOf(attr.Sys, says)
	steps := stepsBefore(attr)
	folder := uintptr(len(steps))
	steps = append(steps,
		trip.Call{Number: unix.SYS_CHDIR, A: uintptr(unsafe.Pointer(says.dir))},
		trip.Call{Number: unix.SYS_EXECVE, A: uintptr(unsafe.Pointer(says.program)), B: uintptr(unsafe.Pointer(&says.argv[0])), C: uintptr(unsafe.Pointer(&says.envv[0]))})
	var together uintptr
	if s.there.Load() {
		together = 1
	}
	pid, errno := vforkWait(clone, &steps[0], uintptr(len(steps)), together, says)
	runtime.KeepAlive(says) // the steps have addresses only
	runtime.KeepAlive(attr)
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	if says.step == none {
		if attr.Sys.PidFD != nil {
			*attr.Sys.PidFD = int(says.pidfd)
		}
		return pid, nil
	}
	if attr.Sys.PidFD != nil {
		_ = unix.Close(int(says.pidfd))
	}
	why := syscall.Errno(says.errno)
	if says.step == folder && why != unix.EACCES {
		return pid, errNoFolder
	}
	return pid, why
}

// cloneOf asks for a child.
func cloneOf(sys *syscall.SysProcAttr, says *report) *cloneArgs {
	clone := &cloneArgs{
		flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CLEAR_SIGHAND | unix.CLONE_PARENT_SETTID,
		pid:   uint64(uintptr(unsafe.Pointer(&says.birth.pid))), exitSignal: uint64(unix.SIGCHLD),
	}
	if sys.PidFD != nil {
		clone.flags |= unix.CLONE_PIDFD
		clone.pidfd = uint64(uintptr(unsafe.Pointer(&says.pidfd)))
	}
	if sys.UseCgroupFD {
		clone.flags |= unix.CLONE_INTO_CGROUP
		clone.cgroup = uint64(sys.CgroupFD) //nolint:gosec // a descriptor
	}
	return clone
}

// stepsBefore are those that make a child what it is to be, before it goes to its
// folder.
func stepsBefore(attr *syscall.ProcAttr) []trip.Call {
	sys, groups := attr.Sys, attr.Sys.Credential.Groups
	steps := make([]trip.Call, 0, 12)
	if sys.Setsid {
		steps = append(steps, trip.Call{Number: unix.SYS_SETSID})
	}
	if !sys.Credential.NoSetGroups {
		var list uintptr
		if len(groups) > 0 {
			list = uintptr(unsafe.Pointer(&groups[0]))
		}
		steps = append(steps, trip.Call{Number: unix.SYS_SETGROUPS, A: uintptr(len(groups)), B: list})
	}
	steps = append(steps,
		trip.Call{Number: unix.SYS_SETGID, A: uintptr(sys.Credential.Gid)},
		trip.Call{Number: unix.SYS_SETUID, A: uintptr(sys.Credential.Uid)})
	for i, fd := range attr.Files {
		steps = append(steps, trip.Call{Number: unix.SYS_DUP3, A: fd, B: uintptr(i)})
	}
	if sys.Setctty {
		steps = append(steps, trip.Call{Number: unix.SYS_IOCTL, A: uintptr(sys.Ctty), B: unix.TIOCSCTTY, C: 1})
	}
	// A child that never becomes its program would keep what others wait to be
	// closed.
	return append(steps, trip.Call{Number: unix.SYS_CLOSE_RANGE, A: uintptr(len(attr.Files)), B: ^uintptr(0) >> 32})
}
