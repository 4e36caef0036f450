package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RunContainer is a guest in a container that shares the host's kernel. It is
// started as root with a few capabilities, because a container engine gives
// them to nobody else, and becomes a user of its own before it hears a word.
// Its arguments are the folder of its channel and its user's number.
func RunContainer(args []string) error {
	if len(args) != 2 {
		return errors.New("a container's guest needs the folder of its channel and its user")
	}
	uid, err := strconv.ParseUint(args[1], 10, 31)
	if err != nil || uid == 0 {
		return fmt.Errorf("%q is not the number of a user", args[1])
	}
	// Both ways on both, so that neither breaks when a worker goes.
	in, err := os.OpenFile(filepath.Join(args[0], "in"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the channel: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(args[0], "out"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the channel: %w", err)
	}
	err = serveContainer(in, out, int(uid))
	_, _ = fmt.Fprintln(out, "aurea-guest:", err)
	return err
}

func serveContainer(in, out *os.File, uid int) error {
	if err := stepDown(uid); err != nil {
		return err
	}
	trees, err := newMarks()
	if err != nil {
		return err
	}
	e := newEngine(in, out)
	if e.system, err = newLinux(e, trees); err != nil {
		return err
	}
	return e.Run()
}

// guestNeeds are the capabilities that the guest keeps: to start commands as
// other users, to signal them, to hand over pipes and terminals, and to read
// files for the record that a command has locked away.
func guestNeeds() []int {
	return []int{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE}
}

// stepDown makes root the guest's own user, which keeps what a guest needs and
// leaves nothing to its children. All threads take each step.
func stepDown(uid int) error {
	if err := emptyBoundingSet(); err != nil {
		return err
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("keep the capabilities: %w", errno)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(uid, uid, uid), syscall.Setresuid(uid, uid, uid)); err != nil {
		return fmt.Errorf("become the guest's user: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	for _, c := range guestNeeds() {
		sets[c/32].Effective |= 1 << (c % 32)
		sets[c/32].Permitted |= 1 << (c % 32)
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0)
	if errno != 0 {
		return fmt.Errorf("give up the other capabilities: %w", errno)
	}
	// Nobody reads the guest's memory, and it leaves none behind.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("close the guest's memory: %w", errno)
	}
	return KeepPrivileges()
}

// emptyBoundingSet keeps every program that is ever started here, whoever
// starts it, from having a capability.
func emptyBoundingSet() error {
	for c := uintptr(0); c < 64; c++ {
		_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0)
		if errno == unix.EINVAL && c > unix.CAP_DAC_OVERRIDE {
			return nil // the kernel has no more
		}
		if errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	return nil
}
