package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// port is a port of a sandbox.
type port struct {
	ID   string `json:"id"`
	Port uint16 `json:"port"`
}

func (p port) check() error {
	if p.Port == 0 {
		return fault.Field("port", "must be from 1 to 65535")
	}
	return dispatch.CheckSandboxID("id", p.ID)
}

// DialSandbox connects to a port in a sandbox.
func (s *stream) DialSandbox(ctx context.Context, id string, n uint16) (net.Conn, error) {
	to := port{ID: id, Port: n}
	if err := to.check(); err != nil {
		return nil, err
	}
	d, hangUp, err := s.talk(ctx, "dial", to)
	if err != nil {
		return nil, err
	}
	return &tunnel{duplex: d, hangUp: hangUp, to: to}, nil
}

// tunnel is a connection to a port in a sandbox.
type tunnel struct {
	*duplex
	hangUp func()
	once   sync.Once
	to     port
}

var _ net.Conn = (*tunnel)(nil)

// Close ends both directions.
func (t *tunnel) Close() error {
	t.once.Do(t.hangUp)
	return nil
}

// Read implements net.Conn.
func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.duplex.Read(p)
	if errors.Is(err, errHungUp) {
		err = net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (t *tunnel) Write(p []byte) (int, error) {
	n, err := t.duplex.Write(p)
	if errors.Is(err, errHungUp) {
		err = net.ErrClosed
	}
	return n, err
}

// SetDeadline implements net.Conn.
func (t *tunnel) SetDeadline(at time.Time) error {
	t.readBy.set(at)
	t.writeBy.set(at)
	return nil
}

// SetReadDeadline implements net.Conn.
func (t *tunnel) SetReadDeadline(at time.Time) error {
	t.readBy.set(at)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (t *tunnel) SetWriteDeadline(at time.Time) error {
	t.writeBy.set(at)
	return nil
}

// LocalAddr implements net.Conn.
func (t *tunnel) LocalAddr() net.Addr { return sandboxAddr("manager") }

// RemoteAddr implements net.Conn.
func (t *tunnel) RemoteAddr() net.Addr { return sandboxAddr(t.to.ID) }

// sandboxAddr names an end of a tunnel.
type sandboxAddr string

// Network implements net.Addr.
func (sandboxAddr) Network() string { return "sandbox" }

// String implements net.Addr.
func (a sandboxAddr) String() string { return string(a) }

// dial is the worker's end of DialSandbox.
func (m *commanded) dial(w http.ResponseWriter, r *http.Request) {
	to, begin, err := listenTo(w, r, port.check)
	var conn net.Conn
	if err == nil {
		conn, err = m.rc.DialSandbox(r.Context(), to.ID, to.Port)
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	d := begin()
	join(r.Context(), d, conn)
	_ = r.Body.Close()
	<-d.ended
}

// join carries bytes both ways until both directions have ended, or ctx has.
func join(ctx context.Context, d *duplex, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		d.fail(errHungUp)
		_ = conn.Close()
	})
	var up sync.WaitGroup
	up.Go(func() {
		if _, err := io.Copy(conn, plain{d}); err != nil {
			// What cannot be sent on is not taken any more; what comes back may be
			// on its way still.
			d.refuse(err)
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // one that is gone needs no telling
		}
	})
	_, err := io.Copy(plain{d}, conn)
	if err == nil {
		err = d.CloseWrite()
	}
	if err != nil {
		_ = conn.Close()
		d.last(nil, fault.New(fault.Unavailable, "the connection into the sandbox broke: %w", err).WithCode("connection_broken"))
	}
	up.Wait()
	stop()
	_ = conn.Close()
}

// plain hides what io.Copy would find besides.
type plain struct{ io.ReadWriter }

// refuse takes no more of what comes, so that it does not pile up: it is dropped
// and granted again.
func (d *duplex) refuse(error) {
	_, _ = io.Copy(io.Discard, plain{d})
}
