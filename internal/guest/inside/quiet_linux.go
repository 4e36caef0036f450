package inside

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WaitQuietly has the end of a child tell nobody but who waits for it. Go's
// runtime has every signal delivered, also those that nobody asked for: for each
// child that wakes a thread, which has nothing to do.
func WaitQuietly() error {
	var standard [4]uint64 // struct sigaction of the kernel: the standard handler, no flags, no mask
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&standard)), 0, 8, 0, 0)
	if errno != 0 {
		return fmt.Errorf("ignore the signals of children: %w", errno)
	}
	return nil
}
