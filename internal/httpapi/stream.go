package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/store"
)

// streamPage is how many events are read, and held, for one reader at a time.
const streamPage = 100

// errStreamEnds is the cause of a stream's end when the server shuts down.
var errStreamEnds = errors.New("streams are ending")

// eventStream follows the record for one reader. Nothing is buffered for it:
// what it gets is read from the store at its own cursor, page by page, so a
// slow reader falls behind and loses nothing.
func (a *API) eventStream(ctx context.Context, c *Cursor, f event.Filter, given bool) (*huma.StreamResponse, error) {
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// Watching begins before the first look, so that nothing can happen between.
	wake := a.cfg.Manager.WatchEvents(ctx)
	if !given {
		last, err := a.cfg.Manager.LastEvent(ctx)
		if err != nil {
			cancel(err)
			leave()
			return nil, err
		}
		f.After = last
	} else if err := a.cfg.Manager.CheckCursor(ctx, f.After); err != nil {
		cancel(err)
		leave()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		defer cancel(errStreamEnds)
		s := &eventWriter{out: newSlowWriter(c.w)}
		defer s.out.done()
		if err := a.follow(ctx, s, f, wake, c.r.Method == http.MethodHead); err != nil && ctx.Err() == nil {
			guard.NoteError(ctx, err)
		}
	}}, nil
}

// follow sends events until the reader goes or streams end. Who asks for the
// head only is not kept.
func (a *API) follow(ctx context.Context, s *eventWriter, f event.Filter, wake <-chan struct{}, head bool) error {
	if err := s.begin(f.After); err != nil || head {
		return err
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		if err := a.catchUp(ctx, s.events, &f); err != nil {
			return err
		}
		select {
		case _, more := <-wake:
			if !more {
				return nil
			}
		case <-tick.C:
			if err := s.comment(); err != nil {
				return err
			}
		case <-a.endings:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// catchUp sends what the reader has not seen, page by page.
func (a *API) catchUp(ctx context.Context, send func([]event.Event) error, f *event.Filter) error {
	for {
		select {
		case <-a.endings:
			return nil
		default:
		}
		if more, err := a.sendPage(ctx, send, f); err != nil || !more {
			return err
		}
	}
}

// sendPage sends one page and reports whether there may be another. The end of
// the record is looked up first, so that the cursor can pass what the filter
// leaves out.
func (a *API) sendPage(ctx context.Context, send func([]event.Event) error, f *event.Filter) (more bool, err error) {
	var last int64
	events, done, err := a.streams.page(ctx, func() (events []event.Event, err error) {
		if last, err = a.cfg.Manager.LastEvent(ctx); err == nil && last > f.After {
			events, err = a.cfg.Manager.Events(ctx, *f, streamPage)
		}
		return events, err
	})
	if err != nil {
		return false, err
	}
	defer done()
	if last <= f.After {
		return false, nil
	}
	if err := send(events); err != nil {
		return false, err
	}
	if len(events) > 0 {
		f.After = events[len(events)-1].Seq
	}
	if len(events) < streamPage && !store.Full(events, store.EventBytes) {
		f.After = max(f.After, last)
		return false, nil
	}
	return true, nil
}

// eventWriter writes server-sent events.
type eventWriter struct {
	out *slowWriter
	buf bytes.Buffer
}

// begin opens the stream. The id tells a reader that loses its connection
// before its first event where to go on.
func (s *eventWriter) begin(after int64) error {
	h := s.out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s.out.WriteHeader(http.StatusOK)
	fmt.Fprintf(&s.buf, ": keepalive\nretry: 1000\nid: %d\n\n", after)
	return s.flush()
}

func (s *eventWriter) comment() error {
	s.buf.WriteString(": keepalive\n\n")
	return s.flush()
}

func (s *eventWriter) events(events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	for _, e := range events {
		data, err := json.Marshal(e) // has no line breaks: they are escaped or left out
		if err != nil {
			return fmt.Errorf("write event %d: %w", e.Seq, err)
		}
		s.buf.WriteString("id: " + strconv.FormatInt(e.Seq, 10) + "\nevent: " + oneLine(string(e.Type)) + "\ndata: ")
		s.buf.Write(data)
		s.buf.WriteString("\n\n")
	}
	return s.flush()
}

func (s *eventWriter) flush() error {
	defer func() {
		if s.buf.Reset(); s.buf.Cap() > 2*largePage { // not for the life of the stream
			s.buf = bytes.Buffer{}
		}
	}()
	if _, err := s.out.Write(s.buf.Bytes()); err != nil {
		return err
	}
	return s.out.flush()
}

// oneLine keeps a word from ending its line early.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// slowWriter gives each write its own time, so that a stream may last but a
// reader that has stopped reading is let go.
type slowWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newSlowWriter(w http.ResponseWriter) *slowWriter {
	return &slowWriter{ResponseWriter: w, control: http.NewResponseController(w)}
}

func (s *slowWriter) Write(p []byte) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // where the connection can
	return s.ResponseWriter.Write(p)
}

func (s *slowWriter) flush() error {
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// done leaves the connection as it was, for its next request.
func (s *slowWriter) done() { _ = s.control.SetWriteDeadline(time.Time{}) }

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a client that has gone needs no answer
}
