package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

func receiver(do func(context.Context, dispatch.Cancel) error) dispatchtest.Canceller {
	return dispatchtest.Cancels(do)
}

func newPipe() (near, far *conn) {
	a, b := net.Pipe()
	return newConn(a, a), newConn(b, b)
}

// swallow reads for ever and says nothing: a peer that died without a word.
func swallow(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

const slack = time.Second // for the timers of HTTP/2 to come round

func wantWithin(t *testing.T, what string, since time.Time, most time.Duration) {
	t.Helper()
	if took := time.Since(since); took > most {
		t.Errorf("%s took %s of virtual time, want at most %s", what, took, most)
	}
}

func TestTheManagerNoticesADeadWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := newPipe()
		go swallow(far)
		cc, err := dialOnce(t.Context(), near)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-near.closed
		wantWithin(t, "noticing", began, Quiet+Dead+slack)
		if err := (&stream{cc: cc}).Cancel(t.Context(), dispatch.Cancel{Held: dispatch.Held{JobID: "j"}}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a command on a dead stream: %v", err)
		}
		_, _ = cc.Close(), far.Close()
	})
}

func TestTheWorkerNoticesADeadManager(t *testing.T) {
	t.Parallel()
	for name, greeting := range map[string]string{
		"from the start": "",
		"after opening":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, ""),
		"in a frame":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, "") + "\x00\x10",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				near, far := newPipe()
				go func() {
					_, _ = io.WriteString(far, greeting)
					swallow(far)
				}()
				began := time.Now()
				err := newCommanded(receiver(nil), slog.New(slog.DiscardHandler)).serve(t.Context(), near)
				if !errors.Is(err, errBroke) {
					t.Errorf("got %v", err)
				}
				wantWithin(t, "noticing", began, Quiet+Dead+slack)
				_ = far.Close()
			})
		})
	}
}

// frame writes one frame of HTTP/2 on stream 0.
func frame(kind, flags byte, payload string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
	return string(head) + string([]byte{kind, flags, 0, 0, 0, 0}) + payload
}

func TestAQuietStreamStaysOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := newPipe()
		got := make(chan dispatch.Cancel, 1)
		ended := make(chan error, 1)
		go func() {
			ended <- newCommanded(receiver(func(_ context.Context, c dispatch.Cancel) error {
				got <- c
				return nil
			}), slog.New(slog.DiscardHandler)).serve(t.Context(), far)
		}()
		cc, err := dialOnce(t.Context(), near)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		s := &stream{cc: cc}
		want := dispatch.Cancel{Held: dispatch.Held{JobID: "j", Fence: 7}, Reason: "late"}
		if err := s.Cancel(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if c := <-got; c != want {
			t.Errorf("got %+v", c)
		}
		s.end(t.Context(), nil)
		if err := <-ended; err != nil {
			t.Errorf("an end without a reason: %v", err)
		}
		_ = cc.Close()
	})
}

// A worker that takes a command and never answers is given up on; the stream
// lives.
func TestACommandHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := newPipe()
		ended := make(chan error, 1)
		go func() {
			ended <- newCommanded(receiver(func(ctx context.Context, c dispatch.Cancel) error {
				if c.JobID == "stuck" {
					<-ctx.Done()
				}
				return nil
			}), slog.New(slog.DiscardHandler)).serve(t.Context(), far)
		}()
		cc, err := dialOnce(t.Context(), near)
		if err != nil {
			t.Fatal(err)
		}
		s, began := &stream{cc: cc}, time.Now()
		if err := s.Cancel(t.Context(), dispatch.Cancel{Held: dispatch.Held{JobID: "stuck"}}); !errors.Is(err, errTimeout) {
			t.Errorf("got %v", err)
		}
		wantWithin(t, "giving up", began, dispatch.ReportTimeout+slack)
		if err := s.Cancel(t.Context(), dispatch.Cancel{Held: dispatch.Held{JobID: "other"}}); err != nil {
			t.Errorf("the stream did not live on: %v", err)
		}
		_ = cc.Close()
		if err := <-ended; !errors.Is(err, errBroke) {
			t.Errorf("got %v", err)
		}
	})
}

// A manager that takes a call and never answers.
func TestCallsHaveDeadlines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call func(context.Context, *Client) error
		most time.Duration
	}{
		"leave": {func(ctx context.Context, c *Client) error { return c.Leave(ctx, "s") }, dispatch.ReportTimeout},
		"lease": {func(ctx context.Context, c *Client) error {
			_, err := c.Lease(ctx, dispatch.LeaseRequest{Session: "s", Max: 1, Wait: 30 * time.Second})
			return err
		}, 30*time.Second + dispatch.ReportTimeout},
		"attend": {func(ctx context.Context, c *Client) error { return c.Attend(ctx, "s", receiver(nil)) }, dispatch.ReportTimeout},
		"a small blob": {func(ctx context.Context, c *Client) error {
			return c.PutBlob(ctx, "s", strings.Repeat("0", 64), 1, strings.NewReader("x"))
		}, 2*time.Second + stored},
		"a blob that stalls": {func(ctx context.Context, c *Client) error {
			return c.PutBlob(ctx, "s", strings.Repeat("0", 64), 1<<30, io.LimitReader(endless{}, 1<<30))
		}, 2*time.Second + Dead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := NewClient("http://manager:8000", "", Options{})
				if err != nil {
					t.Fatal(err)
				}
				var fars []net.Conn
				dial := func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					fars = append(fars, far)
					// Takes one buffer, and then not a byte more.
					go func() { _, _ = far.Read(make([]byte, 64<<10)) }()
					if name == "a small blob" {
						go swallow(far)
					}
					return near, nil
				}
				c.http.Transport.(*http.Transport).DialContext = dial
				c.upgrade.Transport.(*http.Transport).DialContext = dial
				began := time.Now()
				if err := tc.call(t.Context(), c); !fault.Is(err, fault.Unavailable) {
					t.Errorf("got %v", err)
				}
				wantWithin(t, "giving up", began, tc.most+slack)
				for _, far := range fars {
					_ = far.Close()
				}
				c.Close()
			})
		})
	}
}

// slow is a manager whose long poll takes its time.
type slow struct {
	dispatch.Manager
	took time.Duration
}

func (s slow) Lease(ctx context.Context, _ dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	select {
	case <-time.After(s.took):
		return []dispatch.Lease{{Held: dispatch.Held{JobID: "j", Fence: 1}}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestALongPollMayTakeAsLongAsItWasGiven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		door := Handler(slow{took: dispatch.MaxWait}, slog.New(slog.DiscardHandler))
		l := listen(far)
		srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			door.ServeHTTP(w, r.WithContext(policy.With(r.Context(), policy.LocalCaller())))
		})}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		c, err := NewClient("http://manager:8000", "", Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return near, nil }
		ls, err := c.Lease(t.Context(), dispatch.LeaseRequest{Session: "s", Max: 1, Wait: dispatch.MaxWait})
		if err != nil || len(ls) != 1 {
			t.Errorf("got %v, %v", ls, err)
		}
		c.Close()
		door.Close()
		_ = srv.Close()
		<-served
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
