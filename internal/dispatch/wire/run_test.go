package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// keeper is a manager that does nothing but hold a worker's stream.
type keeper struct {
	dispatch.Manager
	came chan dispatch.Receiver
}

func (k keeper) Attend(ctx context.Context, _ string, rc dispatch.Receiver) error {
	k.came <- rc
	<-ctx.Done()
	return context.Cause(ctx)
}

// carried returns the manager's end of a stream over a real socket.
func carried(t *testing.T, rc dispatch.Receiver) dispatch.Receiver {
	t.Helper()
	k := keeper{came: make(chan dispatch.Receiver, 1)}
	door := Handler(k, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.ServeHTTP(w, r.WithContext(policy.With(r.Context(), policy.LocalCaller())))
	}))
	c, err := NewClient(srv.URL, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	attended := make(chan struct{})
	go func() {
		defer close(attended)
		_ = c.Attend(context.WithoutCancel(t.Context()), "s", rc)
	}()
	t.Cleanup(func() {
		door.Close()
		<-attended
		c.Close()
		srv.Close()
	})
	return <-k.came
}

func TestRunsOverTheWire(t *testing.T) {
	t.Parallel()
	dispatchtest.RunRunner(t, dispatchtest.RunnerHarness{New: func(t *testing.T, rc dispatch.Receiver) dispatch.Runner { return carried(t, rc) }})
}

// A result that a worker may not send does not cross, and its run has failed.
func TestResultOutOfBoundsDoesNotCross(t *testing.T) {
	t.Parallel()
	rc := carried(t, dispatchtest.Runs{Do: func(context.Context, run.Order, func(dispatch.Chunk) error) (run.Result, error) {
		return run.Result{Verdict: "splendid"}, nil
	}})
	_, err := rc.Run(t.Context(), run.Order{ID: "a", Language: "python", Timeout: 1}, func(dispatch.Chunk) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "verdict") {
		t.Errorf("got %v", err)
	}
}

func TestOrderTooLargeForTheWireIsRefused(t *testing.T) {
	t.Parallel()
	rc := carried(t, dispatchtest.Runs{})
	half := strings.Repeat("x", dispatch.MaxOrderBytes/2)
	_, err := rc.Run(t.Context(), run.Order{ID: "a", Language: "python", Timeout: 1, Code: half, Stdin: half}, nil)
	if !fault.Is(err, fault.TooLarge) {
		t.Errorf("got %v", err)
	}
}

// A stream that ends leaves no run behind on the worker.
func TestRunEndsWithItsStream(t *testing.T) {
	t.Parallel()
	begun, stopped := make(chan struct{}), make(chan struct{})
	near, far := newPipe()
	served := make(chan error, 1)
	go func() {
		served <- newCommanded(dispatchtest.Runs{Do: func(ctx context.Context, _ run.Order, _ func(dispatch.Chunk) error) (run.Result, error) {
			close(begun)
			<-ctx.Done()
			close(stopped)
			return run.Result{}, ctx.Err()
		}}, slog.New(slog.DiscardHandler)).serve(t.Context(), far)
	}()
	cc, err := dialOnce(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := (&stream{cc: cc}).Run(context.WithoutCancel(t.Context()), run.Order{ID: "a", Language: "python", Timeout: 1}, nil)
		failed <- err
	}()
	<-begun
	_ = near.Close()
	<-stopped
	if err := <-failed; !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
	<-served
	_ = cc.Close()
}

func runFrame(kind byte, n int, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(n)), body...)
}

func TestHostileFramesAreRefused(t *testing.T) {
	t.Parallel()
	piece := func(stream byte, offset uint64, data string) []byte {
		body := string(binary.BigEndian.AppendUint64([]byte{stream}, offset)) + data
		return runFrame(framePiece, len(body), body)
	}
	for name, answer := range map[string][]byte{
		"nothing":              nil,
		"half a head":          {framePiece, 0},
		"an unknown kind":      runFrame(9, 1, "x"),
		"a promise unkept":     runFrame(frameResult, dispatch.MaxResultBytes, "{"),
		"too much":             runFrame(frameResult, dispatch.MaxResultBytes+1, ""),
		"a piece too large":    runFrame(framePiece, pieceHead+dispatch.MaxChunk+1, ""),
		"half a piece":         runFrame(framePiece, 2, "\x01\x00"),
		"no stream":            piece(3, 0, "x"),
		"a gap":                piece(1, 5, "x"),
		"an offset too far":    piece(1, 1<<63, "x"),
		"said twice":           append(piece(1, 0, "x"), piece(1, 0, "x")...),
		"a result of nonsense": runFrame(frameResult, 2, "{}"),
		"a problem unread":     runFrame(frameProblem, 1, "{"),
	} {
		f := newFrames(bytes.NewReader(answer), sandbox.Offsets{})
		var err error
		for err == nil {
			var res *run.Result
			if _, res, err = f.read(); res != nil {
				t.Errorf("%s: %+v", name, res)
				break
			}
		}
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// What comes in frames is in bounds, in order, and ends.
func FuzzRunFrames(f *testing.F) {
	f.Add(appendPiece(nil, dispatch.Chunk{Stream: sandbox.Stdout, Data: []byte("hello")}))
	f.Add(appendPiece(appendPiece(nil, dispatch.Chunk{Stream: sandbox.Stderr, Data: []byte("a")}), dispatch.Chunk{Stream: sandbox.Stderr, Offset: 1, Data: []byte("b")}))
	result := `{"verdict":"ok","exit_code":0,"step":"run","stdout":{"sha256":"` + strings.Repeat("0a", 32) + `"},"stderr":{"sha256":"` + strings.Repeat("0a", 32) + `"}}`
	f.Add(runFrame(frameResult, len(result), result))
	f.Add(runFrame(frameProblem, 18, `{"kind":"conflict"}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		from := newFrames(bytes.NewReader(answer), sandbox.Offsets{})
		var next [2]int64
		for {
			c, res, err := from.read()
			switch {
			case err != nil:
				if errors.Is(err, io.EOF) {
					t.Fatal("an end that is no fault")
				}
				return
			case res != nil:
				if err := dispatch.CheckRunResult(*res); err != nil {
					t.Fatal(err)
				}
				return
			case c.Check() != nil || c.Offset != next[c.Stream-1]:
				t.Fatalf("a piece at %d", c.Offset)
			}
			next[c.Stream-1] += int64(len(c.Data))
		}
	})
}

// orderMessage is an order with the bounds of the wire.
type orderMessage struct{ run.Order }

func (m orderMessage) Check() error { return dispatch.CheckOrder(m.Order) }

func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"id":"a","owner":"o","language":"python","code":"print(1)","files":{"a.txt":"x"},"args":["1"],"env":{"A":"b"},"stdin":"in",
		"timeout_ns":1000000000,"readonly":true,"artifacts":true,"limits":{"memory_bytes":1048576},"from":{"stdout":1,"stderr":2},"keep":true}`))
	fuzzMessage[orderMessage](f)
}

type resultMessage struct{ run.Result }

func (m resultMessage) Check() error { return dispatch.CheckRunResult(m.Result) }

func FuzzRunResult(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	f.Add([]byte(`{"verdict":"timeout","exit_code":-1,"step":"run","stdout":{"kept":1,"seen":2,"sha256":"` + digest + `"},"stderr":{"sha256":"` + digest + `"},
		"artifacts":{"a":{"data":"AAH/","sha256":"` + digest + `"}},"skipped":["x"],"stages":[{"name":"exec","took_ns":5}],"started":"2026-01-02T03:04:05Z"}`))
	fuzzMessage[resultMessage](f)
}
