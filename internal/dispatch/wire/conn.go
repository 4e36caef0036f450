package wire

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
)

// conn is a connection that was taken over from HTTP/1.1. It reads through
// what was buffered before, hides what the connection is underneath (TLS was
// done already), and says when it was closed.
type conn struct {
	net.Conn
	r      io.Reader
	once   sync.Once
	closed chan struct{}
}

func newConn(c net.Conn, r io.Reader) *conn {
	return &conn{Conn: c, r: r, closed: make(chan struct{})}
}

// Read reads what was buffered, then the connection.
func (c *conn) Read(p []byte) (int, error) { return c.r.Read(p) }

// Close closes the connection, once.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		close(c.closed)
		err = c.Conn.Close()
	})
	return err
}

// listener hands out one connection, and then nothing until it is closed.
type listener struct {
	conn   chan net.Conn
	addr   net.Addr
	once   sync.Once
	closed chan struct{}
}

func listen(c net.Conn) *listener {
	l := &listener{conn: make(chan net.Conn, 1), addr: c.LocalAddr(), closed: make(chan struct{})}
	l.conn <- c
	return l
}

// Accept returns the connection, or waits for Close.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is the near end of the connection.
func (l *listener) Addr() net.Addr { return l.addr }

// pings makes either end of HTTP/2 notice a dead peer. A stream that nobody
// reads holds little memory.
func pings() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:      4000,
		MaxReceiveBufferPerStream: 512 << 10,
		SendPingTimeout:           Quiet,
		PingTimeout:               Dead,
		WriteByteTimeout:          Dead,
	}
}

// commandedBy is for the end of the stream that takes commands. All of them
// share what may be on its way, so one must not be able to take all of it.
func commandedBy() *http.HTTP2Config {
	c := pings()
	c.MaxReceiveBufferPerConnection = 4<<20 - 1 // the most that there can be
	return c
}

// reversed speaks HTTP/2 and nothing else.
func reversed() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// dialOnce makes an HTTP/2 client of a connection that is there.
func dialOnce(ctx context.Context, c net.Conn) (*http.ClientConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dispatch.ReportTimeout, errTimeout)
	defer cancel()
	t := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return c, nil },
		Protocols:          reversed(),
		HTTP2:              pings(),
		DisableCompression: true,
	}
	return t.NewClientConn(ctx, "http", "worker:80")
}
