package main

import (
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sync"
)

// TestTheTimekeeperIsAsWeKnowIt fails when a new gVisor keeps time otherwise:
// then what we do to it must be thought over.
func TestTheTimekeeperIsAsWeKnowIt(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]reflect.Type{
		"mu":       reflect.TypeFor[sync.Mutex](),
		"updateMu": reflect.TypeFor[sync.Mutex](),
		"stop":     reflect.TypeFor[chan struct{}](),
	} {
		field, ok := reflect.TypeFor[kernel.Timekeeper]().FieldByName(name)
		if !ok || field.Type != want {
			t.Errorf("%s is a %v, not a %v", name, field.Type, want)
		}
	}
}

// One that stands still, as before its clocks are set, is left alone.
func TestClocksThatStandStillAreNotCompared(t *testing.T) {
	t.Parallel()
	compare(kernel.NewTimekeeper())
}
