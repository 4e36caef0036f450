package keeper

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

func TestRecentKeepsTheLast(t *testing.T) {
	t.Parallel()
	var r recent
	for i := range recently + 10 {
		r.add(live.Exec{ID: fmt.Sprint(i), State: live.Running})
	}
	if _, ok := r.get("9"); ok || len(r.execs) != recently || len(r.order) != recently {
		t.Errorf("%d execs are at hand, %d in order", len(r.execs), len(r.order))
	}
	r.add(live.Exec{ID: "20", State: live.Done})
	r.add(live.Exec{ID: "20", State: live.Running}) // its start is heard of last
	if e, ok := r.get("20"); !ok || e.State != live.Done || len(r.order) != recently {
		t.Errorf("%+v, %v", e, ok)
	}
}

// What a waiter is told is what was written down, and nobody else is told.
func TestWhoWaitsIsToldTheRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	started := s.start(x.ID, "echo", "hello")
	if _, err := s.WaitExec(as("another"), started.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's exec: %v", err)
	}
	told, err := s.WaitExec(as("o"), started.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.recent.get(started.ID); !ok {
		t.Error("what has just ended is not at hand")
	}
	stored, err := s.Exec(as("o"), started.ID)
	if err != nil || !reflect.DeepEqual(told, stored) {
		t.Errorf("told %+v\nstored %+v, %v", told, stored, err)
	}
	if _, err := s.WaitExec(as("another"), started.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's exec after its end: %v", err)
	}
}
