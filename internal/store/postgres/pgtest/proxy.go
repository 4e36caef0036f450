package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
)

// Proxy stands between a client and a server, and cuts them off.
type Proxy struct {
	listener net.Listener
	network  string
	targets  []string
	made     int // connections

	mu      sync.Mutex
	closed  bool
	pairs   map[*pair]bool
	after   func(sent []byte) (cut, pass bool)
	refuses int // how many of the next connections are cut at once
	tasks   sync.WaitGroup
}

// pair is one connection from end to end.
type pair struct{ client, server net.Conn }

func (p *pair) cut() { _ = errors.Join(p.client.Close(), p.server.Close()) }

// NewProxy starts a proxy before a server, which is found by its network
// ("unix", "tcp") and its address, or before the first of several that answers,
// where it begins with another each time.
func NewProxy(network string, targets ...string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{listener: ln, network: network, targets: targets, pairs: map[*pair]bool{}}
	p.tasks.Go(p.accept)
	return p, nil
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// URL is the address of a database, by way of the proxy.
func (p *Proxy) URL(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("read an address: %w", err)
	}
	q := u.Query()
	q.Del("host")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = p.Address(), q.Encode()
	return u.String(), nil
}

// Cut ends every connection; new ones are let through.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.cut()
	}
}

// Refuse cuts the next n connections as soon as they are made.
func (p *Proxy) Refuse(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = n
}

// CutAfter cuts a connection at the first piece that it sends for which when
// says so; pass lets the server have the piece, and answer to nobody.
func (p *Proxy) CutAfter(when func(sent []byte) bool, pass bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = func(sent []byte) (bool, bool) { return when(sent), pass }
}

// Close ends the proxy.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.tasks.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		var server net.Conn
		if !p.refused() {
			server = p.dial()
		}
		if server == nil {
			_ = client.Close()
			continue
		}
		one := &pair{client: client, server: server}
		p.mu.Lock()
		if p.closed {
			one.cut()
		}
		p.pairs[one] = true
		p.mu.Unlock()
		var swallow sync.Once
		silent := make(chan struct{})
		p.tasks.Go(func() { p.there(one, func() { swallow.Do(func() { close(silent) }) }) })
		p.tasks.Go(func() { p.back(one, silent) })
	}
}

// refused reports whether the connection that was just made is to be cut.
func (p *Proxy) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses == 0 {
		return false
	}
	p.refuses--
	return true
}

// dial reaches one of the servers, or none.
func (p *Proxy) dial() net.Conn {
	p.made++
	for i := range p.targets {
		if server, err := net.Dial(p.network, p.targets[(p.made+i)%len(p.targets)]); err == nil {
			return server
		}
	}
	return nil
}

// there carries what the client sends.
func (p *Proxy) there(one *pair, silence func()) {
	defer one.cut()
	buf := make([]byte, 64<<10)
	for {
		n, err := one.client.Read(buf)
		if n > 0 {
			cut, pass := p.judge(buf[:n])
			if cut && pass {
				silence()
			}
			if cut && !pass {
				return
			}
			if _, err := one.server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// judge asks once whether to cut.
func (p *Proxy) judge(sent []byte) (cut, pass bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == nil {
		return false, false
	}
	if cut, pass = p.after(sent); cut {
		p.after = nil
	}
	return cut, pass
}

// back carries what the server answers, until it is to be silent: then the
// answer is the end.
func (p *Proxy) back(one *pair, silent <-chan struct{}) {
	defer func() {
		one.cut()
		p.mu.Lock()
		delete(p.pairs, one)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := one.server.Read(buf)
		select {
		case <-silent:
			return
		default:
		}
		if n > 0 {
			if _, err := one.client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
