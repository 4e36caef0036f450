// Command aurea-sentry is the only binary of ours that links gVisor. It has
// two faces:
//
//   - "spawn" is the helper of a worker that makes sandboxes, one at a time
//     (package internal/spawn says how it is asked);
//   - "boot" is the process of a sandbox, which the spawner starts from this
//     same binary into control groups of its own (package join), and "umount"
//     one that it needs for a moment (package unmount). Nobody else calls them.
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

	_ "github.com/aurea-dev/aurea/cmd/aurea-sentry/join"    // first of all, and for their effect
	_ "github.com/aurea-dev/aurea/cmd/aurea-sentry/unmount" //
)

//go:generate go run ./seccompgen -o seccomp_amd64.go

// precompiledPrograms is gVisor's own table of ready-made seccomp programs,
// which a plain Go build of it leaves empty.
//
//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

// A new sandbox process does not collect garbage for a while, unless it makes
// quietMemory of it: its start and a short command leave too little to be
// worth it. Then it gives back what it does not need to wait, and collects less
// often than Go does by itself: it holds a few megabytes, and each command leaves
// some hundred kilobytes.
const (
	quietStart  = time.Second
	quietMemory = 32 << 20
	lessOften   = 4
)

// keepQuiet puts collecting off.
func keepQuiet() {
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(quietMemory)
	time.AfterFunc(quietStart, func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(lessOften * percent)
		debug.FreeOSMemory()
	})
}

func main() {
	if err := usePowerless(); err != nil {
		os.Exit(1)
	}
	if len(os.Args) == 2 && os.Args[1] == "spawn" {
		os.Exit(spawner())
	}
	os.Args = stay(os.Args)
	keepQuiet()

	// The table is filled once, on first use: use it first, then replace it.
	filter.ListPrecompiled()
	precompiledPrograms = precompiled()
	skipPoints()

	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot): "internal",
	}, []subcommands.Command{})
}
