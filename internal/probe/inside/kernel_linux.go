package inside

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelAttempts are the system calls through which kernels have been broken,
// or by which a machine is run.
func kernelAttempts() []attempt {
	text := func(s string) unsafe.Pointer { return unsafe.Pointer(&append([]byte(s), 0)[0]) }
	one := func(name string, number uintptr, args ...uintptr) attempt {
		return attempt{name, func(arguments) error { return call(number, args...) }}
	}
	return []attempt{
		{"kernel-keys", func(arguments) error {
			const anyKeyring = ^uintptr(3) + 1 // KEY_SPEC_SESSION_KEYRING, -3
			return all(
				func() error {
					return call(unix.SYS_ADD_KEY, uintptr(text("user")), uintptr(text("probe")), uintptr(text("x")), 1, anyKeyring)
				},
				func() error {
					return call(unix.SYS_REQUEST_KEY, uintptr(text("user")), uintptr(text("probe")), 0, anyKeyring)
				},
				func() error { return call(unix.SYS_KEYCTL, unix.KEYCTL_READ, anyKeyring, 0, 0) },
			)
		}},
		{"kernel-bpf", func(arguments) error {
			attr := [32]uint32{2, 4, 4, 1} // an array map
			return call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		}},
		{"kernel-perf", func(arguments) error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			_, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			return err
		}},
		one("kernel-userfaultfd", unix.SYS_USERFAULTFD, unix.O_CLOEXEC),
		{"kernel-io-uring", func(arguments) error {
			var params [120]byte
			return call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)))
		}},
		{"kernel-modules", func(arguments) error {
			return all(
				func() error { return call(unix.SYS_INIT_MODULE, uintptr(text("x")), 1, uintptr(text(""))) },
				func() error { return call(unix.SYS_FINIT_MODULE, 0, uintptr(text("")), 0) },
				func() error { return call(unix.SYS_DELETE_MODULE, uintptr(text("nothing")), 0) },
			)
		}},
		one("kernel-kexec", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		{"kernel-reboot", func(arguments) error {
			return unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) // harmless where it works
		}},
		{"kernel-swap", func(arguments) error {
			return all(
				func() error { return call(unix.SYS_SWAPON, uintptr(text("/tmp/none")), 0) },
				func() error { return call(unix.SYS_SWAPOFF, uintptr(text("/tmp/none"))) },
			)
		}},
		{"kernel-clock", func(arguments) error {
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
				return err
			}
			moment := unix.NsecToTimeval(now.Nano())
			return all(
				func() error { return unix.ClockSettime(unix.CLOCK_REALTIME, &now) },
				func() error { return unix.Settimeofday(&moment) },
			)
		}},
		{"kernel-host-name", func(arguments) error { return unix.Sethostname([]byte("probe")) }},
		one("kernel-accounting", unix.SYS_ACCT, 0),
		one("kernel-quota", unix.SYS_QUOTACTL, 0x80000200, 0, 0, 0),
		{"kernel-namespaces", func(arguments) error {
			return all(
				func() error { return unix.Unshare(unix.CLONE_NEWNET) },
				func() error { return unix.Unshare(unix.CLONE_NEWPID) },
				func() error { return unix.Unshare(unix.CLONE_NEWNS) },
				func() error { return unix.Unshare(unix.CLONE_NEWUTS) },
			)
		}},
		{"kernel-join-guest", func(arguments) error {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			return unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWPID)
		}},
		{"kernel-real-time", func(arguments) error {
			const fifo = 1
			param := int32(50)
			return call(unix.SYS_SCHED_SETSCHEDULER, 0, fifo, uintptr(unsafe.Pointer(&param)))
		}},
	}
}
