package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

// Bounds of one socket.
const (
	// maxMessage bounds one message of a reader, and maxIncoming how many wait
	// while we write to it.
	maxMessage  = 64 << 10
	maxIncoming = 32
	// maxUnread is how much is sent before the reader has to show, by a pong,
	// that it reads. It fits into the buffers of a connection, so that there is
	// still room for the close code of one that does not.
	maxUnread = 128 << 10
	// slowest is the rate below which a reader of a large message counts as
	// stuck.
	slowest = 32 << 10 // bytes a second
)

// pace is how long a socket waits.
type pace struct {
	quiet time.Duration // without a message, before a ping is sent
	pong  time.Duration // for the answer to a ping
	write time.Duration // for one small message
}

// sockets keeps account of the sockets that are open.
type sockets struct {
	pace   pace
	writes context.Context //nolint:containedctx // what is written to sockets ends with all of them
	cut    context.CancelCauseFunc

	mu    sync.Mutex // orders enter before wait
	ended bool
	open  sync.WaitGroup
}

func newSockets() *sockets {
	s := &sockets{pace: pace{quiet: 30 * time.Second, pong: 30 * time.Second, write: writeTimeout}}
	s.writes, s.cut = context.WithCancelCause(context.Background())
	return s
}

// enter counts a socket, until open.Done is called; not once all have to end.
func (s *sockets) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.open.Add(1)
	}
	return !s.ended
}

// wait waits for the sockets to end. Those that are stuck in a write are cut.
func (s *sockets) wait() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	defer time.AfterFunc(2*time.Second, func() { s.cut(errStopping) }).Stop()
	s.open.Wait()
}

// socketEnd is why a socket is closed.
type socketEnd struct {
	code   websocket.StatusCode
	reason string
}

func (e *socketEnd) Error() string { return e.reason }

var (
	errReaderGone = errors.New("the reader has gone")
	errStopping   = &socketEnd{websocket.StatusGoingAway, "the server stops; come back with your cursor"}
	errStuck      = &socketEnd{4408, "you do not read; come back with your cursor"}
	errFlood      = &socketEnd{4429, "too many messages at once"}
	errBinary     = &socketEnd{websocket.StatusUnsupportedData, "messages are JSON text"}
	errText       = &socketEnd{websocket.StatusInvalidFramePayloadData, "a message is not valid UTF-8"}
)

// socketFollower follows the record for the reader of one socket. As with
// eventStream nothing is buffered for it.
type socketFollower struct {
	api    *API
	ctx    context.Context //nolint:containedctx // ends with the socket
	cancel context.CancelCauseFunc
	conn   *websocket.Conn
	leave  func()
	wake   <-chan struct{}
	filter event.Filter
	job    string // the one that the path names

	incoming chan []byte
	quiet    *time.Timer
	unread   int // bytes since the last pong
}

// newFollower looks at everything that can be refused before the handshake.
func (a *API) newFollower(ctx context.Context, r *http.Request, open opening) (f socketFollower, err error) {
	query := r.URL.Query()
	s, err := querySubscription(query)
	if err != nil {
		return f, err
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	f = socketFollower{api: a, ctx: ctx, cancel: cancel, incoming: make(chan []byte, maxIncoming)}
	f.leave = func() { cancel(errStreamEnds); leave() }
	// Watching begins before the first look, so that nothing can happen between.
	f.wake = a.cfg.Manager.WatchEvents(ctx)
	if f.filter, err = open(ctx, r, s); err == nil {
		err = a.cfg.Manager.CheckCursor(ctx, f.filter.After)
	}
	if err != nil {
		f.leave()
		return f, err
	}
	f.job = r.PathValue("id")
	return f, nil
}

// run serves the reader until one of the two ends it, and says why.
func (f *socketFollower) run() error {
	f.conn.SetReadLimit(maxMessage)
	f.quiet = time.NewTimer(f.api.sockets.pace.quiet)
	defer f.quiet.Stop()
	// The reader's end has a context of its own: ending it cuts the connection,
	// and the close code has to go first. Closing the connection ends it.
	f.api.sockets.open.Go(func() { f.read(context.WithoutCancel(f.ctx)) })
	for {
		more, err := f.api.sendPage(f.ctx, f.send, &f.filter)
		if err != nil {
			return f.why(err)
		}
		if err := f.wait(more); err != nil {
			return f.why(err)
		}
	}
}

// why prefers the reason for which the reader's end was closed: what the
// writer's end says then is only its echo.
func (f *socketFollower) why(err error) error {
	if cause := context.Cause(f.ctx); cause != nil {
		return cause
	}
	return err
}

// wait returns when there may be something to send; at once if there is more.
func (f *socketFollower) wait(more bool) error {
	now := make(chan struct{})
	if more {
		close(now)
	}
	for {
		select { // what ends the socket, and what the reader says, goes first
		case <-f.api.endings:
			return errStopping
		case raw := <-f.incoming:
			again, err := f.hear(raw)
			if err != nil || again {
				return err
			}
			continue
		default:
		}
		select {
		case <-now:
			return nil
		case _, open := <-f.wake:
			if !open {
				return errStopping
			}
			return nil
		case raw := <-f.incoming:
			again, err := f.hear(raw)
			if err != nil || again {
				return err
			}
		case <-f.quiet.C:
			if err := f.ping(); err != nil {
				return err
			}
		case <-f.api.endings:
			return errStopping
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		}
	}
}

// read takes what the reader sends, without ever waiting for the writer's end:
// pongs are among it.
func (f *socketFollower) read(ctx context.Context) {
	for {
		kind, raw, err := f.conn.Read(ctx)
		switch {
		case err != nil:
			f.cancel(errReaderGone)
			return
		case kind != websocket.MessageText:
			f.cancel(errBinary)
			return
		case !utf8.Valid(raw):
			f.cancel(errText)
			return
		}
		select {
		case f.incoming <- raw:
		default:
			f.cancel(errFlood)
			return
		}
	}
}

// hear does what the reader asks. again says that there may be something to
// send now.
func (f *socketFollower) hear(raw []byte) (again bool, err error) {
	kind, s, err := decodeMessage(raw)
	switch {
	case err != nil:
		return false, f.write(errorMessage(err))
	case kind == "ping":
		return false, f.write(map[string]string{"type": "pong"})
	case kind == "pong":
		return false, nil
	case s == nil:
		return false, f.write(errorMessage(problem.New(http.StatusUnprocessableEntity, "unknown_message", "The type of a message is subscribe or ping.")))
	}
	filter, err := s.filter(f.filter.After)
	if err != nil {
		return false, f.write(errorMessage(err))
	}
	if f.job != "" {
		filter.JobID = f.job
	}
	f.filter = filter
	return true, f.write(map[string]any{"status": "subscribed", "seq": filter.After})
}

// ping asks a reader that was told nothing for long whether it is there, in
// both ways: pages see only messages, and only a pong cannot be forgotten.
func (f *socketFollower) ping() error {
	if err := f.write(map[string]any{"type": "ping", "seq": f.filter.After}); err != nil {
		return err
	}
	return f.demandPong()
}

// demandPong waits until the reader has read all that was sent.
func (f *socketFollower) demandPong() error {
	ctx, cancel := context.WithTimeoutCause(f.ctx, f.api.sockets.pace.pong, errStuck)
	defer cancel()
	if err := f.conn.Ping(ctx); err != nil {
		return stuck(ctx, err)
	}
	f.unread = 0
	return nil
}

// send sends a page of events.
func (f *socketFollower) send(events []event.Event) error {
	for i := range events {
		if err := f.write(socketEvent(&events[i])); err != nil {
			return err
		}
	}
	return nil
}

func (f *socketFollower) write(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	most := f.api.sockets.pace.write + time.Duration(len(raw)/slowest)*time.Second
	// Not under f.ctx: a message that is cut short leaves no way to say why.
	ctx, cancel := context.WithTimeoutCause(f.api.sockets.writes, most, errStuck)
	defer cancel()
	if err := f.conn.Write(ctx, websocket.MessageText, raw); err != nil {
		return stuck(ctx, err)
	}
	f.quiet.Reset(f.api.sockets.pace.quiet)
	if f.unread += len(raw); f.unread >= maxUnread {
		return f.demandPong()
	}
	return nil
}

// stuck tells a reader that ran out of time from one that has gone.
func stuck(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errors.Join(errReaderGone, err)
}

func writeMessage(ctx context.Context, conn *websocket.Conn, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return conn.Write(ctx, websocket.MessageText, raw)
}

// errorMessage is a problem as a message.
func errorMessage(err error) any {
	p := problem.From(err)
	return map[string]any{"type": "error", "code": p.Code, "error": p.Detail, "errors": p.Errors}
}
