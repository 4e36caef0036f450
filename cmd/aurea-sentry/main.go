// Command aurea-sentry is the only binary of ours that links gVisor. It has
// two faces:
//
//   - "spawn" is the helper of a worker that makes sandboxes, one at a time
//     (package internal/spawn says how it is asked);
//   - "boot" and "umount" are the processes of a sandbox, which the spawner
//     starts from this same binary. Nobody else calls them.
package main

import (
	"os"
	"runtime/debug"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

//go:generate go run ./seccompgen -o seccomp_amd64.go

// precompiledPrograms is gVisor's own table of ready-made seccomp programs,
// which a plain Go build of it leaves empty.
//
//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

// quietStart is how long the garbage collector stays off in a new sandbox
// process: its start allocates little and a collection would only delay it.
const quietStart = 300 * time.Millisecond

func main() {
	if len(os.Args) == 2 && os.Args[1] == "spawn" {
		os.Exit(spawner())
	}
	args, err := joinGroups(os.Args)
	if err != nil {
		os.Exit(1) // the spawner hears the silence, and the group is empty
	}
	os.Args = args
	percent := debug.SetGCPercent(-1)
	time.AfterFunc(quietStart, func() { debug.SetGCPercent(percent) })

	// The table is filled once, on first use: use it first, then replace it.
	filter.ListPrecompiled()
	precompiledPrograms = precompiled()

	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "internal",
		new(sentrycmd.Umount): "internal",
	}, []subcommands.Command{})
}
