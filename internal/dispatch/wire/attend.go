package wire

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// maxCommand bounds the body of a command.
const maxCommand = 64 << 10

// Attend opens the command stream and serves it. It returns what the manager's
// own Attend returned, when the manager ended the stream; otherwise a fault of
// kind Unavailable. No call of rc is under way when it returns.
func (c *Client) Attend(ctx context.Context, session string, rc dispatch.Receiver) error {
	return c.attend(ctx, commandsPath, session, newCommanded(rc, c.log))
}

// AttendBeside opens a second stream, for sandboxes alone, and serves it as
// Attend does.
func (c *Client) AttendBeside(ctx context.Context, session string, rc dispatch.Receiver) error {
	m := newCommanded(rc, c.log)
	m.beside = true
	return c.attend(ctx, besidePath, session, m)
}

func (c *Client) attend(ctx context.Context, path, session string, m *commanded) error {
	if err := dispatch.CheckSession(session); err != nil {
		return err
	}
	nc, err := c.open(ctx, path, session)
	if err != nil {
		return err
	}
	if !m.beside {
		defer c.keepLines(ctx, session, m.rc)()
	}
	return m.serve(ctx, nc)
}

// open dials, and asks to turn the connection round.
func (c *Client) open(ctx context.Context, path, session string) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dispatch.ReportTimeout, errTimeout)
	defer cancel()
	var dialed net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { dialed = info.Conn },
	})
	req, err := c.request(ctx, http.MethodGet, path, url.Values{"session": {session}}, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	resp, err := c.upgrade.Do(req)
	if err != nil {
		return nil, away(ctx, "open the command stream", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = resp.Body.Close() }()
		return nil, readProblem(resp)
	}
	if !asksFor(resp.Header, protocol) || dialed == nil {
		_ = resp.Body.Close()
		return nil, fault.New(fault.Unavailable, "open the command stream: the other end does not speak %s", protocol)
	}
	return newConn(dialed, resp.Body), nil
}

// commanded is the worker's end of one stream: a server on a connection that
// the worker itself dialed.
type commanded struct {
	rc     dispatch.Receiver
	log    *slog.Logger
	beside bool       // it is a second stream, or a line
	line   bool       // it carries one call at a time
	ended  chan error // what the manager said last; never blocks

	mu      sync.Mutex
	over    bool
	running sync.WaitGroup // grows only while over is false
}

func newCommanded(rc dispatch.Receiver, log *slog.Logger) *commanded {
	return &commanded{rc: rc, log: log, ended: make(chan error, 1)}
}

// serve answers commands until ctx ends, the manager ends the stream, or it
// breaks. It owns c, and returns when nothing of the stream runs any more.
func (m *commanded) serve(ctx context.Context, c *conn) error {
	gone := make(chan struct{})
	var started bool
	var once sync.Once
	srv := &http.Server{
		Handler:           m,
		Protocols:         m.protocols(),
		HTTP2:             commandedBy(),
		ReadHeaderTimeout: m.silence(),
		ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				started = true // on Serve's own goroutine
			case http.StateClosed:
				once.Do(func() { close(gone) })
			case http.StateActive, http.StateIdle, http.StateHijacked:
			}
		},
	}
	l := listen(c)
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		_ = srv.Serve(l) // always ErrServerClosed, or the listener's end
	}()
	err := m.wait(ctx, c)
	_ = c.Close()
	_ = srv.Close()
	<-accepting
	if started {
		<-gone
	}
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
	m.running.Wait()
	return err
}

// silence is how long a manager may upgrade a connection and then say nothing. A
// line waits until it is needed.
func (m *commanded) silence() time.Duration {
	if m.line {
		return 0
	}
	return Dead
}

// protocols are what the manager speaks on it.
func (m *commanded) protocols() *http.Protocols {
	if !m.line {
		return reversed()
	}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

func (m *commanded) wait(ctx context.Context, c *conn) error {
	select {
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "hold the command stream: %w", context.Cause(ctx))
	case err := <-m.ended:
		return err
	case <-c.closed:
	}
	select { // the word may have come right before the end
	case err := <-m.ended:
		return err
	default:
		return errBroke
	}
}

// ServeHTTP answers one command.
func (m *commanded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		return
	}
	m.running.Add(1)
	m.mu.Unlock()
	defer m.running.Done()
	if m.host(w, r) || !m.beside && m.work(w, r) {
		return
	}
	if err := m.obey(r); err != nil {
		writeProblem(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// work answers the calls about runs and builds, and reports whether this was
// one.
func (m *commanded) work(w http.ResponseWriter, r *http.Request) bool {
	switch r.Method + " " + r.URL.Path {
	case "POST /run":
		m.run(w, r)
	case "POST /build":
		m.build(w, r)
	case "POST /switch":
		m.pull(w, r)
	case "POST /pool":
		m.pool(w, r)
	default:
		return false
	}
	return true
}

var errNoCommand = fault.New(fault.NotFound, "this worker knows no such command").WithCode("no_such_command")

func (m *commanded) obey(r *http.Request) error {
	body, err := readCommand(r, maxCommand)
	if err != nil {
		return err
	}
	if m.beside && r.URL.Path != "/end" {
		return errNoCommand
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /cancel":
		var c dispatch.Cancel
		if err := unmarshal(body, &c); err != nil {
			return err
		}
		if err := c.Check(); err != nil {
			return err
		}
		return m.rc.Cancel(r.Context(), c)
	case "POST /forget":
		var n named
		if err := unmarshal(body, &n); err != nil {
			return err
		}
		if err := n.Check(); err != nil {
			return err
		}
		return m.rc.Forget(r.Context(), n.ID)
	case "POST /end":
		return m.end(body)
	}
	return errNoCommand
}

// end takes the manager's last word. Only the first counts.
func (m *commanded) end(body []byte) error {
	var e ending
	if err := unmarshal(body, &e); err != nil {
		return err
	}
	var why error
	if e.Problem != nil {
		why = e.Problem.fault()
	}
	select {
	case m.ended <- why:
	default:
	}
	return nil
}
