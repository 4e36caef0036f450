package main

import (
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"

	"github.com/aurea-dev/aurea/internal/guest/trip"
)

func TestTheGuestIsServed(t *testing.T) {
	if _, ok := kernel.LookupSyscallTable(abi.Linux, arch.Host); !ok {
		kernel.RegisterSyscallTable(linux.AMD64)
	}
	if err := serveGuest(); err != nil {
		t.Fatal(err)
	}
	table, _ := kernel.LookupSyscallTable(abi.Linux, arch.Host)
	if table.Lookup(trip.Number) == nil {
		t.Error("there are no trips")
	}
	if table.LookupName(unix.SYS_NANOSLEEP) != "nanosleep" || table.Lookup(unix.SYS_NANOSLEEP) == nil {
		t.Error("nobody can sleep")
	}
}

func TestFailuresOfATrip(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want unix.Errno
	}{
		{linuxerr.ENOENT, unix.ENOENT},
		{unix.EACCES, unix.EACCES},
		{linuxerr.ERESTARTNOHAND, unix.EINTR}, // the guest says it again
		{linuxerr.ERESTARTSYS, unix.EINTR},
		{linuxerr.EINTR, unix.EINTR},
	} {
		returned := trip.Failure(7, errnoOf(tc.err, trip.Call{Number: unix.SYS_PPOLL}))
		if call, errno, yes := trip.Failed(returned); !yes || call != 7 || unix.Errno(errno) != tc.want {
			t.Errorf("%v is said to be that call %d failed with %v, %v", tc.err, call, unix.Errno(errno), yes)
		}
	}
	for _, value := range []uintptr{0, 1, 1 << 31, 1<<40 - 1} {
		if _, _, yes := trip.Failed(value); yes {
			t.Errorf("%#x is taken for a failure", value)
		}
	}
}
