// Package machinesapi is a door in the shape of Fly's Machines API: apps and
// machines below /v1, for clients that were written for that and are pointed
// here. It reads requests, says who asks and whether they may, and writes
// answers and errors in that shape; what is done is the machinist's.
package machinesapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/machinist"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Apps and machines are what this door needs. Each call finds its caller in ctx.
type (
	// Apps keeps apps.
	Apps interface {
		CreateApp(ctx context.Context, name string) (machine.App, error)
		App(ctx context.Context, name string) (machine.App, error)
		Apps(ctx context.Context) ([]machine.App, error)
		DeleteApp(ctx context.Context, name string) error
	}
	// Machines keeps machines.
	Machines interface {
		CreateMachine(ctx context.Context, app string, req machine.Request) (machine.Machine, error)
		Machine(ctx context.Context, ref machine.Ref) (machine.Machine, error)
		Machines(ctx context.Context, f store.MachineFilter) ([]machine.Machine, error)
		UpdateMachine(ctx context.Context, ref machine.Ref, req machine.Request) (machine.Machine, error)
		WaitMachine(ctx context.Context, ref machine.Ref, state machine.State, instance string) error
		SetMetadata(ctx context.Context, ref machine.Ref, key string, value *string) error
		Cordon(ctx context.Context, ref machine.Ref, cordoned bool) error
	}
	// Steering moves machines, and runs commands in them.
	Steering interface {
		StartMachine(ctx context.Context, ref machine.Ref) (before machine.State, err error)
		StopMachine(ctx context.Context, ref machine.Ref, how machinist.Stop) error
		SuspendMachine(ctx context.Context, ref machine.Ref) error
		RestartMachine(ctx context.Context, ref machine.Ref, how machinist.Stop) error
		SignalMachine(ctx context.Context, ref machine.Ref, name string) error
		DestroyMachine(ctx context.Context, ref machine.Ref) error
		ExecMachine(ctx context.Context, ref machine.Ref, c machine.Command) (machine.Result, error)
		MachineProcesses(ctx context.Context, ref machine.Ref) ([]machine.Process, error)
	}
	// Leases keeps machines for who took them.
	Leases interface {
		Lease(ctx context.Context, ref machine.Ref) (machine.Lease, error)
		TakeLease(ctx context.Context, ref machine.Ref, ttl time.Duration, description string) (machine.Lease, error)
		ReleaseLease(ctx context.Context, ref machine.Ref) error
	}
	// Machinist is all of them.
	Machinist interface {
		Apps
		Machines
		Steering
		Leases
	}
)

// Config is what the door is made of.
type Config struct {
	Machinist Machinist
	// Caller says who sends a request. That a token was sent is checked here.
	Caller func(r *http.Request) (policy.Caller, error)
	// Limit refuses a caller that asks too often; nil is never.
	Limit func(w http.ResponseWriter, c policy.Caller, action policy.Action) error
	// Demand refuses what is new while nothing is taken in; nil is never.
	Demand func() error
	Logger *slog.Logger
}

// API is the door: an http.Handler for the paths below /v1/. The native door
// stands before it, with its guard.
type API struct {
	cfg Config
	mux *http.ServeMux
	// patterns are the routes, as they were registered.
	patterns []string
}

// nonceHeader carries the nonce of the lease under which a machine is changed.
const nonceHeader = "fly-machine-lease-nonce"

// New makes the door.
func New(cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{cfg: cfg, mux: http.NewServeMux()}
	const apps, one, machines, it = "/v1/apps", "/v1/apps/{app}", "/v1/apps/{app}/machines", "/v1/apps/{app}/machines/{id}"
	for _, r := range []struct {
		pattern string
		action  policy.Action
		do      answering
	}{
		{"GET " + apps, policy.Read, a.listApps},
		{"POST " + apps, policy.Submit, a.createApp},
		{"GET " + one, policy.Read, a.getApp},
		{"DELETE " + one, policy.Control, a.deleteApp},
		{"GET " + machines, policy.Read, a.list},
		{"POST " + machines, policy.Submit, a.create},
		{"GET " + it, policy.Read, a.get},
		{"POST " + it, policy.Submit, a.update},
		{"DELETE " + it, policy.Control, a.destroy},
		{"GET " + it + "/wait", policy.Read, a.wait},
		{"POST " + it + "/start", policy.Control, a.start},
		{"POST " + it + "/stop", policy.Control, a.stop},
		{"POST " + it + "/suspend", policy.Control, a.suspend},
		{"POST " + it + "/restart", policy.Control, a.restart},
		{"POST " + it + "/signal", policy.Control, a.signal},
		{"POST " + it + "/exec", policy.Submit, a.exec},
		{"GET " + it + "/ps", policy.Submit, a.processes},
		{"GET " + it + "/events", policy.Read, a.events},
		{"GET " + it + "/metadata", policy.Read, a.metadata},
		{"POST " + it + "/metadata/{key}", policy.Control, a.setMetadata},
		{"DELETE " + it + "/metadata/{key}", policy.Control, a.deleteMetadata},
		{"GET " + it + "/lease", policy.Read, a.lease},
		{"POST " + it + "/lease", policy.Control, a.takeLease},
		{"DELETE " + it + "/lease", policy.Control, a.releaseLease},
		{"POST " + it + "/cordon", policy.Control, a.cordon(true)},
		{"POST " + it + "/uncordon", policy.Control, a.cordon(false)},
	} {
		a.patterns = append(a.patterns, r.pattern)
		a.mux.Handle(r.pattern, a.route(r.action, r.do))
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusNotFound, failure{"404 page not found"})
	})
	return a
}

// Patterns lists every route of this door, so that none is left out of what is
// checked.
func (a *API) Patterns() []string { return slices.Clone(a.patterns) }

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// answering does what a route is for and returns status and body.
type answering func(w http.ResponseWriter, r *http.Request) (int, any, error)

// failure is an error as clients of this shape read it.
type failure struct {
	Error string `json:"error"`
}

// route lets through who may, and writes what comes of it.
func (a *API) route(action policy.Action, do answering) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := a.caller(r)
		guard.NoteCaller(r.Context(), c.Actor())
		if err == nil && !c.May(action) {
			err = fault.New(fault.Denied, "a key of kind %q may not do this; it needs the permission %q", c.Kind, action)
		}
		if err == nil && a.cfg.Limit != nil {
			err = a.cfg.Limit(w, c, action)
		}
		if err == nil && action == policy.Submit && r.Method == http.MethodPost && a.cfg.Demand != nil {
			err = a.cfg.Demand()
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		status, body, err := do(w, r.WithContext(policy.With(r.Context(), c)))
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		write(w, status, body)
	})
}

// caller says who asks. A request without a token is nobody's, also where any
// token will do.
func (a *API) caller(r *http.Request) (policy.Caller, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "FlyV1") || token == "" {
		return policy.Caller{}, fault.New(fault.Unauthenticated, "unauthorized: send a token as \"Authorization: Bearer TOKEN\"")
	}
	bearer := r.Clone(r.Context())
	bearer.Header.Set("Authorization", "Bearer "+token)
	return a.cfg.Caller(bearer)
}

// refuse writes an error in the shape of this door and leaves it in the log.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	guard.NoteError(r.Context(), err)
	if r.Context().Err() != nil {
		return // nobody reads it
	}
	status, text := statusOf(err)
	if after := retryAfter(err); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(after, time.Second)/time.Second)))
	}
	write(w, status, failure{text})
}

func write(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal: the answer could not be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // to a client that may have gone
}

// ref names the machine of a request.
func ref(r *http.Request) machine.Ref {
	return machine.Ref{App: r.PathValue("app"), ID: r.PathValue("id"), Nonce: r.Header.Get(nonceHeader)}
}
