package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/aurea-dev/aurea/internal/spawn"
)

// spawner serves one worker until that goes away, and returns the exit code.
func spawner() int {
	log.SetTarget(&log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	unix.CloseOnExec(spawn.FD) // as gVisor does with all others
	conn := os.NewFile(spawn.FD, "worker")

	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	requests := make(chan spawn.Request)
	go receive(conn, requests)

	brood := &brood{made: map[int]bool{}}
	go brood.watch(children)

	// One loop does everything in turn: gVisor's set-up changes the state of
	// the whole process, and must not find that its children were reaped
	// behind its back.
	for answered := 1; ; answered++ {
		response := answer(<-requests)
		if response.Made != nil {
			brood.add(response.Made.Sentry.PID)
		}
		if err := spawn.WriteMessage(conn, response); err != nil {
			return 1
		}
		brood.reapAll()
		if answered%collectEvery == 0 {
			runtime.GC()
		}
	}
}

// collectEvery is after how many requests garbage is collected: gVisor leaves
// the descriptors of its children's processes to the collector, which the few
// bytes that they take would hardly ever wake.
const collectEvery = 8

// receive hands on the requests. When the worker is gone it ends the process
// at once, also in the middle of a create: a later worker sweeps what is half
// made, and must not see it being completed meanwhile.
func receive(conn io.Reader, requests chan<- spawn.Request) {
	for {
		var request spawn.Request
		err := spawn.ReadMessage(conn, &request)
		if errors.Is(err, io.EOF) {
			os.Exit(0)
		}
		if err != nil {
			os.Exit(1)
		}
		requests <- request
	}
}

// brood is the sandboxes that were made here and have not been waited for.
type brood struct {
	mu   sync.Mutex
	made map[int]bool // by the number of their process
}

func (b *brood) add(pid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made[pid] = true
}

// watch waits for sandboxes as they end, also while another is being made: who
// destroys one is told only when nothing of it is left.
func (b *brood) watch(children <-chan os.Signal) {
	for range children {
		b.mu.Lock()
		for pid := range b.made {
			if ended, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); ended == pid || err == unix.ECHILD {
				delete(b.made, pid)
			}
		}
		b.mu.Unlock()
	}
}

// reapAll waits for everything that has ended, which is more than sandboxes:
// gVisor leaves helpers of its own.
//
// Preconditions: no sandbox is being made.
func (b *brood) reapAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if pid <= 0 {
			return
		}
		delete(b.made, pid)
	}
}

func answer(request spawn.Request) spawn.Response {
	response := spawn.Response{Seq: request.Seq}
	if request.Create == nil {
		return response
	}
	made, err := create(*request.Create)
	if err != nil {
		response.Error = err.Error()
		return response
	}
	response.Made = &made
	return response
}

// create makes and starts a sandbox, and writes down its process.
func create(c spawn.Create) (made spawn.Made, err error) {
	// gVisor panics where its own state surprises it. That must reach the
	// worker as an error of this one sandbox.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("gvisor panicked: %v", r)
		}
	}()
	root, err := openRoot(c.Root)
	if err != nil {
		return spawn.Made{}, err
	}
	defer func() { _ = root.Close() }()
	conf, err := configure(c, root)
	if err != nil {
		return spawn.Made{}, err
	}
	args, closeFiles, err := arguments(c, conf)
	defer closeFiles()
	if err != nil {
		return spawn.Made{}, err
	}
	restore, err := lendStdio(c)
	if err != nil {
		return spawn.Made{}, err
	}
	defer restore()
	// The sandbox without gVisor's container around it: that would start a
	// process of its own for the files of the root, or keep what is written
	// over them in memory.
	box, err := sandbox.New(conf, args)
	if err != nil {
		return spawn.Made{}, fmt.Errorf("make sandbox: %w", err)
	}
	made, err = record(box.Getpid(), c.Record)
	if err == nil {
		err = joined(c.Groups, box.Getpid())
	}
	if err == nil {
		err = start(box, conf, args, c.Restore)
	}
	if err != nil {
		_ = unix.Kill(box.Getpid(), unix.SIGKILL) // our child; the worker removes what this leaves
		return spawn.Made{}, err
	}
	return made, nil
}

// start starts PID 1, or has it go on from a checkpoint.
func start(box *sandbox.Sandbox, conf *config.Config, args *sandbox.Args, restore string) error {
	if restore == "" {
		if err := box.StartRoot(conf, args.Spec); err != nil {
			return fmt.Errorf("start sandbox: %w", err)
		}
		return nil
	}
	if err := box.Restore(conf, args.Spec, args.ID, restore, false, false, nil); err != nil {
		return fmt.Errorf("restore sandbox: %w", err)
	}
	return nil
}

// openRoot makes the folder for gVisor's state and opens it. gVisor is given
// the descriptor instead of the path, because it puts a socket there: where a
// path is too long for one, it would leave it elsewhere on the host.
func openRoot(path string) (*os.File, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("make gvisor's folder: %w", err)
	}
	root, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open gvisor's folder: %w", err)
	}
	return root, nil
}

// spinFrom is with how many processors a sandbox may wait for its kernel, and the
// kernel for it, by spinning. With few, what spins takes the processor from what
// it waits for: a life costs a sixth more, and no call is answered sooner.
const spinFrom = 8

// configure returns gVisor's settings for a sandbox.
func configure(c spawn.Create, root *os.File) (*config.Config, error) {
	flags := flag.NewFlagSet("spawn", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	config.RegisterFlags(flags)
	err := flags.Parse([]string{
		fmt.Sprintf("-root=/proc/self/fd/%d", root.Fd()),
		"-panic-log=" + c.PanicLog,
		"-platform=" + platformName,
		// Loopback only, and no socket of the host's.
		"-network=none",
		// The host's limits are ours to set, not gVisor's; the groups inside
		// are how the guest finds every descendant of a command.
		"-ignore-cgroups",
		"-in-sandbox-cgroup=v2",
		"-host-settings=ignore",
		// The sentry is nobody on the host, without a capability. With directfs
		// it would be root in a namespace of its own, a few milliseconds sooner.
		"-directfs=false",
		fmt.Sprintf("-systrap-disable-fast-path=%t", runtime.NumCPU() < spinFrom),
	})
	if err != nil {
		return nil, fmt.Errorf("set gvisor's flags: %w", err)
	}
	conf, err := config.NewFromFlags(flags)
	if err != nil {
		return nil, fmt.Errorf("configure gvisor: %w", err)
	}
	return conf, nil
}

// lendStdio puts the FIFOs in the place of our standard input and output,
// which are what gVisor hands to PID 1, until restore is called. They are
// opened for both directions, so that neither side ever waits for the other to
// open, and PID 1 never reads an end when a worker dies.
func lendStdio(c spawn.Create) (restore func(), err error) {
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for _, path := range []string{c.Input, c.Output, os.DevNull} {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("open the guest's channel: %w", err)
		}
		files = append(files, f)
	}
	in, out, log := os.Stdin, os.Stdout, os.Stderr
	os.Stdin, os.Stdout, os.Stderr = files[0], files[1], files[2]
	return func() {
		os.Stdin, os.Stdout, os.Stderr = in, out, log
		closeAll()
	}, nil
}

// record writes the sandbox's process to a file, before it runs what a user
// gave us. It is our child and not reaped yet, so the number is its own.
func record(pid int, path string) (spawn.Made, error) {
	var made spawn.Made
	var err error
	if made.Sentry, err = spawn.FindProcess(pid); err != nil {
		return spawn.Made{}, fmt.Errorf("find the sentry: %w", err)
	}
	body, err := json.Marshal(made)
	if err != nil {
		return spawn.Made{}, fmt.Errorf("encode the record: %w", err)
	}
	aside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(aside, body, 0o600); err != nil {
		return spawn.Made{}, fmt.Errorf("write the record: %w", err)
	}
	if err := os.Rename(aside, path); err != nil {
		return spawn.Made{}, fmt.Errorf("publish the record: %w", err)
	}
	return made, nil
}
