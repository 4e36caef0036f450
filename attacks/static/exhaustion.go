package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	page = 4096
	mega = 1 << 20
)

// exhaustion is group A. Everything is bounded: a hole costs the host at most
// the number of megabytes, files or processes that the manifest names.
func exhaustion() map[string]family {
	return map[string]family{
		"memory":    memory,
		"spin":      spin,
		"disk":      disk,
		"files":     manyFiles,
		"deep":      deepFolders,
		"fds":       descriptors,
		"zombies":   zombies,
		"swap":      swap,
		"schedule":  schedule,
		"timers":    timers,
		"core":      core,
		"fork":      forkBomb,
		"threads":   threadBomb,
		"fsync":     syncStorm,
		"random":    random,
		"stop-self": stopSelf,
	}
}

func count(args []string, i int) int {
	if len(args) <= i {
		return 0
	}
	n, err := strconv.Atoi(args[i])
	if err != nil {
		return 0
	}
	return n
}

func touch(b []byte) {
	for i := 0; i < len(b); i += page {
		*(*uint64)(unsafe.Pointer(&b[i])) = uint64(i) + 1
	}
}

// memory takes megabytes in one of many ways and says THROUGH at the end, which
// a limit keeps it from reaching.
func memory(args []string) {
	way, want := args[0], count(args, 1)
	var err error
	switch way {
	case "anonymous", "shared", "locked":
		flags := unix.MAP_PRIVATE
		if way == "shared" {
			flags = unix.MAP_SHARED
		}
		for range want {
			var b []byte
			if b, err = unix.Mmap(-1, 0, mega, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_ANON); err != nil {
				break
			}
			if way == "locked" {
				_ = unix.Mlock(b)
			}
			touch(b)
		}
	case "memfd":
		var fd int
		if fd, err = unix.MemfdCreate("x", 0); err == nil {
			err = fill(fd, want)
		}
	case "file":
		err = fillFile(args[2], want)
	case "sysv":
		for range want / 4 {
			var id int
			if id, err = unix.SysvShmGet(unix.IPC_PRIVATE, 4*mega, unix.IPC_CREAT|0o600); err != nil {
				break
			}
			var b []byte
			if b, err = unix.SysvShmAttach(id, 0, 0); err != nil {
				break
			}
			touch(b)
		}
	case "pipes":
		for range want {
			p := make([]int, 2)
			if err = unix.Pipe2(p, unix.O_NONBLOCK); err != nil {
				break
			}
			_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, mega)
			for chunk := make([]byte, 64<<10); ; {
				if n, err := unix.Write(p[1], chunk); n <= 0 || err != nil {
					break
				}
			}
		}
	case "stack":
		defer func() { _ = recover() }()
		fmt.Fprint(os.Stderr, deep(want<<10))
	}
	expect("memory-"+way, err)
}

// deep uses about a kilobyte of stack for each step.
func deep(n int) byte {
	var b [1024]byte
	if n > 0 {
		b[n%1024] = deep(n - 1)
	}
	return b[(n+1)%1024] + b[n%1024] + 1
}

func fill(fd, want int) error {
	chunk := bytes.Repeat([]byte("x"), mega)
	for range want {
		if _, err := unix.Write(fd, chunk); err != nil {
			return err
		}
	}
	return nil
}

func fillFile(path string, want int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return fill(int(f.Fd()), want)
}

// spin keeps every processor busy until it is killed.
func spin([]string) {
	for range 2 * runtime.NumCPU() {
		go func() {
			for x := uint64(1); ; x = x*2862933555777941757 + 3037000493 {
				if x == 0 {
					return
				}
			}
		}()
	}
	select {}
}

// disk tries to hold more megabytes than the limit, in a folder.
func disk(args []string) {
	way, want, dir := args[0], count(args, 1), args[2]
	path := filepath.Join(dir, "big")
	defer func() { _ = os.Remove(path) }()
	switch way {
	case "write":
		expect("disk-write-"+filepath.Base(dir), fillFile(path, want))
	case "fallocate":
		f, err := os.Create(path)
		if err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, 0, int64(want)*mega)
		}
		expect("disk-fallocate", err)
	case "sparse":
		// A hole is no use of the disk; filling it is.
		f, err := os.Create(path)
		if err == nil {
			err = f.Truncate(1 << 40)
		}
		for i := 0; err == nil && i < want; i++ {
			_, err = f.WriteAt(bytes.Repeat([]byte("x"), mega), int64(i)*(1<<30))
		}
		expect("disk-sparse", err)
	case "xattr":
		f, err := os.Create(path)
		for i := 0; err == nil && i < want; i++ {
			err = unix.Fsetxattr(int(f.Fd()), fmt.Sprintf("user.%d", i), bytes.Repeat([]byte("x"), 60<<10), 0)
		}
		expect("disk-xattr", err)
	}
}

// manyFiles makes empty files, which cost no bytes of a disk limit.
func manyFiles(args []string) {
	want, dir := count(args, 0), args[1]
	for i := range want {
		f, err := os.Create(filepath.Join(dir, strings.Repeat("n", 200)+strconv.Itoa(i)))
		if err != nil {
			expect("files", err)
			return
		}
		_ = f.Close()
	}
	expectThat("files", len(args) > 2, strconv.Itoa(want)+" files were made")
}

// deepFolders nests folders until something stops it or want is reached. For
// the host that is harmless; what has to hold is what collects them.
func deepFolders(args []string) {
	want := count(args, 0)
	for i := range want {
		if err := unix.Mkdir("d", 0o755); err != nil {
			expectThat("deep", true, fmt.Sprintf("%v after %d", err, i))
			return
		}
		if err := unix.Chdir("d"); err != nil {
			expectThat("deep", true, fmt.Sprintf("%v after %d", err, i))
			return
		}
	}
	expectThat("deep", true, fmt.Sprintf("%d folders, for the host to collect", want))
}

// descriptors opens things until the limit stops it.
func descriptors(args []string) {
	want := count(args, 0)
	for name, open := range map[string]func() (int, error){
		"null":    func() (int, error) { return unix.Open("/dev/null", unix.O_RDONLY, 0) },
		"eventfd": func() (int, error) { return unix.Eventfd(0, 0) },
		"epoll":   func() (int, error) { return unix.EpollCreate1(0) },
		"timerfd": func() (int, error) { return unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0) },
		"inotify": func() (int, error) { return unix.InotifyInit1(0) },
		"socket":  func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) },
		"pty":     func() (int, error) { return unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0) },
	} {
		var opened []int
		var err error
		for range want {
			var fd int
			if fd, err = open(); err != nil {
				break
			}
			opened = append(opened, fd)
		}
		for _, fd := range opened {
			_ = unix.Close(fd)
		}
		expect("fds-"+name, err)
	}
}

// zombies leaves children behind that nobody waits for: their parent ends at
// once, so that they fall to PID 1.
func zombies(args []string) {
	if len(args) > 1 && args[1] == "child" {
		p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err == nil {
			_ = p.Release()
		}
		return
	}
	for range count(args, 0) {
		p, err := os.StartProcess("/proc/self/exe", []string{"x", "zombies", "0", "child"}, &os.ProcAttr{Env: os.Environ()}) //nolint:forbidigo // handed on
		if err == nil {
			_, _ = p.Wait()
		}
	}
	left := -1
	for range 50 { // PID 1 needs a moment
		if left = zombieCount(); left == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	expectThat("zombies", left == 0, strconv.Itoa(left)+" left")
}

func zombieCount() int {
	n := 0
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), ") Z ") {
			n++
		}
	}
	return n
}

func swap([]string) {
	path, _ := unix.BytePtrFromString("/workspace/swap")
	_ = os.WriteFile("/workspace/swap", make([]byte, mega), 0o600)
	expect("swapon", call(unix.SYS_SWAPON, uintptr(unsafe.Pointer(path)), 0))
	expect("swapoff", call(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(path))))
	expect("cgroup-swap", write("/sys/fs/cgroup/memory.swap.max", "max"))
	expect("cgroup-memory", write("/sys/fs/cgroup/memory.max", "max"))
}

// schedule asks for more than its share. That a kernel in user space lets a
// process call itself nicer is harmless; the suite looks at the host.
func schedule([]string) {
	param := int32(50)
	expect("fifo", call(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&param))))
	expect("round-robin", call(unix.SYS_SCHED_SETSCHEDULER, 0, 2, uintptr(unsafe.Pointer(&param))))
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	expect("io-priority", call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13))
}

// timers keeps the kernel of the sandbox busy with as many timers as it is told
// to, each of which is due all the time.
func timers(args []string) {
	fmt.Println("STOPPED timers: the suite waits for the verdict")
	for range count(args, 0) {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0)
		if err != nil {
			break
		}
		_ = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: unix.Timespec{Nsec: 1}, Value: unix.Timespec{Nsec: 1}}, nil)
	}
	time.Sleep(time.Minute)
}

// core dies with a lot of memory, which must not be written anywhere.
func core([]string) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	b, err := unix.Mmap(-1, 0, 64*mega, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err == nil {
		touch(b)
	}
	fmt.Println("STOPPED core: the suite looks for a dump")
	_ = unix.Kill(os.Getpid(), unix.SIGABRT)
	select {}
}

// forkBomb starts copies of itself that start copies, up to a depth that makes
// two to the depth of them.
func forkBomb(args []string) {
	depth := count(args, 0)
	refused := false
	for range 2 {
		if depth == 0 {
			break
		}
		p, err := os.StartProcess("/proc/self/exe", []string{"x", "fork", strconv.Itoa(depth - 1), "child"}, &os.ProcAttr{Env: os.Environ()}) //nolint:forbidigo // handed on
		if err != nil {
			refused = true
			break
		}
		_ = p.Release()
	}
	if len(args) > 1 {
		time.Sleep(20 * time.Second)
		return
	}
	time.Sleep(4 * time.Second)
	paths, _ := filepath.Glob("/proc/[0-9]*")
	expectThat("fork", refused || len(paths) < 1<<depth, fmt.Sprintf("%d processes of %d", len(paths), 2<<depth))
}

// threadBomb is the same with threads.
func threadBomb(args []string) {
	want := count(args, 0)
	// The runtime of Go dies when a thread is refused; that too ends it.
	fmt.Println("STOPPED threads: unless the next line says otherwise")
	started := make(chan struct{})
	for range want {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			_ = unix.Nanosleep(&unix.Timespec{Sec: 20}, nil)
		}()
		<-started
	}
	fmt.Printf("THROUGH threads: %d\n", want)
}

func syncStorm([]string) {
	fmt.Println("STOPPED fsync: the suite looks at the neighbour")
	f, err := os.Create("/workspace/storm")
	if err != nil {
		return
	}
	for i := 0; ; i++ {
		_, _ = f.WriteAt([]byte("x"), int64(i%1000)*page)
		_ = f.Sync()
		unix.Sync()
	}
}

func random([]string) {
	b := make([]byte, mega)
	for _, path := range []string{"/dev/urandom", "/dev/random"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		for range 16 {
			_, _ = f.Read(b)
		}
		_ = f.Close()
	}
	n, err := unix.Getrandom(b[:256], 0)
	expectThat("random", n == 256 && err == nil, "random numbers are still there")
}

func stopSelf([]string) {
	fmt.Println("STOPPED stop-self: the suite waits for the verdict")
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		ignore(s)
	}
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
	for {
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
}
