package inside

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// birth is the start of a process that has not become its program yet. That can
// take as long as somebody in the sandbox likes: a pipe that is started as a program
// has to be opened first, and whoever opens a pipe waits for who writes to it. So
// nothing is held meanwhile, and the child can be killed.
type birth struct {
	pid int32 // written by the kernel when there is a child
}

// errDoomed: the command was killed before it was begun.
var errDoomed = errors.New("the command was killed")

// number is the child's, or 0 while it is not known.
func (b *birth) number() int { return int(atomic.LoadInt32(&b.pid)) }

// fork starts the process and registers it before the reaper can take its end for
// that of nobody's child.
func (l *linux) fork(c *command, p *process, path string, open wire.Open, attr *syscall.ProcAttr) error {
	b := &birth{}
	l.mu.Lock()
	l.births[b] = true
	l.mu.Unlock()
	var pid int
	var err error
	if doomed := c.bear(b, nil); doomed {
		err = errDoomed
	} else if l.lean {
		pid, err = l.trips.vfork(path, open.Args, attr, b)
	} else {
		pid, err = syscall.ForkExec(path, open.Args, attr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.births, b)
	defer l.born.Broadcast()
	if err != nil {
		c.bear(nil, nil) // before the number can be another's
		if pid > 0 {
			collectChild(pid)
		}
		return err
	}
	p.pid = pid
	c.bear(nil, p)
	l.children[pid] = c
	l.alive++
	if p.lane == nil {
		l.started.Signal()
	}
	return nil
}

// bear gives the command its birth, or its process ahead of run, for the reaper. It
// reports whether the command is to be killed.
func (c *command) bear(b *birth, p *process) (doomed bool) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.birth, c.process = b, p
	return c.doomed
}

// maybe is after how long is looked again whether a child has a number.
const maybe = time.Millisecond

// awaitBirth waits until a child that has ended is not one that is just being
// started. mu is held.
func (l *linux) awaitBirth(pid int) {
	for l.children[pid] == nil {
		switch own, unsure := l.unborn(pid); {
		case own, unsure && !l.lean:
			l.born.Wait() // it has ended, so that is soon; only gVisor waits for pipes
		case unsure:
			l.mu.Unlock()
			time.Sleep(maybe)
			l.mu.Lock()
		default:
			return
		}
	}
}

// unborn reports whether a child is being started, or whether nobody can say yet.
// mu is held.
func (l *linux) unborn(pid int) (own, unsure bool) {
	for b := range l.births {
		own = own || b.number() == pid
		unsure = unsure || b.number() == 0
	}
	return own, unsure
}

// collectChild collects a child that has given up.
func collectChild(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// signalUnborn sends a signal to a command that has no process yet. One that is to
// be killed is killed as soon as it can be. The engine's mu is held.
func (c *command) signalUnborn(signal int) {
	if c.exit != nil {
		return // nothing was started, so nothing is left to signal
	}
	first := !c.doomed && signal == int(unix.SIGKILL)
	c.doomed = c.doomed || first
	if c.birth == nil || c.birth.signal(signal) {
		return
	}
	if first {
		go c.killUnborn(c.birth)
	}
}

// signal sends a signal to a child, and reports whether there is one.
func (b *birth) signal(signal int) bool {
	pid := b.number()
	if pid > 0 {
		_ = unix.Kill(pid, syscall.Signal(signal)) // if that is not possible it has just ended
	}
	return pid > 0
}

// killUnborn kills a child that has no number yet once it has.
func (c *command) killUnborn(b *birth) {
	for over := false; !over; time.Sleep(maybe) {
		c.e.mu.Lock() // until then the number is its own
		over = c.birth != b || b.signal(int(unix.SIGKILL))
		c.e.mu.Unlock()
	}
}
