package inside

import (
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func privilegeAttempts() []attempt {
	return []attempt{
		{"privilege-capabilities", func(arguments) error {
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				value, err := status(set)
				if err != nil {
					continue // a kernel that does not say; the attempts below say
				}
				if strings.Trim(value, "0") != "" {
					return nil
				}
			}
			return errors.New("all sets are empty")
		}},
		{"privilege-no-new-privileges", func(arguments) error {
			value, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
			if err != nil {
				return err
			}
			if value != 1 {
				return nil
			}
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil {
				return err
			}
			return nil
		}},
		{"privilege-raise", func(arguments) error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			sets := [2]unix.CapUserData{{Effective: 1 << 21, Permitted: 1 << 21}} // CAP_SYS_ADMIN
			return unix.Capset(&header, &sets[0])
		}},
		{"privilege-setuid", func(arguments) error {
			// Root already is one user; another is as good.
			var other uintptr
			if os.Getuid() == 0 {
				other = 1
			}
			return all(
				func() error { return call(unix.SYS_SETUID, other) },
				func() error { return call(unix.SYS_SETRESUID, other, other, other) },
				func() error { return call(unix.SYS_SETGID, other) },
				func() error { return call(unix.SYS_SETRESGID, other, other, other) },
				func() error {
					group := uint32(other)
					return call(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)))
				},
			)
		}},
		{"privilege-chown", func(arguments) error {
			const path = "/tmp/.chown"
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return nil
			}
			defer func() { _ = os.Remove(path) }()
			other := 0
			if os.Getuid() == 0 {
				other = 1
			}
			return os.Chown(path, other, other)
		}},
		{"privilege-core-dump", func(arguments) error {
			var limit unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
				return err
			}
			if limit.Cur != 0 || limit.Max != 0 {
				return nil
			}
			return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
		}},
	}
}
