package guest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// CodeVersion is the code of the fault of Connect for a guest that speaks another
// version. It was not harmed, and the release that it is of can meet it again.
const CodeVersion = "guest_version"

// pipeSize is what we ask the kernel to let the guest's FIFO hold.
const pipeSize = 256 << 10

// maxStale bounds what an earlier session may have left to be read: a full
// pipe, and what the guest was about to write.
const maxStale = 4 << 20

// Client is a session with one guest. Its methods may be called from many
// goroutines.
type Client struct {
	in, out *os.File
	since   time.Time
	ranOut  func() bool // nil where nobody knows
	// turn is held by who writes.
	turn chan struct{}
	// done is closed when the session is over; over says why.
	done    chan struct{}
	stopped chan struct{} // closed when the reader has ended

	mu   sync.Mutex
	over *ending
	// fresh is what the guest says, until the first session with it begins.
	fresh *bufio.Reader
	// halted is closed while the sandbox is paused.
	halted   chan struct{}
	paused   bool
	channels map[uint32]*Process
	answers  map[uint32]chan wire.Outcome
	lastID   uint32
	lastTag  uint32
	// kinds is what the guest was asked whether it knows it.
	kinds map[wire.Kind]bool
	// fileCalls has one for each request about files under way.
	fileCalls chan struct{}
}

// Option changes a client.
type Option func(*Client)

// WithOOM has the client ask, when its sandbox is gone, whether that ran out of
// memory: then all commands that had not ended have ended by that.
func WithOOM(ranOut func() bool) Option {
	return func(c *Client) { c.ranOut = ranOut }
}

// ending is why a session is over.
type ending struct {
	err error
	// lost says that the sandbox is gone, and its commands with it.
	lost bool
	// oom says that it ran out of memory.
	oom bool
}

// Connect opens a session with the guest that holds the other ends of the
// FIFOs. since is when its sandbox was made. A sandbox that is gone is a fault
// of kind NotFound.
func Connect(ctx context.Context, input, output string, since time.Time, options ...Option) (*Client, error) {
	in, err := os.OpenFile(input, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("open the guest's input: %w", err)
	}
	out, err := os.OpenFile(output, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("open the guest's output: %w", err)
	}
	c := &Client{
		in:       in,
		out:      out,
		since:    since,
		turn:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		stopped:  make(chan struct{}),
		fresh:    bufio.NewReaderSize(out, 128<<10),
		halted:   make(chan struct{}),
		channels: map[uint32]*Process{},
		answers:  map[uint32]chan wire.Outcome{},

		fileCalls: make(chan struct{}, maxFileCalls),
	}
	for _, option := range options {
		option(c)
	}
	c.widen()
	if c.paused {
		return c, nil // it cannot answer yet
	}
	if err := c.meet(ctx); err != nil {
		_ = in.Close()
		_ = out.Close()
		return nil, err
	}
	return c, nil
}

// meet begins the first session.
func (c *Client) meet(ctx context.Context) error {
	if err := c.handshake(ctx, c.fresh); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over.err
	}
	go c.read(wire.NewReader(c.fresh, wire.MaxPayload))
	c.fresh = nil
	return nil
}

// widen makes the FIFO hold more than a pipe does by itself. It matters only
// to speed.
func (c *Client) widen() {
	conn, err := c.out.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
}

// handshake says hello, and drops what it reads until the guest answers.
func (c *Client) handshake(ctx context.Context, r *bufio.Reader) error {
	var nonce wire.Nonce
	if _, err := rand.Read(nonce[:]); err != nil {
		return fmt.Errorf("make a nonce: %w", err)
	}
	if err := c.push(ctx, wire.TypeHello, 0, 0, nonce[:]); err != nil {
		return err
	}
	stop := interruptible(ctx, c.out.SetReadDeadline)
	defer stop()
	welcome := wire.AppendFrame(nil, wire.TypeWelcome, 0, 0, nonce[:])
	version, err := skipTo(r, welcome)
	switch {
	case err == nil && version != wire.Version:
		return fault.New(fault.Unavailable, "the guest is of another release: it speaks version %d, this one %d", version, wire.Version).WithCode(CodeVersion)
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fault.New(fault.Unavailable, "the guest does not answer: %w", context.Cause(ctx))
	case errors.Is(err, io.EOF):
		// A guest that cannot start says why in plain words.
		words, _ := r.Peek(r.Buffered())
		return fault.New(fault.NotFound, "the sandbox is gone; its last words: %q", wire.Plain(string(words)))
	}
	return fmt.Errorf("meet the guest: %w", err)
}

// skipTo reads r up to and including mark, whatever its version, and returns
// that. When r ends before it, what came last is left in its buffer.
func skipTo(r *bufio.Reader, mark []byte) (version uint8, err error) {
	for skipped := 0; skipped < maxStale; {
		if _, err := r.Peek(len(mark)); err != nil {
			return 0, err
		}
		seen, _ := r.Peek(r.Buffered())
		if i := bytes.Index(seen[1:], mark[1:]); i >= 0 {
			version = seen[i]
			_, err := r.Discard(i + len(mark))
			return version, err
		}
		if _, err := r.Peek(len(seen) + 1); errors.Is(err, io.EOF) {
			return 0, err
		} else if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, err
		}
		if r.Buffered() > r.Size()/2 { // the mark may have begun at its end
			n, err := r.Discard(r.Buffered() - len(mark))
			if err != nil {
				return 0, err
			}
			skipped += n
		}
	}
	return 0, fault.New(fault.Unavailable, "the guest says something else than hello")
}

// interruptible lets the end of ctx end reads or writes under way, through the
// function that sets their deadline. The returned function undoes it.
func interruptible(ctx context.Context, setDeadline func(time.Time) error) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	fired := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = setDeadline(time.Unix(1, 0))
	})
	return func() {
		if cancel() {
			return
		}
		<-fired
		_ = setDeadline(time.Time{})
	}
}

// Close ends the session. The guest and its commands go on, and another
// session can be opened.
func (c *Client) Close() error {
	c.finish(ending{err: fault.New(fault.Unavailable, "the connection to the sandbox was closed")})
	<-c.stopped
	return nil
}

// Lose ends the session because the sandbox is gone: its commands are lost.
func (c *Client) Lose() {
	c.finish(ending{err: errGone, lost: true})
	<-c.stopped
}

// Done is closed when the session is over, for whatever reason.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why the session is over: nil while it is not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		return nil
	}
	return c.over.err
}

var errGone = fault.New(fault.NotFound, "the sandbox is gone")

// finish records the first reason and releases everybody.
func (c *Client) finish(why ending) {
	if why.lost && c.ranOut != nil {
		why.oom = c.ranOut()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		// A sandbox that is gone outweighs a connection that was closed.
		c.over.lost = c.over.lost || why.lost
		c.over.oom = c.over.oom || why.oom
		return
	}
	c.over = &why
	close(c.done)
	if c.fresh != nil {
		close(c.stopped) // nobody ever read
	}
	_ = c.in.Close()
	_ = c.out.Close()
}

// ended returns why the session is over.
//
// Preconditions: done is closed.
func (c *Client) ended() ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.over
}

// Ping asks the guest for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	return c.ask(ctx, wire.TypePing, 0, wire.Control{})
}

// ask sends a request with a tag and waits for its outcome.
func (c *Client) ask(ctx context.Context, t wire.Type, channel uint32, control wire.Control) error {
	tag, answer, err := c.expect()
	if err != nil {
		return err
	}
	defer c.drop(tag)
	control.Tag = tag
	if err := c.send(ctx, t, 0, channel, control.Append(nil)); err != nil {
		return err
	}
	return c.await(ctx, answer)
}

// expect registers a tag, whose outcome will come over the channel.
func (c *Client) expect() (uint32, <-chan wire.Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal(); err != nil {
		return 0, nil, err
	}
	tag, answer := c.newTag()
	return tag, answer, nil
}

// newTag registers a tag. The client's mu is held.
func (c *Client) newTag() (uint32, <-chan wire.Outcome) {
	c.lastTag++
	if c.lastTag == 0 {
		c.lastTag = 1
	}
	answer := make(chan wire.Outcome, 1)
	c.answers[c.lastTag] = answer
	return c.lastTag, answer
}

func (c *Client) drop(tag uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, tag)
}

func (c *Client) await(ctx context.Context, answer <-chan wire.Outcome) error {
	select {
	case outcome := <-answer:
		return asFault(outcome)
	case <-c.done:
		return c.ended().err
	case <-c.halt():
		return errPaused
	case <-ctx.Done():
		return errWaiting(ctx)
	}
}

func errWaiting(ctx context.Context) error {
	return fault.New(fault.Unavailable, "wait for the sandbox: %w", context.Cause(ctx))
}

// read takes the guest's frames until the session is over. It is the client's
// only goroutine.
func (c *Client) read(r *wire.Reader) {
	defer close(c.stopped)
	for {
		h, payload, err := r.Next()
		if err == nil {
			err = c.receive(h, payload)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			// Nobody holds the other end: the sandbox's process is gone.
			c.finish(ending{err: errGone, lost: true})
		default:
			c.finish(ending{err: fault.New(fault.Unavailable, "the guest broke off: %w", err)})
		}
		return
	}
}

func (c *Client) receive(h wire.Header, payload []byte) error {
	switch h.Type {
	case wire.TypeDone:
		done, err := wire.DecodeDone(payload)
		if err != nil {
			return err
		}
		c.mu.Lock()
		answer := c.answers[done.Tag]
		delete(c.answers, done.Tag)
		c.mu.Unlock()
		if answer != nil {
			answer <- done.Outcome // has room for the one that it gets
		}
		return nil
	case wire.TypeOpened, wire.TypeOutput, wire.TypeExit:
		c.mu.Lock()
		p, known := c.channels[h.Channel], h.Channel >= 1 && h.Channel <= c.lastID
		c.mu.Unlock()
		if !known {
			return fmt.Errorf("%w: channel %d was never opened", wire.ErrMalformed, h.Channel)
		}
		if p == nil {
			return nil // we have let go of it
		}
		return p.receive(h, payload)
	default:
		return fmt.Errorf("%w: type %d", wire.ErrMalformed, h.Type)
	}
}

// open opens a channel and waits for its outcome.
func (c *Client) open(ctx context.Context, open wire.Open) (*Process, error) {
	message := open.Encode()
	if len(message) > wire.MaxOpen {
		return nil, fault.Field("command", "arguments and environment are too long: %d bytes, at most %d", len(message), wire.MaxOpen)
	}
	p, err := c.register(open)
	if err != nil {
		return nil, err
	}
	if err := c.sendOpen(ctx, p.channel, message); err != nil {
		c.unregister(p)
		return nil, err
	}
	select {
	case <-p.opened:
	case <-c.done:
		return nil, c.ended().err
	case <-c.halt():
		c.unregister(p)
		return nil, errPaused
	case <-ctx.Done():
		c.unregister(p)
		return nil, errWaiting(ctx)
	}
	if err := asFault(p.outcome.Outcome); err != nil {
		c.unregister(p)
		return nil, err
	}
	return p, nil
}

func (c *Client) register(open wire.Open) (*Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal(); err != nil {
		return nil, err
	}
	c.lastID++
	p := newProcess(c, c.lastID, open)
	c.channels[p.channel] = p
	return p, nil
}

func (c *Client) unregister(p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.channels, p.channel)
}
