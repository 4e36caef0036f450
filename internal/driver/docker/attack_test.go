package docker_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// attempt is one call that a program in a sandbox makes, and how it must fail.
type attempt struct {
	name   string
	number uintptr
	args   [6]uintptr
	want   unix.Errno
}

// attempts are calls that nobody in a sandbox may make, or that must behave as
// if the kernel had never heard of them. Those that succeed by mistake do no
// harm to who runs this as root by mistake.
func attempts() []attempt {
	path := uintptr(unsafe.Pointer(&[]byte("/nowhere\x00")[0]))
	const bad = ^uintptr(0) // no descriptor, no process
	fs := []attempt{
		{"mount", unix.SYS_MOUNT, [6]uintptr{path, path, path}, unix.EPERM},
		{"umount2", unix.SYS_UMOUNT2, [6]uintptr{path}, unix.EPERM},
		{"pivot_root", unix.SYS_PIVOT_ROOT, [6]uintptr{path, path}, unix.EPERM},
		{"chroot", unix.SYS_CHROOT, [6]uintptr{path}, unix.EPERM},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [6]uintptr{bad}, unix.EPERM},
		{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, [6]uintptr{bad}, unix.EPERM},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, [6]uintptr{}, unix.EPERM},
		{"quotactl", unix.SYS_QUOTACTL, [6]uintptr{bad}, unix.EPERM},
		{"swapon", unix.SYS_SWAPON, [6]uintptr{path}, unix.EPERM},
		{"acct", unix.SYS_ACCT, [6]uintptr{path}, unix.EPERM},
		{"mknod of a device", unix.SYS_MKNODAT, [6]uintptr{bad, path, unix.S_IFCHR | 0o666, 0x103}, unix.EPERM},
		{"fsopen", unix.SYS_FSOPEN, [6]uintptr{path}, unix.ENOSYS},
		{"open_tree", unix.SYS_OPEN_TREE, [6]uintptr{bad, path}, unix.ENOSYS},
		{"move_mount", unix.SYS_MOVE_MOUNT, [6]uintptr{bad, path, bad, path}, unix.ENOSYS},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, [6]uintptr{bad, path}, unix.ENOSYS},
	}
	kernel := []attempt{
		{"unshare of a user namespace", unix.SYS_UNSHARE, [6]uintptr{unix.CLONE_NEWUSER}, unix.EPERM},
		{"setns", unix.SYS_SETNS, [6]uintptr{bad}, unix.EPERM},
		{"clone3", unix.SYS_CLONE3, [6]uintptr{}, unix.ENOSYS},
		{"keyctl", unix.SYS_KEYCTL, [6]uintptr{}, unix.EPERM},
		{"add_key", unix.SYS_ADD_KEY, [6]uintptr{path, path}, unix.EPERM},
		{"request_key", unix.SYS_REQUEST_KEY, [6]uintptr{path, path}, unix.EPERM},
		{"bpf", unix.SYS_BPF, [6]uintptr{bad}, unix.EPERM},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [6]uintptr{}, unix.EPERM},
		{"userfaultfd", unix.SYS_USERFAULTFD, [6]uintptr{}, unix.ENOSYS},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uintptr{1}, unix.ENOSYS},
		{"init_module", unix.SYS_INIT_MODULE, [6]uintptr{}, unix.EPERM},
		{"finit_module", unix.SYS_FINIT_MODULE, [6]uintptr{bad}, unix.EPERM},
		{"kexec_load", unix.SYS_KEXEC_LOAD, [6]uintptr{}, unix.EPERM},
		{"reboot", unix.SYS_REBOOT, [6]uintptr{}, unix.EPERM},
		{"settimeofday", unix.SYS_SETTIMEOFDAY, [6]uintptr{}, unix.EPERM},
		{"clock_settime", unix.SYS_CLOCK_SETTIME, [6]uintptr{bad}, unix.EPERM},
		{"sethostname", unix.SYS_SETHOSTNAME, [6]uintptr{path, 1}, unix.EPERM},
		{"syslog", unix.SYS_SYSLOG, [6]uintptr{10}, unix.EPERM},
		{"vmsplice", unix.SYS_VMSPLICE, [6]uintptr{bad}, unix.EPERM},
		{"personality", unix.SYS_PERSONALITY, [6]uintptr{0x0400000}, unix.EPERM},
		{"lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE, [6]uintptr{}, unix.EPERM},
	}
	others := []attempt{
		{"ptrace", unix.SYS_PTRACE, [6]uintptr{unix.PTRACE_ATTACH, bad}, unix.EPERM},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [6]uintptr{bad}, unix.EPERM},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [6]uintptr{bad}, unix.EPERM},
		{"kcmp", unix.SYS_KCMP, [6]uintptr{bad, bad}, unix.EPERM},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [6]uintptr{bad}, unix.ENOSYS},
		{"process_madvise", unix.SYS_PROCESS_MADVISE, [6]uintptr{bad}, unix.ENOSYS},
		{"kill of the guest", unix.SYS_KILL, [6]uintptr{1, 9}, unix.EPERM},
		{"a netlink socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW}, unix.EPERM},
		{"a packet socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_PACKET, unix.SOCK_RAW}, unix.EPERM},
		{"a vsock socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EPERM},
		{"an alg socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, unix.EPERM},
		{"a netlink socket with high bits", unix.SYS_SOCKET, [6]uintptr{1<<32 | unix.AF_NETLINK, unix.SOCK_RAW}, unix.EPERM},
		{"a raw socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, unix.EPERM},
		{"TIOCSTI", unix.SYS_IOCTL, [6]uintptr{bad, unix.TIOCSTI}, unix.EPERM},
		{"TIOCSTI with high bits", unix.SYS_IOCTL, [6]uintptr{bad, 1<<32 | unix.TIOCSTI}, unix.EPERM},
		{"TIOCLINUX", unix.SYS_IOCTL, [6]uintptr{bad, 0x541c}, unix.EPERM},
		{"setuid", unix.SYS_SETUID, [6]uintptr{0}, unix.EPERM},
		{"setgroups", unix.SYS_SETGROUPS, [6]uintptr{0, 0}, unix.EPERM},
	}
	// What must go on working, seen from the error of a call that is let through.
	fine := []attempt{
		{"TIOCGWINSZ", unix.SYS_IOCTL, [6]uintptr{bad, unix.TIOCGWINSZ}, unix.EBADF},
		{"TIOCSCTTY", unix.SYS_IOCTL, [6]uintptr{bad, unix.TIOCSCTTY}, unix.EBADF},
		{"FIONBIO", unix.SYS_IOCTL, [6]uintptr{bad, 0x5421}, unix.EBADF},
		{"FICLONE", unix.SYS_IOCTL, [6]uintptr{bad, 0x40049409}, unix.EBADF},
		{"mkfifo", unix.SYS_MKNODAT, [6]uintptr{bad, path + 1, unix.S_IFIFO | 0o666}, unix.EBADF},
		{"openat2", unix.SYS_OPENAT2, [6]uintptr{bad, path + 1, 0, 0}, unix.EINVAL},
		{"pidfd_open", unix.SYS_PIDFD_OPEN, [6]uintptr{1 << 30}, unix.ESRCH},
	}
	all := append(append(append(fs, kernel...), others...), fine...)
	for number := unix.TIOCSTI - 1; number <= 0x541d; number++ {
		if number != unix.TIOCSTI && number != 0x541c {
			all = append(all, attempt{fmt.Sprintf("ioctl %#x", number), unix.SYS_IOCTL, [6]uintptr{bad, uintptr(number)}, unix.EBADF})
		}
	}
	return all
}

// attack is what the test's binary does inside a sandbox.
func attack() int {
	runtime.LockOSThread()
	code := 0
	for _, a := range attempts() {
		_, _, got := unix.RawSyscall6(a.number, a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
		if got != a.want {
			fmt.Printf("%s: %v, want %v\n", a.name, got, a.want)
			code = 1
		}
	}
	fmt.Printf("%d attempts\n", len(attempts()))
	return code
}

func TestCallsThatTheKernelRefuses(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, b, "attacker", program)
	exit, out := do(t, b, sandbox.ExecSpec{ID: "a", Command: []string{"./attacker"}, Env: map[string]string{"AUREA_TEST_ATTACKER": "1"}})
	if exit.Code != 0 {
		t.Errorf("%+v:\n%s", exit, out)
	}
	if !strings.Contains(out, "attempts") {
		t.Errorf("the attacker did not come to its end: %q", out)
	}
}

// putFile puts a program into the workspace.
func putFile(t *testing.T, b sandbox.Box, name string, content []byte) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg})
	_, writeErr := w.Write(content)
	if err := errors.Join(err, writeErr, w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "/workspace", &archive); err != nil {
		t.Fatal(err)
	}
}

// do does an exec to its end, and returns all that it said.
func do(t *testing.T, b sandbox.Box, spec sandbox.ExecSpec) (sandbox.Exit, string) {
	t.Helper()
	p, err := b.Exec(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for {
		f, err := p.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Write(f.Data)
	}
	exit, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return exit, out.String()
}

// sh runs a script and returns what it said.
func sh(t *testing.T, b sandbox.Box, script string) string {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	_, out := do(t, b, sandbox.ExecSpec{ID: id, Command: []string{"sh", "-c", script}})
	return out
}
