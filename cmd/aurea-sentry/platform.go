package main

import (
	"slices"
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/seccheck" // its initOnce is linked below
)

// platformName is how the sentry runs the code of a sandbox.
const platformName = "systrap"

// powerless is a platform for a sentry without any capability. gVisor's says
// that it needs CAP_SYS_PTRACE, which is so only where its processes are not
// its own children.
type powerless struct{ platform.Constructor }

// Requirements implements platform.Constructor.
func (powerless) Requirements() platform.Requirements { return platform.Requirements{} }

// usePowerless puts that platform in the place of gVisor's.
func usePowerless() error {
	c, err := platform.Lookup(platformName)
	if err != nil {
		return err
	}
	platform.Register(platformName, powerless{c})
	return nil
}

// stay tells a sandbox process to give its capabilities up in all of its
// threads, as it does where it serves files itself, instead of starting
// itself again for that: it is nobody from the beginning.
func stay(args []string) []string {
	at := slices.Index(args, "boot")
	if at < 0 {
		return args
	}
	return slices.Insert(slices.Clone(args), at+1, "--apply-caps=true")
}

// pointsOnce is gVisor's guard of the list of points that a trace session can
// ask for. There are no such sessions here, and the list takes longer to make
// than the guest to start.
//
//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

func skipPoints() { pointsOnce.Do(func() {}) }
