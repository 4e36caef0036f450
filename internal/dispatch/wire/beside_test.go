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
	beside chan dispatch.Host
	gone   chan error
}

func newSharing() sharing {
	return sharing{keeper: keeper{came: make(chan dispatch.Receiver, 1)}, beside: make(chan dispatch.Host, 1), gone: make(chan error, 1)}
}

func (s sharing) AttendBeside(ctx context.Context, _ string, host dispatch.Host) error {
	s.beside <- host
	<-ctx.Done()
	s.gone <- context.Cause(ctx)
	return nil
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

// attending has a worker attend at managers until the test ends.
func attending(t *testing.T, rc dispatch.Receiver, urls ...string) (ended <-chan error) {
	t.Helper()
	f, err := NewFailover(urls, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.turn.Store(0)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	over, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		over <- f.Attend(ctx, "s", rc)
	}()
	t.Cleanup(func() {
		cancel(errClosed)
		<-done
		f.Close()
	})
	return over
}

func TestSandboxesOverASecondStream(t *testing.T) {
	t.Parallel()
	dispatchtest.RunHost(t, dispatchtest.HostHarness{New: func(t *testing.T, rc dispatch.Receiver) dispatch.Host {
		first, second := newSharing(), newSharing()
		_, a := serving(t, first)
		_, b := serving(t, second)
		attending(t, rc, a, b)
		<-first.came
		return <-second.beside
	}})
}

// A second stream lasts as long as the first, and carries no work.
func TestSecondStreamIsForSandboxesAlone(t *testing.T) {
	t.Parallel()
	first, second := newSharing(), newSharing()
	door, a := serving(t, first)
	_, b := serving(t, second)
	ended := attending(t, &dispatchtest.Boxes{}, a, b)
	<-first.came
	host := <-second.beside
	rc, all := host.(dispatch.Receiver)
	if !all {
		t.Fatal("what is carried has only a part")
	}
	if err := rc.Cancel(t.Context(), dispatch.Cancel{Held: dispatch.Held{JobID: "0190a0a0-0000-7000-8000-000000000000", Fence: 1}}); fault.CodeOf(err) != "no_such_command" {
		t.Errorf("cancel: %v", err)
	}
	if _, err := rc.Pool(t.Context()); fault.CodeOf(err) != "no_such_command" {
		t.Errorf("pool: %v", err)
	}
	door.Close()
	if err := <-ended; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the first stream ended with %v", err)
	}
	<-second.gone
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
