package httpapi_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const anExec = "019a8f3e-0000-7000-8000-000000000001"

// echoing keeps one exec, which prints what it is fed and counts its input.
type echoing struct {
	httpapi.Keeper
	mu      sync.Mutex
	more    *sync.Cond
	text    []byte
	ended   bool
	cols    uint16
	signals []int
	refuse  func() error // what becomes of the next input
}

func newEchoing() *echoing {
	k := &echoing{refuse: func() error { return nil }}
	k.more = sync.NewCond(&k.mu)
	return k
}

func (k *echoing) Exec(context.Context, string) (live.Exec, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := live.Exec{ID: anExec, Sandbox: "b1", State: live.Running}
	if k.ended {
		e.State, e.Result = live.Done, &live.ExecResult{Verdict: sandbox.OK, Stdout: run.Output{Kept: int64(len(k.text))}}
	}
	return e, nil
}

func (k *echoing) ExecOutput(context.Context, *live.Exec, sandbox.Stream, int64) ([]byte, error) {
	return nil, nil
}

func (k *echoing) FollowExec(ctx context.Context, _ string, from sandbox.Offsets, _ sandbox.Stream, piece func(live.Piece) error) error {
	wake := context.AfterFunc(ctx, func() { k.mu.Lock(); defer k.mu.Unlock(); k.more.Broadcast() })
	defer wake()
	for at := from.Stdout; ; {
		k.mu.Lock()
		for int64(len(k.text)) <= at && !k.ended && ctx.Err() == nil {
			k.more.Wait()
		}
		data := append([]byte(nil), k.text[at:]...)
		k.mu.Unlock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(data) == 0 {
			return nil
		}
		if err := piece(live.Piece{Stream: sandbox.Stdout, Offset: at, Data: data}); err != nil {
			return err
		}
		at += int64(len(data))
	}
}

func (k *echoing) FeedExec(_ context.Context, _ string, offset int64, data []byte, last bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refuse(); err != nil {
		return err
	}
	have := int64(len(k.text))
	switch {
	case offset > have:
		return fault.New(fault.Conflict, "there is a gap before %d", offset).WithCode("input_gap")
	case offset < 0:
		offset = have
	}
	if offset+int64(len(data)) > have {
		k.text = append(k.text, data[have-offset:]...)
	}
	k.ended = last
	k.more.Broadcast()
	return nil
}

func (k *echoing) ResizeExec(_ context.Context, _ string, cols, _ uint16) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cols = cols
	return nil
}

func (k *echoing) SignalExec(_ context.Context, _ string, signal int, _ bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.signals = append(k.signals, signal)
	k.ended = true
	k.more.Broadcast()
	return nil
}

func (k *echoing) WaitExec(ctx context.Context, id string) (live.Exec, error) { return k.Exec(ctx, id) }

// serveKeeper serves a keeper of sandboxes.
func serveKeeper(t *testing.T, k httpapi.Keeper) *httptest.Server {
	t.Helper()
	api, err := httpapi.New(httpapi.Config{Manager: newFake(), Keeper: k, Version: "test", Loopback: true, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api)
	t.Cleanup(func() {
		api.EndStreams()
		s.Client().CloseIdleConnections()
		s.Close()
		api.Close()
	})
	return s
}

// TestAttachedInputIsAnswered: what was taken is counted, and what was refused
// for the moment is said again and not written twice.
func TestAttachedInputIsAnswered(t *testing.T) {
	t.Parallel()
	k := newEchoing()
	calls := 0
	k.refuse = func() error {
		if calls++; calls%3 == 2 {
			return fault.New(fault.Unavailable, "the worker is away for a moment")
		}
		return nil
	}
	s := serveKeeper(t, k)
	c, err := client.New(s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	a := c.Attach(t.Context(), "b1", anExec, client.AttachOptions{Stdout: &out})
	a.Resize(91, 24)
	text := bytes.Repeat([]byte("0123456789"), 10_000)
	if n, err := a.Write(text); n != len(text) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	a.CloseInput()
	if e, err := a.Wait(); err != nil || !e.Ended() {
		t.Fatalf("%+v, %v", e, err)
	}
	if !bytes.Equal(out.Bytes(), text) || k.cols != 91 {
		t.Errorf("%d bytes came back of %d; %d columns", out.Len(), len(text), k.cols)
	}
}

// TestASignalPassesInputThatWaits: an exec that does not read can be ended.
func TestASignalPassesInputThatWaits(t *testing.T) {
	t.Parallel()
	k := &stuck{echoing: newEchoing(), reached: make(chan struct{})}
	w := dial(t, serveKeeper(t, k), "/api/v1/sandboxes/b1/execs/"+anExec+"/attach")
	if err := w.Write(t.Context(), websocket.MessageBinary, []byte("nobody reads this")); err != nil {
		t.Fatal(err)
	}
	<-k.reached
	w.say(`{"type":"signal","signal":15}`)
	if m := w.hear(); m["type"] != "end" {
		t.Errorf("hears %v", m)
	}
	w.closed(websocket.StatusNormalClosure)
	if len(k.signals) != 1 || k.signals[0] != 15 {
		t.Errorf("the signals are %v", k.signals)
	}
}

// stuck is an exec that does not read.
type stuck struct {
	*echoing
	reached chan struct{}
}

func (k *stuck) FeedExec(ctx context.Context, _ string, _ int64, _ []byte, _ bool) error {
	close(k.reached)
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestAttachRefusesWhatIsNoOffset by the code that closes the socket.
func TestAttachRefusesWhatIsNoOffset(t *testing.T) {
	t.Parallel()
	s := serveKeeper(t, newEchoing())
	path := "/api/v1/sandboxes/b1/execs/" + anExec + "/attach"
	for _, query := range []string{"stdin_offset=-1", "stdout_offset=x", "stderr_offset=1e9"} {
		dial(t, s, path+"?"+query).closed(4000 + http.StatusUnprocessableEntity)
	}
}
