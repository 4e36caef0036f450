package fake

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// listen plays a server until the task is stopped.
func (t *task) listen(port uint16) {
	t.p.box.listens(port, 1)
	defer t.p.box.listens(port, -1)
	t.print(1, []byte("listening\n"))
	<-t.quit
}

// listens counts the processes that listen at a port.
func (b *box) listens(port uint16, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ports == nil {
		b.ports = map[uint16]int{}
	}
	b.ports[port] += by
}

// Dial implements sandbox.Dialer: whoever listens sends back what comes.
func (b *box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if err := b.at(ctx, script{}, stepOther); err != nil {
		return nil, err
	}
	if err := b.awake(); err != nil {
		return nil, err
	}
	if err := b.enterRelay(port); err != nil {
		return nil, err
	}
	there, toThere := net.Pipe()
	fromThere, back := net.Pipe()
	c := &conn{in: fromThere, out: toThere}
	ended := make(chan struct{})
	go func() {
		defer b.leaveRelay()
		defer close(ended)
		_, _ = io.Copy(back, there) // a connection that breaks is the end of it
		_ = back.Close()
		_ = there.Close()
	}()
	go func() {
		select {
		case <-b.dead:
			_ = there.Close()
			_ = back.Close()
		case <-ended:
		}
	}()
	return c, nil
}

func (b *box) enterRelay(port uint16) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.gone != nil:
		return b.gone
	case b.ports[port] <= 0:
		return fault.New(fault.Unavailable, "nobody listens at port %d in the sandbox", port).WithCode(sandbox.CodePortClosed)
	case b.relays >= sandbox.MaxRelays:
		return fault.New(fault.Exhausted, "the sandbox has as many connections as it may")
	}
	b.relays++
	b.running.Add(1)
	return nil
}

func (b *box) leaveRelay() {
	b.mu.Lock()
	b.relays--
	b.mu.Unlock()
	b.running.Done()
}

// conn is a connection whose directions end one by one.
type conn struct{ in, out net.Conn }

func (c *conn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.Write(p) }

// CloseWrite ends what goes into the sandbox.
func (c *conn) CloseWrite() error { return c.out.Close() }
func (c *conn) Close() error      { return errors.Join(c.out.Close(), c.in.Close()) }

func (c *conn) LocalAddr() net.Addr                { return c.in.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr               { return c.in.RemoteAddr() }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.in.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
