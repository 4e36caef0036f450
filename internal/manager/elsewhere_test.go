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
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// attendWith connects a worker that keeps sandboxes until the test ends, and
// returns its session.
func attendWith(t *testing.T, m *Manager, id string, boxes *dispatchtest.Boxes) string {
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
	return welcome.Session
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

// TestSecondStream: what needs the worker of a sandbox is done through any
// manager that the worker has a stream to, and by the same rules.
func TestSecondStream(t *testing.T) {
	t.Parallel()
	address, err := startServer(t).Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has, other := share(t, address), share(t, address)
	boxes := &dispatchtest.Boxes{}
	session := attendWith(t, has, "w", boxes)
	if err := other.AttendBeside(t.Context(), "nobody's", boxes); fault.CodeOf(err) != "unknown_session" {
		t.Errorf("with a session that nobody has: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = other.AttendBeside(ctx, session, boxes)
	}()
	t.Cleanup(func() { cancel(errStopped); <-ended })
	for {
		if _, there := other.besides.of(session); there || t.Context().Err() != nil {
			break
		}
		runtime.Gosched()
	}

	mine := policy.With(context.Background(), policy.Caller{Kind: policy.Viewer, ID: "me"})
	s, _, err := other.CreateSandbox(mine, live.Request{})
	if err != nil || s.State != sandbox.StateRunning || s.Worker != "w" {
		t.Fatalf("made at the other manager: %+v, %v", s, err)
	}
	for i := range 50 { // ends are told to the one that knows only what is stored
		e, _, err := other.StartExec(mine, live.Command{Sandbox: s.ID, Command: []string{"echo", "hello"}}, run.Asked{})
		if err == nil {
			e, err = other.WaitExec(mine, e.ID)
		}
		if err != nil || e.Result.Verdict != sandbox.OK {
			t.Fatalf("exec %d: %+v, %v", i, e, err)
		}
	}
	yours := policy.With(context.Background(), policy.Caller{Kind: policy.Viewer, ID: "you"})
	if _, _, err := other.StartExec(yours, live.Command{Sandbox: s.ID, Command: []string{"true"}}, run.Asked{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an exec of somebody else: %v", err)
	}
	if s, err = other.PauseSandbox(mine, s.ID, live.Frozen); err != nil || s.Paused != live.Frozen {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = has.ResumeSandbox(mine, s.ID); err != nil || s.Paused != "" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err = other.UpdateSandbox(mine, s.ID, live.Change{Sync: &live.Sync{Session: "pad", Continuous: true}}); fault.CodeOf(err) != keeper.CodeElsewhere {
		t.Errorf("files that are to be followed: %v", err)
	}
	if other.Tends(mine, &s) || !has.Tends(mine, &s) {
		t.Error("what has its time is not done by the manager that has the worker's own stream")
	}
	if s, err = other.EndSandbox(mine, s.ID, "enough"); err != nil || s.Outcome != sandbox.OutcomeCancelled {
		t.Errorf("ended at the other manager: %+v, %v", s, err)
	}
	if left := boxes.Standings(); len(left) != 0 {
		t.Errorf("the worker still has %+v", left)
	}
}

// TestSecondStreamEndsWithItsSession: a worker that was replaced and does not
// close its second stream is not kept.
func TestSecondStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	address, err := startServer(t).Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has, other := share(t, address), share(t, address)
	boxes := &dispatchtest.Boxes{}
	old, stays := attendWith(t, has, "w", boxes), attendWith(t, has, "stays", &dispatchtest.Boxes{})
	over := map[string]chan error{}
	ctx, cancel := context.WithCancelCause(t.Context())
	for _, session := range []string{old, stays} {
		ended := make(chan error, 1)
		over[session] = ended
		go func() { ended <- other.AttendBeside(ctx, session, boxes) }()
	}
	for len(other.besides.sessions()) < 2 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	if renewed := attendWith(t, has, "w", boxes); renewed == old {
		t.Fatal("the session is the old one")
	}
	if err := <-over[old]; fault.CodeOf(err) != "unknown_session" {
		t.Errorf("the stream of the old session ended with %v", err)
	}
	if _, there := other.besides.of(stays); !there {
		t.Error("the other worker's stream has ended too")
	}
	cancel(errStopped)
	<-over[stays]
}
