package dispatchtest

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReference(t *testing.T) {
	t.Parallel()
	Run(t, Harness{New: func(*testing.T) (dispatch.Manager, Control) {
		r := NewReference()
		return r, r
	}})
}

// direct carries runs by calling the worker, as a manager in process would.
type direct struct{ dispatch.Receiver }

func (d direct) Run(ctx context.Context, o run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
	if err := dispatch.CheckOrder(o); err != nil {
		return run.Result{}, err
	}
	return d.Receiver.Run(ctx, o, piece)
}

func TestDirectRunner(t *testing.T) {
	t.Parallel()
	RunRunner(t, RunnerHarness{New: func(_ *testing.T, rc dispatch.Receiver) dispatch.Runner { return direct{rc} }})
}
