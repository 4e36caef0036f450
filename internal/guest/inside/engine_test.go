package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func hello(_ io.Reader, stdout, stderr io.Writer) int {
	fmt.Fprint(stdout, "out")
	fmt.Fprint(stderr, "err")
	return 7
}

func TestCommand(t *testing.T) {
	t.Parallel()
	c := play(t, &actors{programs: map[string]program{"hello": hello}}).connect()
	p := start(t, c, "a", "hello")
	stdout, stderr := collect(t, p, sandbox.Offsets{})
	if string(stdout) != "out" || string(stderr) != "err" {
		t.Errorf("%q %q", stdout, stderr)
	}
	wantExit(t, p, 7)
	wantExit(t, p, 7)
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	wantExit(t, start(t, c, "b", "missing"), 127)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := play(t, &actors{programs: map[string]program{"hello": hello}}).connect()
	p := start(t, c, "a", "hello")
	collect(t, p, sandbox.Offsets{})
	ctx := t.Context()
	_, err := c.Exec(ctx, guest.Command{ID: "a", Args: []string{"hello"}})
	wantKind(t, "a taken id", err, fault.Conflict)
	_, err = c.Exec(ctx, guest.Command{ID: "b"})
	wantKind(t, "an empty command", err, fault.Invalid)
	_, err = c.Exec(ctx, guest.Command{ID: "b", Args: []string{strings.Repeat("x", 2<<20)}})
	wantKind(t, "a huge command", err, fault.Invalid)
	_, err = c.Attach(ctx, "b", sandbox.Offsets{})
	wantKind(t, "an unknown id", err, fault.NotFound)
	_, err = c.Attach(ctx, "a", sandbox.Offsets{Stdout: 99})
	wantKind(t, "an offset that is not there yet", err, fault.Invalid)
	wantKind(t, "a resize without a terminal", p.Resize(ctx, 1, 1), fault.Conflict)
	wantKind(t, "a signal that is none", p.Signal(ctx, 65, false), fault.Invalid)
	wantKind(t, "input behind the end", p.Write(ctx, []byte("x")), fault.Conflict)
}

// A long command line travels in many frames.
func TestLongArguments(t *testing.T) {
	t.Parallel()
	c := play(t, &actors{programs: map[string]program{"hello": hello}}).connect()
	p := start(t, c, "a", "hello", strings.Repeat("x", 100<<10), strings.Repeat("y", 100<<10))
	wantExit(t, p, 7)
}

// A program whose output nobody takes is held up, and loses nothing.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	const total = 8 << 20
	var written atomic.Int64
	flood := func(_ io.Reader, stdout, _ io.Writer) int {
		block := bytes.Repeat([]byte("0123456789abcdef"), 1024)
		for written.Load() < total {
			n, err := stdout.Write(block)
			written.Add(int64(n))
			if err != nil {
				return 1
			}
		}
		return 0
	}
	c := play(t, &actors{programs: map[string]program{"flood": flood}}).connect()
	p := start(t, c, "a", "flood")
	if _, err := p.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The guest still answers while the command is held up.
	for range 50 {
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := written.Load(); n > 2<<20 {
		t.Errorf("%d bytes were written that nobody has room for", n)
	}
	again, err := c.Attach(t.Context(), "a", sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	stdout, _ := collect(t, again, sandbox.Offsets{})
	if int64(len(stdout)) != written.Load() {
		t.Errorf("%d bytes of %d", len(stdout), written.Load())
	}
	wantExit(t, again, 0)
	_, err = c.Attach(t.Context(), "a", sandbox.Offsets{})
	wantKind(t, "output that is gone", err, fault.Conflict)
}

// A worker dies in the middle of everything; the next one misses nothing.
func TestAdoption(t *testing.T) {
	t.Parallel()
	const lines = 20000
	count := func(_ io.Reader, stdout, _ io.Writer) int {
		for i := range lines {
			fmt.Fprintf(stdout, "line %d\n", i)
		}
		return 3
	}
	s := play(t, &actors{programs: map[string]program{"count": count}})
	first := s.connect()
	p := start(t, first, "a", "count")
	var got []byte
	var from sandbox.Offsets
	for from.Stdout < 20000 {
		f, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.Data...)
		from.Stdout += int64(len(f.Data))
	}
	first.Close()
	if _, err := p.Wait(t.Context()); err == nil {
		t.Error("a closed connection knows an end")
	}
	// It had also read half a frame.
	raw, err := os.OpenFile(s.out, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	raw.Close()

	second := s.connect()
	p, err = second.Attach(t.Context(), "a", from)
	if err != nil {
		t.Fatal(err)
	}
	rest, _ := collect(t, p, from)
	got = append(got, rest...)
	if n := bytes.Count(got, []byte("\n")); n != lines || !bytes.HasSuffix(got, []byte(fmt.Sprintf("line %d\n", lines-1))) {
		t.Errorf("%d lines", n)
	}
	wantExit(t, p, 3)
}

// A worker of another release hears which version this is, and does no harm.
func TestWorkerOfAnotherVersion(t *testing.T) {
	t.Parallel()
	wait := func(stdin io.Reader, _, _ io.Writer) int {
		// All of it: a writer of more than is read hears that the input closed.
		_, _ = io.ReadFull(stdin, make([]byte, len("on\n")))
		return 4
	}
	s := play(t, &actors{programs: map[string]program{"wait": wait}})
	first := s.connect()
	start(t, first, "lives", "wait")
	first.Close()

	other := func(frame []byte) []byte {
		frame[0] = wire.Version + 7
		frame[3] = 1 // which means nothing here
		return frame
	}
	in, err := os.OpenFile(s.in, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(s.out, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	nonce := bytes.Repeat([]byte{3}, 16)
	for _, frame := range [][]byte{
		wire.AppendFrame(nil, wire.TypeHello, 0, 0, []byte("short")),
		wire.AppendFrame(nil, wire.TypeOpen, 0, 1, []byte("something else")),
		wire.AppendFrame(nil, wire.TypeHello, 0, 0, nonce),
	} {
		if _, err := in.Write(other(frame)); err != nil {
			t.Fatal(err)
		}
	}
	r := wire.NewReader(out, wire.MaxPayload)
	for {
		h, payload, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Type == wire.TypeWelcome && bytes.Equal(payload, nonce) {
			break
		}
	}
	p, err := s.connect().Attach(t.Context(), "lives", sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), []byte("on\n")); err != nil {
		t.Fatal(err)
	}
	wantExit(t, p, 4)
}

// The end of a command is kept until somebody has heard of it, and for a while
// longer.
func TestEndsAreKept(t *testing.T) {
	t.Parallel()
	s := play(t, &actors{programs: map[string]program{"hello": hello}})
	first := s.connect()
	unheard := start(t, first, "unheard", "hello")
	wantExit(t, unheard, 7)
	first.Close()
	c := s.connect()
	for i := range maxEnded + 10 {
		p := start(t, c, fmt.Sprintf("x%d", i), "hello")
		wantExit(t, p, 7)
		collect(t, p, sandbox.Offsets{})
	}
	p, err := c.Attach(t.Context(), "unheard", sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, p, 7)
	_, err = c.Attach(t.Context(), "x0", sandbox.Offsets{})
	wantKind(t, "an old end", err, fault.NotFound)
	p, err = c.Attach(t.Context(), fmt.Sprintf("x%d", maxEnded+8), sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	stdout, _ := collect(t, p, sandbox.Offsets{})
	if string(stdout) != "out" {
		t.Errorf("%q", stdout)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	cat := func(stdin io.Reader, stdout, _ io.Writer) int {
		_, err := io.Copy(stdout, stdin)
		if err != nil {
			return 1
		}
		return 0
	}
	c := play(t, &actors{programs: map[string]program{"cat": cat}}).connect()
	p := start(t, c, "a", "cat")
	want := bytes.Repeat([]byte("some input\n"), 200_000)
	failed := make(chan error, 1)
	go func() {
		err := p.Write(t.Context(), want)
		if err == nil {
			err = p.CloseInput(t.Context())
		}
		failed <- err
	}()
	got, _ := collect(t, p, sandbox.Offsets{})
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d", len(got), len(want))
	}
	wantExit(t, p, 0)
}

// A program that does not read holds up only its own writer, and that only
// until its ctx ends.
func TestInputThatNobodyReads(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	deaf := func(io.Reader, io.Writer, io.Writer) int { <-release; return 0 }
	c := play(t, &actors{programs: map[string]program{"deaf": deaf}}).connect()
	p := start(t, c, "a", "deaf")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- p.Write(ctx, make([]byte, 2<<20)) }()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	cancel(errors.New("enough"))
	wantKind(t, "an interrupted write", <-failed, fault.Unavailable)
	close(release)
	wantExit(t, p, 0)
	wantKind(t, "input behind the end", p.Write(t.Context(), []byte("x")), fault.Conflict)
}

func TestTransfers(t *testing.T) {
	t.Parallel()
	a := &actors{}
	c := play(t, a).connect()
	want := bytes.Repeat([]byte("archive"), 300_000)
	if err := c.Put(t.Context(), "/workspace", bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := c.Get(t.Context(), "/workspace", &got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes of %d", got.Len(), len(want))
	}
	wantKind(t, "a path that is not there", c.Get(t.Context(), "/missing", io.Discard), fault.NotFound)
	broken := errors.New("disk full")
	if err := c.Get(t.Context(), "/workspace", writer(func([]byte) (int, error) { return 0, broken })); !errors.Is(err, broken) {
		t.Errorf("a writer that fails: %v", err)
	}
	if err := c.Put(t.Context(), "/workspace", reader(func([]byte) (int, error) { return 0, broken })); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

type (
	writer func([]byte) (int, error)
	reader func([]byte) (int, error)
)

func (w writer) Write(p []byte) (int, error) { return w(p) }
func (r reader) Read(p []byte) (int, error)  { return r(p) }

// Whatever a worker sends, the guest does not panic, and what it keeps stays
// within its bounds.
func FuzzReceive(f *testing.F) {
	f.Add(wire.AppendFrame(nil, wire.TypeHello, 0, 0, make([]byte, 16)))
	f.Add(wire.AppendFrame(nil, wire.TypeOpen, 0, 1, wire.Open{Kind: wire.KindExec, ID: "a", Args: []string{"missing"}}.Encode()))
	f.Add(wire.AppendFrame(nil, wire.TypeOpen, wire.FlagMore, 1, []byte{1}))
	f.Add(wire.AppendFrame(nil, wire.TypeOpen, 0, 1, wire.Open{Kind: wire.KindGet, Path: "/missing"}.Encode()))
	f.Add(wire.AppendFrame(nil, wire.TypeInput, 0, 1, wire.Input{Tag: 1, Data: []byte("x")}.Append(nil)))
	f.Add(wire.AppendFrame(nil, wire.TypeSignal, 0, 1, wire.Control{Tag: 1, Signal: 9}.Append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := newEngine(bytes.NewReader(b), io.Discard)
		e.system = &actors{}
		_ = e.listen()
		e.mu.Lock()
		for _, ch := range e.channels {
			ch.command.abort()
		}
		if len(e.partial) > maxPartial || len(e.commands) > maxCommands || len(e.replies) > maxReplies+wire.MaxPayload {
			t.Errorf("%d partial, %d commands, %d bytes of replies", len(e.partial), len(e.commands), len(e.replies))
		}
		e.mu.Unlock()
		e.next(nil)
	})
}
