package wire

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

// A call over the command stream passes through a handful of goroutines at either
// end, because it shares the connection with all others. For one that is done in
// a moment that is a good part of its time. So a worker opens a few lines beside
// the stream: connections that carry one call at a time, spoken by who asks and
// answered by who does it. What finds no line free goes over the stream.

const (
	// lineCount is how many lines a worker opens.
	lineCount = 4
	// maxLineAnswer bounds what comes for one call: its head and the longest body.
	maxLineAnswer = 64<<10 + maxRan
)

// lines are the free lines of a stream, at the manager's end.
type lines struct {
	mu   sync.Mutex
	over bool
	free []*line // the longest free first
	all  map[*line]bool
}

// line is one connection.
type line struct {
	c    *conn
	left *io.LimitedReader // what may still come for the call
	r    *bufio.Reader
}

func newLine(c *conn) *line {
	left := &io.LimitedReader{R: c}
	return &line{c: c, left: left, r: bufio.NewReader(left)}
}

// add takes a line in. It reports false when the stream is over, or has too many.
// Nobody listens on a free line, so one that the worker has closed is not known
// to be: a new one takes the place of the one that was free for longest.
func (l *lines) add(n *line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= lineCount && len(l.free) > 0 {
		l.close(l.free[0])
	}
	if l.over || len(l.all) >= 2*lineCount {
		return false
	}
	if l.all == nil {
		l.all = map[*line]bool{}
	}
	l.all[n] = true
	l.free = append(l.free, n)
	return true
}

// close closes a line and forgets it. mu is held.
func (l *lines) close(n *line) {
	_ = n.c.Close()
	delete(l.all, n)
	l.free = slices.DeleteFunc(l.free, func(x *line) bool { return x == n })
}

// take takes a free line; nil is that there is none.
func (l *lines) take() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		return nil
	}
	n := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	return n
}

// give gives a line back that carries nothing.
func (l *lines) give(n *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[n] {
		l.free = append(l.free, n)
	}
}

// drop closes and forgets a line.
func (l *lines) drop(n *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close(n)
}

// end closes all of them: who waits for an answer hears that it will not come.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for n := range l.all {
		l.close(n)
	}
}

func (l *lines) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// quick is post over a line, where one is free. It is for calls that can be said
// again: one whose line breaks is.
func (s *stream) quick(ctx context.Context, name string, body []byte) (*http.Response, error) {
	n := s.lines.take()
	if n == nil {
		return s.post(ctx, name, body)
	}
	hangUp := context.AfterFunc(ctx, func() { _ = n.c.Close() }) // until the answer was read
	resp, err := n.post(name, body)
	if err != nil {
		hangUp()
		s.lines.drop(n)
		if ctx.Err() != nil {
			return nil, fault.New(fault.Unavailable, "%s: the worker cannot be reached: %w", name, context.Cause(ctx))
		}
		return s.post(ctx, name, body)
	}
	resp.Body = &lineBody{ReadCloser: resp.Body, of: &s.lines, line: n, reusable: !resp.Close, hangUp: hangUp}
	return resp, nil
}

func (n *line) post(name string, body []byte) (*http.Response, error) {
	n.left.N = maxLineAnswer
	head := make([]byte, 0, 128+len(body))
	head = append(head, "POST /"+name+" HTTP/1.1\r\nHost: worker\r\nContent-Type: "+jsonType+"\r\nContent-Length: "...)
	head = append(strconv.AppendInt(head, int64(len(body)), 10), "\r\n\r\n"...)
	if err := n.c.SetWriteDeadline(time.Now().Add(Dead)); err != nil {
		return nil, err
	}
	if _, err := n.c.Write(append(head, body...)); err != nil {
		return nil, err
	}
	return http.ReadResponse(n.r, &http.Request{Method: http.MethodPost})
}

// lineBody is an answer, which keeps its line until it was read.
type lineBody struct {
	io.ReadCloser
	of       *lines
	line     *line
	reusable bool
	whole    bool
	hangUp   func() bool // stops to look whether who asks is there
}

// Read implements io.Reader.
func (b *lineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.whole = b.whole || err == io.EOF //nolint:errorlint // as readers return it
	return n, err
}

// Close gives the line back, or closes it where there is more on it.
func (b *lineBody) Close() error {
	if b.line == nil {
		return nil
	}
	if b.hangUp() && b.whole && b.reusable {
		b.of.give(b.line)
	} else {
		b.of.drop(b.line)
	}
	b.line = nil
	return nil
}

// note keeps a stream where its lines find it, until the returned function is
// called.
func (d *Door) note(ctx context.Context, session string, s *stream) (forget func()) {
	s.caller = policy.ActorOf(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.streams[session]
	d.streams[session] = s
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case d.streams[session] != s:
		case before != nil && !before.lines.isOver(): // this one was refused
			d.streams[session] = before
		default:
			delete(d.streams, session)
		}
	}
}

// lineIn is the manager's end of a new line.
func (d *Door) lineIn(w http.ResponseWriter, r *http.Request) {
	session := r.URL.Query().Get("session")
	if err := dispatch.CheckSession(session); err != nil {
		d.refuse(w, r, err)
		return
	}
	d.mu.Lock()
	s := d.streams[session]
	d.mu.Unlock()
	if s == nil || s.caller != policy.ActorOf(r.Context()) {
		d.refuse(w, r, fault.New(fault.Conflict, "the session has no command stream here, or not yet").WithCode("no_stream"))
		return
	}
	c, ok := d.takeOver(w, r)
	if !ok {
		return
	}
	defer func() { _ = c.Close() }()
	n := newLine(c)
	if !s.lines.add(n) {
		return
	}
	defer s.lines.drop(n)
	select {
	case <-c.closed:
	case <-r.Context().Done():
	}
}

// keepLines holds the lines of a session open until the returned function is
// called, which returns when nothing of them runs any more.
func (c *Client) keepLines(ctx context.Context, session string, rc dispatch.Receiver) (end func()) {
	ctx, stop := context.WithCancelCause(ctx)
	var open sync.WaitGroup
	for range lineCount {
		open.Go(func() { c.keepLine(ctx, session, rc) })
	}
	return func() {
		stop(errBroke)
		open.Wait()
	}
}

// keepLine holds a line open until ctx ends.
func (c *Client) keepLine(ctx context.Context, session string, rc dispatch.Receiver) {
	for pause := minBeside; ctx.Err() == nil; pause = min(2*pause, maxBeside) {
		nc, err := c.open(ctx, linePath, session)
		if fault.Is(err, fault.NotFound) {
			return // a manager of another release
		}
		if err == nil {
			m := newCommanded(rc, c.log)
			m.beside, m.line = true, true
			err = m.serve(ctx, nc)
			pause = minBeside
		}
		c.log.Debug("a line to the manager ended", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
