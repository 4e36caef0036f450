package main

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // its variables are linked below
	"gvisor.dev/gvisor/pkg/sync"
)

// A program and the sentry wait for each other at every call. They can sleep, or
// spin for a moment: then a call is answered in half the time, and takes another
// processor meanwhile. gVisor decides by what it measures, which takes it longer
// than most commands last, and costs each of them a tenth of its time where there
// are few processors. So there it may decide only while some program calls all the
// time: makes a stretch of entries into the sentry in a hurry.
const (
	stretch = 2048
	hurry   = 200 * time.Millisecond
	// calm is how long after the last such stretch it may.
	calm = time.Second
)

// spinner hears of stretches.
type spinner interface{ stretched(a *age) }

// still is a spinner where gVisor decides alone.
type still struct{}

func (still) stretched(*age) {}

// whirl lets gVisor decide while there is reason to.
type whirl struct {
	set   func(spin bool)
	began time.Time

	mu    sync.Mutex
	on    bool
	timer *time.Timer
}

// stretched implements spinner.
func (w *whirl) stretched(a *age) {
	now := time.Since(w.began)
	before := time.Duration(a.stretch.Swap(int64(now)))
	if before == 0 || now-before > hurry {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(calm, w.rest)
	} else {
		w.timer.Reset(calm)
	}
	if !w.on {
		w.on = true
		w.set(true)
	}
}

// rest ends it.
func (w *whirl) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
	w.set(false)
}

// neverEnableFastPath keeps gVisor from beginning to spin. It stops by itself when
// nothing has run for 400 µs, and looks at this before it begins again.
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
	return &whirl{began: time.Now(), set: func(spin bool) {
		neverEnableFastPath = !spin
		once.Do(func() { go controlFastPath() }) // it sleeps while nothing runs
	}}
}
