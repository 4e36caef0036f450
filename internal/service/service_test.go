package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// untilStopped is a run that does as it is told.
func untilStopped(ctx context.Context, ready func()) error {
	ready()
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestFuncStress(t *testing.T) {
	servicetest.Stress(t, func(*testing.T) service.Service { return service.NewFunc(untilStopped) })
}

func TestHTTPStress(t *testing.T) {
	servicetest.Stress(t, func(*testing.T) service.Service {
		return service.NewHTTP(&http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}, loopback)
	})
}

func loopback(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", "127.0.0.1:0")
}

func TestFuncSaysWhyItEnded(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tc := range map[string]struct{ gives, want error }{
		"with an error": {broken, broken}, "without one": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service.NewFunc(func(_ context.Context, ready func()) error { ready(); return tc.gives })
			_ = s.Start(t.Context()) // may see the end already
			<-s.Done()
			if s.Err() == nil || tc.want != nil && !errors.Is(s.Err(), tc.want) {
				t.Errorf("err %v", s.Err())
			}
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := service.NewFunc(func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("start of what is never ready: %v", err)
		}
		<-s.Done()
	})
}

// journal is what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) part(name string, run func(ctx context.Context, ready func()) error) service.Part {
	return service.Part{Name: name, Service: service.NewFunc(func(ctx context.Context, ready func()) error {
		j.add("+" + name)
		defer j.add("-" + name)
		return run(ctx, ready)
	}), StopWithin: time.Second}
}

func TestGroupStartsInOrderAndStopsInReverse(t *testing.T) {
	t.Parallel()
	var j journal
	ctx, cancel := context.WithCancelCause(t.Context())
	g := service.Group{Logger: quiet(), Ready: func() { j.add("ready"); cancel(context.Canceled) }, Parts: []service.Part{
		j.part("a", untilStopped), j.part("b", untilStopped), j.part("c", untilStopped),
	}}
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(j.lines, " "); got != "+a +b +c ready -c -b -a" {
		t.Error(got)
	}
}

func TestGroupStopsAllWhenOneFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fail := make(chan struct{})
	var j journal
	g := service.Group{Logger: quiet(), Ready: func() { close(fail) }, Parts: []service.Part{
		j.part("a", untilStopped),
		j.part("b", func(_ context.Context, ready func()) error { ready(); <-fail; return broken }),
		j.part("c", untilStopped),
	}}
	err := g.Run(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "run b:") {
		t.Fatalf("run: %v", err)
	}
	if !slices.Contains(j.lines, "-a") || !slices.Contains(j.lines, "-c") {
		t.Errorf("not all stopped: %v", j.lines)
	}
}

func TestGroupStopsWhatWasStartedWhenAStartFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var j journal
	g := service.Group{Logger: quiet(), Parts: []service.Part{
		j.part("a", untilStopped),
		j.part("b", func(context.Context, func()) error { return broken }),
		j.part("c", untilStopped),
	}}
	if err := g.Run(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("run: %v", err)
	}
	if got := strings.Join(j.lines, " "); got != "+a +b -b -a" {
		t.Error(got)
	}
}

func TestGroupBoundsAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		release := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		g := service.Group{Logger: quiet(), Ready: func() { cancel(context.Canceled) }, Parts: []service.Part{
			j.part("a", untilStopped),
			j.part("stubborn", func(_ context.Context, ready func()) error { ready(); <-release; return nil }),
		}}
		err := g.Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stop stubborn") {
			t.Errorf("run: %v", err)
		}
		if !slices.Contains(j.lines, "-a") {
			t.Errorf("the others were not stopped: %v", j.lines)
		}
		close(release)
		<-g.Parts[1].Done()
	})
}

func TestGroupHurries(t *testing.T) {
	t.Parallel()
	var j journal
	release, hurry := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	part := j.part("stubborn", func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		close(hurry)
		<-release
		return nil
	})
	part.StopWithin = time.Hour
	g := service.Group{Logger: quiet(), Hurry: hurry, Ready: func() { cancel(context.Canceled) }, Parts: []service.Part{part}}
	if err := g.Run(ctx); err == nil || !strings.Contains(err.Error(), "hurry") {
		t.Errorf("run: %v", err)
	}
	close(release)
	<-part.Done()
}

// A stream that never ends by itself must not hold up a stop.
func TestHTTPEndsStreams(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{})
	var cause error
	h := service.NewHTTP(&http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		close(inside)
		<-r.Context().Done()
		cause = context.Cause(r.Context())
	})}, loopback)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get("http://" + h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	<-inside
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Errorf("the stream did not end cleanly: %v", err)
	}
	if !errors.Is(cause, service.ErrStopped) {
		t.Errorf("the request ended with %v", cause)
	}
}

func TestHTTPCannotListen(t *testing.T) {
	t.Parallel()
	h := service.NewHTTP(&http.Server{ReadHeaderTimeout: time.Second}, func(context.Context) (net.Listener, error) {
		return nil, errors.New("in use")
	})
	if err := h.Start(t.Context()); err == nil {
		t.Fatal("started")
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	<-h.Done()
}
