package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	ws "github.com/coder/websocket"
)

// echo is an exec that prints what it is fed, and a server that hangs up after
// so many messages in each direction.
type echo struct {
	t     *testing.T
	mu    sync.Mutex
	more  *sync.Cond
	text  []byte
	over  bool
	cuts  int // that are left
	after int // messages
	sizes []string
}

func newEcho(t *testing.T, cuts, after int) *echo {
	e := &echo{t: t, cuts: cuts, after: after}
	e.more = sync.NewCond(&e.mu)
	return e
}

func (e *echo) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/attach"):
		e.attach(w, r)
	case strings.HasSuffix(r.URL.Path, "/output"):
		e.events(w, r)
	default:
		answer(w, 200, map[string]any{"id": "e1", "state": "ENDED", "exit_code": 0})
	}
}

// spend counts a message down and reports whether the connection is to be cut.
func (e *echo) spend(left *int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if *left--; *left > 0 || e.cuts <= 0 {
		return false
	}
	e.cuts--
	return true
}

func offset(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	return n
}

func (e *echo) attach(w http.ResponseWriter, r *http.Request) {
	conn, err := ws.Accept(w, r, nil)
	if err != nil {
		e.t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	var printer sync.WaitGroup
	printer.Go(func() { e.print(ctx, conn, offset(r, "stdout_offset")) })
	stop := context.AfterFunc(ctx, func() { e.mu.Lock(); defer e.mu.Unlock(); e.more.Broadcast() })
	defer func() { cancel(); _ = conn.CloseNow(); printer.Wait(); stop() }()
	at, left := offset(r, "stdin_offset"), e.after
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		e.mu.Lock()
		switch {
		case kind == ws.MessageBinary && at > int64(len(e.text)):
			e.t.Errorf("input at %d where %d were taken", at, len(e.text))
		case kind == ws.MessageBinary:
			if end := at + int64(len(data)); end > int64(len(e.text)) {
				e.text = append(e.text, data[int64(len(e.text))-at:]...)
			}
			at += int64(len(data))
		case bytes.Contains(data, []byte("resize")):
			e.sizes = append(e.sizes, string(data))
		case bytes.Contains(data, []byte("close_stdin")):
			e.over = true
		}
		e.more.Broadcast()
		e.mu.Unlock()
		if e.spend(&left) { // taken, and not told
			return
		}
		if kind == ws.MessageBinary || bytes.Contains(data, []byte("close_stdin")) {
			_ = conn.Write(ctx, ws.MessageText, fmt.Appendf(nil, `{"type":"input","offset":%d}`, at))
		}
	}
}

// print sends the text from an offset on, beginning a little before it.
func (e *echo) print(ctx context.Context, conn *ws.Conn, at int64) {
	at = max(0, at-3)
	for left := e.after; ; {
		piece, over := e.wait(ctx, at, 10_000)
		if ctx.Err() != nil {
			return
		}
		if over {
			_ = conn.Write(ctx, ws.MessageText, []byte(`{"type":"end"}`))
			_ = conn.Close(ws.StatusNormalClosure, "ended")
			return
		}
		message := binary.BigEndian.AppendUint64([]byte{1}, uint64(at)) //nolint:gosec // small
		at += int64(len(piece))
		if conn.Write(ctx, ws.MessageBinary, append(message, piece...)) != nil {
			return
		}
		if e.spend(&left) {
			_ = conn.CloseNow()
			return
		}
	}
}

// wait returns text behind an offset; over says that there is none to come.
func (e *echo) wait(ctx context.Context, at int64, most int) (piece []byte, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for int64(len(e.text)) <= at && !e.over && ctx.Err() == nil {
		e.more.Wait()
	}
	piece = e.text[min(at, int64(len(e.text))):]
	return append([]byte(nil), piece[:min(len(piece), most)]...), len(piece) == 0
}

// events sends the text as server-sent events.
func (e *echo) events(w http.ResponseWriter, r *http.Request) {
	at := max(0, offset(r, "offset")-3)
	for left := e.after; ; {
		piece, over := e.wait(r.Context(), at, 10_000)
		if over {
			_, _ = fmt.Fprint(w, "event: end\ndata: {}\n\n")
			return
		}
		data, _ := json.Marshal(map[string]any{"offset": at, "data": piece, "encoding": "base64"})
		at += int64(len(piece))
		_, _ = fmt.Fprintf(w, "id: %d-0\nevent: stdout\ndata: %s\n\n", at, data)
		_ = http.NewResponseController(w).Flush()
		if e.spend(&left) {
			return
		}
	}
}

func noise(n int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, n)
	_, _ = random.Read(data)
	return data
}

// TestAttachCarriesEveryByteOnce is cut off ten times while a megabyte goes in
// and comes back.
func TestAttachCarriesEveryByteOnce(t *testing.T) {
	t.Parallel()
	e := newEcho(t, 10, 7)
	c := serve(t, e.serve)
	var out bytes.Buffer
	var mu sync.Mutex
	lost, stood := 0, 0
	a := c.Attach(t.Context(), "b1", "e1", AttachOptions{Stdout: &out, Connection: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if stood++; err != nil {
			lost, stood = lost+1, stood-1
		}
	}})
	a.Resize(80, 24)
	text := noise(1 << 20)
	if n, err := a.Write(text); n != len(text) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	a.CloseInput()
	got, err := a.Wait()
	if err != nil || !got.Ended() {
		t.Fatalf("%+v, %v", got, err)
	}
	if !bytes.Equal(out.Bytes(), text) || !bytes.Equal(e.text, text) {
		t.Errorf("%d bytes came back of the %d that it was fed", out.Len(), len(e.text))
	}
	if lost == 0 || stood != lost+1 {
		t.Errorf("%d connections stood and %d were lost", stood, lost)
	}
	if len(e.sizes) == 0 || len(e.sizes) > stood || e.sizes[0] != `{"type":"resize","cols":80,"rows":24}` {
		t.Errorf("the sizes are %q in %d connections", e.sizes, stood)
	}
	if _, err := a.Write([]byte("x")); err == nil {
		t.Error("it takes input after its end")
	}
}

// TestFollowingAnExecWritesEveryByteOnce is cut off ten times.
func TestFollowingAnExecWritesEveryByteOnce(t *testing.T) {
	t.Parallel()
	e := newEcho(t, 10, 3)
	e.text, e.over = noise(1<<20), true
	c := serve(t, e.serve)
	var out bytes.Buffer
	got, err := c.FollowExec(t.Context(), "b1", "e1", Offsets{}, &out, nil)
	if err != nil || !got.Ended() || !bytes.Equal(out.Bytes(), e.text) {
		t.Errorf("%+v, %v: %d bytes of %d", got, err, out.Len(), len(e.text))
	}
	if e.cuts != 0 {
		t.Errorf("%d cuts are left", e.cuts)
	}
}

// TestAGapInTheOutputIsAnError: it is never passed over.
func TestAGapInTheOutputIsAnError(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "event: stdout\ndata: {\"offset\":5,\"data\":\"x\"}\n\n")
	})
	var out bytes.Buffer
	if _, err := c.FollowExec(t.Context(), "b1", "e1", Offsets{Stdout: 4}, &out, &out); err == nil || !strings.Contains(err.Error(), "missing") || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestAttachEndsWhereComingBackDoesNotHelp tells the problem by the close code.
func TestAttachEndsWhereComingBackDoesNotHelp(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close(4404, "not_found")
	})
	_, err := c.Attach(t.Context(), "b1", "e1", AttachOptions{}).Wait()
	var p *Problem
	if !errors.As(err, &p) || p.Status != http.StatusNotFound || p.Code != "not_found" {
		t.Errorf("%v", err)
	}
	plain := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, 1) })
	if _, err := plain.Attach(t.Context(), "b1", "e1", AttachOptions{}).Wait(); !errors.Is(err, errNoSocket) {
		t.Errorf("%v", err)
	}
}

// TestInputThatIsRefusedEndsNothingElse: output goes on.
func TestInputThatIsRefusedEndsNothingElse(t *testing.T) {
	t.Parallel()
	said := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/attach") {
			answer(w, 200, map[string]any{"id": "e1", "state": "ENDED"})
			return
		}
		conn, err := ws.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		ctx := context.WithoutCancel(r.Context())
		_, _, _ = conn.Read(ctx)
		_ = conn.Write(ctx, ws.MessageText, []byte(`{"type":"error","of":"input","status":409,"code":"input_closed","error":"It is closed."}`))
		<-said
		_ = conn.Write(ctx, ws.MessageBinary, append(make([]byte, 0, 16), "\x02\x00\x00\x00\x00\x00\x00\x00\x00still"...))
		_ = conn.Write(ctx, ws.MessageText, []byte(`{"type":"end"}`))
	})
	var out bytes.Buffer
	a := c.Attach(t.Context(), "b1", "e1", AttachOptions{Stderr: &out})
	var err error
	for err == nil {
		_, err = a.Write(make([]byte, maxWaiting))
	}
	var p *Problem
	if !errors.As(err, &p) || p.Code != "input_closed" {
		t.Errorf("%v", err)
	}
	close(said)
	if got, err := a.Wait(); err != nil || !got.Ended() || out.String() != "still" {
		t.Errorf("%+v, %v, %q", got, err, out.String())
	}
}

// TestInputThatCannotGoOnIsAnError: a worker that was killed while it wrote does
// not know how much arrived. The exec waits for the rest, and we do not.
func TestInputThatCannotGoOnIsAnError(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		ctx := context.WithoutCancel(r.Context())
		_, _, _ = conn.Read(ctx)
		_ = conn.Write(ctx, ws.MessageText, []byte(`{"type":"error","of":"input","status":409,"code":"input_unknown","error":"How much arrived is not known."}`))
		for err == nil {
			_, _, err = conn.Read(ctx) // until the client hangs up
		}
	})
	a := c.Attach(t.Context(), "b1", "e1", AttachOptions{})
	_, _ = a.Write([]byte("a part"))
	_, err := a.Wait()
	var in *InputError
	var p *Problem
	if !errors.As(err, &in) || in.Exec != "e1" || !errors.As(err, &p) || p.Code != "input_unknown" {
		t.Errorf("%v", err)
	}
	if _, err := a.Write([]byte("the rest")); err == nil {
		t.Error("it takes input that goes nowhere")
	}
}

// TestAnAttachmentEndsWithItsContext also where nobody answers.
func TestAnAttachmentEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		cancel(enough)
		_, _, _ = conn.Read(context.WithoutCancel(r.Context()))
		_ = conn.CloseNow()
	})
	if _, err := c.Attach(ctx, "b1", "e1", AttachOptions{}).Wait(); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

// FuzzWebSocket reads what no server of ours would send.
func FuzzWebSocket(f *testing.F) {
	f.Add([]byte("\x82\x03abc"))
	f.Add([]byte("\x02\x01a\x80\x01b"))
	f.Add([]byte("\x88\x02\x03\xe8"))
	f.Add([]byte("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		conn := newWebsocket(rwc{bytes.NewReader(in)})
		for {
			kind, data, err := conn.read()
			if err != nil {
				return
			}
			if kind != textMessage && kind != binaryMessage || len(data) > len(in) {
				t.Fatalf("%d, %d bytes", kind, len(data))
			}
		}
	})
}

type rwc struct{ *bytes.Reader }

func (rwc) Write(p []byte) (int, error) { return len(p), nil }
func (rwc) Close() error                { return nil }
