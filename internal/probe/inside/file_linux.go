package inside

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

func fileAttempts() []attempt {
	return []attempt{
		{"file-host", readCanary},
		{"file-write-image", func(arguments) error {
			// The guest's folder is ours in every image.
			return all(
				func() error { return writable("/.aurea/guest") },
				func() error { return os.Remove("/.aurea/guest") },
				func() error { return os.WriteFile("/.aurea/x", nil, 0o600) },
			)
		}},
		{"file-device-node", makeDevice},
		{"file-devices", strangeDevice},
		{"file-mount", func(arguments) error {
			return all(
				func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") },
				func() error { return unix.Mount("/", "/tmp", "", unix.MS_BIND|unix.MS_REC, "") },
				func() error { return unix.Mount("proc", "/tmp", "proc", 0, "") },
				func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
			)
		}},
		{"file-unmount", func(arguments) error {
			return all(
				func() error { return unix.Unmount("/proc", unix.MNT_DETACH) },
				func() error { return unix.Unmount("/sys", unix.MNT_DETACH) },
			)
		}},
		{"file-pivot-root", func(arguments) error { return unix.PivotRoot("/", "/tmp") }},
		{"file-chroot", func(arguments) error { return unix.Chroot("/tmp") }},
		{"file-new-mount-api", func(arguments) error {
			return all(
				func() error { _, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC); return err },
				func() error {
					_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
					return err
				},
			)
		}},
		{"file-by-handle", openByHandle},
		{"file-kernel-settings", func(arguments) error {
			var tries []func() error
			for _, path := range []string{
				"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger",
				"/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/sys/kernel/uevent_helper",
				"/proc/sys/fs/binfmt_misc/register", "/sys/fs/cgroup/release_agent",
			} {
				tries = append(tries, func() error { return change(path) })
			}
			return all(tries...)
		}},
		{"file-kernel-memory", func(arguments) error {
			return all(
				func() error { return readable("/dev/mem") },
				func() error { return readable("/dev/kmem") },
				func() error { return readable("/proc/kcore") },
				func() error { return readable("/dev/kmsg") },
				func() error { return readable("/proc/kmsg") },
				func() error { return readable("/proc/vmcore") },
			)
		}},
	}
}

// change writes to a setting what it holds already, so that a host whose wall
// has a hole is not harmed by the proof. Opening alone proves nothing: a kernel
// in user space has such files too, with nothing behind them.
func change(path string) error {
	value := []byte("h") // for the trigger, which holds nothing: it asks for help
	if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
		value = text
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Write(value); err != nil {
		return err
	}
	return reached("write " + path)
}

// readCanary looks for a file that is really on the host, by every road.
func readCanary(a arguments) error {
	if len(a.canaries) == 0 || a.mark == "" {
		return nil // not told what to look for: nothing was proved
	}
	var tries []func() error
	for _, canary := range a.canaries {
		for _, root := range []string{
			"", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/proc/self/cwd/../../../..",
			"/host", "/mnt", "/proc/self/fd/0/..", "/..",
		} {
			path := root + canary
			tries = append(tries, func() error {
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer func() { _ = f.Close() }()
				text, err := io.ReadAll(io.LimitReader(f, 4096))
				if err != nil {
					return err
				}
				if !bytes.Contains(text, []byte(a.mark)) {
					return errors.New("another file")
				}
				return nil
			})
		}
	}
	return all(tries...)
}

func makeDevice(arguments) error {
	const path = "/tmp/.node"
	memory, disk := int(unix.Mkdev(1, 1)), int(unix.Mkdev(8, 0))
	defer func() { _ = os.Remove(path) }()
	return all(
		func() error { return unix.Mknod(path, unix.S_IFCHR|0o666, memory) },
		func() error { return unix.Mknod(path, unix.S_IFBLK|0o666, disk) },
	)
}

// strangeDevice gets through when /dev holds a device that a sandbox has no
// business with and that opens. Opening fuse does nothing without a mount,
// which is an attempt of its own; of tun it is tried to make an interface.
func strangeDevice(arguments) error {
	if fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		defer func() { _ = unix.Close(fd) }()
		if request, err := unix.NewIfreq("probe0"); err == nil {
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			if unix.IoctlIfreq(fd, unix.TUNSETIFF, request) == nil {
				return reached("/dev/net/tun")
			}
		}
	}
	harmless := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "fuse", "tun"}
	found := errors.New("none")
	_ = filepath.WalkDir("/dev", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be listed cannot be opened by name either
		}
		if d.Type()&os.ModeDevice == 0 || slices.Contains(harmless, d.Name()) || filepath.Dir(path) == "/dev/pts" {
			return nil
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			found = err
			return nil
		}
		_ = unix.Close(fd)
		found = reached(path)
		return filepath.SkipAll
	})
	return found
}

// openByHandle is how "shocker" walked out of containers: inode 2 is the root
// of most file systems.
func openByHandle(arguments) error {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	handle := struct {
		bytes uint32
		kind  int32
		body  [8]byte
	}{8, 1, [8]byte{2}}
	return call(unix.SYS_OPEN_BY_HANDLE_AT, uintptr(fd), uintptr(unsafe.Pointer(&handle)), unix.O_RDONLY)
}
