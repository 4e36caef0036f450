package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// marks gives each command a supplementary group of its own. Children inherit
// it, and without a capability nobody can put it down again: not by forking
// twice, nor by a session of its own, nor by running another program. So the
// processes that bear a command's mark are the command with all of its
// descendants, on any kernel and without a control group.
type marks struct {
	first, count uint32
	proc         string // where the processes are listed
	// lastResort kills every process of the sandbox but the guest at once.
	lastResort func() error

	mu   sync.Mutex
	next uint32
}

// The groups that are marks: far away from those that people use, but where
// only the first 65536 are mapped into the sandbox.
const (
	firstMark, countMarks   = 3 << 29, 1 << 28
	firstMapped, countSmall = 40000, 20000
)

func newMarks() (*marks, error) {
	body, err := os.ReadFile("/proc/self/gid_map")
	if err != nil {
		return nil, fmt.Errorf("read which groups there are: %w", err)
	}
	m := &marks{first: firstMark, count: countMarks, proc: "/proc", lastResort: killEverything}
	if !mapped(body, firstMark+countMarks-1) {
		m.first, m.count = firstMapped, countSmall
	}
	return m, nil
}

// mapped reports whether the id is in a table of id_map.
func mapped(table []byte, id uint64) bool {
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) != 3 {
			continue
		}
		begin, err1 := strconv.ParseUint(string(fields[0]), 10, 32)
		count, err2 := strconv.ParseUint(string(fields[2]), 10, 32)
		if err1 == nil && err2 == nil && id >= begin && id-begin < count {
			return true
		}
	}
	return false
}

// plant implements trees.
func (m *marks) plant(attr *syscall.SysProcAttr) (tree string, done func(), err error) {
	switch {
	case attr.Credential.Uid == 0:
		// Root here may be root of the machine, though without its powers.
		return "", nil, &refusal{status: wire.StatusDenied, reason: "this sandbox runs nothing as root"}
	case m.isMark(attr.Credential.Gid):
		return "", nil, &refusal{status: wire.StatusDenied, reason: "this group is the sandbox's own"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for range m.count {
		mark := m.first + m.next%m.count
		m.next++
		if m.next > m.count { // used before: do descendants of that command live?
			found, _, err := m.visit(mark, func(int) error { return nil })
			if err != nil {
				return "", nil, err
			}
			if found > 0 {
				continue
			}
		}
		attr.Credential.Groups = []uint32{mark}
		return strconv.FormatUint(uint64(mark), 10), func() {}, nil
	}
	return "", nil, &refusal{status: wire.StatusExhausted, reason: "too many commands run in this sandbox"}
}

func (m *marks) isMark(gid uint32) bool { return gid >= m.first && gid-m.first < m.count }

// remove and sweep have nothing to do: a mark leaves no trace.
func (m *marks) remove(string) {}
func (m *marks) sweep()        {}

// How a tree is killed. The list of processes is read while they fork, so it
// is read again until nothing new is in it.
const (
	calmPasses = 3  // in a row without anything new: all are dead
	mostPasses = 60 // after which it is a race
	hunted     = 10 // whoever forks after so many passes does it to escape
)

// signal implements trees.
func (m *marks) signal(tree string, signal syscall.Signal) error {
	gid, err := strconv.ParseUint(tree, 10, 32)
	if err != nil {
		return fmt.Errorf("signal the tree: %w", err)
	}
	mark := uint32(gid)
	if signal != unix.SIGKILL {
		_, _, err := m.visit(mark, func(pid int) error { return m.send(pid, mark, signal) })
		return err
	}
	return m.kill(mark)
}

// kill kills everything that bears the mark. A process that was sent SIGKILL
// forks no more, whether it is gone yet or not, so what counts is that no pass
// finds another.
func (m *marks) kill(mark uint32) error {
	sent := map[int]bool{}
	escaping := false
	for pass, calm := 0, 0; calm < calmPasses && pass < mostPasses; pass++ {
		fresh := 0
		_, vanished, err := m.visit(mark, func(pid int) error {
			if !sent[pid] {
				fresh++
				sent[pid] = true
			}
			return m.send(pid, mark, unix.SIGKILL)
		})
		if err != nil {
			return err
		}
		calm++
		if fresh > 0 || vanished > 0 {
			// What vanished may have been of the tree, with a child behind it.
			calm = 0
		}
		escaping = escaping || fresh > 0 && pass >= hunted
	}
	if !escaping {
		return nil
	}
	// It forks faster than it is found. The kernel can kill all processes of
	// the sandbox in one step, in which none can fork. That costs the other
	// commands here too, which this one could have killed itself.
	return m.lastResort()
}

// killEverything is the last resort.
func killEverything() error {
	if os.Getpid() != 1 {
		return errors.New("kill the tree: it forks faster than it is found")
	}
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill everything: %w", err)
	}
	return nil
}

// visit calls f for each process that bears the mark and runs. It says how
// many there were, and how many processes of anybody's vanished meanwhile.
func (m *marks) visit(mark uint32, f func(pid int) error) (found, vanished int, err error) {
	dir, err := os.Open(m.proc)
	if err != nil {
		return 0, 0, fmt.Errorf("list the processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, 0, fmt.Errorf("list the processes: %w", err)
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 1 {
			continue
		}
		bears, err := m.bears(pid, mark)
		if err != nil {
			vanished++
			continue
		}
		if !bears {
			continue
		}
		found++
		if err := f(pid); err != nil {
			return found, vanished, err
		}
	}
	return found, vanished, nil
}

// bears reports whether the process runs and bears the mark.
func (m *marks) bears(pid int, mark uint32) (bool, error) {
	status, err := os.ReadFile(m.proc + "/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false, err
	}
	return statusBears(status, mark), nil
}

// statusBears reads the text of a process's status. A process that has ended
// and waits for its parent is gone.
func statusBears(status []byte, mark uint32) bool {
	want := []byte(strconv.FormatUint(uint64(mark), 10))
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		switch string(key) {
		case "State":
			if state := bytes.TrimSpace(value); len(state) > 0 && (state[0] == 'Z' || state[0] == 'X') {
				return false
			}
		case "Groups":
			for _, gid := range bytes.Fields(value) {
				if bytes.Equal(gid, want) {
					return true
				}
			}
			return false
		}
	}
	return false
}

// send sends the signal to the process, and to no other that was given its
// number meanwhile.
func (m *marks) send(pid int, mark uint32, signal syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open a process of the tree: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	bears, err := m.bears(pid, mark)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && !bears {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at a process of the tree: %w", err)
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal the tree: %w", err)
	}
	return nil
}
