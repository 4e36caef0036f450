package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/job"
)

// RootBody says what is here.
type RootBody struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	About   string `json:"description"`
	Docs    string `json:"docs"`
	ReDoc   string `json:"redoc"`
	OpenAPI string `json:"openapi"`
	Health  string `json:"health"`
}

// HealthBody says how the whole is doing. It has what each of the systems that
// Aurea stands in for used to say.
type HealthBody struct {
	Status           string    `json:"status" enum:"healthy,degraded" doc:"degraded when the database does not answer, no sandbox can be made, or a driver failed its proof."`
	Version          string    `json:"version"`
	UptimeSeconds    float64   `json:"uptime_seconds"`
	Timestamp        time.Time `json:"timestamp"`
	SandboxAvailable bool      `json:"sandbox_available" doc:"Whether a connected worker can make sandboxes."`
	DockerVersion    *string   `json:"docker_version" doc:"Of the Docker Engine that a connected worker makes sandboxes with; null where none is needed."`
	Workers          int       `json:"workers" doc:"How many workers are connected."`
	Drivers          []string  `json:"drivers" nullable:"false" doc:"What they make sandboxes with; a degraded driver is not among them."`

	DriverStatus []DriverBody `json:"driver_status" nullable:"false" doc:"Every driver that a connected worker has, and how it was proved."`
	Pool         []PoolBody   `json:"pool" nullable:"false" doc:"The sandboxes that wait for code at connected workers."`
	Paused       []string     `json:"paused" nullable:"false" doc:"Why workers take no more jobs for now, such as a full disk; they go on by themselves."`
}

type healthOutput struct{ Body HealthBody }

// ReadyBody says that requests can be served.
type ReadyBody struct {
	Ready bool `json:"ready"`
}

type readyOutput struct{ Body ReadyBody }

func (a *API) registerSystem() {
	register(a, route{
		method: http.MethodGet, path: "/health", action: public, id: "getHealth", tag: "system", summary: "How the whole is doing",
		detail: "Always 200 while the server runs; needs no key.",
	}, a.health)
	register(a, route{
		method: http.MethodGet, path: "/ready", action: public, id: "getReady", tag: "system", summary: "Whether requests can be served",
		detail: "200, or 503 when the database does not answer; needs no key.",
	}, a.ready)
	a.page("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, RootBody{
			Name: "Aurea Sandbox Orchestrator", Version: a.cfg.Version, About: "Runs untrusted code and agents in sandboxes of their own, and keeps a record of what happened.", Docs: "/docs", ReDoc: "/redoc", OpenAPI: "/openapi.json", Health: "/health",
		})
	})
}

// page adds a route that anybody may read and that is no operation.
func (a *API) page(path string, h http.HandlerFunc) {
	a.routes = append(a.routes, Route{Method: http.MethodGet, Path: path, Action: public})
	a.mux.HandleFunc("GET "+path, h)
}

func (a *API) health(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	now := a.cfg.Now()
	b := HealthBody{
		Status: "healthy", Version: a.cfg.Version, UptimeSeconds: now.Sub(a.started).Seconds(), Timestamp: now.UTC(), Drivers: []string{},
		DriverStatus: []DriverBody{}, Paused: []string{}, Pool: []PoolBody{},
	}
	h, err := a.cfg.Manager.Health(ctx)
	if err != nil {
		guard.NoteError(ctx, err)
		b.Status = "degraded"
		return &healthOutput{Body: b}, nil
	}
	if h.Uptime > 0 {
		b.UptimeSeconds = h.Uptime.Seconds()
	}
	b.Workers = h.Workers
	b.Drivers = append(b.Drivers, h.Drivers...)
	b.DriverStatus = driverBodies(h.Proofs)
	b.Paused = append(b.Paused, h.Paused...)
	if i := slices.IndexFunc(h.Proofs, func(d job.Driver) bool { return d.Name == "docker" && d.Version != "" }); i >= 0 {
		b.DockerVersion = &h.Proofs[i].Version
	}
	b.Pool = poolBodies(a.cfg.Manager.Pool(ctx))
	b.SandboxAvailable = h.Workers > len(h.Paused) && len(h.Drivers) > 0
	failed := slices.ContainsFunc(h.Proofs, func(d job.Driver) bool { return d.Degraded != "" })
	if !b.SandboxAvailable || failed || len(h.Paused) > 0 {
		b.Status = "degraded"
	}
	return &healthOutput{Body: b}, nil
}

func (a *API) ready(ctx context.Context, _ *struct{}) (*readyOutput, error) {
	if err := a.cfg.Manager.Ready(ctx); err != nil {
		// The reason is for the log: anybody may ask this.
		return nil, fmt.Errorf("%w: %w", fault.New(fault.Unavailable, "Not ready: the database does not answer. Try again soon.").WithCode("not_ready"), err)
	}
	return &readyOutput{Body: ReadyBody{Ready: true}}, nil
}
