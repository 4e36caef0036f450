package machinesapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/store"
)

// Machine is a machine as this shape shows it.
type Machine struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	State      machine.State   `json:"state"`
	Region     string          `json:"region"`
	InstanceID string          `json:"instance_id"`
	Version    string          `json:"version"`
	PrivateIP  string          `json:"private_ip"`
	ImageRef   ImageRef        `json:"image_ref"`
	Config     json.RawMessage `json:"config,omitempty"`
	Incomplete json.RawMessage `json:"incomplete_config"`
	Events     []Event         `json:"events,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
	HostStatus string          `json:"host_status"`
	Cordoned   bool            `json:"cordoned,omitempty"`
	Sandbox    string          `json:"sandbox_id,omitempty"` // of the native door
}

// ImageRef says what a machine is made from: what was asked for, and the digest
// of what it got.
type ImageRef struct {
	Registry   string            `json:"registry"`
	Repository string            `json:"repository"`
	Tag        string            `json:"tag"`
	Digest     string            `json:"digest"`
	Labels     map[string]string `json:"labels"`
}

// Event is something that happened to a machine.
type Event struct {
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Status    string        `json:"status"`
	Source    string        `json:"source"`
	Timestamp int64         `json:"timestamp"`
	Request   *EventRequest `json:"request,omitempty"`
}

// EventRequest is what more there is to say.
type EventRequest struct {
	Reason string        `json:"reason,omitempty"`
	Exit   *machine.Exit `json:"exit_event,omitempty"`
}

func show(m machine.Machine) Machine {
	var c struct {
		Image string `json:"image"`
	}
	_ = json.Unmarshal(m.Config, &c) // it was checked when it was taken
	return Machine{
		ID: m.ID, Name: m.Name, State: m.State, Region: m.Region, InstanceID: m.Instance, Version: m.Instance, PrivateIP: machine.PrivateIP(m.ID),
		ImageRef: imageRef(c.Image, m.Image), Config: m.Config, Events: showEvents(m.Events), CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
		HostStatus: "ok", Cordoned: m.Cordoned, Sandbox: m.Sandbox,
	}
}

func showEvents(list []machine.Event) []Event {
	events := make([]Event, 0, len(list))
	for _, e := range list {
		x := Event{ID: e.ID, Type: e.Type, Status: e.Status, Source: e.Source, Timestamp: e.At.UnixMilli()}
		if e.Reason != "" || e.Exit != nil {
			x.Request = &EventRequest{Reason: e.Reason, Exit: e.Exit}
		}
		events = append(events, x)
	}
	return events
}

// imageRef takes the name of an image apart.
func imageRef(name string, got machine.Image) ImageRef {
	r := ImageRef{Registry: "docker-hub-mirror.fly.io", Tag: "latest", Digest: got.Digest, Labels: map[string]string{}}
	if got.Name != "" && got.Name != name {
		r.Labels["aurea.image"] = got.Name // it was an alias
	}
	name, digest, _ := strings.Cut(name, "@")
	if r.Digest == "" {
		r.Digest = digest
	}
	if host, rest, ok := strings.Cut(name, "/"); ok && strings.ContainsAny(host, ".:") {
		r.Registry, name = host, rest
	}
	if i := strings.LastIndexByte(name, ':'); i > 0 {
		name, r.Tag = name[:i], name[i+1:]
	}
	r.Repository = name
	return r
}

// machineBody is what is sent to make or update a machine.
type machineBody struct {
	Name           string          `json:"name"`
	Region         string          `json:"region"`
	Config         json.RawMessage `json:"config"`
	SkipLaunch     bool            `json:"skip_launch"`
	CurrentVersion string          `json:"current_version"`
	LeaseTTL       json.RawMessage `json:"lease_ttl"`
}

func (a *API) create(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b machineBody
	if err := read(w, r, &b); err != nil {
		return 0, nil, err
	}
	ttl, err := machine.Seconds("lease_ttl", b.LeaseTTL)
	if err != nil {
		return 0, nil, err
	}
	m, err := a.cfg.Machinist.CreateMachine(r.Context(), r.PathValue("app"), machine.Request{Name: b.Name, Region: b.Region, Config: b.Config, SkipLaunch: b.SkipLaunch})
	if err != nil {
		return 0, nil, err
	}
	if ttl == 0 {
		return http.StatusOK, show(m), nil
	}
	lease, err := a.cfg.Machinist.TakeLease(r.Context(), machine.Ref{App: m.App, ID: m.ID}, ttl, "")
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, struct {
		Machine
		Nonce string `json:"nonce"`
	}{show(m), lease.Nonce}, nil
}

func (a *API) list(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	list, err := a.cfg.Machinist.Machines(r.Context(), store.MachineFilter{
		App: r.PathValue("app"), Region: q.Get("region"), State: machine.State(q.Get("state")), Destroyed: q.Get("include_deleted") == "true",
	})
	if err != nil {
		return 0, nil, err
	}
	answer := []Machine{}
	for _, m := range list {
		if fits(m, q) {
			answer = append(answer, show(m))
		}
	}
	return http.StatusOK, answer, nil
}

// fits reports whether a machine has the metadata that a query asks for, as
// metadata.KEY=VALUE.
func fits(m machine.Machine, q map[string][]string) bool {
	var c struct {
		Metadata map[string]string `json:"metadata"`
	}
	_ = json.Unmarshal(m.Config, &c)
	for name, values := range q {
		if key, ok := strings.CutPrefix(name, "metadata."); ok && len(values) > 0 && c.Metadata[key] != values[0] {
			return false
		}
	}
	return true
}

func (a *API) get(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	m, err := a.cfg.Machinist.Machine(r.Context(), ref(r))
	return http.StatusOK, show(m), err
}

func (a *API) events(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	m, err := a.cfg.Machinist.Machine(r.Context(), ref(r))
	return http.StatusOK, showEvents(m.Events), err
}

func (a *API) update(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b machineBody
	if err := read(w, r, &b); err != nil {
		return 0, nil, err
	}
	m, err := a.cfg.Machinist.UpdateMachine(r.Context(), ref(r), machine.Request{
		Name: b.Name, Region: b.Region, Config: b.Config, SkipLaunch: b.SkipLaunch, CurrentVersion: b.CurrentVersion,
	})
	return http.StatusOK, show(m), err
}

// ok is the answer of what was done and has nothing to say.
type ok struct {
	OK bool `json:"ok"`
}

// done is the answer to something that was done, or not.
func done(err error) (int, any, error) { return http.StatusOK, ok{true}, err }

// destroy stops a machine that runs, with force or without, and destroys it:
// there are clients that send none and expect that it is gone.
func (a *API) destroy(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return done(a.cfg.Machinist.DestroyMachine(r.Context(), ref(r)))
}

// Bounds of how long a wait may take.
const (
	usualWait = time.Minute
	maxWait   = 10 * time.Minute
)

func (a *API) wait(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	state := machine.State(q.Get("state"))
	if state == "" {
		state = machine.Started
	}
	if !state.Valid() {
		return 0, nil, fault.Field("state", "is not a state of a machine")
	}
	timeout, err := machine.ParseSeconds("timeout", q.Get("timeout"))
	if err != nil {
		return 0, nil, err
	}
	if timeout == 0 {
		timeout = usualWait
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), min(timeout, maxWait), errors.New("the wait is over"))
	defer cancel()
	return done(a.cfg.Machinist.WaitMachine(ctx, ref(r), state, q.Get("instance_id")))
}
