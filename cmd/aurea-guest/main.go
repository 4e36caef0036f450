// Command aurea-guest is PID 1 of a sandbox. It speaks with the worker over
// its standard input and output; package internal/guest/inside is all of it.
// Called with the word probe it is the isolation probe instead, which a worker
// runs as a command to see whether the sandbox holds.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/inside"
	probe "github.com/aurea-dev/aurea/internal/probe/inside"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		os.Exit(probe.Main(os.Args[2:], os.Stdout))
	}
	// Some work is done on threads that are thrown away afterwards. The first
	// thread cannot be, so it does nothing but wait.
	runtime.LockOSThread()
	// A guest holds little; memory is the sandbox's to use.
	debug.SetGCPercent(50)
	unix.Umask(0o022)

	if len(os.Args) > 1 && os.Args[1] == "container" {
		fmt.Fprintln(os.Stderr, "aurea-guest:", inside.RunContainer(os.Args[2:]))
		os.Exit(1)
	}
	err := run()
	// There is no other place for last words than among the frames, where a
	// worker that wonders finds them.
	_, _ = fmt.Fprintln(os.Stdout, "aurea-guest:", err)
	os.Exit(1)
}

// run serves a sandbox. Its one argument, if there is one, is how many
// processes the commands may have.
func run() error {
	var processes int64
	if len(os.Args) > 1 {
		var err error
		if processes, err = strconv.ParseInt(os.Args[1], 10, 64); err != nil || processes < 0 {
			return fmt.Errorf("%q is not a number of processes", os.Args[1])
		}
	}
	if err := inside.KeepPrivileges(); err != nil {
		return err
	}
	engine, err := inside.New(os.Stdin, os.Stdout, processes)
	if err != nil {
		return err
	}
	return engine.Run()
}
