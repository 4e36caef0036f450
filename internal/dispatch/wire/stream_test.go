package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

func cancelOf(job string) dispatch.Cancel {
	return dispatch.Cancel{Held: dispatch.Held{JobID: job, Fence: 1}, Reason: "asked to"}
}

// One command that hangs holds up no other, and giving it up reaches the
// worker while the stream goes on.
func TestCommandsAreMultiplexedAndGivenUpOneByOne(t *testing.T) {
	t.Parallel()
	const stuck, quick = 300, 20 // more at a time than HTTP/2's usual limits
	begun, gaveUp := make(chan struct{}, stuck), make(chan struct{}, stuck)
	var wrong error
	c := connect(t, scripted{attend: func(ctx context.Context, rc dispatch.Receiver) error {
		hanging, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		var all sync.WaitGroup
		for i := range stuck {
			all.Go(func() { _ = rc.Cancel(hanging, cancelOf(fmt.Sprintf("stuck-%d", i))) })
		}
		for range stuck {
			<-begun
		}
		for range quick {
			if err := rc.Cancel(ctx, cancelOf("quick")); err != nil {
				wrong = errors.Join(wrong, err)
			}
		}
		giveUp(errors.New("nobody waits any more"))
		for range stuck {
			<-gaveUp
		}
		all.Wait()
		return errors.Join(wrong, rc.Cancel(ctx, cancelOf("quick")))
	}}, false)
	err := c.Attend(t.Context(), "s", receiver(func(ctx context.Context, c dispatch.Cancel) error {
		if strings.HasPrefix(c.JobID, "stuck") {
			begun <- struct{}{}
			<-ctx.Done()
			gaveUp <- struct{}{}
		}
		return nil
	}))
	if err != nil {
		t.Error(err)
	}
}

func TestNoCommandRunsAfterAttend(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	c := connect(t, scripted{attend: func(ctx context.Context, rc dispatch.Receiver) error {
		return rc.Cancel(ctx, cancelOf("j"))
	}}, false)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-begun
		cancel(errors.New("the worker stops"))
	}()
	running := true // a race, if the command outlives Attend
	err := c.Attend(ctx, "s", receiver(func(ctx context.Context, _ dispatch.Cancel) error {
		close(begun)
		<-ctx.Done()
		running = false
		return nil
	}))
	if running || !fault.Is(err, fault.Unavailable) {
		t.Errorf("running %v, %v", running, err)
	}
}

// A connection that is cut ends the stream at both ends.
func TestACutConnectionIsNoticedAtBothEnds(t *testing.T) {
	t.Parallel()
	opened, learned := make(chan struct{}), make(chan error, 1)
	door := wire.Handler(scripted{attend: func(ctx context.Context, _ dispatch.Receiver) error {
		close(opened)
		<-ctx.Done()
		learned <- context.Cause(ctx)
		return context.Cause(ctx)
	}}, quiet())
	srv := httptest.NewServer(as(policy.LocalCaller(), door))
	defer srv.Close()
	defer door.Close()
	cut := relay(t, srv.Listener.Addr().String())
	c := client(t, "http://"+cut.addr, "")
	ended := make(chan error, 1)
	go func() { ended <- c.Attend(t.Context(), "s", receiver(nil)) }()
	<-opened
	cut.now()
	if err := <-ended; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the worker learned %v", err)
	}
	if err := <-learned; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the manager learned %v", err)
	}
}

// cutter is a cable between two ends that a test can cut.
type cutter struct {
	addr string
	now  func()
}

func relay(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var ends []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			mu.Lock()
			ends = append(ends, near, far)
			mu.Unlock()
			all.Go(func() { _, _ = io.Copy(near, far) })
			all.Go(func() { _, _ = io.Copy(far, near) })
		}
	})
	c := &cutter{addr: l.Addr().String(), now: func() {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range ends {
			_ = e.Close()
		}
	}}
	t.Cleanup(func() {
		_ = l.Close()
		c.now()
		all.Wait()
	})
	return c
}

// Doors, clients and streams come and go at once, and nothing stays.
func TestStartAndStopUnderLoad(t *testing.T) {
	t.Parallel()
	for range 5 {
		ref := dispatchtest.NewReference()
		door := wire.Handler(ref, quiet())
		srv := httptest.NewServer(as(policy.LocalCaller(), door))
		var all sync.WaitGroup
		for i := range 8 {
			c, err := wire.NewClient(srv.URL, "", wire.Options{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := c.Register(t.Context(), dispatch.Registration{
				Wire: dispatch.Version, WorkerID: fmt.Sprintf("w%d", i), Identity: "i", Incarnation: "n",
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				all.Go(func() { _ = c.Attend(t.Context(), w.Session, receiver(nil)) })
			}
			all.Go(func() {
				_, _ = c.Lease(t.Context(), dispatch.LeaseRequest{Session: w.Session, Max: 1, Wait: dispatch.MaxWait})
			})
			defer c.Close()
		}
		door.Close() // everything that waits must end, however far it came
		all.Wait()
		srv.Close()
	}
}
