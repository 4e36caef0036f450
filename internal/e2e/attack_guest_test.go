package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
)

// TestHostileCommands runs commands that want to hurt who reads them, who feeds
// them, and who runs beside them.
func TestHostileCommands(t *testing.T) {
	t.Parallel()
	f := newFort(t, false)
	neighbour, x := f.neighbour(), f.sandbox(map[string]any{"memory_limit": "512m"})
	t.Run("bytes for terminals and pages", func(t *testing.T) {
		e := f.begin(x, map[string]any{"shell": `printf '\033]0;x\007\033[2J\000\377<script>alert(1)</script>\r\ndata: x\n\nevent: end\n\n'`})
		want := "\x1b]0;x\a\x1b[2J\x00\xff<script>alert(1)</script>\r\ndata: x\n\nevent: end\n\n"
		a := f.demand(t, "output", []int{200}, http.MethodGet, x.path()+"/execs/"+e.ID+"/output?follow=true", "")
		if string(a.body) != want || a.header.Get("Content-Type") != "application/octet-stream" || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Content-Security-Policy") == "" {
			t.Errorf("%q with %v", a.body, a.header)
		}
		a = f.demand(t, "events", []int{200}, http.MethodGet, x.path()+"/execs/"+e.ID+"/output", "", "Accept", "text/event-stream")
		if n := strings.Count("\n"+string(a.body), "\nevent: end\n"); n != 1 || bytes.Contains(a.body, []byte{0x1b}) {
			t.Errorf("what it prints makes events: %q", a.body)
		}
	})
	t.Run("a flood with ten readers", func(t *testing.T) {
		const each = 20_000_000
		e := f.begin(x, map[string]any{"shell": fmt.Sprintf("yes | head -c %d & yes no | head -c %d >&2; wait", each, each)})
		var readers sync.WaitGroup
		for i := range 10 {
			readers.Go(func() {
				stream := []string{"stdout", "stderr"}[i%2]
				if n, err := f.drain(t.Context(), x.path()+"/execs/"+e.ID+"/output?follow=true&stream="+stream); n != each || err != nil {
					t.Errorf("reader %d of %s has %d bytes, %v", i, stream, n, err)
				}
			})
		}
		f.well(t, neighbour)
		readers.Wait()
		f.bounded(t, "after a flood")
	})
	t.Run("many at once", func(t *testing.T) {
		const count = 200
		var begun atomic.Int64
		f.crowd(count, func(i int) {
			a, err := f.patient(http.MethodPost, x.path()+"/execs", fmt.Appendf(nil, `{"command":["echo","%d"]}`, i))
			switch {
			case err != nil || a.status != http.StatusCreated && a.status != http.StatusTooManyRequests:
				t.Errorf("%d: %s, %v", i, a, err)
			case a.status == http.StatusCreated:
				begun.Add(1)
			}
		})
		f.well(t, neighbour)
		if begun.Load() == 0 {
			t.Error("none was started")
		}
		eventually(t, "all end", func() (bool, string) {
			var open []command
			err := f.get(t.Context(), x.path()+"/execs?state=RUNNING", &open)
			return err == nil && len(open) == 0, fmt.Sprintf("%d run, %v", len(open), err)
		})
	})
	t.Run("input that nobody reads", func(t *testing.T) { f.unread(t, x, neighbour) })
	t.Run("F83 a terminal", func(t *testing.T) { f.terminal(t, x, neighbour) })
	t.Run("the end while all of it goes on", func(t *testing.T) {
		for range 10 {
			f.begin(x, map[string]any{"shell": "yes; yes >&2", "keep_stdin": true})
		}
		f.demand(t, "end", []int{200}, http.MethodDelete, x.path(), "")
		f.demand(t, "an exec afterwards", []int{409, 410}, http.MethodPost, x.path()+"/execs", `{"command":["true"]}`)
		f.well(t, neighbour)
		f.bounded(t, "at the end")
	})
}

// drain reads a stream to its end.
func (f *fort) drain(ctx context.Context, path string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+path, nil)
	if err != nil {
		return 0, err
	}
	res, err := f.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	return io.Copy(io.Discard, res.Body)
}

// crowd does something many times at once, and waits for all.
func (f *fort) crowd(count int, do func(i int)) {
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// unread sends much more to commands that read nothing than anybody should hold.
func (f *fort) unread(t *testing.T, x, neighbour box) {
	e := f.begin(x, map[string]any{"command": []string{"sleep", "1000"}, "keep_stdin": true})
	large := bytes.Repeat([]byte("x"), 8<<20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var feeders sync.WaitGroup
	for range 60 {
		feeders.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.base+x.path()+"/execs/"+e.ID+"/input", bytes.NewReader(large))
			if err != nil {
				t.Error(err)
				return
			}
			if a, err := do(f.http, req, 1<<20); err == nil && a.status < 400 {
				t.Errorf("8 MB were taken by one that reads nothing: %s", a)
			}
		})
	}
	order, err := json.Marshal(map[string]any{"command": []string{"sleep", "1000"}, "stdin": string(large[:4<<20])})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range 12 {
		a, err := f.patient(http.MethodPost, x.path()+"/execs", order)
		switch {
		case err == nil && a.status == http.StatusTooManyRequests && a.problem() == "input_full":
			refused++
		case err != nil || a.status != http.StatusCreated:
			t.Errorf("%d: %.300s, %v", i, a, err)
		}
	}
	if refused < 8 {
		t.Errorf("only %d of 12 orders with 4 MB that nobody reads were refused", refused)
	}
	f.well(t, neighbour)
	f.bounded(t, "with input that nobody reads")
	cancel()
	feeders.Wait()
	var running []command
	if err := f.get(t.Context(), x.path()+"/execs?state=RUNNING", &running); err != nil {
		t.Fatal(err)
	}
	for _, r := range running {
		f.demand(t, "kill", []int{200}, http.MethodPost, x.path()+"/execs/"+r.ID+"/kill", "")
	}
	a := f.demand(t, "room again", []int{201}, http.MethodPost, x.path()+"/execs", string(order))
	f.demand(t, "kill", []int{200}, http.MethodPost, x.path()+"/execs/"+idOf(t, a)+"/kill", "")
}

// terminal floods a terminal with sizes, words that are none, and input.
func (f *fort) terminal(t *testing.T, x, neighbour box) {
	e := f.begin(x, map[string]any{"command": []string{"sleep", "1000"}, "tty": true})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(f.base, "http")+x.path()+"/execs/"+e.ID+"/attach", &websocket.DialOptions{HTTPClient: f.http})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(16 << 20)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() {
		for {
			if _, _, err := conn.Read(ctx); err != nil {
				return
			}
		}
	})
	words := []string{`{"type":"resize","cols":0,"rows":-1}`, `{"type":"resize","cols":99999,"rows":99999}`, `{"type":"signal","signal":999}`, `{"type":"nothing"}`, `[]`, `nonsense`, strings.Repeat("[", 10000)}
	for i := range 1000 {
		word := fmt.Sprintf(`{"type":"resize","cols":%d,"rows":%d}`, 1+i%1000, 1+i%1000)
		if i%10 == 0 {
			word = words[i/10%len(words)]
		}
		if err := conn.Write(ctx, websocket.MessageText, []byte(word)); err != nil {
			t.Fatalf("after %d words: %v", i, err)
		}
	}
	// What it does not take holds up this socket, and nothing else.
	flood, stop := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		for range 200 {
			if err := conn.Write(flood, websocket.MessageBinary, bytes.Repeat([]byte("x\n"), 32<<10)); err != nil {
				return
			}
		}
	})
	f.well(t, neighbour)
	f.bounded(t, "with a terminal that is flooded")
	stop()
	writer.Wait()
	f.demand(t, "kill", []int{200}, http.MethodPost, x.path()+"/execs/"+e.ID+"/kill", "")
}

// rude is a server in a sandbox that does to its visitors what it can.
const rude = `
import os, socket, socketserver
class H(socketserver.BaseRequestHandler):
    def handle(self):
        s = self.request
        try:
            path = s.recv(65536).split(b" ")[1].decode().rsplit("/", 1)[-1]
            if path == "garbage": s.sendall(os.urandom(100000))
            if path == "binary": s.sendall(b"HTTP/1.1 200 OK\r\nX-A: \x00\x01\r\n\r\n")
            if path == "split": s.sendall(b"HTTP/1.1 200 OK\r\nLocation: /a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n")
            if path == "lies": s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx")
            if path == "short": s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
            if path == "switch": s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nx")
            if path == "half":
                s.sendall(b"HTTP/1.1 200 OK\r\n"); s.shutdown(socket.SHUT_WR); s.recv(1)
            while path == "headers": s.sendall(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20000)
            while path == "hints": s.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * 1000)
            if path == "big":
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
                for i in range(1000): s.sendall(b"x" * 1000000)
            if path == "wait":
                s.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"); s.recv(1)
            if path == "fine": s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine")
        except OSError: pass
class S(socketserver.ThreadingTCPServer):
    request_queue_size = 512
    daemon_threads = True
S(("127.0.0.1", 9000), H).serve_forever()
`

// TestHostilePorts visits a server that does all it can to who visits it.
func TestHostilePorts(t *testing.T) {
	t.Parallel()
	f := newFort(t, false)
	neighbour, x := f.neighbour(), f.sandbox(map[string]any{"memory_limit": "512m"})
	f.begin(x, map[string]any{"command": []string{"python3", "-c", rude}})
	port := x.path() + "/ports/9000/"
	fine := func() (bool, string) {
		a, err := f.patient(http.MethodGet, port+"fine", nil)
		return err == nil && a.status == http.StatusOK && string(a.body) == "fine", fmt.Sprintf("%.200s, %v", a, err)
	}
	eventually(t, "it answers", fine)
	for _, path := range []string{"garbage", "lies", "half", "headers", "hints", "switch", "binary"} {
		a := f.demand(t, path, []int{502, 503}, http.MethodGet, port+path, "")
		if a.problem() == "" {
			t.Errorf("%s: %.200s", path, a)
		}
	}
	if a, err := f.patient(http.MethodGet, port+"split", nil); err == nil && strings.Contains(strings.Join(a.header.Values("Set-Cookie"), ""), "b") {
		t.Errorf("a header was split: %v", a.header)
	}
	if a, err := f.patient(http.MethodGet, port+"short", nil); err == nil {
		t.Errorf("an answer that was cut short looks whole: %.200s", a)
	}
	f.well(t, neighbour)
	t.Run("a gigabyte", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+port+"big", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if n, err := io.CopyN(io.Discard, res.Body, 100<<20); err != nil {
			t.Errorf("after %d bytes: %v", n, err)
		}
		f.well(t, neighbour) // while nobody reads the rest
		f.bounded(t, "with a gigabyte that nobody reads")
	})
	t.Run("300 at once", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var begun, visitors sync.WaitGroup
		for i := range 300 {
			begun.Add(1)
			visitors.Go(func() {
				if err := f.visit(ctx, port+"wait", begun.Done); err != nil && ctx.Err() == nil {
					t.Errorf("visitor %d: %v", i, err)
				}
			})
		}
		begun.Wait()
		f.well(t, neighbour)
		f.bounded(t, "with 300 visitors")
		cancel()
		visitors.Wait()
		eventually(t, "it answers again", fine)
	})
}

// visit opens a stream and holds it until ctx ends. begun is called when it was
// answered.
func (f *fort) visit(ctx context.Context, path string, begun func()) error {
	said := sync.OnceFunc(begun)
	defer said()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+path, nil)
	if err != nil {
		return err
	}
	res, err := f.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable: // there is a bound
	default:
		return fmt.Errorf("%s", res.Status)
	}
	said()
	if _, err = io.Copy(io.Discard, res.Body); errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
