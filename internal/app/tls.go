package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/config"
)

// certificate is the server's certificate, read again when its files change. A
// connection that is open keeps the one that it began with.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu     sync.Mutex
	held   *tls.Certificate
	stamp  [2]fileStamp
	looked time.Time
}

// fileStamp tells one content of a file from another without reading it.
type fileStamp struct {
	changed time.Time
	size    int64
	file    fs.FileInfo // for os.SameFile: it may be another under the same name
}

// lookEvery is how often the files are looked at, at most.
const lookEvery = time.Second

// loadCertificate reads the certificate that the settings name; nil where they
// name none.
func loadCertificate(cfg *config.Config, log *slog.Logger) (*certificate, error) {
	if cfg.Access.TLSCert == "" {
		return nil, nil //nolint:nilnil // there is none, and that is fine
	}
	c := &certificate{certFile: cfg.Access.TLSCert, keyFile: cfg.Access.TLSKey, log: log, now: time.Now}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	c.looked = c.now()
	return c, nil
}

// load reads both files. The stamps are from before, so that a change during it
// is seen the next time.
func (c *certificate) load() error {
	stamp, err := c.stamps()
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.held, c.stamp = &pair, stamp
	return nil
}

func (c *certificate) stamps() (stamp [2]fileStamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return stamp, err
		}
		stamp[i] = fileStamp{info.ModTime(), info.Size(), info}
	}
	return stamp, nil
}

func (s fileStamp) same(o fileStamp) bool {
	return s.changed.Equal(o.changed) && s.size == o.size && os.SameFile(s.file, o.file)
}

// get returns the certificate for a new connection. Files that cannot be read, or
// do not fit together while they are being replaced, leave the last good one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.looked) < lookEvery {
		return c.held, nil
	}
	c.looked = now
	stamp, err := c.stamps()
	if err == nil && stamp[0].same(c.stamp[0]) && stamp[1].same(c.stamp[1]) {
		return c.held, nil
	}
	if err == nil {
		err = c.load()
	}
	if err != nil {
		c.log.Error("could not read the changed certificate; the last good one stays", "error", err)
		return c.held, nil
	}
	c.log.Info("read the changed certificate", "file", c.certFile)
	return c.held, nil
}

// secure makes the connections of a listener speak TLS. Those from this machine
// may do without, as our own roles do, which would have to be told whom to trust;
// nil leaves the listener as it is.
func (c *certificate) secure(ln net.Listener) net.Listener {
	if c == nil {
		return ln
	}
	s := &securing{
		Listener: ln, ready: make(chan net.Conn), done: make(chan struct{}), fresh: map[net.Conn]bool{},
		config: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"http/1.1"}},
	}
	s.tasks.Go(s.run)
	return s
}

// secured makes a listener speak TLS from its start on.
func secured(c *certificate, listen func(context.Context) (net.Listener, error)) func(context.Context) (net.Listener, error) {
	return func(ctx context.Context) (net.Listener, error) {
		ln, err := listen(ctx)
		if err != nil {
			return nil, err
		}
		return c.secure(ln), nil
	}
}

// securing is a listener whose connections are told apart by their first byte.
type securing struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	done   chan struct{}
	tasks  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	err    error             // why it ended by itself
	fresh  map[net.Conn]bool // that have said nothing yet
}

// firstByte is how long a connection may say nothing.
const firstByte = 10 * time.Second

// run takes connections until the listener ends.
func (s *securing) run() {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			var again interface{ Temporary() bool }
			if !errors.Is(err, net.ErrClosed) && errors.As(err, &again) && again.Temporary() {
				select {
				case <-time.After(10 * time.Millisecond): // no room for another file, say
					continue
				case <-s.done:
				}
			}
			s.end(err)
			return
		}
		if !s.keep(conn) {
			_ = conn.Close()
			return
		}
		s.tasks.Go(func() { s.greet(conn) })
	}
}

func (s *securing) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.fresh[conn] = true
	}
	return !s.closed
}

// greet reads the first byte of a connection and hands it on.
func (s *securing) greet(conn net.Conn) {
	var first [1]byte
	_ = conn.SetReadDeadline(time.Now().Add(firstByte))
	_, err := conn.Read(first[:])
	_ = conn.SetReadDeadline(time.Time{})
	s.mu.Lock()
	delete(s.fresh, conn)
	s.mu.Unlock()
	if err != nil {
		_ = conn.Close()
		return
	}
	var ready net.Conn = &begun{Conn: conn, first: first[:]}
	const handshake = 0x16 // the first byte of TLS, and of no HTTP request
	switch {
	case first[0] == handshake:
		ready = tls.Server(ready, s.config)
	case !fromHere(conn):
		const answer = "This server speaks TLS; use https.\n"
		_ = conn.SetWriteDeadline(time.Now().Add(firstByte))
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
		_ = conn.Close()
		return
	}
	select {
	case s.ready <- ready:
	case <-s.done:
		_ = conn.Close()
	}
}

func fromHere(conn net.Conn) bool {
	at, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// begun is a connection whose first byte was read.
type begun struct {
	net.Conn
	first []byte
}

// Read returns the first byte, and then what follows.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) > 0 && len(p) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// Accept returns the next connection.
func (s *securing) Accept() (net.Conn, error) {
	select {
	case conn := <-s.ready:
		return conn, nil
	case <-s.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.err
	}
}

// end closes what waits.
func (s *securing) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.err = true, err
	close(s.done)
	for conn := range s.fresh {
		_ = conn.Close()
	}
}

// Close ends it and waits for all that it began.
func (s *securing) Close() error {
	err := s.Listener.Close()
	s.end(net.ErrClosed)
	s.tasks.Wait()
	return err
}
