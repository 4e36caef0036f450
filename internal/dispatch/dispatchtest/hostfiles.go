package dispatchtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func fileByFile(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	if _, err := host.Files("b1").Stat(t.Context(), "/x"); fault.CodeOf(err) != dispatch.CodeNoSandbox {
		t.Errorf("no sandbox: %v", err)
	}
	openBox(t, host)
	files, ctx := host.Files("b1"), t.Context()
	for _, size := range []int{0, 1, dispatch.MaxChunk + 1, 3<<20 + 5} {
		data := bytes.Repeat([]byte("\x00ab\xffcdef"), size/8+1)[:size]
		info, err := files.WriteFile(ctx, "/workspace/ä", 0o640, iotest.HalfReader(bytes.NewReader(data)))
		if err != nil || info.Size != int64(size) || info.Mode != 0o640 || info.Path != "/workspace/ä" {
			t.Fatalf("%d bytes: %+v, %v", size, info, err)
		}
		var got bytes.Buffer
		if info, err = files.ReadFile(ctx, "/workspace/ä", 0, -1, &got); err != nil || !bytes.Equal(got.Bytes(), data) || info.Size != int64(size) {
			t.Errorf("%d bytes came back as %d: %+v, %v", size, got.Len(), info, err)
		}
	}
	var got bytes.Buffer
	if _, err := files.ReadFile(ctx, "/workspace/ä", 1, 2, &got); err != nil || got.String() != "ab" {
		t.Errorf("a range: %q, %v", got.String(), err)
	}
	for what, err := range map[string]error{
		"mkdir":  files.Mkdir(ctx, "/workspace/d", 0o700),
		"copy":   files.Copy(ctx, "/workspace/ä", "/workspace/d/c"),
		"remove": files.Remove(ctx, "/workspace/d", true),
		"move":   files.Move(ctx, "/workspace/ä", "/workspace/b"),
	} {
		if err != nil && what != "copy" && what != "remove" { // maps have no order
			t.Errorf("%s: %v", what, err)
		}
	}
	found, more, err := files.List(ctx, "/workspace", 1, 1)
	if err != nil || len(found) != 1 || found[0].Type == "" {
		t.Errorf("listed %+v, %v, %v", found, more, err)
	}
	if _, err := files.Stat(ctx, "/workspace/ä"); !fault.Is(err, fault.NotFound) {
		t.Errorf("what was moved: %v", err)
	}
	if err := files.Copy(ctx, "/workspace/b", "/workspace/b"); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != sandbox.CodeExists {
		t.Errorf("a path that is taken: %v", err)
	}
	for what, err := range map[string]error{
		"path": files.Remove(ctx, "x", false),
		"to":   files.Move(ctx, "/x", "y\x00"),
		"mode": files.Mkdir(ctx, "/x", 0o4755),
	} {
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != what {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func fileBreaks(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	why := errors.New("the client hung up")
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)), iotest.ErrReader(why))
	if _, err := host.Files("b1").WriteFile(t.Context(), "/x", 0, broken); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if _, err := host.Files("b1").Stat(t.Context(), "/x"); !fault.Is(err, fault.NotFound) {
		t.Errorf("half a file was written: %v", err)
	}
}

func fileWatched(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	ctx, cancel := context.WithCancelCause(t.Context())
	w, err := host.Files("b1").Watch(ctx, "/workspace", true)
	if err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("the call is over, the watch is not"))
	for range 3 {
		if _, err := host.Files("b1").WriteFile(t.Context(), "/workspace/a", 0, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		if c, err := w.Next(t.Context()); err != nil || c.Kind != sandbox.ChangeModified || c.Path != "/workspace/a" {
			t.Errorf("told %+v, %v", c, err)
		}
	}
	short, stop := context.WithCancelCause(t.Context())
	stop(errors.New("no patience"))
	if _, err := w.Next(short); err == nil {
		t.Error("a change that did not happen")
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the close: %v", err)
	}
	if _, err := host.Files("b2").Watch(t.Context(), "/x", false); fault.CodeOf(err) != dispatch.CodeNoSandbox {
		t.Errorf("no sandbox: %v", err)
	}
}

func watchEnds(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	w, err := host.Files("b1").Watch(t.Context(), "/workspace", true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // the test is over
	if err := host.EndSandbox(t.Context(), live.Closing{ID: "b1", Outcome: sandbox.OutcomeDone}); err != nil {
		t.Error(err)
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

// listening is a sandbox in which serve answers connections.
func listening(t *testing.T, h HostHarness, serve func(net.Conn)) dispatch.Host {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	host := h.New(t, &Boxes{Dial: func(ctx context.Context, _ uint16) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}})
	openBox(t, host)
	return host
}

func dialBox(t *testing.T, host dispatch.Host) net.Conn {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	c, err := host.DialSandbox(ctx, "b1", 80)
	if err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("the call is over, the connection is not"))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func echo(c net.Conn) {
	defer c.Close() //nolint:errcheck // the other end sees it
	_, _ = io.Copy(c, c)
}

func portReached(t *testing.T, h HostHarness) {
	c := dialBox(t, listening(t, h, echo))
	data := bytes.Repeat([]byte("0123456789abcdef"), 200<<10)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		wrote <- err
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("it came back otherwise: %v", err)
	}
	if err := soon(t, "the write", wrote); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(got); err == nil {
		t.Error("it was read after its close")
	}
	if _, err := c.Write(got); err == nil {
		t.Error("it was written to after its close")
	}
}

func portHalfClosed(t *testing.T, h HostHarness) {
	host := listening(t, h, func(c net.Conn) {
		defer c.Close() //nolint:errcheck // the other end sees it
		all, _ := io.ReadAll(c)
		_, _ = c.Write(append([]byte("got "), all...))
	})
	c := dialBox(t, host)
	if _, err := c.Write([]byte("a question")); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(c); err != nil || string(all) != "got a question" {
		t.Errorf("%q, %v", all, err)
	}
	// And the other way round.
	host = listening(t, h, func(c net.Conn) {
		defer c.Close() //nolint:errcheck // the other end sees it
		_, _ = c.Write([]byte("hello"))
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	c = dialBox(t, host)
	if all, err := io.ReadAll(c); err != nil || string(all) != "hello" {
		t.Errorf("%q, %v", all, err)
	}
	if _, err := c.Write([]byte("still here")); err != nil {
		t.Errorf("it cannot be written to: %v", err)
	}
}

// Connections that nobody reads, at either end, stand still by themselves.
func slowPorts(t *testing.T, h HostHarness) {
	const slow = 30
	release := make(chan struct{})
	host := listening(t, h, func(c net.Conn) {
		defer c.Close() //nolint:errcheck // the other end sees it
		var first [1]byte
		if _, err := io.ReadFull(c, first[:]); err != nil {
			return
		}
		if first[0] == 'e' {
			echo(c)
			return
		}
		go func() { _, _ = io.Copy(c, endless{}) }()
		<-release
	})
	t.Cleanup(func() { close(release) })
	for range slow {
		c := dialBox(t, host)
		go func() { _, _ = io.Copy(c, endless{}) }() // until it is closed
	}
	if err := host.PauseSandbox(t.Context(), "b1"); err != nil {
		t.Error(err)
	}
	c := dialBox(t, host)
	if _, err := c.Write([]byte("e hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != " hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func portDeadlines(t *testing.T, h HostHarness) {
	c := dialBox(t, listening(t, h, echo))
	if err := c.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Errorf("after the deadline was taken away: %v", err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(got)
		read <- err
	}()
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := soon(t, "the end of the read", read); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func portClosed(t *testing.T, h HostHarness) {
	host := h.New(t, &Boxes{})
	openBox(t, host)
	if _, err := host.DialSandbox(t.Context(), "b1", 80); !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != sandbox.CodePortClosed {
		t.Errorf("got %v", err)
	}
	if _, err := host.DialSandbox(t.Context(), "b2", 80); fault.CodeOf(err) != dispatch.CodeNoSandbox {
		t.Errorf("got %v", err)
	}
	if _, err := host.DialSandbox(t.Context(), "b1", 0); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
}
