package inside

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/trip"
)

// trips makes several system calls in one trip to the kernel (package trip), or one
// after the other where that is not to be had.
type trips struct {
	there, none atomic.Bool // whether it is to be had, once that is known
}

// make makes the calls and returns what the last one does, or why one failed that
// must not. What the calls have addresses of is pinned by the caller.
func (s *trips) make(calls []trip.Call) (uintptr, error) {
	if len(calls) == 0 {
		return 0, nil
	}
	if len(calls) > 1 && !s.none.Load() {
		value, _, errno := unix.Syscall(trip.Number, uintptr(unsafe.Pointer(&calls[0])), uintptr(len(calls)), 0)
		if errno == 0 {
			s.there.Store(true)
			if _, errno, failed := trip.Failed(value); failed {
				return 0, unix.Errno(errno)
			}
			return value, nil
		}
		s.there.Store(false)
		s.none.Store(true)
	}
	var last uintptr
	for _, call := range calls {
		value, _, errno := unix.Syscall6(call.Of(), first(call), call.B, call.C, call.D, 0, 0)
		if errno != 0 && !call.Has(trip.Pass) {
			return 0, errno
		}
		last = value
	}
	return last, nil
}

// closings are the calls that close descriptors.
func closings(fds []int) []trip.Call {
	calls := make([]trip.Call, 0, len(fds)+1)
	for _, fd := range fds {
		calls = append(calls, trip.Call{Number: unix.SYS_CLOSE | trip.Pass, A: uintptr(fd)})
	}
	return calls
}

// closeAll closes descriptors.
func (s *trips) closeAll(fds []int) { _, _ = s.make(closings(fds)) }

// look looks at files. One that cannot be seen has no mode.
func (s *trips) look(names []string) []unix.Stat_t {
	seen := make([]unix.Stat_t, len(names))
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&seen[0])
	calls := make([]trip.Call, 0, trip.Most)
	here := unix.AT_FDCWD
	for i, name := range names {
		at, err := unix.BytePtrFromString(name)
		if err != nil {
			continue
		}
		pinned.Pin(at)
		calls = append(calls, trip.Call{
			Number: unix.SYS_NEWFSTATAT | trip.Pass, A: uintptr(here), B: uintptr(unsafe.Pointer(at)), C: uintptr(unsafe.Pointer(&seen[i])),
		})
		if len(calls) == trip.Most {
			_, _ = s.make(calls)
			calls = calls[:0]
		}
	}
	_, _ = s.make(calls)
	return seen
}

// first is the first argument of a call.
func first(call trip.Call) uintptr {
	if call.Has(trip.Load) {
		at := *(*unsafe.Pointer)(unsafe.Pointer(&call.A)) // it is pinned
		return uintptr(*(*int32)(at))
	}
	return call.A
}
