package machinesapi

import (
	"encoding/json"
	"net/http"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/machine"
)

// read reads a body; there must be one.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := guard.ReadBody(w, r)
	if err != nil {
		return err
	}
	if body == nil {
		return fault.New(fault.Invalid, "the body is empty; send a JSON object")
	}
	return decode(body, into)
}

// readMaybe reads a body if there is one.
func readMaybe(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := guard.ReadBody(w, r)
	if err != nil || body == nil {
		return err
	}
	return decode(body, into)
}

// decode leaves out fields that it does not know, as the origin of this shape
// does: its clients send more than the server needs.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fault.New(fault.Invalid, "the body cannot be read: it is not JSON, or a field has another type")
	}
	return nil
}

// organization is whose an app is; there is only one here.
type organization struct {
	Name string `json:"name"`
	Slug string `json:"slug"`
}

// app is an app as this shape shows it.
type app struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Status       string       `json:"status"`
	MachineCount int64        `json:"machine_count"`
	Network      string       `json:"network"`
	Organization organization `json:"organization"`
}

func showApp(x machine.App) app {
	status := "pending"
	if x.Machines > 0 {
		status = "deployed"
	}
	return app{ID: x.Name, Name: x.Name, Status: status, MachineCount: x.Machines, Network: "default", Organization: organization{"Personal", "personal"}}
}

func (a *API) listApps(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	list, err := a.cfg.Machinist.Apps(r.Context())
	apps := []app{}
	for _, x := range list {
		apps = append(apps, showApp(x))
	}
	return http.StatusOK, struct {
		Total int   `json:"total_apps"`
		Apps  []app `json:"apps"`
	}{len(apps), apps}, err
}

func (a *API) createApp(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b struct {
		Name  string `json:"app_name"`
		Other string `json:"name"`
	}
	if err := read(w, r, &b); err != nil {
		return 0, nil, err
	}
	if b.Name == "" {
		b.Name = b.Other
	}
	x, err := a.cfg.Machinist.CreateApp(r.Context(), b.Name)
	return http.StatusCreated, struct {
		ID        string `json:"id"`
		CreatedAt int64  `json:"created_at"`
	}{x.Name, x.CreatedAt.UnixMilli()}, err
}

func (a *API) getApp(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	x, err := a.cfg.Machinist.App(r.Context(), r.PathValue("app"))
	return http.StatusOK, showApp(x), err
}

func (a *API) deleteApp(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return http.StatusAccepted, nil, a.cfg.Machinist.DeleteApp(r.Context(), r.PathValue("app"))
}

func (a *API) metadata(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	m, err := a.cfg.Machinist.Machine(r.Context(), ref(r))
	if err != nil {
		return 0, nil, err
	}
	c, err := machine.ReadConfig(m.Config)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	return http.StatusOK, c.Metadata, err
}

func (a *API) setMetadata(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b struct {
		Value *string `json:"value"`
	}
	if err := read(w, r, &b); err != nil {
		return 0, nil, err
	}
	if b.Value == nil {
		return 0, nil, fault.Field("value", "is missing")
	}
	return http.StatusNoContent, nil, a.cfg.Machinist.SetMetadata(r.Context(), ref(r), r.PathValue("key"), b.Value)
}

func (a *API) deleteMetadata(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return http.StatusNoContent, nil, a.cfg.Machinist.SetMetadata(r.Context(), ref(r), r.PathValue("key"), nil)
}

func (a *API) cordon(on bool) answering {
	return func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		return done(a.cfg.Machinist.Cordon(r.Context(), ref(r), on))
	}
}

// lease is one as this shape shows it. Older clients look into data, newer ones
// beside it.
type lease struct {
	Nonce       string `json:"nonce,omitempty"`
	ExpiresAt   int64  `json:"expires_at"`
	Owner       string `json:"owner"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

type leaseAnswer struct {
	Status string `json:"status"`
	Data   lease  `json:"data"`
	lease
}

func showLease(l machine.Lease, nonce string) leaseAnswer {
	x := lease{Nonce: nonce, ExpiresAt: l.ExpiresAt.Unix(), Owner: l.Owner, Description: l.Description, Version: l.Version}
	return leaseAnswer{Status: "success", Data: x, lease: x}
}

// lease does not tell the nonce: who reads a lease need not hold it.
func (a *API) lease(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	l, err := a.cfg.Machinist.Lease(r.Context(), ref(r))
	return http.StatusOK, showLease(l, ""), err
}

func (a *API) takeLease(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var b struct {
		TTL         json.RawMessage `json:"ttl"`
		Description string          `json:"description"`
	}
	if err := readMaybe(w, r, &b); err != nil {
		return 0, nil, err
	}
	if q := r.URL.Query().Get("ttl"); q != "" && b.TTL == nil {
		b.TTL = json.RawMessage(`"` + q + `"`)
	}
	ttl, err := machine.Seconds("ttl", b.TTL)
	if err != nil {
		return 0, nil, err
	}
	l, err := a.cfg.Machinist.TakeLease(r.Context(), ref(r), ttl, b.Description)
	return http.StatusOK, showLease(l, l.Nonce), err
}

func (a *API) releaseLease(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return done(a.cfg.Machinist.ReleaseLease(r.Context(), ref(r)))
}
