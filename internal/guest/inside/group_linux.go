package inside

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupRoot is where the sandbox's kernel has its control groups, commandRoot
// the one that holds those of all commands.
const (
	groupRoot   = "/sys/fs/cgroup"
	commandRoot = groupRoot + "/commands"
)

// groups gives each command a control group of its own. A process cannot leave
// it, whatever it forks and whoever adopts it, so a command's group is the
// command with all of its descendants.
type groups struct {
	mu      sync.Mutex
	last    uint64
	leaving []string // ended commands whose descendants live on
	spare   []group  // empty ones, for the next commands
}

// group is one that stands open.
type group struct {
	path string
	fd   int
}

// maxSpare is how many empty groups are kept.
const maxSpare = 4

// newGroups takes over the control groups. processes is how many threads all
// commands together may have; 0 is any number. The guest's own do not count, so
// that it can always start one more to kill the others.
func newGroups(processes int64) (*groups, error) {
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		// Nobody but us, not even a command that runs as root, moves processes.
		if err := os.Chown(filepath.Join(groupRoot, name), os.Getuid(), os.Getgid()); err != nil {
			return nil, fmt.Errorf("take over the control groups: %w", err)
		}
	}
	if err := os.Mkdir(commandRoot, 0o755); err != nil {
		return nil, fmt.Errorf("make the commands' control group: %w", err)
	}
	if processes <= 0 {
		return &groups{}, nil
	}
	for _, file := range []struct{ path, value string }{
		{filepath.Join(groupRoot, "cgroup.subtree_control"), "+pids"},
		{filepath.Join(commandRoot, "pids.max"), strconv.FormatInt(processes, 10)},
	} {
		if err := os.WriteFile(file.path, []byte(file.value), 0); err != nil {
			return nil, fmt.Errorf("bound the number of processes: %w", err)
		}
	}
	return &groups{}, nil
}

// take takes an empty group that stands open for a fork into it, or makes one.
func (g *groups) take() (path string, fd int, err error) {
	g.mu.Lock()
	if n := len(g.spare); n > 0 {
		one := g.spare[n-1]
		g.spare = g.spare[:n-1]
		g.mu.Unlock()
		return one.path, one.fd, nil
	}
	g.last++
	path = filepath.Join(commandRoot, strconv.FormatUint(g.last, 10))
	g.mu.Unlock()
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", -1, fmt.Errorf("make a control group: %w", err)
	}
	fd, err = unix.Open(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = os.Remove(path)
		return "", -1, fmt.Errorf("open a control group: %w", err)
	}
	return path, fd, nil
}

// signal sends a signal to everything in a group.
func (g *groups) signal(path string, signal syscall.Signal) error {
	if signal == unix.SIGKILL {
		// The kernel kills them all at once: none can fork its way out.
		err := os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
		if err != nil && !isGone(err) {
			return fmt.Errorf("kill the tree: %w", err)
		}
		return nil
	}
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the tree: %w", err)
	}
	for _, field := range bytes.Fields(procs) {
		pid, err := strconv.Atoi(string(field))
		if err != nil || pid <= 1 {
			continue
		}
		if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal the tree: %w", err)
		}
	}
	return nil
}

// isGone reports that a group was removed, before its file was opened or after.
func isGone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// remove removes the group of an ended command, at once or when the last of
// its descendants has gone.
func (g *groups) remove(path string) {
	g.mu.Lock() // a sweep comes before or after
	defer g.mu.Unlock()
	if err := unix.Rmdir(path); err == nil || errors.Is(err, unix.ENOENT) {
		return
	}
	g.leaving = append(g.leaving, path)
}

// sweep tries again where descendants lived on.
func (g *groups) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := g.leaving[:0]
	for _, path := range g.leaving {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			kept = append(kept, path)
		}
	}
	g.leaving = kept
}
