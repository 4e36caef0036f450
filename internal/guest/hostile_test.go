package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// liar is a guest that says what a test tells it to.
type liar struct {
	t       *testing.T
	in, out *os.File
	r       *wire.Reader
	paths   [2]string
}

func newLiar(t *testing.T) *liar {
	t.Helper()
	dir := t.TempDir()
	l := &liar{t: t, paths: [2]string{filepath.Join(dir, "in"), filepath.Join(dir, "out")}}
	for i, f := range []**os.File{&l.in, &l.out} {
		if err := unix.Mkfifo(l.paths[i], 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(l.paths[i], os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		*f = file
		t.Cleanup(func() { file.Close() })
	}
	l.r = wire.NewReader(bufio.NewReader(l.in), wire.MaxRequest)
	return l
}

// expect reads a worker's frames up to one of the type.
func (l *liar) expect(want wire.Type) (wire.Header, []byte) {
	for {
		h, payload, err := l.r.Next()
		if err != nil {
			l.t.Errorf("the worker's frames end: %v", err)
			return wire.Header{}, nil
		}
		if h.Type == want {
			return h, payload
		}
	}
}

func (l *liar) say(frames ...[]byte) {
	for _, f := range frames {
		if _, err := l.out.Write(f); err != nil {
			l.t.Errorf("the worker does not read: %v", err)
		}
	}
}

func (l *liar) welcome() {
	_, nonce := l.expect(wire.TypeHello)
	l.say(wire.AppendFrame(nil, wire.TypeWelcome, 0, 0, nonce))
}

// connect connects a client to the liar.
func (l *liar) connect() *Client {
	l.t.Helper()
	welcomed := make(chan struct{})
	go func() {
		defer close(welcomed)
		l.welcome()
	}()
	c, err := Connect(l.t.Context(), l.paths[0], l.paths[1], time.Now())
	if err != nil {
		l.t.Fatal(err)
	}
	<-welcomed
	l.t.Cleanup(func() { c.Close() })
	return c
}

// open opens a command, to which the liar says yes.
func (l *liar) open(c *Client) *Process {
	l.t.Helper()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		h, _ := l.expect(wire.TypeOpen)
		l.say(wire.AppendFrame(nil, wire.TypeOpened, 0, h.Channel, wire.Opened{}.Append(nil)))
	}()
	p, err := c.Exec(l.t.Context(), Command{ID: "a", Args: []string{"x"}})
	if err != nil {
		l.t.Fatal(err)
	}
	<-answered
	return p
}

func output(stream uint8, offset int64, flags uint8, data []byte) []byte {
	return wire.AppendFrame(nil, wire.TypeOutput, flags, 1, wire.Output{Stream: stream, Offset: offset, Data: data}.Append(nil))
}

// Each lie ends the session, and every call returns.
func TestLies(t *testing.T) {
	t.Parallel()
	exit := wire.AppendFrame(nil, wire.TypeExit, 0, 1, wire.Exit{}.Append(nil))
	big := make([]byte, wire.MaxOutput)
	var flood [][]byte
	for i := range int64(wire.Window/wire.MaxOutput + 1) {
		flood = append(flood, output(1, i*wire.MaxOutput, 0, big))
	}
	for name, frames := range map[string][][]byte{
		"no frame at all":       {bytes.Repeat([]byte("noise"), 10)},
		"a type of its own":     {wire.AppendFrame(nil, 200, 0, 0, nil)},
		"a worker's type":       {wire.AppendFrame(nil, wire.TypeHello, 0, 0, make([]byte, 16))},
		"a payload too long":    {{wire.Version, byte(wire.TypeOutput), 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}},
		"a channel never made":  {wire.AppendFrame(nil, wire.TypeExit, 0, 9, wire.Exit{}.Append(nil))},
		"channel zero":          {wire.AppendFrame(nil, wire.TypeExit, 0, 0, wire.Exit{}.Append(nil))},
		"opened twice":          {wire.AppendFrame(nil, wire.TypeOpened, 0, 1, wire.Opened{}.Append(nil))},
		"ended twice":           {exit, exit},
		"a gap":                 {output(1, 5, 0, []byte("x"))},
		"an overlap":            {output(1, 0, 0, []byte("xy")), output(1, 1, 0, []byte("y"))},
		"output behind the end": {output(1, 0, wire.FlagEnd, nil), output(1, 0, 0, []byte("x"))},
		"a third stream":        {output(3, 0, 0, []byte("x"))},
		"more than the window":  flood,
		"half an exit":          {wire.AppendFrame(nil, wire.TypeExit, 0, 1, []byte{0})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLiar(t)
			c := l.connect()
			p := l.open(c)
			said := make(chan struct{})
			go func() {
				defer close(said)
				for _, f := range frames {
					_, _ = l.out.Write(f) // nobody may be there any more
				}
			}()
			select {
			case <-c.Done():
			case <-t.Context().Done():
				t.Fatal("the lie was believed")
			}
			if !fault.Is(c.Err(), fault.Unavailable) {
				t.Errorf("the session ended with %v", c.Err())
			}
			l.out.Close() // the rest of the flood
			<-said
			if _, err := p.Wait(t.Context()); err == nil && name != "ended twice" {
				t.Error("the end is known")
			}
			if err := c.Ping(t.Context()); err == nil {
				t.Error("a ping was answered")
			}
			for range 1000 {
				if _, err := p.Next(t.Context()); err != nil {
					return
				}
			}
			t.Error("output without end")
		})
	}
}

// Bytes that come one at a time cost no more than others.
func TestCrumbs(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	c := l.connect()
	p := l.open(c)
	const n = 20000
	said := make(chan struct{})
	go func() {
		defer close(said)
		for i := range int64(n) {
			l.say(output(uint8(i%2+1), i/2, 0, []byte("x")))
		}
		l.say(output(1, n/2, wire.FlagEnd, nil), output(2, n/2, wire.FlagEnd, nil))
		_, ping := l.expect(wire.TypePing)
		control, err := wire.DecodeControl(ping)
		if err != nil {
			t.Error(err)
		}
		l.say(wire.AppendFrame(nil, wire.TypeDone, 0, 0, wire.Done{Tag: control.Tag}.Append(nil)))
	}()
	if err := c.Ping(t.Context()); err != nil { // behind it all has arrived
		t.Fatal(err)
	}
	<-said
	frames, total := 0, 0
	for {
		f, err := p.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		frames++
		total += len(f.Data)
	}
	if total != n {
		t.Errorf("%d bytes of %d", total, n)
	}
	if frames > n/10 {
		t.Errorf("%d bytes came as %d frames", n, frames)
	}
}

// A guest that says nothing holds up nobody longer than their ctx.
func TestSilence(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	_, err := Connect(ctx, l.paths[0], l.paths[1], time.Now())
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("connect: %v", err)
	}
	l.expect(wire.TypeHello)
	c := l.connect()
	p := l.open(c)
	ctx, cancel = context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	calls := map[string]func() error{
		"exec":   func() error { _, err := c.Exec(ctx, Command{ID: "b", Args: []string{"x"}}); return err },
		"attach": func() error { _, err := c.Attach(ctx, "b", sandbox.Offsets{}); return err },
		"put":    func() error { return c.Put(ctx, "/", bytes.NewReader(nil)) },
		"get":    func() error { return c.Get(ctx, "/", io.Discard) },
		"ping":   func() error { return c.Ping(ctx) },
		"next":   func() error { _, err := p.Next(ctx); return err },
		"wait":   func() error { _, err := p.Wait(ctx); return err },
		"signal": func() error { return p.Signal(ctx, 9, true) },
		"write":  func() error { return p.Write(ctx, make([]byte, 1<<20)) }, // more than the FIFO holds
	}
	ended := make(chan struct{})
	for name, call := range calls {
		go func() {
			if err := call(); !fault.Is(err, fault.Unavailable) {
				t.Errorf("%s: %v", name, err)
			}
			ended <- struct{}{}
		}()
	}
	for range calls {
		<-ended
	}
}

// When the sandbox is gone, what runs in it is lost, and no call blocks.
func TestDeath(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	c := l.connect()
	p := l.open(c)
	l.say(output(1, 0, 0, []byte("last words")))
	l.in.Close()
	l.out.Close()
	<-c.Done()
	f, err := p.Next(t.Context())
	if err != nil || string(f.Data) != "last words" {
		t.Errorf("%q, %v", f.Data, err)
	}
	if _, err := p.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("next: %v", err)
	}
	exit, err := p.Wait(t.Context())
	if err != nil || !exit.Lost || exit.Code != -1 {
		t.Errorf("%+v, %v", exit, err)
	}
	if again, err := p.Wait(t.Context()); err != nil || again != exit {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := c.Exec(t.Context(), Command{ID: "b", Args: []string{"x"}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("exec: %v", err)
	}
	if err := p.Signal(t.Context(), 9, true); !fault.Is(err, fault.NotFound) {
		t.Errorf("signal: %v", err)
	}
}

// A guest that dies before it says hello leaves its reason.
func TestLastWords(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	go func() {
		l.expect(wire.TypeHello)
		l.say([]byte("guest: no control groups\n"))
		l.in.Close()
		l.out.Close()
	}()
	_, err := Connect(t.Context(), l.paths[0], l.paths[1], time.Now())
	if !fault.Is(err, fault.NotFound) || !bytes.Contains([]byte(err.Error()), []byte("no control groups")) {
		t.Errorf("%v", err)
	}
	if _, err := Connect(t.Context(), l.paths[0], l.paths[1], time.Now()); !fault.Is(err, fault.NotFound) {
		t.Errorf("a FIFO that nobody holds: %v", err)
	}
}

// A guest of another release is refused with that as the reason, at once.
func TestAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, stale := range []int{0, 100, maxStale / 2} {
		l := newLiar(t)
		said := make(chan struct{})
		go func() {
			defer close(said)
			_, nonce := l.expect(wire.TypeHello)
			welcome := wire.AppendFrame(bytes.Repeat([]byte{0}, stale), wire.TypeWelcome, 0, 0, nonce)
			welcome[stale] = wire.Version + 1
			_, _ = l.out.Write(welcome)
		}()
		_, err := Connect(t.Context(), l.paths[0], l.paths[1], time.Now())
		if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != CodeVersion || !strings.Contains(err.Error(), fmt.Sprintf("version %d", wire.Version+1)) {
			t.Errorf("behind %d bytes: %v", stale, err)
		}
		l.out.Close()
		<-said
	}
}

// What an earlier session left is dropped, however much it is, up to a bound.
func TestStale(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stale int
		meets bool
	}{
		"a little":     {7, true},
		"a lot":        {maxStale / 2, true},
		"without end":  {2 * maxStale, false},
		"half a frame": {wire.HeaderSize / 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLiar(t)
			said := make(chan struct{})
			go func() {
				defer close(said)
				_, nonce := l.expect(wire.TypeHello)
				_, _ = l.out.Write(bytes.Repeat([]byte{wire.Version}, c.stale))
				_, _ = l.out.Write(wire.AppendFrame(nil, wire.TypeWelcome, 0, 0, nonce))
			}()
			client, err := Connect(t.Context(), l.paths[0], l.paths[1], time.Now())
			if (err == nil) != c.meets {
				t.Errorf("%v", err)
			}
			if client != nil {
				client.Close()
			}
			l.out.Close()
			<-said
		})
	}
}

// Whatever bytes a guest sends, the client keeps no more than its windows.
func FuzzHostileGuest(f *testing.F) {
	f.Add(wire.AppendFrame(nil, wire.TypeOpened, 0, 1, wire.Opened{}.Append(nil)))
	f.Add(append(wire.AppendFrame(nil, wire.TypeOpened, 0, 1, wire.Opened{}.Append(nil)), output(1, 0, 0, []byte("x"))...))
	f.Add(append(wire.AppendFrame(nil, wire.TypeOpened, 0, 1, wire.Opened{}.Append(nil)),
		wire.AppendFrame(nil, wire.TypeExit, 0, 1, wire.Exit{Code: 3}.Append(nil))...))
	f.Add(wire.AppendFrame(nil, wire.TypeDone, 0, 1, wire.Done{Tag: 1}.Append(nil)))
	f.Add(wire.AppendFrame(nil, wire.TypeOpened, 0, 2, wire.Opened{}.Append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Client{channels: map[uint32]*Process{}, answers: map[uint32]chan wire.Outcome{}, done: make(chan struct{})}
		p, err := c.register(wire.Open{Kind: wire.KindExec})
		if err != nil {
			t.Fatal(err)
		}
		relay, err := c.register(wire.Open{Kind: wire.KindDial})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.expect(); err != nil {
			t.Fatal(err)
		}
		r := wire.NewReader(bytes.NewReader(b), wire.MaxPayload)
		for {
			h, payload, err := r.Next()
			if err == nil {
				err = c.receive(h, payload)
			}
			if err != nil {
				break
			}
		}
		for i := range p.streams {
			if len(p.streams[i].data) > wire.Window || len(relay.streams[i].data) > wire.SmallWindow {
				t.Fatalf("stream %d holds %d and %d bytes", i+1, len(p.streams[i].data), len(relay.streams[i].data))
			}
		}
		if e := p.exit; e != nil && (e.Code < -1 || e.Code > 255 || e.Ended.After(time.Now())) {
			t.Fatalf("exit %+v", e)
		}
	})
}
