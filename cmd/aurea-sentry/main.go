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
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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
// often than Go does by itself, as long as it is small: it holds a few megabytes
// then, and each command leaves some hundred kilobytes. One that holds more counts
// in the sandbox's memory, and collects as often as any.
const (
	quietStart  = time.Second
	quietMemory = 32 << 20
	lessOften   = 4
	small       = 16 << 20
)

// keepQuiet puts collecting off.
func keepQuiet() {
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(quietMemory)
	time.AfterFunc(quietStart, func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(lessOften * percent)
		debug.FreeOSMemory()
		afterEach(&pace{percent: percent, now: lessOften * percent})
	})
}

// pace is how often is collected.
type pace struct{ percent, now int }

// of is what it is to be with so much alive.
func (p *pace) of(live uint64) int {
	if live > small {
		return p.percent
	}
	return lessOften * p.percent
}

// afterEach sets the pace after each collection: something that nobody holds is
// found by it.
func afterEach(p *pace) {
	runtime.SetFinalizer(&struct{ _ [16]byte }{}, func(any) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if want := p.of(live[0].Value.Uint64()); want != p.now {
			p.now = want
			debug.SetGCPercent(want)
		}
		afterEach(p)
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
	if err := serveGuest(); err != nil {
		os.Exit(1)
	}

	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot): "internal",
	}, []subcommands.Command{})
}
