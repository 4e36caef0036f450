package wire

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// sharing is a manager that shares its database: it takes second streams too.
type sharing struct {
	keeper
	beside chan stood
	gone   chan error
}

// stood is a second stream that was opened.
type stood struct {
	session string
	host    dispatch.Host
	end     context.CancelCauseFunc
}

func newSharing() sharing {
	return sharing{keeper: keeper{came: make(chan dispatch.Receiver, 2)}, beside: make(chan stood, 4), gone: make(chan error, 4)}
}

func (s sharing) AttendBeside(ctx context.Context, session string, host dispatch.Host) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.beside <- stood{session: session, host: host, end: cancel}
	<-ctx.Done()
	s.gone <- context.Cause(ctx)
	return context.Cause(ctx)
}

// serving puts a manager behind a socket.
func serving(t *testing.T, m dispatch.Manager) (door *Door, url string) {
	t.Helper()
	door = Handler(m, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.ServeHTTP(w, r.WithContext(policy.With(r.Context(), policy.LocalCaller())))
	}))
	t.Cleanup(func() {
		door.Close()
		srv.Close()
	})
	return door, srv.URL
}

// failover is a client of managers, beginning with the first.
func failover(t *testing.T, urls ...string) *Failover {
	t.Helper()
	f, err := NewFailover(urls, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.turn.Store(0)
	return f
}

// attending has a worker attend at managers until the test ends.
func attending(t *testing.T, rc dispatch.Receiver, urls ...string) {
	t.Helper()
	f := failover(t, urls...)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Attend(ctx, "s", rc)
	}()
	t.Cleanup(func() {
		cancel(errClosed)
		<-done
	})
}

func TestSandboxesOverASecondStream(t *testing.T) {
	t.Parallel()
	dispatchtest.RunHost(t, dispatchtest.HostHarness{New: func(t *testing.T, rc dispatch.Receiver) dispatch.Host {
		first, second := newSharing(), newSharing()
		_, a := serving(t, first)
		_, b := serving(t, second)
		attending(t, rc, a, b)
		<-first.came
		return (<-second.beside).host
	}})
}

// A second stream carries no work.
func TestSecondStreamIsForSandboxesAlone(t *testing.T) {
	t.Parallel()
	first, second := newSharing(), newSharing()
	_, a := serving(t, first)
	_, b := serving(t, second)
	attending(t, &dispatchtest.Boxes{}, a, b)
	<-first.came
	rc, all := (<-second.beside).host.(dispatch.Receiver)
	if !all {
		t.Fatal("what is carried has only a part")
	}
	if err := rc.Cancel(t.Context(), dispatch.Cancel{Held: dispatch.Held{JobID: "0190a0a0-0000-7000-8000-000000000000", Fence: 1}}); fault.CodeOf(err) != "no_such_command" {
		t.Errorf("cancel: %v", err)
	}
	if _, err := rc.Pool(t.Context()); fault.CodeOf(err) != "no_such_command" {
		t.Errorf("pool: %v", err)
	}
}

// busy has a call under way that ends when it is let go.
type busy struct {
	dispatchtest.Boxes
	began, letGo chan struct{}
}

func newBusy() *busy { return &busy{began: make(chan struct{}, 1), letGo: make(chan struct{})} }

func (b *busy) EndSandbox(ctx context.Context, c live.Closing) error {
	b.began <- struct{}{}
	select {
	case <-b.letGo:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return b.Boxes.EndSandbox(ctx, c)
}

// underWay has host end a sandbox and returns how that went, once it began.
func underWay(t *testing.T, b *busy, host dispatch.Host) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- host.EndSandbox(t.Context(), live.Closing{ID: "b1", Outcome: sandbox.OutcomeDone}) }()
	<-b.began
	return ended
}

// A call over a second stream outlasts the first stream, and the moment in which
// its manager becomes the first one.
func TestSecondStreamOutlastsTheFirst(t *testing.T) {
	t.Parallel()
	first, second := newSharing(), newSharing()
	door, a := serving(t, first)
	_, b := serving(t, second)
	boxes := newBusy()
	f := failover(t, a, b)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	defer cancel(errClosed)
	over := make(chan error, 1)
	attend := func() { over <- f.Attend(ctx, "s", boxes) }
	go attend()
	<-first.came
	ended := underWay(t, boxes, (<-second.beside).host)
	door.Close()
	if err := <-over; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the first stream ended with %v", err)
	}
	go attend()
	<-second.came
	select {
	case err := <-second.gone:
		t.Errorf("the second stream ended: %v", err)
	case err := <-ended:
		t.Errorf("the call ended before it was let go: %v", err)
	default:
	}
	close(boxes.letGo)
	if err := <-ended; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	cancel(errClosed)
	<-over
	<-second.gone // Attend waits for it, on its side
}

// What is under way over a second stream ends in its time although its session
// is over; the session after it has a stream of its own, and the old one is not
// opened again.
func TestSecondStreamOfASessionThatIsOver(t *testing.T) {
	t.Parallel()
	first, second := newSharing(), newSharing()
	_, a := serving(t, first)
	_, b := serving(t, second)
	boxes := newBusy()
	f := failover(t, a, b)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	defer cancel(errClosed)
	over := make(chan error, 2)
	go func() { over <- f.Attend(ctx, "old", boxes) }()
	<-first.came
	old := <-second.beside
	ended := underWay(t, boxes, old.host)
	go func() { over <- f.Attend(ctx, "new", boxes) }()
	<-first.came
	if s := <-second.beside; s.session != "new" {
		t.Errorf("the session %q has a second stream", s.session)
	} else {
		s.end(errClosed) // and is opened again, for as long as it is the worker's
	}
	renewed := <-second.beside
	if renewed.session != "new" {
		t.Errorf("the session %q has a second stream again", renewed.session)
	}
	old.end(fault.New(fault.Unauthenticated, "the session is over").WithCode("unknown_session"))
	<-second.gone
	<-second.gone
	for range 100 { // a stream that were closed at once would be by then
		_ = renewed.host.SignalExec(ctx, live.Signal{Sandbox: "b1", Exec: "e1", Signal: 9})
	}
	select {
	case err := <-ended:
		t.Errorf("the call ended before it was let go: %v", err)
	default:
	}
	close(boxes.letGo)
	if err := <-ended; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	for old.host.EndSandbox(ctx, live.Closing{ID: "b1", Outcome: sandbox.OutcomeDone}) == nil {
		<-boxes.began // it is closed a moment after the call
	}
	cancel(errClosed)
	<-over
	<-over
	for len(second.beside) > 0 {
		if s := <-second.beside; s.session == "old" {
			t.Error("the second stream of the old session was opened again")
		}
	}
}

// A manager that shares its database with nobody, or is older, does not keep a
// worker from the one that it attends at.
func TestSecondStreamIsRefusedByWhoIsAlone(t *testing.T) {
	t.Parallel()
	first := newSharing()
	alone := keeper{came: make(chan dispatch.Receiver, 1)}
	_, a := serving(t, first)
	_, b := serving(t, alone)
	c, err := NewClient(b, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.AttendBeside(t.Context(), "s", &dispatchtest.Boxes{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	attending(t, &dispatchtest.Boxes{}, a, b)
	if err := (<-first.came).EndSandbox(t.Context(), live.Closing{ID: "b1", Outcome: sandbox.OutcomeDone}); err != nil {
		t.Error(err)
	}
}
