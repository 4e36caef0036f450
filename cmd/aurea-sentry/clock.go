package main

import (
	"fmt"
	"reflect"
	"runtime"
	"time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sync"
)

// gVisor lets programs read the clock without a system call once it has compared
// the processor's counter with the host's clock twice, which it does once a
// second: most of our sandboxes do not live that long. A start of Python reads
// the clock 250 times, and our guest no less. So it is compared again when the
// first program starts, and twice more, because the rate is known the better the
// longer the time between the first comparison and the last.
func comparisons() []time.Duration {
	return []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond}
}

// punctual is a platform that has clocks compared when its first program starts,
// and lets young programs be.
type punctual struct {
	platform.Platform
	nursery *nursery
	once    sync.Once
}

// NewContext implements platform.Platform.
func (p *punctual) NewContext(ctx context.Context) platform.Context {
	p.once.Do(func() {
		k := kernel.KernelFromContext(ctx)
		if k == nil {
			return
		}
		for _, after := range comparisons() {
			if after == 0 {
				compare(k.Timekeeper())
				continue
			}
			time.AfterFunc(after, func() { compare(k.Timekeeper()) })
		}
	})
	return &thread{Context: p.Platform.NewContext(ctx), nursery: p.nursery}
}

// New implements platform.Constructor.
func (p powerless) New(opts platform.Options) (platform.Platform, error) {
	if err := letProcessorAnswer(); err != nil {
		return nil, err
	}
	made, err := p.Constructor.New(opts)
	if err != nil {
		return nil, fmt.Errorf("make the platform: %w", err)
	}
	var s spinner = still{}
	if opts.DisableFastPath && min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) > 1 {
		s = newWhirl()
	}
	return &punctual{Platform: made, nursery: newNursery(s)}, nil
}

// update compares the clocks and tells programs.
//
// Preconditions: the timekeeper's updateMu is held, and its updater runs.
//
//go:linkname update gvisor.dev/gvisor/pkg/sentry/kernel.(*Timekeeper).update
func update(t *kernel.Timekeeper, parked bool)

// compare has the clocks compared, unless they stand still to be saved.
func compare(t *kernel.Timekeeper) {
	mu, running, updateMu := insides(t)
	mu.Lock()
	defer mu.Unlock()
	if !running() {
		return
	}
	updateMu.Lock()
	defer updateMu.Unlock()
	update(t, false)
}

// insides are the timekeeper's own locks, and whether its updater runs, which the
// first of them guards. gVisor shows them to nobody; a test holds what they are.
func insides(t *kernel.Timekeeper) (mu *sync.Mutex, running func() bool, updateMu *sync.Mutex) {
	fields := reflect.ValueOf(t).Elem()
	lock := func(name string) *sync.Mutex {
		return (*sync.Mutex)(unsafe.Pointer(fields.FieldByName(name).UnsafeAddr())) //nolint:gosec // see above
	}
	return lock("mu"), func() bool { return !fields.FieldByName("stop").IsNil() }, lock("updateMu")
}
