package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processes is about others: the guest, siblings of another user, the host.
func processes() map[string]family {
	return map[string]family{
		"trace":   trace,
		"signals": signals,
		"refork":  refork,
		"daemon":  daemon,
		"leader":  leader,
		"number":  number,
	}
}

func ignore(s unix.Signal) { signal.Ignore(s) }

// others are the processes of the sandbox that are not ours.
func others() []int {
	var pids []int
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(path))
		var info unix.Stat_t
		if unix.Stat(path, &info) == nil && int(info.Uid) != os.Getuid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func trace([]string) {
	pids := others()
	expectThat("others", len(pids) > 0, fmt.Sprintf("%v to attack", pids))
	for _, pid := range pids {
		name := strconv.Itoa(pid)
		expect("attach "+name, unix.PtraceAttach(pid))
		expect("seize "+name, unix.PtraceSeize(pid))
		var b [8]byte
		local := unix.Iovec{Base: &b[0]}
		local.SetLen(len(b))
		remote := []unix.RemoteIovec{{Base: 0x400000, Len: len(b)}}
		_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, remote, 0)
		expect("read memory "+name, err)
		_, err = unix.ProcessVMWritev(pid, []unix.Iovec{local}, remote, 0)
		expect("write memory "+name, err)
		for _, file := range []string{"mem", "maps", "environ", "auxv", "stack", "syscall", "fd/0", "fd/1"} {
			_, err := firstBytes("/proc/" + name + "/" + file)
			expect("read "+name+"/"+file, err)
		}
		expect("write "+name+"/mem", write("/proc/"+name+"/mem", "x"))
		expect("write "+name+"/fd/1", write("/proc/"+name+"/fd/1", "x"))
		expect("compare "+name, call(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 1))
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			_, err = unix.PidfdGetfd(fd, 0, 0)
		}
		expect("take a descriptor of "+name, err)
		if err == nil {
			continue
		}
		expect("limit "+name, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: 1}, nil))
		var set unix.CPUSet
		set.Set(0)
		expect("pin "+name, unix.SchedSetaffinity(pid, &set))
	}
}

func signals([]string) {
	for _, pid := range others() {
		for _, s := range []unix.Signal{0, unix.SIGTERM, unix.SIGSTOP, unix.SIGKILL, unix.SIGSEGV} {
			expect(fmt.Sprintf("signal %d to %d", s, pid), unix.Kill(pid, s))
		}
		expect(fmt.Sprintf("signal to the group of %d", pid), unix.Kill(-pid, unix.SIGKILL))
	}
	// Numbers that are somebody's on the host are nobody's here.
	for pid := 100_000; pid < 100_020; pid++ {
		expect("signal to a stranger", unix.Kill(pid, unix.SIGKILL))
	}
	fmt.Println("STOPPED kill everybody: the suite asks who is left")
	ignore(unix.SIGTERM)
	_ = unix.Kill(-1, unix.SIGTERM)
}

// refork is a process that starts its successor and ends, for ever.
func refork(args []string) {
	if len(args) == 0 {
		fmt.Println("STOPPED refork: the suite looks for survivors")
	}
	_, _ = unix.Setsid()
	p, err := os.StartProcess("/proc/self/exe", []string{"survivor", "refork", "again"}, &os.ProcAttr{Env: os.Environ()}) //nolint:forbidigo // handed on
	if err == nil {
		_ = p.Release()
	}
	if len(args) == 0 {
		time.Sleep(time.Minute)
	}
}

// leader ends the first thread of its process and goes on in another: such a
// process looks dead to who asks for its name, its memory or its variables.
func leader([]string) {
	fmt.Println("STOPPED leader: the suite waits for the verdict")
	go func() {
		runtime.LockOSThread()
		for {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for unix.Gettid() == unix.Getpid() {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	fmt.Println("not the first thread")
}

// daemon leaves a process behind in a session of its own that holds the output
// open and writes to the workspace; then it ends, or waits for its end.
func daemon(args []string) {
	switch args[0] {
	case "child":
		_, _ = unix.Setsid()
		grand, err := os.StartProcess("/proc/self/exe", []string{"survivor", "daemon", "grandchild"}, &os.ProcAttr{
			Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, //nolint:forbidigo // handed on
		})
		if err == nil {
			_ = grand.Release()
		}
		return
	case "grandchild":
		for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT} {
			ignore(s)
		}
		_ = unix.Setpgid(0, 0)
		for i := 0; ; i++ {
			f, err := os.OpenFile("/workspace/growing", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err == nil {
				_, _ = fmt.Fprintln(f, i)
				_ = f.Close()
			}
			fmt.Println("still here", i)
			time.Sleep(10 * time.Millisecond)
		}
	}
	p, err := os.StartProcess("/proc/self/exe", []string{"x", "daemon", "child"}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, //nolint:forbidigo // handed on
	})
	if err == nil {
		_, err = p.Wait()
	}
	if err != nil {
		expect("daemon", errors.Join(errHarmless, err))
		return
	}
	fmt.Println("STOPPED daemon: the suite looks for survivors")
	if args[0] == "wait" {
		time.Sleep(time.Minute)
	}
}
