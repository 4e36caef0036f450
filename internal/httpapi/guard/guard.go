// Package guard is what stands before every HTTP door: it catches panics,
// names each request, writes the access log, sets the headers that browsers
// need to be safe, and turns away requests that a foreign web page sent
// (wrong Host, foreign Origin).
//
// It knows no route, no key and no use case; the doors put it around their
// handlers.
package guard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

// Config says what to let through.
type Config struct {
	// Loopback says that the door is bound to loopback: then only requests
	// that name a loopback host, or one of Hosts, get in, so that no web page
	// can reach it through a name of its own (DNS rebinding).
	Loopback bool
	// Hosts are further names under which the door is known, without port.
	// When the door is not bound to loopback and none is given, any will do:
	// then keys are what protects it.
	Hosts []string
	// Origins are foreign origins ("https://host[:port]") whose pages may
	// change things.
	Origins []string
	// Aside names a handler for host names that are not the door's own, such as
	// those of what it carries elsewhere; nil is none, for one or for all. Such
	// requests are logged and not checked.
	Aside  func(host string) http.Handler
	Logger *slog.Logger
	// Observe is told of every request that was answered: its method, the
	// pattern of the route that matched ("" for none), the status, how long it
	// took. It may be nil.
	Observe func(method, route string, status int, took time.Duration)
}

// Wrap puts the guard around a handler.
func Wrap(next http.Handler, cfg Config) (http.Handler, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	origin, err := sameOrigin(cfg.Origins)
	if err != nil {
		return nil, err
	}
	h := origin.Handler(next)
	h = checkHost(h, cfg)
	h = safeHeaders(h)
	if cfg.Aside != nil {
		h = aside(h, cfg.Aside)
	}
	return watch(h, cfg), nil
}

// watch names the request, catches panics, and logs how it went.
func watch(next http.Handler, cfg Config) http.Handler {
	log := cfg.Logger
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		note := &note{id: requestID(r)}
		rec := &recorder{ResponseWriter: w}
		if cfg.Observe != nil {
			defer func() { cfg.Observe(r.Method, r.Pattern, rec.status, time.Since(started)) }()
		}
		r = r.WithContext(audit.WithRequest(context.WithValue(r.Context(), noteKey{}, note), note.id))
		w.Header().Set("X-Request-ID", note.id)
		defer func() {
			if p := recover(); p != nil {
				note.err = panicked(p)
				if errors.Is(note.err, http.ErrAbortHandler) || rec.status != 0 {
					// Too late to answer: the connection must not look as if
					// it had ended well.
					logRequest(log, r, rec, note, started)
					panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's own way to cut a connection
				}
				problem.From(note.err).Write(rec)
			}
			logRequest(log, r, rec, note, started)
		}()
		next.ServeHTTP(rec, r)
	})
}

// panicked turns a panic into an error. A write to a client that has gone is
// no bug and needs no stack.
func panicked(p any) error {
	err, ok := p.(error)
	if ok && (errors.Is(err, http.ErrAbortHandler) || errors.Is(err, net.ErrClosed) || errors.As(err, new(*net.OpError))) {
		return fmt.Errorf("%w: %w", http.ErrAbortHandler, err)
	}
	return fmt.Errorf("panic: %v\n%s", p, debug.Stack())
}

// logRequest writes the access log. Traffic that goes well is for debugging
// only: a busy manager answers thousands of requests each second.
func logRequest(log *slog.Logger, r *http.Request, rec *recorder, n *note, started time.Time) {
	level := slog.LevelDebug
	switch {
	case r.Context().Err() != nil: // the caller has gone: whatever we answered, nobody was hurt
	case rec.status >= 500:
		level = slog.LevelError
	case rec.status >= 400:
		level = slog.LevelInfo
	}
	if !log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request", n.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Duration("took", time.Since(started)),
	}
	if n.caller != "" {
		attrs = append(attrs, slog.String("caller", n.caller))
	}
	if n.err != nil {
		attrs = append(attrs, slog.String("error", n.err.Error()))
	}
	log.LogAttrs(r.Context(), level, "request", attrs...)
}

// note is what a request's log line will say besides the obvious.
type note struct {
	id     string
	caller string
	err    error
}

type noteKey struct{}

// NoteCaller says in the log whose request it is.
func NoteCaller(ctx context.Context, id string) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.caller = id
	}
}

// NoteError says in the log why a request failed.
func NoteError(ctx context.Context, err error) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.err = err
	}
}

// Noted returns what was noted of a request.
func Noted(ctx context.Context) (caller string, err error) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		return n.caller, n.err
	}
	return "", nil
}

// requestID keeps the id that a proxy gave, if it looks like one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-ID")
	if len(id) < 8 || len(id) > 64 {
		return uuid.NewString()
	}
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return uuid.NewString()
		}
	}
	return id
}

// safeHeaders sets what every answer should carry; a handler may say otherwise
// for its own pages.
func safeHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush sends what was written, where the connection can.
func (r *recorder) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

// Hijack hands over the connection, where it can be.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status = http.StatusSwitchingProtocols
	}
	return c, rw, err
}
