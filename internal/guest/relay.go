package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Relay is a connection to a port in a sandbox. It implements net.Conn, and
// closes in one direction by CloseWrite.
type Relay struct {
	p    *Process
	port uint16
	once sync.Once

	reading bound
	readMu  sync.Mutex // held by who reads
	left    []byte     // of the last frame

	writing bound
	writeMu sync.Mutex // held by who writes
	in      *inflow
	ended   bool // nothing more is written
}

var _ net.Conn = (*Relay)(nil)

// Dial connects to a port.
func (c *Client) Dial(ctx context.Context, port uint16) (*Relay, error) {
	if port == 0 {
		return nil, fault.New(fault.Unavailable, "nobody can listen at port 0").WithCode(sandbox.CodePortClosed)
	}
	if err := c.knows(ctx, wire.KindDial); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // the guest may be faster than its end is heard
		return nil, errWaiting(ctx)
	}
	p, err := c.open(ctx, wire.Open{Kind: wire.KindDial, Port: port})
	if err != nil {
		return nil, err
	}
	r := &Relay{p: p, port: port, in: newInflow(p, wire.SmallWindow)}
	_ = r.reading.set(time.Time{}) // never fails before it is closed
	_ = r.writing.set(time.Time{})
	return r, nil
}

// Read implements net.Conn.
func (r *Relay) Read(b []byte) (int, error) {
	r.readMu.Lock()
	defer r.readMu.Unlock()
	for len(r.left) == 0 {
		ctx := r.reading.current()
		frame, err := r.p.pull(ctx)
		switch {
		case err == nil && frame.Stream == sandbox.Stdout:
			r.left = frame.Data
		case err == nil:
		case ctx.Err() != nil:
			if err := ended(ctx); err != nil {
				return 0, err
			}
		default:
			return 0, err // io.EOF, or that the sandbox is gone
		}
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Write implements net.Conn. It returns when all of b is under way.
func (r *Relay) Write(b []byte) (n int, err error) {
	r.writeMu.Lock()
	defer r.writeMu.Unlock()
	if r.ended {
		return 0, net.ErrClosed
	}
	for {
		ctx := r.writing.current()
		if ctx.Err() == nil {
			sent, err := r.in.write(ctx, b[n:])
			n += sent
			if err == nil || ctx.Err() == nil {
				return n, brokenPipe(err)
			}
		}
		if err := ended(ctx); err != nil {
			return n, err
		}
	}
}

// brokenPipe says in the words of connections that the other end takes no more.
func brokenPipe(err error) error {
	if err != nil && refusedInput(err) {
		return errors.Join(io.ErrClosedPipe, err)
	}
	return err
}

// CloseWrite ends what goes into the sandbox.
func (r *Relay) CloseWrite() error {
	r.writeMu.Lock()
	defer r.writeMu.Unlock()
	if r.ended {
		return net.ErrClosed
	}
	r.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), abortTime)
	defer cancel()
	return r.p.client.send(ctx, wire.TypeCloseInput, 0, r.p.channel, wire.Control{}.Append(nil))
}

// Close implements net.Conn.
func (r *Relay) Close() error {
	r.once.Do(func() {
		r.reading.close()
		r.writing.close()
		r.p.leave()
		r.writeMu.Lock()
		defer r.writeMu.Unlock()
		r.ended = true
		r.in.drop()
	})
	return nil
}

// SetDeadline implements net.Conn.
func (r *Relay) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (r *Relay) SetReadDeadline(t time.Time) error { return r.reading.set(t) }

// SetWriteDeadline implements net.Conn.
func (r *Relay) SetWriteDeadline(t time.Time) error { return r.writing.set(t) }

// LocalAddr implements net.Conn.
func (r *Relay) LocalAddr() net.Addr { return address("worker") }

// RemoteAddr implements net.Conn.
func (r *Relay) RemoteAddr() net.Addr { return address("sandbox:" + strconv.Itoa(int(r.port))) }

type address string

func (address) Network() string  { return "sandbox" }
func (a address) String() string { return string(a) }

// bound is how long one direction of a connection may take: a ctx that is
// replaced when another time is set.
type bound struct {
	mu     sync.Mutex
	ctx    context.Context // the bound itself; it belongs to no call
	cancel context.CancelCauseFunc
	closed bool
}

var errMoved = errors.New("another time was set")

func (b *bound) set(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return net.ErrClosed
	}
	before := b.cancel
	ctx, cancel := context.WithCancelCause(context.Background())
	b.ctx, b.cancel = ctx, cancel
	if !t.IsZero() {
		bounded, stop := context.WithDeadlineCause(ctx, t, os.ErrDeadlineExceeded)
		b.ctx, b.cancel = bounded, func(cause error) {
			cancel(cause)
			stop()
		}
	}
	if before != nil {
		before(errMoved)
	}
	return nil
}

func (b *bound) current() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ctx
}

func (b *bound) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cancel(net.ErrClosed)
}

// ended says why the bound of a call has ended, or nil when there is another.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errMoved) {
		return cause
	}
	return nil
}
