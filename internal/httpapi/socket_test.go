package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/httpapi"
)

// wire is the reader's end of a socket.
type wire struct {
	t *testing.T
	*websocket.Conn
	cursor string
}

func dial(t *testing.T, s *httptest.Server, path string, headers ...string) wire {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c, res, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http")+path, &websocket.DialOptions{HTTPClient: s.Client(), HTTPHeader: h})
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = c.CloseNow() })
	return wire{t, c, res.Header.Get("Aurea-Cursor")}
}

// hear returns the next message.
func (w wire) hear() map[string]any {
	w.t.Helper()
	kind, raw, err := w.Read(w.t.Context())
	if err != nil || kind != websocket.MessageText {
		w.t.Fatalf("hears %v, %v", kind, err)
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// seq returns the number of the next event.
func (w wire) seq() int64 {
	w.t.Helper()
	m := w.hear()
	if m["event_type"] == nil || m["event_type"] != m["type"] {
		w.t.Fatalf("not an event: %v", m)
	}
	return int64(m["seq"].(float64))
}

func (w wire) say(text string) {
	w.t.Helper()
	if err := w.Write(w.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

// closed demands that the socket ends with a code, and returns the reason.
func (w wire) closed(code websocket.StatusCode) string {
	w.t.Helper()
	for {
		if _, _, err := w.Read(w.t.Context()); err != nil {
			var end websocket.CloseError
			if !errors.As(err, &end) || end.Code != code {
				w.t.Fatalf("ends with %v, want %d", err, code)
			}
			return end.Reason
		}
	}
}

func TestSocketFromNow(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	d.say(happened(1, event.JobCreated))
	w := dial(t, s, "/ws/events")
	if w.cursor != "1" {
		t.Fatalf("begins at %q", w.cursor)
	}
	d.say(happened(2, event.JobStarted))
	m := w.hear()
	for field, want := range map[string]any{
		"type": "job.started", "event_type": "job.started", "entity_type": "job", "entity_id": "2", "job_id": "j2", "seq": 2.0,
	} {
		if m[field] != want {
			t.Errorf("%s is %v, want %v", field, m[field], want)
		}
	}
	if p, _ := m["payload"].(map[string]any); p["n"] != 2.0 || m["ts"] == nil {
		t.Errorf("%v", m)
	}
}

// TestSocketResume is the story of a reader that loses its connection again
// and again: it sees each event once, in order.
func TestSocketResume(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	const all = 700
	written := make(chan struct{})
	go func() {
		defer close(written)
		for n := 1; n <= all; n++ {
			d.say(happened(n, event.JobStream))
		}
	}()
	for last, connections := int64(0), 1; last < all; connections++ {
		w := dial(t, s, "/api/v1/ws/events?after="+strconv.FormatInt(last, 10))
		for range 1 + connections*37 {
			if seq := w.seq(); seq != last+1 {
				t.Fatalf("after %d comes %d", last, seq)
			}
			if last++; last == all {
				break
			}
		}
		_ = w.CloseNow()
	}
	<-written
}

// TestSlowSocket does not read while more happens than any buffer holds.
func TestSlowSocket(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	w := dial(t, s, "/ws/events")
	const all = 3000
	filler := json.RawMessage(`{"x":"` + strings.Repeat("x", 4000) + `"}`)
	for range all {
		d.say(event.Event{Type: event.JobStream, Data: filler})
	}
	for n := range int64(all) {
		if seq := w.seq(); seq != n+1 {
			t.Fatalf("event %d is %d", n+1, seq)
		}
	}
}

func TestSubscribingAnew(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	for n := 1; n <= 6; n++ {
		kind := event.JobStream
		if n%2 == 0 {
			kind = event.JobCompleted
		}
		d.say(happened(n, kind))
	}
	w := dial(t, s, "/ws/events?after=0&event_types=job.completed,job.failed&entity_types=job&entity_ids=2,4,5")
	if a, b := w.seq(), w.seq(); a != 2 || b != 4 {
		t.Fatalf("%d, %d", a, b)
	}
	w.say(`{"type":"subscribe","event_types":["job.stream"],"after":2}`)
	if m := w.hear(); m["status"] != "subscribed" || m["seq"] != 2.0 {
		t.Fatal(m)
	}
	if a, b := w.seq(), w.seq(); a != 3 || b != 5 {
		t.Fatalf("%d, %d", a, b)
	}
	w.say(`{"type":"subscribe","event_types":"job.completed","job_id":"j0"}`) // from here on
	if m := w.hear(); m["status"] != "subscribed" || m["seq"] != 6.0 {
		t.Fatal(m)
	}
	d.say(happened(7, event.JobCompleted))
	d.say(happened(9, event.JobCompleted))
	if m := w.hear(); m["entity_id"] != "9" {
		t.Fatal(m)
	}
}

func TestJobSocket(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	ids := d.submit(2)
	w := dial(t, s, "/ws/job/"+ids[0])
	if m := w.hear(); m["type"] != "job.created" || m["job_id"] != ids[0] {
		t.Fatal(m)
	}
	w.say(`{"type":"subscribe","job_id":"` + ids[1] + `","after":0,"event_types":["job.claimed"]}`) // cannot leave its job
	w.hear()
	for _, id := range []string{ids[1], ids[0]} {
		d.ask("POST", "/jobs/"+id+"/claim", `"w"`).into(200, &struct{}{})
	}
	if m := w.hear(); m["type"] != "job.claimed" || m["job_id"] != ids[0] {
		t.Fatal(m)
	}
	dial(t, s, "/ws/job/0198e1a4-0000-7000-8000-000000000000").closed(4404)
	dial(t, s, "/ws/job/x").closed(4404)
}

func TestSocketsEndWithTheServer(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	w := dial(t, s, "/ws/events")
	ended := make(chan struct{})
	go func() { defer close(ended); d.api.Close() }()
	w.closed(websocket.StatusGoingAway)
	<-ended
	dial(t, s, "/ws/events").closed(websocket.StatusGoingAway)
}

// inMemory serves an API where time is virtual, and dials it.
func inMemory(t *testing.T, f *fake, pong bool) (*websocket.Conn, func()) {
	t.Helper()
	api, err := httpapi.New(httpapi.Config{Manager: f, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: api}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
	c, _, err := websocket.Dial(t.Context(), "ws://localhost/ws/events", &websocket.DialOptions{
		HTTPClient: client, OnPingReceived: func(context.Context, []byte) bool { return pong },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		_ = c.CloseNow()
		api.Close()
		_ = server.Close()
		client.CloseIdleConnections()
		<-served
	}
}

// pipeListener is a network of one host.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, done := inMemory(t, f, true)
		defer done()
		w, began := wire{t, c, ""}, time.Now()
		for i := 1; i <= 3; i++ {
			if m := w.hear(); m["type"] != "ping" || m["seq"] != 0.0 || time.Since(began) != time.Duration(i)*30*time.Second {
				t.Fatalf("after %s: %v", time.Since(began), m)
			}
		}
	})
}

func TestNoPong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, done := inMemory(t, newFake(), false)
		defer done()
		began := time.Now()
		w := wire{t, c, ""}
		if reason := w.closed(4408); !strings.Contains(reason, "cursor") || time.Since(began) != time.Minute {
			t.Fatalf("%q after %s", reason, time.Since(began))
		}
	})
}

// A reader that reads, but shows by no pong that it got as far, is not sent
// more than its buffers hold.
func TestStuckReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, done := inMemory(t, f, false)
		defer done()
		for range 1000 {
			f.say(event.Event{Type: event.JobStream, Data: json.RawMessage(`{"x":"` + strings.Repeat("x", 4000) + `"}`)})
		}
		got := 0
		for {
			_, raw, err := c.Read(t.Context())
			if err != nil {
				var end websocket.CloseError
				if !errors.As(err, &end) || end.Code != 4408 {
					t.Fatal(err)
				}
				break
			}
			got += len(raw)
		}
		if got < 100<<10 || got > 200<<10 {
			t.Fatalf("%d bytes were sent", got)
		}
	})
}

// TestThirdPartyClient follows with a client that knows nothing of ours: the
// websocket-client of Debian.
func TestThirdPartyClient(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), python, "-c", "import websocket").Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3-websocket is missing")
		}
		t.Skip("python3-websocket is missing: scripts/need test")
	}
	d, s := serve(t)
	for n := 1; n <= 250; n++ {
		d.say(happened(n, event.JobStream))
	}
	script := `
import json, sys, websocket
ws = websocket.create_connection(sys.argv[1] + "/api/v1/ws/events?after=0&event_types=job.stream&token=none", timeout=60)
for n in range(1, 251):
    m = json.loads(ws.recv())
    assert m["seq"] == n and m["event_type"] == "job.stream" and m["payload"] == {"n": n}, m
ws.send(json.dumps({"type": "subscribe", "entity_ids": ["7"], "after": 0}))
assert json.loads(ws.recv())["status"] == "subscribed"
assert json.loads(ws.recv())["seq"] == 7
ws.send("{")
assert json.loads(ws.recv())["type"] == "error"
ws.ping("hello")
ws.send('{"type":"ping"}')
assert json.loads(ws.recv()) == {"type": "pong"}
ws.send_binary(b"x")
op, data = ws.recv_data()
assert op == websocket.ABNF.OPCODE_CLOSE and int.from_bytes(data[:2], "big") == 1003, (op, data)
print("fine")
`
	out, err := exec.CommandContext(t.Context(), python, "-c", script, "ws"+strings.TrimPrefix(s.URL, "http")).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "fine" {
		t.Fatalf("%v: %s", err, out)
	}
}

// A cursor below what is kept is refused, in every form, and never passed over.
func TestGap(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	for n := 1; n <= 9; n++ {
		d.say(happened(n, event.JobStream))
	}
	d.mu.Lock()
	d.floor = 5
	d.mu.Unlock()
	for _, accept := range []string{"text/event-stream", "application/json"} {
		if p := d.ask("GET", "/events?after=4", "", "Accept", accept).problem(410); p.Code != "gap" {
			t.Fatal(p)
		}
	}
	w := dial(t, s, "/ws/events?after=4")
	if m := w.hear(); m["code"] != "gap" {
		t.Fatal(m)
	}
	w.closed(4410)
	w = dial(t, s, "/ws/events?after=5")
	if seq := w.seq(); seq != 6 {
		t.Fatal(seq)
	}
	w.say(`{"type":"subscribe","after":2}`)
	w.closed(4410)
}

func TestCollectGarbage(t *testing.T) {
	t.Parallel()
	d := open(t)
	var got httpapi.CollectionBody
	d.ask("POST", "/api/v1/gc", `{"dry_run":true}`).into(200, &got)
	if !got.DryRun || got.Plans != 1 || got.BlobBytes != 3 || d.last != true {
		t.Fatalf("%+v, %v", got, d.last)
	}
	d.ask("POST", "/api/v1/gc", "").into(200, &got)
	if got.DryRun || d.last != false {
		t.Fatalf("%+v, %v", got, d.last)
	}
	d.ask("POST", "/api/v1/gc", `{"dry":true}`).problem(422)
}
