package httpapi_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/policy"
)

// What is wrong with a message is said, and the socket goes on.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	w := dial(t, s, "/ws/events")
	for text, code := range map[string]string{
		`{`: "malformed_json", `nonsense`: "malformed_json", `[]`: "invalid", `{}`: "MISSING_FIELDS", `{"type":1}`: "invalid", `{"type":"dance"}`: "unknown_message",
		`{"type":"subscribe","type":"ping"}`: "duplicate_key", `{"type":"subscribe","event_type":["x"]}`: "invalid", `{"type":"subscribe","after":-1}`: "invalid",
		`{"type":"subscribe","event_types":{"a":1}}`: "invalid", `{"type":"subscribe","event_types":[1]}`: "invalid", `{"type":"subscribe","event_types":","}`: "invalid",
		`{"type":"subscribe","entity_ids":["\u0007"]}`: "invalid", `{"type":"subscribe","after":1e3}`: "invalid", `{"type":"subscribe","project_id":-1}`: "invalid",
		`{"type":"subscribe","entity_ids":["` + strings.Repeat(`a","`, 60) + `b"]}`: "invalid", strings.Repeat("[", 5000): "malformed_json",
	} {
		w.say(text)
		if m := w.hear(); m["type"] != "error" || m["code"] != code || m["error"] == "" {
			t.Errorf("%.60s: %v", text, m)
		}
	}
	w.say(`{"type":"ping"}`)
	if m := w.hear(); m["type"] != "pong" {
		t.Fatal(m)
	}
	w.say(`{"type":"pong"}`)
	d.say(happened(1, event.JobCreated))
	if seq := w.seq(); seq != 1 {
		t.Fatal(seq)
	}
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	_, s := serve(t)
	for _, query := range []string{"after=-1", "after=x", "nonsense=1", "event_types=,", "project_id=x", "job_id=%07", "after=1&after=2"} {
		w := dial(t, s, "/ws/events?"+query)
		if m := w.hear(); m["type"] != "error" || m["code"] != "invalid" {
			t.Errorf("%s: %v", query, m)
		}
		w.closed(4422)
	}
}

func TestHostileFrames(t *testing.T) {
	t.Parallel()
	_, s := serve(t)
	ctx := t.Context()
	w := dial(t, s, "/ws/events")
	w.say(strings.Repeat(" ", 65<<10))
	w.closed(websocket.StatusMessageTooBig)

	w = dial(t, s, "/ws/events") // one message in a thousand fragments is one message
	part, err := w.Writer(ctx, websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []byte(strings.Repeat(" ", 1000) + `{"type":"ping"}`) {
		if _, err := part.Write([]byte{c}); err != nil {
			t.Fatal(err)
		}
	}
	if err := part.Close(); err != nil {
		t.Fatal(err)
	}
	if m := w.hear(); m["type"] != "pong" {
		t.Fatal(m)
	}

	w.say("\xff\xfe")
	w.closed(websocket.StatusInvalidFramePayloadData)

	w = dial(t, s, "/ws/events")
	if err := w.Write(ctx, websocket.MessageBinary, []byte(`{"type":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	w.closed(websocket.StatusUnsupportedData)

	for name, frame := range map[string]string{
		"not masked":          "\x81\x02{}",
		"reserved bit":        "\xf1\x80\x00\x00\x00\x00",
		"unknown kind":        "\x83\x80\x00\x00\x00\x00",
		"endless control":     "\x89\xfe\xff\xff\x00\x00\x00\x00",
		"continues nothing":   "\x80\x80\x00\x00\x00\x00",
		"2^63 bytes":          "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
		"close with one byte": "\x88\x81\x00\x00\x00\x00x",
	} {
		c := rawSocket(t, s, "/ws/events")
		if _, err := c.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		for err == nil { // until the server closes it
			_, err = c.Read(make([]byte, 1024))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays open", name)
		}
		err = nil
	}
}

// rawSocket opens a socket and returns its connection.
func rawSocket(t *testing.T, s *httptest.Server, path string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, err = c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 0, 1024)
	for !strings.HasSuffix(string(head), "\r\n\r\n") {
		one := make([]byte, 1)
		if _, err := c.Read(one); err != nil {
			t.Fatalf("%v after %q", err, head)
		}
		head = append(head, one...)
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 101 ") {
		t.Fatalf("%s", head)
	}
	return c
}

func TestSocketOrigin(t *testing.T) {
	t.Parallel()
	api, err := httpapi.New(httpapi.Config{Manager: newFake(), Loopback: true, Origins: []string{"https://ui.example"}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api)
	t.Cleanup(func() { api.EndStreams(); s.Close(); api.Close() })
	for origin, want := range map[string]int{
		s.URL: 101, "https://ui.example": 101, "": 101,
		"http://evil.example": 403, "null": 403, "http://localhost:1": 403, "http://ui.example": 403, "https://ui.example.evil.example": 403, "nonsense": 403,
	} {
		h := http.Header{}
		if origin != "" {
			h.Set("Origin", origin)
		}
		c, res, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http")+"/ws/events", &websocket.DialOptions{HTTPClient: s.Client(), HTTPHeader: h})
		if res == nil || res.StatusCode != want {
			t.Errorf("%s: %v, %v, want %d", origin, res, err, want)
		}
		if err == nil {
			_ = c.CloseNow()
		}
	}
}

func TestSocketKeys(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.keys["good"] = policy.Caller{Kind: policy.Viewer, ID: "v"}
	f.keys["worker"] = policy.Caller{Kind: policy.Kind("nobody"), ID: "n"}
	api, err := httpapi.New(httpapi.Config{Manager: f, Keys: true})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api)
	t.Cleanup(func() { api.EndStreams(); s.Close(); api.Close() })
	for _, w := range []wire{dial(t, s, "/ws/events?token=good"), dial(t, s, "/ws/events", "Authorization", "Bearer good"), dial(t, s, "/ws/events", "X-API-Key", "good")} {
		w.say(`{"type":"ping"}`)
		w.hear()
	}
	for _, path := range []string{"/ws/events", "/api/v1/ws/events?token=bad", "/ws/job/0198e1a4-0000-7000-8000-000000000000"} {
		w := dial(t, s, path)
		if m := w.hear(); m["type"] != "error" {
			t.Fatal(m)
		}
		w.closed(4401)
	}
	dial(t, s, "/ws/events?token=worker").closed(4403)
	f.mu.Lock()
	f.down = fault.New(fault.Unavailable, "not ready")
	f.mu.Unlock()
	dial(t, s, "/ws/events?token=good").closed(websocket.StatusTryAgainLater)
	f.mu.Lock()
	f.down = errDisk
	f.mu.Unlock()
	w := dial(t, s, "/ws/events?token=good")
	if m := w.hear(); strings.Contains(m["error"].(string), "fire") {
		t.Fatal(m)
	}
	w.closed(websocket.StatusInternalError)
}

func TestPlainRequestForASocket(t *testing.T) {
	t.Parallel()
	if p := open(t).ask("GET", "/ws/events", "").problem(426); p.Code != "websocket_only" {
		t.Fatal(p)
	}
}
