// Package join puts a new sandbox process into its control groups before
// anything else, so that all that the process ever uses counts.
//
// To move a whole process, the kernel waits until every processor has seen it,
// for ten milliseconds and more; a thread that moves itself waits for nothing.
// So this thread goes, and takes the process along by calling its program anew:
// then it is the only one. That is cheap as long as nothing is set up yet,
// which is why it is done while Go sets up packages: this one imports next to
// nothing and its path sorts before gVisor's, which puts it first.
package join

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Flag is the flag in which the spawner hands over descriptors of the files
// "tasks" of the control groups: the sandbox process has no right of its own to
// open them. It is one of gVisor's that is of no use without others, so that
// gVisor's own code carries the descriptors.
const Flag = "--sink-fds="

// Whoever links this package asks for it to be done.
var _ = run(os.Args)

// run joins the groups that the arguments name, if there are any, and calls the
// program without them. It ends the process where that fails: the spawner hears
// the silence, and finds the group empty.
func run(args []string) struct{} {
	fds, rest, ok := split(args)
	if !ok {
		syscall.Exit(1)
	}
	if len(fds) == 0 {
		return struct{}{}
	}
	for _, fd := range fds {
		if _, err := syscall.Write(fd, []byte("0")); err != nil {
			syscall.Exit(1)
		}
		_ = syscall.Close(fd) // nothing was kept back
	}
	_ = syscall.Exec("/proc/self/exe", rest, os.Environ())
	syscall.Exit(1)
	return struct{}{}
}

// split takes the descriptors out of the arguments.
func split(args []string) (fds []int, rest []string, ok bool) {
	for _, arg := range args {
		text, named := strings.CutPrefix(arg, Flag)
		if !named {
			rest = append(rest, arg)
			continue
		}
		fd, err := strconv.Atoi(text)
		if err != nil || fd <= 2 {
			return nil, nil, false
		}
		fds = append(fds, fd)
	}
	return fds, rest, true
}
