package inside

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processAttempts are about other processes: those of the host, and PID 1,
// which is the guest and carries what the worker says.
func processAttempts() []attempt {
	return []attempt{
		{"process-host", foreignProcess},
		{"process-inherited-files", inheritedFile},
		{"guest-memory", func(arguments) error {
			return all(
				func() error { return readable("/proc/1/mem") },
				func() error { return writable("/proc/1/mem") },
				func() error { return readable("/proc/1/maps") },
				func() error { return readable("/proc/1/environ") },
				func() error { return readable("/proc/1/auxv") },
				readGuestMemory,
			)
		}},
		{"guest-channels", func(arguments) error {
			var tries []func() error
			for fd := range 16 {
				path := "/proc/1/fd/" + strconv.Itoa(fd)
				tries = append(tries,
					func() error { return readOnly(path) },
					func() error { return writable(path) },
					func() error { _, err := os.Readlink(path); return err },
				)
			}
			return all(append(tries, takeDescriptor)...)
		}},
		{"guest-trace", func(arguments) error {
			return all(
				func() error { return unix.PtraceAttach(1) },
				func() error { return unix.PtraceSeize(1) },
			)
		}},
		{"guest-limits", func(arguments) error {
			return unix.Prlimit(1, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: 1}, nil)
		}},
		{"guest-schedule", func(arguments) error {
			return unix.Setpriority(unix.PRIO_PROCESS, 1, 19)
		}},
		{"guest-signal", func(arguments) error {
			return all(
				func() error { return unix.Kill(1, unix.SIGTERM) },
				func() error { return unix.Kill(1, unix.SIGSTOP) },
				func() error { return unix.Kill(1, unix.SIGKILL) },
				func() error { return unix.Tgkill(1, 1, unix.SIGSEGV) },
				func() error {
					fd, err := unix.PidfdOpen(1, 0)
					if err != nil {
						return err
					}
					defer func() { _ = unix.Close(fd) }()
					return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				},
			)
		}},
		{"guest-user", becomeGuest},
		{"process-leave-group", leaveGroup},
	}
}

// foreignProcess gets through when a process can be seen that is neither PID 1
// nor this one. The sandbox is fresh, so there is no other of its own.
func foreignProcess(arguments) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	own, parent := strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getppid())
	for _, e := range entries {
		name := e.Name()
		if _, err := strconv.Atoi(name); err != nil || name == "1" || name == own || name == parent {
			continue
		}
		if text, err := os.ReadFile("/proc/" + name + "/status"); err == nil && !strings.Contains(string(text), "State:\tZ") {
			return nil
		}
	}
	return errors.New("none")
}

// inheritedFile gets through when the process was given more than its three
// standard streams.
func inheritedFile(arguments) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// Go's own are marked to be closed on exec: they were not inherited.
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			return nil
		}
	}
	return errors.New("only the standard streams")
}

func readOnly(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.Close(fd)
	return nil
}

func readGuestMemory() error {
	var b [8]byte
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	const base = 0x400000 // where a static program of Go begins
	_, err := unix.ProcessVMReadv(1, []unix.Iovec{local}, []unix.RemoteIovec{{Base: base, Len: len(b)}}, 0)
	return err
}

func takeDescriptor() error {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.PidfdGetfd(fd, 0, 0)
	return err
}

// becomeGuest tries to be the user that PID 1 is.
func becomeGuest(arguments) error {
	var info unix.Stat_t
	if err := unix.Stat("/proc/1", &info); err != nil {
		return err
	}
	if int(info.Uid) == os.Getuid() {
		return nil
	}
	uid := uintptr(info.Uid)
	return all(
		func() error { return call(unix.SYS_SETUID, uid) },
		func() error { return call(unix.SYS_SETRESUID, uid, uid, uid) },
	)
}

// leaveGroup tries to walk out of the control group by which the guest ends
// whole trees of processes.
func leaveGroup(arguments) error {
	me := []byte(strconv.Itoa(os.Getpid()))
	found := errors.New("no group is writable")
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/job", "/sys/fs/cgroup/devices"} {
		for _, name := range []string{"cgroup.procs", "tasks"} {
			f, err := os.OpenFile(dir+"/"+name, os.O_WRONLY, 0)
			if err != nil {
				continue
			}
			_, err = f.Write(me)
			_ = f.Close()
			if err == nil {
				return nil
			}
			found = err
		}
		if err := os.Mkdir(dir+"/.probe", 0o755); err == nil {
			_ = os.Remove(dir + "/.probe")
			return nil
		}
	}
	return found
}

// eatMemory takes as many bytes as it is told to, and touches each page. A
// limit below that ends it before it can say that it was done.
func eatMemory(args []string, out interface{ Write([]byte) (int, error) }) int {
	const page, chunk = 4096, 1 << 20
	want := number(args)
	for got := int64(0); got < want; got += chunk {
		b, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			_, _ = fmt.Fprintf(out, "memory\t%s\t%v after %d bytes\n", Stopped, err, got)
			return 0
		}
		for i := 0; i < len(b); i += page {
			*(*uint64)(unsafe.Pointer(&b[i])) = uint64(got) + uint64(i) + 1
		}
	}
	_, _ = fmt.Fprintf(out, "memory\t%s\t%d bytes\n", Through, want)
	return 0
}

// eatProcesses starts as many processes as it is told to, all of which wait.
func eatProcesses(args []string, out interface{ Write([]byte) (int, error) }) int {
	want := number(args)
	for n := range want {
		self, err := os.StartProcess("/proc/self/exe", []string{"probe", "probe", "wait"}, &os.ProcAttr{})
		if err != nil {
			_, _ = fmt.Fprintf(out, "processes\t%s\t%v after %d\n", Stopped, err, n)
			return 0
		}
		_ = self.Release()
	}
	_, _ = fmt.Fprintf(out, "processes\t%s\t%d\n", Through, want)
	return 0
}

func wait() int {
	_, _ = unix.Poll(nil, 20_000)
	return 0
}
