package inside

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Go's runtime handles every signal there is, also those that nobody asked for.
// In a sandbox, where a system call is a trip to a kernel outside, that is dear:
// each command that is started has all those handlers taken back, one by one,
// and the end of each wakes a thread of the guest. A guest has no use for them,
// and nobody in the sandbox may send it one.

// quietAfter is how long a guest runs before it gives its handlers up: less than
// that, and commands would not make up for the calls that it takes.
const quietAfter = 300 * time.Millisecond

// needed reports whether the runtime needs to see a signal.
func needed(s syscall.Signal) bool {
	switch s { //nolint:exhaustive // all others are not needed
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, // faults of its own
		syscall.SIGURG, syscall.SIGPIPE, // preemption, broken pipes
		syscall.SIGKILL, syscall.SIGSTOP, 32, 33, 34: // nobody's
		return true
	}
	return false
}

// quieten gives the handlers up that a guest does not need. The runtime is told
// that the signals are ignored, so that it does not take their handlers back in
// each child; then they get what children shall inherit.
func (l *linux) quieten() error {
	l.mu.Lock() // no child is born between the two
	defer l.mu.Unlock()
	if len(l.births) > 0 {
		time.AfterFunc(quietAfter, func() { _ = l.quieten() })
		return nil
	}
	const last = syscall.Signal(64)
	for s := syscall.Signal(1); s <= last; s++ {
		if needed(s) {
			continue
		}
		signal.Ignore(s)
		if err := standard(s); err != nil {
			return err
		}
	}
	return nil
}

// standard has a signal do what it does by itself.
func standard(s syscall.Signal) error {
	var action [4]uint64 // the kernel's struct sigaction: the standard handler, no flags, no mask
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if errno != 0 {
		return fmt.Errorf("give up the handler of %v: %w", s, errno)
	}
	return nil
}
