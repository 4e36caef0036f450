package inside

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/trip"
	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// Most commands are over in a moment, and then a place in the poller for each
// pipe, a goroutine that reads it, and a wake of the reaper cost more than the
// command. So a command without input is watched for its first moment by who
// started it, in one call that waits for its pipes and its end together. One that
// takes longer or says more is handed to those who can wait for long.
const (
	brief      = 5 * time.Millisecond
	briefWords = 32 << 10
	briefLooks = 64
)

// lane is what the guest holds of a command in its first moment.
type lane struct {
	pidfd  int
	out    [2]int  // the guest's ends of its pipes; -1 without
	ended  [2]bool // nothing more will come of them
	held   [2]bool // and others have the other ends
	theirs []int   // the other ends, until they are closed

	polled [3]unix.PollFd
	limit  unix.Timespec
}

// drop is what is left to be closed.
func (n *lane) drop() (left []int) {
	for _, fd := range []int{n.out[0], n.out[1], n.pidfd} {
		if fd >= 0 {
			left = append(left, fd)
		}
	}
	left = append(left, n.theirs...)
	n.out, n.pidfd, n.theirs = [2]int{-1, -1}, -1, nil
	return left
}

// hurry watches a command for a moment and reports whether it is over, with all
// that it has said. Then what is left to do can wait until that was told: the
// process knows it. If it is not over, the process has files for what is left.
// Its tree was planted with attr.
func (l *linux) hurry(c *command, p *process, user user, attr *syscall.SysProcAttr, planted func()) (over bool) {
	n := p.lane
	p.lane = nil
	collected := false
	if n.pidfd >= 0 { // on kernels that are too old there is none
		collected, over = l.watchBriefly(c, p, n)
	}
	if over {
		p.tidy = func() {
			n.leaveTo(&l.left)
			l.leave(p, n, collected, attr, planted)
			l.pipes.lay(&l.trips, user)
		}
		return true
	}
	for i, fd := range n.out {
		if !n.ended[i] {
			p.out[i], n.out[i] = os.NewFile(uintptr(fd), "output"), -1 // it does not block: see pipes
		}
	}
	l.leave(p, n, collected, attr, planted)
	return false
}

// leave gives up what a command had for its first moment, and its tree if that was
// all of it.
func (l *linux) leave(p *process, n *lane, collected bool, attr *syscall.SysProcAttr, planted func()) {
	alone := l.lookAround(n.drop())
	if collected {
		p.treeMu.Lock()
		defer p.treeMu.Unlock()
		if alone && l.trees.again(p.tree, attr) {
			p.tree = ""
			return
		}
		l.trees.remove(p.tree)
	}
	planted()
}

// watchBriefly reports whether the process was collected, by this and not by the
// reaper, and whether all is over.
func (l *linux) watchBriefly(c *command, p *process, n *lane) (collected, over bool) {
	b := make([]byte, 4<<10)
	end := time.Now().Add(brief)
	words, ended := 0, false
	for range briefLooks {
		left := time.Until(end)
		if words > briefWords || left <= 0 && !ended {
			return collected, false
		}
		if ended {
			left = 0 // whoever else holds the pipes is not waited for
		}
		ready, err := n.wait(&l.trips, left, ended)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || ready.none && !ended {
			return collected, false
		}
		if ready.none {
			n.held = [2]bool{!n.ended[0], !n.ended[1]}
			n.ended = [2]bool{true, true}
		}
		for i, events := range ready.out {
			switch {
			case events&unix.POLLIN != 0:
				words += n.take(i, b, c)
			case events != 0 && l.lean: // nobody has the other end
				n.ended[i] = true
			case events != 0: // Linux can say so before it says that there is something to read
				words += n.take(i, b, c)
			}
		}
		if ready.end {
			if collected, ended = l.collectOf(c, p); !ended {
				return false, false
			}
		}
		if ended && n.ended == [2]bool{true, true} {
			c.fallSilent()
			return collected, true
		}
	}
	return collected, false
}

// readiness says what there is to do for a command.
type readiness struct {
	none bool
	end  bool // it has ended
	out  [2]int16
}

// wait waits until something can be done. What is over is left out.
func (n *lane) wait(trips *trips, most time.Duration, ended bool) (r readiness, err error) {
	n.polled = [3]unix.PollFd{{Fd: int32(n.out[0]), Events: unix.POLLIN}, {Fd: int32(n.out[1]), Events: unix.POLLIN}, {Fd: int32(n.pidfd), Events: unix.POLLIN}}
	for i, over := range [3]bool{n.ended[0], n.ended[1], ended} {
		if over {
			n.polled[i].Fd = -1
		}
	}
	n.limit = unix.NsecToTimespec(int64(most))
	var pinned runtime.Pinner
	pinned.Pin(n)
	defer pinned.Unpin()
	calls := append(closings(n.theirs), trip.Call{
		Number: unix.SYS_PPOLL, A: uintptr(unsafe.Pointer(&n.polled)), B: uintptr(len(n.polled)), C: uintptr(unsafe.Pointer(&n.limit)),
	})
	n.theirs = nil
	count, err := trips.make(calls)
	if err != nil {
		return r, err
	}
	return readiness{none: count == 0, end: n.polled[2].Revents != 0, out: [2]int16{n.polled[0].Revents, n.polled[1].Revents}}, nil
}

// take reads what one stream has, and returns how much.
func (n *lane) take(i int, b []byte, c *command) int {
	count, err := unix.Read(n.out[i], b)
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		return 0
	}
	if err != nil || count <= 0 {
		n.ended[i] = true
		return 0
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.streams[i].held = append(c.streams[i].held, b[:count]...)
	return count
}

// fallSilent notes that nothing more will be said.
func (c *command) fallSilent() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for _, s := range c.streams {
		s.closed = true
	}
}

// collectOf collects a command's own process, which has ended, unless the reaper
// was faster. It is not over where that must wait: one that somebody traces has
// ended, and is its parent's only when its tracer has looked.
func (l *linux) collectOf(c *command, p *process) (collected, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.children[p.pid] != c {
		return false, true
	}
	var status unix.WaitStatus
	p.mu.Lock() // until then the number is its own, and a signal cannot hit another
	pid, err := unix.Wait4(p.pid, &status, unix.WNOHANG, nil)
	if err == nil && pid == p.pid {
		p.alive = false
	}
	p.mu.Unlock()
	if err != nil || pid != p.pid {
		return false, false
	}
	l.over(c, status, nil)
	return true, true
}

// lookAround closes what is left of a command, and wakes the reaper if there is
// something to wait for: a command, or what one has left that runs on, which is a
// child of PID 1 then. It reports whether there is nothing: then no process is left
// of any command.
func (l *linux) lookAround(left []int) (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := closings(left)
	if l.alive == 0 {
		var pinned runtime.Pinner
		pinned.Pin(&l.ended)
		defer pinned.Unpin()
		calls = append(calls, trip.Call{
			Number: unix.SYS_WAITID, A: unix.P_ALL, C: uintptr(unsafe.Pointer(&l.ended)), D: unix.WEXITED | unix.WNOWAIT | unix.WNOHANG,
		})
	}
	_, err := l.trips.make(calls)
	if l.alive == 0 {
		if errors.Is(err, unix.ECHILD) {
			return true
		}
		l.orphans = true
	}
	l.started.Signal()
	return false
}

// briefly makes the lane of a command, if it may have one.
func (p *process) briefly(open wire.Open) {
	if open.TTY || open.Stdin {
		return
	}
	p.lane = &lane{pidfd: -1, out: [2]int{-1, -1}}
}
