package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// files is group C, as far as it happens inside. What happens when the host
// collects the files is in scripts.
func files() map[string]family {
	return map[string]family{
		"read-host": readHost,
		"remount":   remount,
		"handle":    handle,
		"proc-sys":  procSys,
		"sticky":    sticky,
		"self-exe":  selfExe,
	}
}

// readHost looks for a file of the host, and folders of the worker and of
// neighbours, whose paths it is told, by every road; then for what a host keeps
// to itself. Arguments: mark, paths.
func readHost(args []string) {
	mark := []byte(args[0])
	roads := []string{"", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/proc/self/task/1/root", "/proc/self/cwd/../../../../..", "/..", "/host", "/mnt", "/rootfs"}
	for _, path := range args[1:] {
		for _, road := range roads {
			text, err := firstBytes(road + path)
			if err == nil && !bytes.Contains(text, mark) {
				err = errors.New("there is something else")
			}
			expect("read "+road+path, err)
		}
	}
	for _, path := range []string{
		"/proc/kcore", "/dev/mem", "/dev/kmsg", "/proc/kmsg", "/proc/vmcore", "/proc/iomem", "/proc/config.gz",
		"/sys/firmware/dmi/tables/DMI", "/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/product_serial", "/sys/kernel/debug/sched/debug",
		"/sys/kernel/security/lsm", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/proc/1/environ", "/proc/1/mem", "/root/.ssh/id_rsa", "/var/lib/aurea/manager/aurea.db",
	} {
		_, err := firstBytes(path)
		if path == "/proc/iomem" && err == nil {
			err = zeros(path)
		}
		expect("read "+path, err)
	}
	expect("kallsyms", zeros("/proc/kallsyms"))
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		text, err := os.ReadFile(path)
		foreign := err == nil && len(text) > 0 && !bytes.Contains(text, []byte("AUREA_ATTACK="))
		expectThat("environ "+path, !foreign, "not another's")
	}
}

func firstBytes(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err == nil && len(text) == 0 {
		err = errors.New("empty")
	}
	return text, err
}

// zeros returns an error, as for what was stopped, if every address in a table
// of the kernel is hidden.
func zeros(path string) error {
	text, err := firstBytes(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if address, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.Trim(address, "0-") != "" && strings.HasSuffix(line, "\n") {
			return nil
		}
	}
	return errors.New("all addresses are hidden")
}

// remount tries the file systems by which containers were left, first as it is
// and then as the root of a user namespace of its own, where that can be had.
func remount(args []string) {
	if len(args) == 0 {
		for _, m := range mounts() {
			expect("mount "+m.name, m.try())
		}
		expect("pivot_root", unix.PivotRoot("/", "/tmp"))
		expect("umount /proc", unix.Unmount("/proc", unix.MNT_DETACH))
		expect("chroot", unix.Chroot("/tmp"))
		_, err := unix.Fsopen("tmpfs", 0)
		expect("fsopen", err)
		_, err = unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
		expect("open_tree", err)
		expect("move_mount", unix.MoveMount(unix.AT_FDCWD, "/proc", unix.AT_FDCWD, "/tmp", 0))
		expect("mount_setattr", unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
		return
	}
	// In namespaces of its own, root may mount what it likes, as long as
	// nothing of the host comes with it.
	for _, path := range args[1:] {
		_, err := firstBytes(path)
		expect("before "+path, err)
	}
	for _, m := range mounts() {
		if m.try() == nil {
			for _, path := range args[1:] {
				text, err := firstBytes("/tmp" + path)
				if err == nil && !bytes.Contains(text, []byte(args[0])) {
					err = errors.New("there is something else")
				}
				expect("read through "+m.name, err)
			}
			_ = unix.Unmount("/tmp", unix.MNT_DETACH)
		} else {
			fmt.Printf("STOPPED mount %s\n", m.name)
		}
	}
}

type mount struct {
	name string
	try  func() error
}

func mounts() []mount {
	on := func(source, kind string, flags uintptr, data string) func() error {
		return func() error { return unix.Mount(source, "/tmp", kind, flags, data) }
	}
	return []mount{
		{"tmpfs", on("none", "tmpfs", 0, "")},
		{"bind", on("/", "", unix.MS_BIND|unix.MS_REC, "")},
		{"proc", on("proc", "proc", 0, "")},
		{"sysfs", on("sysfs", "sysfs", 0, "")},
		{"cgroup", on("cgroup", "cgroup", 0, "memory")},
		{"cgroup2", on("cgroup2", "cgroup2", 0, "")},
		{"overlay", on("overlay", "overlay", 0, "lowerdir=/,upperdir=/workspace,workdir=/workspace")},
		{"devtmpfs", on("devtmpfs", "devtmpfs", 0, "")},
		{"ext4", on("/dev/sda1", "ext4", 0, "")},
		{"fuse", on("none", "fuse", 0, "fd=0,rootmode=40000,user_id=0,group_id=0")},
		{"9p", on("none", "9p", 0, "trans=fd,rfdno=0,wfdno=1")},
		{"remount", func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		{"securityfs", on("securityfs", "securityfs", 0, "")},
		{"debugfs", on("debugfs", "debugfs", 0, "")},
	}
}

// handle is the attack called shocker: files by inode number.
func handle([]string) {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		expect("open /", err)
		return
	}
	for inode := range byte(64) {
		h := struct {
			bytes uint32
			kind  int32
			body  [8]byte
		}{8, 1, [8]byte{inode}}
		if err = call(unix.SYS_OPEN_BY_HANDLE_AT, uintptr(fd), uintptr(unsafe.Pointer(&h)), unix.O_RDONLY); err == nil {
			break
		}
	}
	expect("open_by_handle_at", err)
}

// procSys writes to the kernel what it holds already.
func procSys([]string) {
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sysrq-trigger",
		"/proc/sys/kernel/hostname", "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches",
		"/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent",
		"/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/mm/ksm/run", "/sys/power/state",
		"/sys/module/apparmor/parameters/enabled", "/proc/acpi/wakeup", "/proc/bus/pci/00/00.0", "/proc/irq/0/smp_affinity",
	} {
		value := "h"
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			value = string(text)
		}
		expect("write "+path, write(path, value))
	}
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/job"} {
		expect("mkdir in "+dir, unix.Mkdir(filepath.Join(dir, "x"), 0o755))
	}
}

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = f.WriteString(text)
	return err
}

// sticky tries to take a file of another user out of a folder that all share.
// The suite has put /tmp/theirs there, of another user.
func sticky([]string) {
	expect("remove another's file", os.Remove("/tmp/theirs"))
	expect("rename another's file", os.Rename("/tmp/theirs", "/tmp/mine"))
	expect("write another's file", write("/tmp/theirs", "x"))
	expect("link to another's file", os.Link("/tmp/theirs", "/tmp/linked"))
	expect("chmod another's file", os.Chmod("/tmp/theirs", 0o777))
}

// selfExe tries to overwrite the program that helps: the guest.
func selfExe([]string) {
	for _, path := range []string{"/.aurea/guest", "/proc/1/exe"} {
		expect("write "+path, write(path, "#!/bin/sh\n"))
		expect("remove "+path, os.Remove(path))
		expect("chmod "+path, os.Chmod(path, 0o777))
	}
	expect("new file", os.WriteFile("/.aurea/x", nil, 0o600))
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if len(e.Name()) > 1 || e.Name() > "2" {
			var n int
			_, _ = fmt.Sscan(e.Name(), &n)
			flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
			expectThat("inherited "+e.Name(), err != nil || flags&unix.FD_CLOEXEC != 0, "Go's own")
		}
	}
	expect("chdir to a descriptor", unix.Chdir("/proc/1/fd/0"))
	expect("chdir to the guest's folder", unix.Chdir("/proc/1/cwd"))
}
