package keeper

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

// deaf is a worker that does what it is told, and whose connection is lost over
// that.
type deaf struct {
	*dispatchtest.Boxes
	lost atomic.Bool
}

func (d *deaf) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	made, err := d.Boxes.OpenSandbox(ctx, o)
	if err == nil && d.lost.Load() {
		err = errDead
	}
	return made, err
}

func (d *deaf) EndSandbox(ctx context.Context, c live.Closing) error {
	if d.lost.Load() {
		return errDead
	}
	return d.Boxes.EndSandbox(ctx, c)
}

// TestWhatCouldNotBeToldIsToldLater: a sandbox that was made, and of which neither
// the making nor the end could be said, does not run on for ever. Its worker need
// not register again.
func TestWhatCouldNotBeToldIsToldLater(t *testing.T) {
	t.Parallel()
	s, f := newForks(t)
	d := &deaf{Boxes: f.Boxes}
	s.host = d
	d.lost.Store(true)
	if _, _, err := s.CreateSandbox(as("o"), live.Request{}); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("made: %v", err)
	}
	if left := d.Standings(); len(left) != 1 {
		t.Fatalf("the worker has %+v", left)
	}
	tidy(t, s.Keeper)
	if list := s.unfinished(); len(list) != 1 || list[0].What != live.Making {
		t.Errorf("while it cannot be told, %+v is to be done", list)
	}
	d.lost.Store(false)
	tidy(t, s.Keeper)
	if left, list := d.Standings(), s.unfinished(); len(left) != 0 || len(list) != 0 {
		t.Errorf("the worker has %+v, and %+v is to be done", left, list)
	}
}
