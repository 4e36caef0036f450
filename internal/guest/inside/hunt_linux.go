package inside

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How a tree is killed. Its processes are listed while they fork and end, so a
// list alone proves nothing: a chain of which each member forks and ends at
// once may be in none. But the kernel counts: if no number was given to a new
// process while the list was read, it has everybody who was there.
const (
	calmPasses  = 2  // in a row without a birth: all are dead
	quietPasses = 8  // in which only the tree is touched
	heldPasses  = 40 // in which everything in the sandbox is held

	// How long the kernel gets to end whom it was told to.
	endLooks = 50
	endPause = 2 * time.Millisecond
)

// kill kills everything that bears the mark. A process that was sent SIGKILL
// forks no more, whether it is gone yet or not.
//
// Who forks faster than it is listed, or hides among others that fork, is met
// with everything held: the kernel stops all processes of the sandbox in one
// step, in which none can fork. The other commands feel a pause.
func (m *marks) kill(mark uint32) error {
	done, err := m.hunt(mark, quietPasses, nil)
	if err == nil && !done {
		err = m.killHeld(mark)
	}
	if err != nil {
		return err
	}
	return m.await(mark)
}

// killHeld kills everything that bears the mark while all others are held too.
func (m *marks) killHeld(mark uint32) error {
	held := map[int]bool{}
	err := m.each(func(pid int, s status) error {
		if s.stopped() {
			held[pid] = true // by its own people, who want it to stay so
		}
		return nil
	})
	if err != nil {
		return err
	}
	hold := func() error { return m.everybody(unix.SIGSTOP) }
	if err := hold(); err != nil {
		return err
	}
	done, err := m.hunt(mark, heldPasses, hold)
	if err == nil && !done {
		// It wakes its own as fast as they are held. What ends it costs the
		// other commands too, which it could have killed itself.
		return m.everybody(unix.SIGKILL)
	}
	return errors.Join(err, m.release(held))
}

// hunt makes passes over the processes until it is sure that none that bears
// the mark is left, or has made so many.
func (m *marks) hunt(mark uint32, passes int, hold func() error) (done bool, err error) {
	last, calm := "", 0
	for range passes {
		if hold != nil {
			if err := hold(); err != nil {
				return false, err
			}
		}
		before, err := m.newest()
		if err != nil {
			return false, err
		}
		if _, err := m.visit(mark, func(pid int) error { return m.send(pid, mark, unix.SIGKILL) }); err != nil {
			return false, err
		}
		after, err := m.newest()
		if err != nil {
			return false, err
		}
		switch {
		case before != after:
			calm = 0
		case calm > 0 && before != last: // somebody was born between the passes
			calm = 1
		default:
			calm++
		}
		if last = after; calm == calmPasses {
			return true, nil
		}
	}
	return false, nil
}

// await waits until those that were killed have ended, so that none of them
// writes another byte. One that the kernel is busy with is not waited for long:
// it comes back to no code of its own.
func (m *marks) await(mark uint32) error {
	for range endLooks {
		left, err := m.visit(mark, func(int) error { return nil })
		if left == 0 || err != nil {
			return err
		}
		time.Sleep(endPause)
	}
	return nil
}

// release lets go on whoever was not held before. Children go first, so that
// no parent sees that its child was stopped.
func (m *marks) release(held map[int]bool) error {
	var pids []int
	err := m.each(func(pid int, _ status) error {
		if !held[pid] {
			pids = append(pids, pid)
		}
		return nil
	})
	for _, pid := range slices.Backward(pids) {
		if killErr := unix.Kill(pid, unix.SIGCONT); killErr != nil && !errors.Is(killErr, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("let a process go on: %w", killErr))
		}
	}
	return err
}

// signalEverybody works for PID 1 only: for others everybody is the machine.
func signalEverybody(signal syscall.Signal) error {
	if os.Getpid() != 1 {
		return errors.New("kill the tree: it forks faster than it is found")
	}
	if err := unix.Kill(-1, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal everybody: %w", err)
	}
	return nil
}

// newestNumber reads it from the end of the line where the kernel says it.
func newestNumber() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", fmt.Errorf("read the newest process number: %w", err)
	}
	fields := bytes.Fields(text)
	if len(fields) == 0 {
		return "", errors.New("read the newest process number: it is not there")
	}
	return string(fields[len(fields)-1]), nil
}
