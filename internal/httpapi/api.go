// Package httpapi is the native HTTP door of the manager: REST under /api/v1
// and under the bare paths that older clients use, server-sent events, WebSockets, and the
// OpenAPI description with its two pages.
//
// It reads requests strictly, says who asks and whether they may, calls the
// manager, and writes answers; it decides nothing about jobs. The interface
// that it needs of the manager is Manager.
package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/trace"
)

// Bounds of this door.
const (
	keepAlive    = 15 * time.Second // between comments on a quiet stream
	writeTimeout = 30 * time.Second // for one write to a slow reader
)

// Config is what the door is made of.
type Config struct {
	Manager Manager
	Keeper  Keeper
	// Sessions looks after sessions.
	Sessions Sessions
	// Fleet is the fleet and its law.
	Fleet Fleet
	// Triggers watch the fleet.
	Triggers Triggers
	// Audit looks after the audit.
	Audit Auditor
	// KillSwitch stops things.
	KillSwitch KillSwitch
	Version    string // of the program
	// Loopback says that the door is bound to loopback; then the Host of every
	// request is checked.
	Loopback bool
	// Keys says that every request, the public ones aside, needs a key. Without
	// it everybody who reaches the door is the local caller, so it may be left
	// out only on loopback.
	Keys bool
	// Access looks after keys.
	Access Access
	// DirectorKey is the secret that makes a director; "" is that there is none.
	DirectorKey string
	Rates       Rates
	Hosts       []string // further names of this server, without port
	Origins     []string // origins whose pages may change things
	Logger      *slog.Logger
	Now         func() time.Time
	// Observe is told of every request, see guard.Config.
	Observe func(method, route string, status int, took time.Duration)
	Tracer  *trace.Tracer // follows requests; nil is off
}

// API is the door: an http.Handler.
type API struct {
	cfg             Config
	log             *slog.Logger
	mux             *ways
	huma            huma.API
	front           http.Handler
	started         time.Time
	routes          []Route
	streams         *streams
	sockets         *sockets
	calls, failures *counters // of keys, and of addresses that show wrong ones

	ending  sync.Once
	endings chan struct{} // closed when streams should end
}

// Route is one way in, for tests and for people: Action is what the caller
// must be allowed to do, or "" where anybody may.
type Route struct {
	Method string
	Path   string
	Action policy.Action
}

// New makes the door.
func New(cfg Config) (*API, error) {
	if !cfg.Keys && !cfg.Loopback {
		return nil, errors.New("make HTTP door: keys are needed unless it is bound to loopback")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &API{cfg: cfg, log: cfg.Logger, mux: newWays(), started: cfg.Now(), streams: newStreams(), sockets: newSockets(), calls: newCounters(), failures: newCounters(), endings: make(chan struct{})}
	a.huma = newHuma(a.mux)
	a.registerAll()
	front, err := guard.Wrap(a.traced(a.witnessed(a.mux)), guard.Config{Loopback: cfg.Loopback, Hosts: cfg.Hosts, Origins: cfg.Origins, Logger: a.log, Observe: cfg.Observe, Aside: a.aside})
	if err != nil {
		return nil, fmt.Errorf("make HTTP door: %w", err)
	}
	a.front = front
	if err := a.registerDocs(); err != nil {
		return nil, fmt.Errorf("make HTTP door: %w", err)
	}
	return a, nil
}

func (a *API) registerAll() {
	a.registerPRDs()
	a.registerJobs()
	a.registerWork()
	a.registerControl()
	a.registerEvents()
	a.registerSockets()
	a.registerRecords()
	a.registerLogs()
	a.registerQueue()
	a.registerSystem()
	a.registerRuns()
	a.registerHistory()
	a.registerBuild()
	a.registerSandboxes()
	a.registerSessions()
	a.registerAudit()
	a.registerKeys()
	a.registerFleet()
	a.registerTriggers()
	a.registerPause()
	a.registerKillSwitch()
	a.mux.HandleFunc("/", a.nowhere)
}

// traced makes each request a span, under the place that its traceparent names.
func (a *API) traced(next http.Handler) http.Handler {
	if a.cfg.Tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := a.cfg.Tracer.Start(trace.With(r.Context(), trace.Parse(r.Header.Get("traceparent"))), r.Method, trace.Server)
		inner := r.WithContext(ctx)
		defer func() {
			r.Pattern = inner.Pattern // for those around us
			span.Rename(inner.Pattern)
			span.End()
		}()
		next.ServeHTTP(w, inner)
	})
}

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.front.ServeHTTP(w, r) }

// Mount serves another handler behind the same guard and the same keys.
// pattern is one of http.ServeMux; the handler finds its caller in the context
// and bounds its own bodies. It must be called before the first request.
func (a *API) Mount(pattern string, action policy.Action, h http.Handler) {
	a.routes = append(a.routes, Route{Method: "*", Path: pattern, Action: action})
	a.mux.Handle(pattern, a.admitted(action, h))
	a.mux.note(h)
}

// Join serves another door behind the same guard. That door asks Caller who
// sends a request and says itself what it lets them do, since its refusals have
// a shape of their own. It must be called before the first request.
func (a *API) Join(pattern string, door http.Handler) {
	a.routes = append(a.routes, Route{Method: "*", Path: pattern, Action: elsewhere})
	a.mux.Handle(pattern, door)
	a.mux.note(door)
}

// Caller says who sends a request to a door that was joined. None of them knows
// projects.
func (a *API) Caller(r *http.Request) (policy.Caller, error) {
	c, err := a.caller(r)
	if err == nil {
		err = c.NoProject("the things here")
	}
	return c, err
}

// Oversee serves a handler of figures about everybody's jobs, for those who may
// see everybody's.
func (a *API) Oversee(pattern string, h http.Handler) {
	a.Mount(pattern, policy.Read, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, _ := policy.From(r.Context()); !c.SeesAll() {
			a.refuse(w, r, fault.New(fault.Denied, "A key of kind %q sees only its own jobs, and this is about everybody's.", c.Kind))
			return
		}
		h.ServeHTTP(w, r)
	}))
}

// Patterns lists every pattern under which this door and those behind it answer,
// as they were registered, so that no way in can be left out of what is checked.
func (a *API) Patterns() []string { return slices.Clone(a.mux.patterns) }

// Routes lists every route with what it demands.
func (a *API) Routes() []Route { return append([]Route(nil), a.routes...) }

// EndStreams ends the streams that are open, and those that are opened later,
// so that the server can shut down; their clients come back with their cursor.
func (a *API) EndStreams() { a.ending.Do(func() { close(a.endings) }) }

// Close ends the streams and waits for those that http.Server does not wait
// for: sockets are not its connections any more.
func (a *API) Close() {
	a.EndStreams()
	a.sockets.wait()
}
