package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

var errBroke = fault.New(fault.Unavailable, "the command stream broke")

// goodbye bounds how long the manager tries to say why it ends a stream.
const goodbye = 2 * time.Second

// ending is the body of the last command: why the stream ends. No problem
// means that nothing was wrong.
type ending struct {
	Problem *problem `json:"problem,omitempty"`
}

// commands is the manager's end of the stream: it takes the connection over
// and hands it to the manager for as long as it holds.
func (d *Door) commands(w http.ResponseWriter, r *http.Request) {
	d.turn(w, r, func(ctx context.Context, session string, s *stream) error {
		defer d.note(ctx, session, s)()
		return d.manager.Attend(ctx, session, s)
	})
}

// beside is the manager's end of a second stream.
func (d *Door) beside(w http.ResponseWriter, r *http.Request) {
	m, shares := d.manager.(dispatch.Beside)
	if !shares {
		d.refuse(w, r, fault.New(fault.NotFound, "this manager is the only one").WithCode("no_such_call"))
		return
	}
	d.turn(w, r, func(ctx context.Context, session string, s *stream) error {
		err := m.AttendBeside(ctx, session, s)
		if asksNoMore(err) {
			s.finish(ctx)
		}
		return err
	})
}

// asksNoMore reports whether a second stream ended because another took its
// place, or because its session is over: then nothing new goes over it.
func asksNoMore(err error) bool {
	return fault.Is(err, fault.Conflict) || fault.Is(err, fault.Unauthenticated)
}

// turn turns a connection round.
func (d *Door) turn(w http.ResponseWriter, r *http.Request, attend func(context.Context, string, *stream) error) {
	session := r.URL.Query().Get("session")
	if err := dispatch.CheckSession(session); err != nil {
		d.refuse(w, r, err)
		return
	}
	c, ok := d.takeOver(w, r)
	if !ok {
		return
	}
	defer func() { _ = c.Close() }()
	cc, err := dialOnce(r.Context(), c)
	if err != nil {
		d.log.Debug("a worker hung up as its command stream opened", "error", err)
		return
	}
	s := &stream{cc: cc}
	defer s.lines.end()
	err = hold(r.Context(), c, func(ctx context.Context) error { return attend(ctx, session, s) })
	select {
	case <-c.closed:
	default:
		s.end(context.WithoutCancel(r.Context()), err)
	}
	_ = cc.Close()
}

// takeOver takes a connection over from HTTP/1.1, and reports whether it could.
func (d *Door) takeOver(w http.ResponseWriter, r *http.Request) (*conn, bool) {
	if !asksFor(r.Header, protocol) {
		w.Header().Set("Upgrade", protocol)
		d.refuse(w, r, fault.Field("Upgrade", "must be %s", protocol))
		return nil, false
	}
	taken, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		d.refuse(w, r, fmt.Errorf("take the connection over: %w", err))
		return nil, false
	}
	c := newConn(taken, afterHijack(taken, buffered.Reader))
	if err := accept(taken, buffered.Writer); err != nil {
		d.log.Debug("a worker hung up before its connection was turned round", "error", err)
		_ = c.Close()
		return nil, false
	}
	return c, true
}

// afterHijack reads what came too early and then the connection itself. The
// server's own reader would end the request's context on the first error,
// before we could say what it means.
func afterHijack(c net.Conn, buffered *bufio.Reader) io.Reader {
	early, _ := buffered.Peek(buffered.Buffered()) // never waits
	return io.MultiReader(bytes.NewReader(bytes.Clone(early)), c)
}

// hold calls the manager until it returns; a stream that breaks ends its
// context.
func hold(ctx context.Context, c *conn, attend func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-c.closed:
			cancel(errBroke)
		case <-ctx.Done():
		}
	}()
	err := attend(ctx)
	cancel(nil)
	<-watched
	return err
}

// asksFor reports whether the headers ask for an upgrade to the protocol.
func asksFor(h http.Header, protocol string) bool {
	return hasToken(h.Values("Connection"), "upgrade") && hasToken(h.Values("Upgrade"), protocol)
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for word := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(word), token) {
				return true
			}
		}
	}
	return false
}

func accept(c net.Conn, w *bufio.Writer) error {
	if err := c.SetDeadline(time.Now().Add(dispatch.ReportTimeout)); err != nil {
		return err
	}
	_, err := w.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n")
	return errors.Join(err, w.Flush(), c.SetDeadline(time.Time{}))
}

var _ dispatch.Receiver = (*stream)(nil)

// stream is the worker as the manager commands it.
type stream struct {
	cc     *http.ClientConn
	caller string // whose it is
	lines  lines
}

// Cancel stops the work under a lease.
func (s *stream) Cancel(ctx context.Context, c dispatch.Cancel) error {
	if err := c.Check(); err != nil {
		return err
	}
	return s.command(ctx, "cancel", c, dispatch.ReportTimeout)
}

// finish waits until nothing is under way, or ctx ends.
func (s *stream) finish(ctx context.Context) {
	moved := make(chan struct{}, 1)
	s.cc.SetStateHook(func(*http.ClientConn) {
		select {
		case moved <- struct{}{}:
		default: // it looks anyway
		}
	})
	for s.cc.InFlight() > 0 && s.cc.Err() == nil {
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// end says why the stream ends. A worker that does not listen any more finds
// out by itself.
func (s *stream) end(ctx context.Context, why error) {
	var e ending
	if why != nil {
		var f *fault.Error
		if !errors.As(why, &f) {
			why = fault.New(fault.Unavailable, "the manager ended the command stream: %w", why)
		}
		p := problemOf(why)
		e.Problem = &p
	}
	_ = s.command(ctx, "end", e, goodbye)
}

func (s *stream) command(ctx context.Context, name string, in any, timeout time.Duration) error {
	body, err := encode(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	resp, err := s.post(ctx, name, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNoContent {
		return readProblem(resp)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxProblem))
	return nil
}
