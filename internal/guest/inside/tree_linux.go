package inside

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// trees tells a command and all of its descendants from those of others. What
// a sandbox's kernel offers for that differs, so there are two: control groups
// where the guest may make them, marks where it may not.
type trees interface {
	// plant readies attr, so that what is started with it begins a new tree.
	// done is called when the start is over, also when it failed.
	plant(attr *syscall.SysProcAttr) (tree string, done func(), err error)
	// again offers a tree in which nothing is left, and whose done was not called,
	// for the next one. It reports whether it was taken.
	again(tree string, attr *syscall.SysProcAttr) bool
	// signal sends a signal to everything in the tree. After SIGKILL nothing
	// in it runs on, and nothing has escaped by forking.
	signal(tree string, signal syscall.Signal) error
	// remove hears that the command itself has ended; its descendants may not.
	remove(tree string)
	// sweep hears that some descendant has ended.
	sweep()
}

var _, _ trees = (*groups)(nil), (*marks)(nil)

// plant implements trees: the kernel forks into the group.
func (g *groups) plant(attr *syscall.SysProcAttr) (tree string, done func(), err error) {
	path, fd, err := g.take()
	if err != nil {
		return "", nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, fd
	return path, func() { _ = unix.Close(fd) }, nil
}

// again implements trees: a group in which nothing is left is as good as new.
func (g *groups) again(tree string, attr *syscall.SysProcAttr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.spare) == maxSpare {
		return false
	}
	g.spare = append(g.spare, group{tree, attr.CgroupFD})
	return true
}
