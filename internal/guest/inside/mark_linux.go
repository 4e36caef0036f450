package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
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
	// everybody sends a signal to every process of the sandbox but the guest,
	// in one step.
	everybody func(signal syscall.Signal) error
	// newest is the number that was given to a process or thread last.
	newest func() (string, error)

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
	m := &marks{first: firstMark, count: countMarks, proc: "/proc", everybody: signalEverybody, newest: newestNumber}
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
			found, err := m.visit(mark, func(int) error { return nil })
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

// signal implements trees.
func (m *marks) signal(tree string, signal syscall.Signal) error {
	gid, err := strconv.ParseUint(tree, 10, 32)
	if err != nil {
		return fmt.Errorf("signal the tree: %w", err)
	}
	mark := uint32(gid)
	if signal == unix.SIGKILL {
		return m.kill(mark)
	}
	_, err = m.visit(mark, func(pid int) error { return m.send(pid, mark, signal) })
	return err
}

// visit calls f for each process that bears the mark and runs, and says how
// many there were.
func (m *marks) visit(mark uint32, f func(pid int) error) (found int, err error) {
	err = m.each(func(pid int, s status) error {
		if !s.runs() || !s.bears(mark) {
			return nil
		}
		found++
		return f(pid)
	})
	return found, err
}

// each calls f for each process of the sandbox but the guest.
func (m *marks) each(f func(pid int, s status) error) error {
	dir, err := os.Open(m.proc)
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 1 {
			continue
		}
		s, err := m.status(pid)
		if err != nil {
			continue // it has just ended
		}
		if err := f(pid, s); err != nil {
			return err
		}
	}
	return nil
}

func (m *marks) status(pid int) (status, error) {
	text, err := os.ReadFile(m.proc + "/" + strconv.Itoa(pid) + "/status")
	return parseStatus(text), err
}

// status is what the kernel says of a process.
type status struct {
	state   byte
	threads int
	groups  [][]byte
}

// parseStatus reads the text of a process's status.
func parseStatus(text []byte) status {
	var s status
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(key) {
		case "State":
			if len(value) > 0 {
				s.state = value[0]
			}
		case "Threads":
			s.threads, _ = strconv.Atoi(string(value))
		case "Groups":
			s.groups = bytes.Fields(value)
		}
	}
	return s
}

// runs reports whether any of the process does. One that has ended and waits
// for its parent does not. One whose first thread has ended looks the same,
// but has others.
func (s status) runs() bool {
	return s.state != 0 && (s.state != 'Z' && s.state != 'X' || s.threads > 1)
}

func (s status) stopped() bool { return s.state == 'T' }

func (s status) bears(mark uint32) bool {
	want := []byte(strconv.FormatUint(uint64(mark), 10))
	return slices.ContainsFunc(s.groups, func(gid []byte) bool { return bytes.Equal(gid, want) })
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
	s, err := m.status(pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && !s.bears(mark) {
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

// again implements trees: a mark is not given twice in a row.
func (m *marks) again(string, *syscall.SysProcAttr) bool { return false }
