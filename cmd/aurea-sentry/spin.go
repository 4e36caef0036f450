package main

import (
	_ "unsafe" // for go:linkname

	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // its variables are linked below
	"gvisor.dev/gvisor/pkg/sync"
)

// A program and the sentry wait for each other at every call. They can sleep, or
// spin for a moment: then a call is answered in half the time, and takes another
// processor meanwhile. gVisor decides by what it measures, which takes it longer
// than most commands last, and costs each of them a tenth of its time where there
// are few processors. So there it is asked for only while some program calls all
// the time.
//
// diligence is after how many entries into the sentry a program counts as one.
const diligence = 10_000

// spinner hears how many such programs run.
type spinner interface {
	more()
	less()
}

// still is a spinner where gVisor decides alone.
type still struct{}

func (still) more() {}
func (still) less() {}

// whirl asks gVisor to spin while there is reason to.
type whirl struct {
	set func(spin bool)

	mu    sync.Mutex
	count int
}

func (w *whirl) more() { w.add(1) }
func (w *whirl) less() { w.add(-1) }

func (w *whirl) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.count > 0
	w.count += n
	if now := w.count > 0; now != before {
		w.set(now)
	}
}

// neverEnableFastPath keeps gVisor from spinning. It reads it once in a while, and
// it does not matter to it when it sees a change.
//
//go:linkname neverEnableFastPath gvisor.dev/gvisor/pkg/sentry/platform/systrap.neverEnableFastPath
var neverEnableFastPath bool

// controlFastPath decides whether to spin, for ever. gVisor starts it only where it
// was allowed from the beginning.
//
//go:linkname controlFastPath gvisor.dev/gvisor/pkg/sentry/platform/systrap.controlFastPath
func controlFastPath()

// newWhirl returns one for a platform that was made not to spin.
func newWhirl() *whirl {
	var once sync.Once
	return &whirl{set: func(spin bool) {
		neverEnableFastPath = !spin
		once.Do(func() { go controlFastPath() }) // it sleeps while nothing runs
	}}
}
