// Command static is the attacks that need system calls of their own, as one
// program without libraries, so that it runs in any image. Its argument names
// the family; each attempt prints one line, STOPPED or THROUGH with its name
// and what happened. It is only ever run in a sandbox: on a host it would do
// what it tries.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// family is one attack of the manifest.
type family func(args []string)

func families() map[string]family {
	all := map[string]family{}
	for _, some := range []map[string]family{exhaustion(), files(), kernel(), processes()} {
		maps.Copy(all, some)
	}
	return all
}

// init keeps main on the first thread of its process, which one attack ends.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // later is too late

func main() {
	if len(os.Args) < 2 || families()[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "say which attack:", strings.Join(slices.Sorted(maps.Keys(families())), " "))
		os.Exit(2)
	}
	if os.Getenv("AUREA_ATTACK") == "" { //nolint:forbidigo // a program of its own, for sandboxes only
		fmt.Fprintln(os.Stderr, "this program attacks the machine that it runs on; the suite runs it in a sandbox")
		os.Exit(2)
	}
	families()[os.Args[1]](os.Args[2:])
}

// harmless is an attempt that went through without reaching anything.
var errHarmless = errors.New("no effect")

// expect reports an attempt: an error means that it was stopped.
func expect(name string, err error) {
	if err != nil {
		fmt.Printf("STOPPED %s: %v\n", name, err)
		return
	}
	fmt.Printf("THROUGH %s\n", name)
}

// expectThat reports an attempt by a condition.
func expectThat(name string, stopped bool, detail string) {
	word := "THROUGH"
	if stopped {
		word = "STOPPED"
	}
	fmt.Printf("%s %s: %s\n", word, name, detail)
}
