package wire

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

// errClosed is the cause of everything that Close ends.
var errClosed = fault.New(fault.Unavailable, "the manager is stopping")

// Door is the manager's end of the wire.
type Door struct {
	manager dispatch.Manager
	log     *slog.Logger
	mux     *http.ServeMux
	// patterns are the calls, as they were registered.
	patterns []string
	// stopping is done from the moment of Close. It outlives any one request,
	// and is the one context that is kept here.
	stopping context.Context //nolint:containedctx // see above
	stop     context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	streams map[string]*stream // first ones, by session
	calls   sync.WaitGroup     // grows only while closed is false
}

// Handler returns the manager's end of the wire, to be mounted at /wire/. It
// is an http.Handler; Close ends its streams and long polls.
func Handler(m dispatch.Manager, log *slog.Logger) *Door {
	d := &Door{manager: m, log: log, mux: http.NewServeMux(), streams: map[string]*stream{}}
	d.stopping, d.stop = context.WithCancelCause(context.Background())
	route(d, "register", m.Register)
	route(d, "lease", func(ctx context.Context, req dispatch.LeaseRequest) (leases, error) {
		ls, err := m.Lease(ctx, req)
		return wrap(ls), err
	})
	route(d, "extend", m.Extend)
	route(d, "report", m.Report)
	route(d, "finish", m.Finish)
	route(d, "tell", func(ctx context.Context, req dispatch.TellRequest) (nothing, error) {
		return nothing{}, m.Tell(ctx, req)
	})
	route(d, "leave", func(ctx context.Context, req leave) (nothing, error) {
		return nothing{}, m.Leave(ctx, req.Session)
	})
	d.handle("PUT "+blobsPath+"{sha256}", d.putBlob)
	d.handle("GET "+commandsPath, d.commands)
	d.handle("GET "+besidePath, d.beside)
	d.handle("GET "+linePath, d.lineIn)
	d.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, fault.New(fault.NotFound, "the wire has no such call; manager and worker may be of different releases").WithCode("no_such_call"))
	})
	return d
}

func (d *Door) handle(pattern string, h http.HandlerFunc) {
	d.patterns = append(d.patterns, pattern)
	d.mux.Handle(pattern, h)
}

// Patterns lists every call of this door, so that none is left out of what is
// checked.
func (d *Door) Patterns() []string { return slices.Clone(d.patterns) }

// ServeHTTP answers one call of a worker.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.enter() {
		writeProblem(w, errClosed)
		return
	}
	defer d.calls.Done()
	caller, ok := policy.From(r.Context())
	switch {
	case !ok:
		writeProblem(w, fault.New(fault.Unauthenticated, "a worker key is needed"))
		return
	case !caller.May(policy.Host):
		writeProblem(w, fault.New(fault.Denied, "a %s key cannot host sandboxes; use a worker key", caller.Kind))
		return
	}
	// A long poll and a large blob outlast what a server allows for a request;
	// each answer sets a deadline of its own.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(d.stopping, func() { cancel(context.Cause(d.stopping)) })() //nolint:contextcheck // the door ends calls when it stops
	d.mux.ServeHTTP(w, r.WithContext(ctx))
}

// Close ends every stream and long poll and returns when all calls have. Calls
// that come later are refused as Unavailable.
func (d *Door) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop(errClosed)
	d.calls.Wait()
}

func (d *Door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.calls.Add(1)
	return true
}

// route mounts one call: read, check, ask the manager, answer.
func route[Req checked, Ans any](d *Door, name string, call func(context.Context, Req) (Ans, error)) {
	d.handle("POST "+prefix+name, func(w http.ResponseWriter, r *http.Request) {
		var req Req
		body, err := readBody(w, r)
		if err == nil {
			err = unmarshal(body, &req)
		}
		if err == nil {
			err = req.Check()
		}
		var ans Ans
		if err == nil {
			ans, err = call(r.Context(), req)
		}
		if err != nil {
			d.refuse(w, r, err)
			return
		}
		out, err := encode(ans)
		if err != nil {
			// Not the caller's mistake, whatever encode thinks.
			d.refuse(w, r, errors.New("write the answer: "+err.Error()))
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(dispatch.ReportTimeout))
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write(out) // a caller that is gone asks again
	})
}

// refuse answers with a problem; what must not be told is logged.
func (d *Door) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if p := problemOf(err); p.Kind == fault.Internal.String() {
		d.log.Error("a worker's call failed", "call", r.URL.Path, "error", err)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(dispatch.ReportTimeout))
	writeProblem(w, err)
}
