package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	appInsert = `INSERT INTO app (owner, name, created_at) VALUES ($1, $2, $3)` + OnConflict
	appSelect = `SELECT owner, name, created_at,
		(SELECT COUNT(*) FROM machine WHERE machine.owner = app.owner AND machine.app = app.name AND destroyed_at = 0) FROM app`
	appDelete = `DELETE FROM app WHERE owner = $1 AND name = $2`

	machineColumns = `id, owner, app, name, region, state, wanted, sandbox_id, created_at, updated_at, destroyed_at, body`
	machineSelect  = `SELECT ` + machineColumns + ` FROM machine`
	machineInsert  = `INSERT INTO machine (` + machineColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)` + OnConflict
	machinePut = `UPDATE machine SET region = $2, state = $3, wanted = $4, sandbox_id = $5, updated_at = $6, destroyed_at = $7, body = $8
		WHERE id = $1`
	machinePassing = machineSelect + ` WHERE destroyed_at = 0
		AND (state IN ('starting', 'suspending', 'stopping', 'replacing', 'destroying') OR state = 'created' AND wanted = 1)
		AND updated_at < $1 ORDER BY updated_at` + limit2
	machineFallen = machineSelect + ` WHERE destroyed_at = 0 AND sandbox_id <> '' AND state IN ('started', 'suspended') AND (
		EXISTS (SELECT 1 FROM sandbox WHERE sandbox.id = machine.sandbox_id AND sandbox.ended_at > 0)
		OR EXISTS (SELECT 1 FROM machine_root JOIN exec ON exec.id = machine_root.exec_id
			WHERE machine_root.machine_id = machine.id AND exec.ended_at > 0)) LIMIT $1 + 0`
	machineForget = `DELETE FROM machine WHERE id IN (SELECT id FROM machine
		WHERE destroyed_at > 0 AND destroyed_at < $1 ORDER BY destroyed_at` + limit2 + `)`

	rootInsert = `INSERT INTO machine_root (machine_id, exec_id) VALUES ($1, $2)` + OnConflict
	rootDelete = `DELETE FROM machine_root WHERE machine_id = $1`

	defaultMachines = 1000
)

type machines struct{ *Tx }

func (t machines) AddApp(ctx context.Context, a machine.App) (bool, error) {
	n, err := t.q.Exec(ctx, appInsert, a.Owner, a.Name, micros(a.CreatedAt))
	if err != nil {
		return false, fmt.Errorf("add app: %w", err)
	}
	return n > 0, nil
}

func scanApp(row Row) (a machine.App, err error) {
	var created int64
	err = row.Scan(&a.Owner, &a.Name, &created, &a.Machines)
	a.CreatedAt = timeOf(created)
	return a, err
}

func (t machines) App(ctx context.Context, owner, name string) (machine.App, error) {
	c := conditions{}
	c.add("name = ?", name)
	if owner != "" {
		c.add("owner = ?", owner)
	}
	a, ok, err := one(ctx, t.Tx, scanApp, appSelect+c.where()+` ORDER BY created_at`, c.args...)
	if err != nil {
		return a, fmt.Errorf("get app: %w", err)
	}
	if !ok {
		return a, fault.New(fault.NotFound, "there is no app %q", name)
	}
	return a, nil
}

func (t machines) Apps(ctx context.Context, owner string) ([]machine.App, error) {
	c := conditions{}
	if owner != "" {
		c.add("owner = ?", owner)
	}
	list, err := all(ctx, t.Tx, scanApp, appSelect+c.where()+` ORDER BY name, owner`, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list apps: %w", err)
	}
	return list, nil
}

func (t machines) DropApp(ctx context.Context, owner, name string) error {
	if err := t.q.Write(ctx, appDelete, owner, name); err != nil {
		return fmt.Errorf("drop app: %w", err)
	}
	return nil
}

// machineBody is what of a machine is kept as JSON.
type machineBody struct {
	Instance string          `json:"instance"`
	Version  int64           `json:"version"`
	Config   json.RawMessage `json:"config,omitempty"`
	Ran      bool            `json:"ran,omitempty"`
	Roots    []string        `json:"roots,omitempty"`
	Restarts int             `json:"restarts,omitempty"`
	Image    machine.Image   `json:"image"`
	Cordoned bool            `json:"cordoned,omitempty"`
	Lease    machine.Lease   `json:"lease"`
	Events   []machine.Event `json:"events,omitempty"`
}

func machineText(m *machine.Machine) (string, error) {
	body, err := json.Marshal(machineBody{
		Instance: m.Instance, Version: m.Version, Config: m.Config, Ran: m.Ran, Roots: m.Roots, Restarts: m.Restarts,
		Image: m.Image, Cordoned: m.Cordoned, Lease: m.Lease, Events: m.Events,
	})
	if err != nil {
		return "", fmt.Errorf("encode machine: %w", err)
	}
	return string(body), nil
}

func (t machines) Add(ctx context.Context, m *machine.Machine) error {
	body, err := machineText(m)
	if err != nil {
		return err
	}
	n, err := t.q.Exec(ctx, machineInsert, m.ID, m.Owner, m.App, m.Name, m.Region, string(m.State), number(m.Wanted), m.Sandbox,
		micros(m.CreatedAt), micros(m.UpdatedAt), micros(m.DestroyedAt), body)
	if err != nil {
		return fmt.Errorf("add machine: %w", err)
	}
	if n == 0 {
		if _, err := t.Get(ctx, m.ID); err == nil {
			return fault.New(fault.Conflict, "a machine with the id %q exists", m.ID).WithCode("machine_exists")
		}
		return fault.New(fault.Conflict, "a machine of the app %s has the name %q", m.App, m.Name).WithCode(store.CodeNameTaken)
	}
	return t.roots(ctx, m)
}

func (t machines) roots(ctx context.Context, m *machine.Machine) error {
	for _, id := range m.Roots {
		if err := t.q.Write(ctx, rootInsert, m.ID, id); err != nil {
			return fmt.Errorf("note the processes of a machine: %w", err)
		}
	}
	return nil
}

func (t machines) Get(ctx context.Context, id string) (machine.Machine, error) {
	m, ok, err := one(ctx, t.Tx, scanMachine, machineSelect+` WHERE id = $1`, id)
	if err != nil {
		return m, fmt.Errorf("get machine: %w", err)
	}
	if !ok {
		return m, fault.New(fault.NotFound, "there is no machine %q", id)
	}
	return m, nil
}

func (t machines) Put(ctx context.Context, m *machine.Machine) error {
	body, err := machineText(m)
	if err != nil {
		return err
	}
	err = t.q.Write(ctx, machinePut, m.ID, m.Region, string(m.State), number(m.Wanted), m.Sandbox, micros(m.UpdatedAt), micros(m.DestroyedAt), body)
	if err == nil {
		err = t.q.Write(ctx, rootDelete, m.ID)
	}
	if err != nil {
		return fmt.Errorf("put machine: %w", err)
	}
	return t.roots(ctx, m)
}

func (t machines) List(ctx context.Context, f store.MachineFilter) ([]machine.Machine, error) {
	var c conditions
	for _, column := range []struct{ name, value string }{
		{"app", f.App}, {"owner", f.Owner}, {"region", f.Region}, {"state", string(f.State)},
	} {
		if column.value != "" {
			c.add(column.name+" = ?", column.value)
		}
	}
	if !f.Destroyed {
		c.terms = append(c.terms, "destroyed_at = 0")
	}
	limit := f.Limit
	if limit < 1 {
		limit = defaultMachines
	}
	list, err := all(ctx, t.Tx, scanMachine, machineSelect+c.where()+` ORDER BY created_at, id`+c.limit(limit), c.args...)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	return list, nil
}

func (t machines) Passing(ctx context.Context, before time.Time, limit int) ([]machine.Machine, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, scanMachine, machinePassing, micros(before), limit)
	if err != nil {
		return nil, fmt.Errorf("list machines on their way: %w", err)
	}
	return list, nil
}

func (t machines) Fallen(ctx context.Context, limit int) ([]machine.Machine, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, scanMachine, machineFallen, limit)
	if err != nil {
		return nil, fmt.Errorf("list machines that have fallen: %w", err)
	}
	return list, nil
}

func (t machines) Forget(ctx context.Context, before time.Time, limit int) (int64, error) {
	n, err := t.q.Exec(ctx, machineForget, micros(before), limit)
	if err != nil {
		return 0, fmt.Errorf("forget machines: %w", err)
	}
	return n, nil
}

// scanMachine scans a row of machineSelect.
func scanMachine(row Row) (m machine.Machine, err error) {
	var wanted, created, updated, destroyed int64
	var text string
	var body machineBody
	err = row.Scan(&m.ID, &m.Owner, &m.App, &m.Name, &m.Region, (*string)(&m.State), &wanted, &m.Sandbox, &created, &updated, &destroyed, &text)
	if err == nil {
		err = json.Unmarshal([]byte(text), &body)
	}
	if err != nil {
		return machine.Machine{}, fmt.Errorf("scan machine: %w", err)
	}
	m.Instance, m.Version, m.Config, m.Ran, m.Roots, m.Restarts = body.Instance, body.Version, body.Config, body.Ran, body.Roots, body.Restarts
	m.Image, m.Cordoned, m.Lease, m.Events = body.Image, body.Cordoned, body.Lease, body.Events
	m.Wanted, m.CreatedAt, m.UpdatedAt, m.DestroyedAt = wanted != 0, timeOf(created), timeOf(updated), timeOf(destroyed)
	return m, nil
}
