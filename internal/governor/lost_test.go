package governor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
)

// mumbler is a host that lets a sandbox go on, and whose answer is lost.
type mumbler struct {
	*dispatchtest.Boxes
	on atomic.Bool
}

func (m *mumbler) ResumeSandbox(ctx context.Context, id string) (live.Made, error) {
	made, err := m.Boxes.ResumeSandbox(ctx, id)
	if err == nil && m.on.Load() {
		err = fault.New(fault.Unavailable, "the connection is lost")
	}
	return made, err
}

// TestAWorkerWhoseResumeIsLostStandsStill: one that bears the mark of the law must
// not go on, also when its host has done what could not be confirmed.
func TestAWorkerWhoseResumeIsLostStandsStill(t *testing.T) {
	t.Parallel()
	for how, acts := range map[string]struct {
		hold, release func(s *stage, id string) (manifest.Worker, error)
		held          func(w manifest.Worker) bool
	}{
		"suspended": {
			func(s *stage, id string) (manifest.Worker, error) { return s.Suspend(me(), id, "enough") },
			func(s *stage, id string) (manifest.Worker, error) { return s.Revive(me(), id, "looked at it") },
			func(w manifest.Worker) bool { return w.Suspended() },
		},
		"quarantined": {
			func(s *stage, id string) (manifest.Worker, error) {
				return s.Quarantine(me(), id, governor.Suspicion{Reason: "odd"})
			},
			func(s *stage, id string) (manifest.Worker, error) { return s.Release(me(), id, "it was nothing") },
			func(w manifest.Worker) bool { return w.Quarantined() },
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, openSQLite(t))
			s.contract(func(*manifest.Contract) {})
			m := &mumbler{Boxes: s.boxes}
			s.host = m
			w := s.start("")
			if _, err := acts.hold(s, w.ID()); err != nil || !s.frozen(w) {
				t.Fatalf("held, and its host says it stands %t: %v", s.frozen(w), err)
			}
			m.on.Store(true)
			if _, err := acts.release(s, w.ID()); err == nil {
				t.Error("what was lost is taken for done")
			}
			if x, err := s.Worker(me(), w.ID()); err != nil || !acts.held(x) || !s.frozen(w) {
				t.Errorf("it bears the mark %t, and stands %t: %v", acts.held(x), s.frozen(w), err)
			}
			m.on.Store(false)
			if x, err := acts.release(s, w.ID()); err != nil || acts.held(x) || s.frozen(w) {
				t.Errorf("it bears the mark %t, and stands %t: %v", acts.held(x), s.frozen(w), err)
			}
		})
	}
}
