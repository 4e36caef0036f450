package manager

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// attendWith connects a worker that keeps sandboxes until the test ends.
func attendWith(t *testing.T, m *Manager, id string, boxes *dispatchtest.Boxes) {
	t.Helper()
	welcome, err := m.Register(t.Context(), dispatch.Registration{
		Wire: dispatch.Version, WorkerID: id, Identity: id, Incarnation: id, Slots: 1, Drivers: []dispatch.DriverSummary{{Name: "memory"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	boxes.Tell = func(r dispatch.TellRequest) {
		r.Session = welcome.Session
		if err := m.Tell(context.Background(), r); err != nil {
			t.Errorf("tell: %v", err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Attend(ctx, welcome.Session, boxes)
	}()
	t.Cleanup(func() { cancel(errStopped); <-ended })
	for !m.sessions.attending(id) && t.Context().Err() == nil {
		runtime.Gosched()
	}
}

// TestSandboxesOfAnotherManager: a manager that does not have the worker of a
// sandbox says which has, shows it all the same, and ends it through the other.
func TestSandboxesOfAnotherManager(t *testing.T) {
	t.Parallel()
	address, err := startServer(t).Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has, other := share(t, address), share(t, address)
	boxes := &dispatchtest.Boxes{}
	attendWith(t, has, "w", boxes)
	s, _, err := has.CreateSandbox(local(), live.Request{})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		_, _, err = other.StartExec(local(), live.Command{Sandbox: s.ID, Command: []string{"true"}}, run.Asked{})
		if fault.CodeOf(err) == keeper.CodeElsewhere || time.Now().After(deadline) {
			break // that the worker is connected is written down a moment later
		}
		runtime.Gosched()
	}
	if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != keeper.CodeElsewhere {
		t.Fatalf("an exec at the other manager: %v", err)
	}
	if got, err := other.Sandbox(local(), s.ID); err != nil || got.State != sandbox.StateRunning {
		t.Errorf("the other manager shows %+v, %v", got, err)
	}
	got, err := other.EndSandbox(local(), s.ID, "enough")
	if err != nil || got.State != sandbox.StateCompleted || got.Outcome != sandbox.OutcomeCancelled || got.Reason != "enough" {
		t.Errorf("ended at the other manager: %+v, %v", got, err)
	}
	if left := boxes.Standings(); len(left) != 0 {
		t.Errorf("the worker still has %+v", left)
	}
}
