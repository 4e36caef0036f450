package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// linux is the system in a sandbox.
type linux struct {
	e     *Engine
	trips trips
	trees trees
	users users
	pipes pipes
	left  leftovers
	null  int  // where those read from who get no input
	bare  bool // no groups are to be given up in a child
	lean  bool // commands are started by vfork

	mu sync.Mutex
	// started is signalled when there is a child to wait for, born when a birth is
	// over.
	started, born *sync.Cond
	births        map[*birth]bool
	children      map[int]*command
	alive         int
	orphans       bool         // there are children that are no command's
	ended         unix.Siginfo // of who looked for one
}

// process is a command's process with what the guest holds of it.
type process struct {
	pid   int
	in    *os.File    // nil without input
	out   [2]*os.File // the second is nil with a terminal
	tty   *os.File
	ended chan struct{} // closed by the reaper
	lane  *lane         // while it is brief; nil without
	brief func() bool   // watches it for that moment and reports whether it is over; nil without
	tidy  func()        // what is left to do when that was told; nil without
	left  *leftovers

	mu    sync.Mutex
	alive bool // not reaped, so the pid is its own

	treeMu sync.Mutex // held while the tree is signalled or given away
	tree   string     // "" when it was given to another
}

func newLinux(e *Engine, trees trees) (*linux, error) {
	null, err := openNull()
	if err != nil {
		return nil, err
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("see the guest's groups: %w", err)
	}
	l := &linux{e: e, trees: trees, null: null, bare: len(groups) == 0, births: map[*birth]bool{}, children: map[int]*command{}}
	l.started, l.born = sync.NewCond(&l.mu), sync.NewCond(&l.mu)
	go l.reap() // lives as long as PID 1 does
	return l, nil
}

// start implements system.
func (l *linux) start(c *command, open wire.Open) (*process, *wire.Exit, error) {
	names := candidates(open.Args[0], open.Env)
	seen := l.trips.look(append([]string{l.users.name()}, names...))
	user, err := l.users.findIn(&seen[0], open.User)
	if err != nil {
		return nil, nil, err
	}
	noFolder := invalid("the working folder does not exist: " + open.Dir)
	if !l.lean { // else the child finds that out
		if info, err := os.Stat(open.Dir); err != nil || !info.IsDir() {
			return nil, nil, noFolder
		}
	}
	path, code := choose(open.Args[0], names, seen[1:])
	if code != 0 {
		return nil, &wire.Exit{Code: code}, nil
	}
	p := &process{ended: make(chan struct{}), alive: true, left: &l.left}
	p.briefly(open)
	theirs, err := l.plumb(p, open, user)
	if p.lane != nil {
		p.lane.theirs = theirs.but(l.null) // closed when it is first looked after
	} else {
		defer func() { l.trips.closeAll(theirs.but(l.null)) }()
	}
	if err != nil {
		p.close()
		return nil, nil, err
	}
	attr := &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: user.uid, Gid: user.gid},
		Setsid:     true,
		Setctty:    open.TTY,
	}
	if p.lane != nil {
		attr.PidFD = &p.lane.pidfd
	}
	tree, planted, err := l.trees.plant(attr)
	if err != nil {
		p.close()
		return nil, nil, err
	}
	p.tree = tree
	attr.Credential.NoSetGroups = l.bare && len(attr.Credential.Groups) == 0 // else it bears a mark
	if p.lane != nil {
		p.brief = func() bool { return l.hurry(c, p, user, attr, planted) }
	} else {
		defer planted()
	}
	err = l.fork(c, p, path, open, &syscall.ProcAttr{
		Dir: open.Dir, Env: open.Env, Files: theirs, Sys: attr,
	})
	if err == nil {
		return p, nil, nil
	}
	p.close()
	if p.lane != nil {
		planted()
	}
	l.trees.remove(tree)
	if errors.Is(err, errNoFolder) {
		return nil, nil, noFolder
	}
	if errors.Is(err, errDoomed) {
		return nil, &wire.Exit{Code: -1, Signal: int(unix.SIGKILL)}, nil
	}
	if code := exitCode(err); code != 0 {
		return nil, &wire.Exit{Code: code}, nil
	}
	return nil, nil, fmt.Errorf("start the command: %w", err)
}

// exitCode is what a shell says of a program that cannot be started, or 0 if
// it is not the program's fault.
func exitCode(err error) int {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return notFound
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return 0
	}
	return notRun
}

func (p *process) resize(cols, rows uint16) error {
	if err := winsize(p.tty, cols, rows); err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	return nil
}

// serve starts the goroutines that carry the process's bytes. They end by
// themselves: the readers soon after the process, the feeder with its input.
func (p *process) serve(c *command) {
	for i, f := range p.out {
		k := &sink{e: c.e, c: c, s: c.streams[i]}
		if f == nil {
			k.s.closed = true
			continue
		}
		go p.collect(f, k)
	}
	if c.stdin {
		go p.feed(c)
	} else {
		c.input.leave()
	}
	go func() {
		<-p.ended
		for _, f := range []*os.File{p.out[0], p.out[1], p.in} {
			if f != nil {
				_ = f.SetDeadline(time.Unix(1, 0)) // wakes who waits for it
			}
		}
	}()
}

// collect reads a stream until the process has ended and what it left in the
// pipe was read. Others that still hold the pipe are not waited for. A terminal is
// hung up on them.
func (p *process) collect(f *os.File, k *sink) {
	held := gather(f, k)
	k.close()
	if held && f != p.tty {
		p.left.read(f)
		return
	}
	_ = f.Close()
}

// gather reports whether others hold the pipe.
func gather(f *os.File, k *sink) (held bool) {
	b := make([]byte, wire.MaxOutput)
	for {
		n, err := f.Read(b[:min(k.wait(), len(b))])
		if n > 0 {
			k.add(b[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil { // end of file; a terminal says EIO
			return false
		}
	}
	_ = f.SetDeadline(time.Time{})
	// A pipe holds no more than this: what comes behind it was written later.
	for left := 1 << 20; left > 0; {
		room := min(k.wait(), len(b), left)
		if room == 0 { // it was aborted
			return false
		}
		n := readNow(f, b[:room])
		if n <= 0 {
			return n < 0
		}
		k.add(b[:n])
		left -= n
	}
	return true
}

// readNow reads what is there and never waits. It is 0 at the end, and less where
// there is nothing yet.
func readNow(f *os.File, b []byte) int {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	err = conn.Read(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), b)
		return true
	})
	if err != nil {
		return 0
	}
	return n
}

// feed writes the command's input to its process.
func (p *process) feed(c *command) {
	_, err := io.Copy(onlyWriter{p.in}, onlyReader{c.input})
	if err == nil && p.tty != nil {
		_, err = p.in.Write([]byte{endOfInput})
	}
	if err != nil {
		c.e.mu.Lock()
		c.input.leave()
		c.e.mu.Unlock()
	}
	if p.tty == nil {
		_ = p.in.Close()
	}
}

// onlyReader and onlyWriter keep io.Copy from shortcuts around Read and Write.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// signal implements system.
func (l *linux) signal(p *process, signal int, tree bool) error {
	if tree {
		p.treeMu.Lock()
		defer p.treeMu.Unlock()
		if p.tree == "" {
			return nil // nothing is left of it
		}
		return l.trees.signal(p.tree, syscall.Signal(signal))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive {
		return nil
	}
	if err := unix.Kill(p.pid, syscall.Signal(signal)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal the process: %w", err)
	}
	return nil
}

// reap waits for every child, also for those that others left to PID 1.
func (l *linux) reap() {
	for {
		var info unix.Siginfo
		// Look first and collect later, so that until then the number stays
		// taken and a signal cannot hit another process.
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // no child at all
			l.mu.Lock()
			for l.alive == 0 && !l.orphans {
				l.started.Wait()
			}
			l.orphans = false
			l.mu.Unlock()
			continue
		}
		l.mu.Lock()
		l.awaitBirth(waitedPID(&info))
		if c := l.collect(waitedPID(&info)); c != nil {
			l.trees.remove(c.process.tree)
		}
		l.mu.Unlock()
	}
}

// waitedPID is the field that the generic Siginfo does not name.
func waitedPID(info *unix.Siginfo) int {
	const offset = 16 // on every 64-bit Linux
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}

// collect collects a child that has ended, and returns the command whose it was,
// whose tree is still there; nil where it was nobody's. mu is held.
func (l *linux) collect(pid int) *command {
	c := l.children[pid]
	var status unix.WaitStatus
	if c == nil {
		_, _ = unix.Wait4(pid, &status, 0, nil)
		l.trees.sweep()
		return nil
	}
	p := c.process
	p.mu.Lock()
	_, err := unix.Wait4(pid, &status, 0, nil)
	p.alive = false
	p.mu.Unlock()
	l.over(c, status, err)
	return c
}

// over notes how a command's process ended, which was collected. mu is held.
func (l *linux) over(c *command, status unix.WaitStatus, err error) {
	p := c.process
	delete(l.children, p.pid)
	l.alive--
	exit := wire.Exit{Code: -1}
	switch {
	case err == nil && status.Signaled():
		exit.Signal = int(status.Signal())
	case err == nil:
		exit.Code = status.ExitStatus()
	}
	close(p.ended)
	c.finished(exit)
}
