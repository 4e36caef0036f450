package wire

import (
	"context"
	"net/http"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/killswitch"
)

var _ dispatch.Stopper = (*stream)(nil)

// Switch brings everything at the worker to a state.
func (s *stream) Switch(ctx context.Context, state killswitch.State) (killswitch.Done, error) {
	return ask(ctx, s, "switch", state, killswitch.State.Check, dispatch.CheckDone)
}

// pull is the worker's end of Switch.
func (m *commanded) pull(w http.ResponseWriter, r *http.Request) {
	stopper, ok := m.rc.(dispatch.Stopper)
	if !ok {
		writeProblem(w, fault.New(fault.NotFound, "this worker has no kill switch").WithCode("no_such_command"))
		return
	}
	answer(w, r, dispatch.MaxOrderBytes, killswitch.State.Check, stopper.Switch)
}
