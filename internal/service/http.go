package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// HTTP is a server as a service. It serves from Start on and, when stopped,
// lets short requests finish, then ends the contexts of those that are left
// (streams, long polls), and closes what does not heed that.
type HTTP struct {
	server *http.Server
	listen func(ctx context.Context) (net.Listener, error)
	// Grace is how long requests may go on before their contexts end.
	grace time.Duration

	endRequests context.CancelCauseFunc
	stop        func() error
	stopOnce    sync.Once

	mu      sync.Mutex
	started bool
	stopped bool
	err     error
	addr    net.Addr

	ended chan struct{}
}

var _ Service = (*HTTP)(nil)

// HTTPGrace is how long a stopping server waits before it ends the contexts of
// requests.
const HTTPGrace = time.Second

// NewHTTP returns a server for the handler. listen gives the listener when the
// service starts; it is closed with the service.
func NewHTTP(server *http.Server, listen func(ctx context.Context) (net.Listener, error)) *HTTP {
	return &HTTP{server: server, listen: listen, grace: HTTPGrace, ended: make(chan struct{})}
}

// Addr is where it listens; nil before Start.
func (h *HTTP) Addr() net.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addr
}

// Start listens and serves.
func (h *HTTP) Start(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started || h.stopped {
		return ErrStopped
	}
	ln, err := h.listen(ctx)
	if err != nil {
		h.stopped = true
		close(h.ended)
		return err
	}
	h.started, h.addr = true, ln.Addr()
	requests, end := context.WithCancelCause(context.WithoutCancel(ctx))
	h.endRequests = end
	h.server.BaseContext = func(net.Listener) context.Context { return requests }
	go func() {
		defer close(h.ended)
		err := h.server.Serve(ln)
		if errors.Is(err, http.ErrServerClosed) {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.err = fmt.Errorf("serve: %w", err)
		end(h.err)
	}()
	return nil
}

// Stop ends the server as the type says.
func (h *HTTP) Stop(ctx context.Context) error {
	h.mu.Lock()
	if !h.stopped && !h.started {
		close(h.ended)
	}
	h.stopped = true
	started := h.started
	h.mu.Unlock()
	if !started {
		return nil
	}
	h.stopOnce.Do(func() { h.stop = sync.OnceValue(func() error { return h.shutdown(ctx) }) })
	err := h.stop()
	<-h.ended
	return err
}

func (h *HTTP) shutdown(ctx context.Context) error {
	gentle, cancel := context.WithTimeout(ctx, h.grace)
	defer cancel()
	if h.server.Shutdown(gentle) == nil {
		h.endRequests(ErrStopped)
		return nil
	}
	h.endRequests(ErrStopped)
	if err := h.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop serving: %w", err), h.server.Close())
	}
	return nil
}

// Done is closed when the server serves no more.
func (h *HTTP) Done() <-chan struct{} { return h.ended }

// Err says why it ended by itself.
func (h *HTTP) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}
