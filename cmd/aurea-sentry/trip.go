package main

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"

	"github.com/aurea-dev/aurea/internal/guest/trip"
)

// serveGuest has gVisor's kernel serve the guest as no other program: several
// calls in one trip (package trip), and longer naps.
func serveGuest() error {
	table, ok := kernel.LookupSyscallTable(abi.Linux, arch.Host)
	if !ok {
		return errors.New("there is no table of system calls")
	}
	table.Table[trip.Number] = kernel.Syscall{Name: "trip", Fn: makeTrip, SupportLevel: kernel.SupportFull}
	nap := table.Table[unix.SYS_NANOSLEEP]
	nap.Fn = napLonger(nap.Fn)
	table.Table[unix.SYS_NANOSLEEP] = nap
	table.Init()
	return nil
}

// isGuest reports whether a task is the guest's: its own threads, and a child until
// it becomes a program, have the memory of PID 1.
func isGuest(t *kernel.Task) bool {
	guest := t.Kernel().GlobalInit()
	if guest == nil || guest.Leader() == nil {
		return false
	}
	var memory *mm.MemoryManager
	guest.Leader().WithMuLocked(func(first *kernel.Task) { memory = first.MemoryManager() })
	return memory != nil && memory == t.MemoryManager()
}

// makeTrip makes the calls of a trip.
func makeTrip(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
	if !isGuest(t) {
		return 0, nil, linuxerr.ENOSYS
	}
	count := args[1].Uint64()
	if count > trip.Most {
		return 0, nil, linuxerr.EINVAL
	}
	calls, err := readCalls(t, args[0].Pointer(), int(count))
	if err != nil {
		return 0, nil, err
	}
	var last uintptr
	for i, call := range calls {
		value, control, err := makeCall(t, call)
		if control != nil {
			return value, control, err // it does not come back from this one
		}
		if err != nil && !call.Has(trip.Pass) {
			return trip.Failure(i, errnoOf(err, call)), nil, nil
		}
		last = value
	}
	return last, nil, nil
}

// readCalls reads calls from the guest's memory.
func readCalls(t *kernel.Task, from hostarch.Addr, count int) ([]trip.Call, error) {
	const word = 8
	b := make([]byte, count*5*word)
	if _, err := t.CopyInBytes(from, b); err != nil {
		return nil, err
	}
	calls := make([]trip.Call, count)
	for i := range calls {
		for _, field := range []*uintptr{&calls[i].Number, &calls[i].A, &calls[i].B, &calls[i].C, &calls[i].D} {
			*field = uintptr(binary.LittleEndian.Uint64(b))
			b = b[word:]
		}
	}
	return calls, nil
}

// makeCall makes one call of a trip.
func makeCall(t *kernel.Task, call trip.Call) (uintptr, *kernel.SyscallControl, error) {
	number := call.Of()
	fn := t.SyscallTable().Lookup(number)
	if fn == nil || number == trip.Number {
		return 0, nil, linuxerr.ENOSYS
	}
	args := arch.SyscallArguments{{Value: call.A}, {Value: call.B}, {Value: call.C}, {Value: call.D}}
	if call.Has(trip.Load) {
		var b [4]byte
		if _, err := t.CopyInBytes(args[0].Pointer(), b[:]); err != nil {
			return 0, nil, err
		}
		args[0].Value = uintptr(binary.LittleEndian.Uint32(b[:]))
	}
	return fn(t, number, args)
}

// errnoOf is the number of an error. A call that would be made again by itself is
// made again by the guest.
func errnoOf(err error, call trip.Call) uintptr {
	errno := kernel.ExtractErrno(err, int(call.Of()))
	if firstRestart := int(unix.Errno(512)); errno >= firstRestart {
		errno = int(unix.EINTR)
	}
	return uintptr(errno)
}

// The guest's runtime looks after itself on a thread of its own, every 20 µs while
// something happens. Each look costs the sandbox as much as a system call of the
// command that the guest just starts. Looks that far apart are enough.
const (
	briefNap = 20 * time.Microsecond
	longNap  = time.Millisecond
)

// napLonger has the guest sleep for longNap where it asks for less, but not for less
// than briefNap: that is somebody else, who waits for a lock.
func napLonger(nap kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if !isGuest(t) {
			return nap(t, number, args)
		}
		var asked linux.Timespec
		if _, err := asked.CopyIn(t, args[0].Pointer()); err != nil {
			return 0, nil, err
		}
		if d := asked.ToDuration(); d < briefNap || d >= longNap {
			return nap(t, number, args)
		}
		_, _ = t.BlockWithTimeout(nil, true, longNap) // who wakes it sooner may
		return 0, nil, nil
	}
}
