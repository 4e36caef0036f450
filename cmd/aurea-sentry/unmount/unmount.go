// Package unmount is the sentry's shortest task. Once it needs /proc no more,
// a new sandbox process has it unmounted by a child that still has the right:
// this same binary, called with the word umount. All of gVisor would be set up
// in that child only to make one system call, at a tenth of what a sandbox
// costs. So the call is made while Go sets up packages: this one imports next
// to nothing and its path sorts before gVisor's, which puts it first.
package unmount

import (
	"os"
	"syscall"
)

// Whoever links this package asks for it to be done.
var _ = run(os.Args)

// run unmounts and ends the process if that is what it was started for.
// gVisor says when by one byte, and takes any end but 0 for a failure.
func run(args []string) struct{} {
	if len(args) != 4 || args[1] != "umount" || args[2] != "--sync-fd=3" {
		return struct{}{}
	}
	const sync = 3
	var word [1]byte
	if n, err := syscall.Read(sync, word[:]); err != nil || n != 1 {
		syscall.Exit(1)
	}
	if err := syscall.Unmount(args[3], syscall.MNT_DETACH); err != nil {
		syscall.Exit(1)
	}
	syscall.Exit(0)
	return struct{}{}
}
