package sqlstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	contractSelect = `SELECT body FROM contract`
	contractPut    = `INSERT INTO contract (name, body) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET body = excluded.body`

	manifestKeySelect = `SELECT id, public, created_at, revoked_at FROM manifest_key`
	manifestKeyInsert = `INSERT INTO manifest_key (id, public, created_at, revoked_at) VALUES ($1, $2, $3, $4)` + OnConflict
	manifestKeyRevoke = `UPDATE manifest_key SET revoked_at = $2 WHERE id = $1 AND revoked_at = 0`

	fleetColumns = `id, contract, owner, parent_id, depth, issued_at, state, sandbox_id, quarantined, heartbeat_at, due_at, updated_at, ended_at, paper, body`
	fleetSelect  = `SELECT ` + fleetColumns + ` FROM fleet_worker`
	fleetInsert  = `INSERT INTO fleet_worker (` + fleetColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)` + OnConflict
	fleetPut = `UPDATE fleet_worker SET state = $2, sandbox_id = $3, quarantined = $4, heartbeat_at = $5, due_at = $6, updated_at = $7, ended_at = $8, body = $9
		WHERE id = $1`
	fleetStale  = fleetSelect + ` WHERE state = 'running' AND heartbeat_at < $1 ORDER BY heartbeat_at` + limit2
	fleetDue    = fleetSelect + ` WHERE due_at > 0 AND due_at <= $1 ORDER BY due_at` + limit2
	fleetFallen = fleetSelect + ` WHERE state = 'running'
		AND NOT EXISTS (SELECT 1 FROM sandbox WHERE sandbox.id = fleet_worker.sandbox_id AND sandbox.ended_at = 0) LIMIT $1 + 0`
	fleetPassing = fleetSelect + ` WHERE state IN ('launching', 'ending') AND updated_at < $1 ORDER BY updated_at` + limit2
	fleetForget  = `DELETE FROM fleet_worker WHERE id IN (SELECT id FROM fleet_worker
		WHERE ended_at > 0 AND ended_at < $1 ORDER BY ended_at` + limit2 + `)`
	fleetTrim = `DELETE FROM fleet_worker WHERE id IN (SELECT id FROM fleet_worker
		WHERE ended_at > 0 ORDER BY ended_at DESC, id LIMIT $1 + 0 OFFSET $2 + 0)`

	// A command that began since a time is open, or has ended since: so no index
	// of the beginnings is needed, which every command would have to pay for. No
	// text in the body can look like a verdict, since its quotes are escaped.
	fleetRuns  = `EXISTS (SELECT 1 FROM fleet_worker WHERE fleet_worker.sandbox_id = exec.sandbox_id AND fleet_worker.state = 'running')`
	fleetBegun = `SELECT sandbox_id, COUNT(*), 0, 0 FROM exec WHERE ended_at = 0 AND created_at >= $1 AND ` + fleetRuns + ` GROUP BY sandbox_id`
	fleetDone  = `SELECT sandbox_id, COUNT(CASE WHEN created_at >= $1 THEN 1 END), COUNT(*), COUNT(CASE WHEN body NOT LIKE '%"verdict":"ok"%' THEN 1 END)
		FROM exec WHERE ended_at > 0 AND ended_at >= $1 AND ` + fleetRuns + ` GROUP BY sandbox_id`
	fleetRunning = fleetSelect + ` WHERE state = 'running' ORDER BY heartbeat_at, id LIMIT $1 + 0`

	defaultFleet = 1000
)

// Contracts implements store.Tx.
func (t *Tx) Contracts() store.Contracts { return contracts{t} }

// Fleet implements store.Tx.
func (t *Tx) Fleet() store.Fleet { return fleet{t} }

type contracts struct{ *Tx }

func scanContract(row Row) (c manifest.Contract, err error) {
	var body string
	if err = row.Scan(&body); err == nil {
		err = json.Unmarshal([]byte(body), &c)
	}
	if err != nil {
		return c, fmt.Errorf("scan contract: %w", err)
	}
	return c, nil
}

func (t contracts) Get(ctx context.Context, name string) (manifest.Contract, error) {
	c, ok, err := one(ctx, t.Tx, scanContract, contractSelect+` WHERE name = $1`, name)
	if err != nil {
		return c, fmt.Errorf("get contract: %w", err)
	}
	if !ok {
		return c, fault.New(fault.NotFound, "there is no contract %q", name)
	}
	return c, nil
}

func (t contracts) Put(ctx context.Context, c *manifest.Contract) error {
	body, err := json.Marshal(c)
	if err == nil {
		err = t.q.Write(ctx, contractPut, c.Name, string(body))
	}
	if err != nil {
		return fmt.Errorf("put contract: %w", err)
	}
	return nil
}

func (t contracts) List(ctx context.Context) ([]manifest.Contract, error) {
	list, err := all(ctx, t.Tx, scanContract, contractSelect+` ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list contracts: %w", err)
	}
	return list, nil
}

func scanManifestKey(row Row) (k manifest.PublicKey, err error) {
	var public string
	var created, revoked int64
	if err = row.Scan(&k.ID, &public, &created, &revoked); err == nil {
		k.Public, err = hex.DecodeString(public)
	}
	k.CreatedAt, k.RevokedAt = timeOf(created), timeOf(revoked)
	return k, err
}

func (t contracts) AddKey(ctx context.Context, k manifest.PublicKey) error {
	if err := t.q.Write(ctx, manifestKeyInsert, k.ID, hex.EncodeToString(k.Public), micros(k.CreatedAt), micros(k.RevokedAt)); err != nil {
		return fmt.Errorf("add manifest key: %w", err)
	}
	return nil
}

func (t contracts) Key(ctx context.Context, id string) (manifest.PublicKey, error) {
	k, ok, err := one(ctx, t.Tx, scanManifestKey, manifestKeySelect+` WHERE id = $1`, id)
	if err != nil {
		return k, fmt.Errorf("get manifest key: %w", err)
	}
	if !ok {
		return k, fault.New(fault.NotFound, "there is no manifest key %q", id)
	}
	return k, nil
}

func (t contracts) Keys(ctx context.Context) ([]manifest.PublicKey, error) {
	list, err := all(ctx, t.Tx, scanManifestKey, manifestKeySelect+` ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list manifest keys: %w", err)
	}
	return list, nil
}

func (t contracts) RevokeKey(ctx context.Context, id string, at time.Time) error {
	if _, err := t.Key(ctx, id); err != nil {
		return err
	}
	if err := t.q.Write(ctx, manifestKeyRevoke, id, micros(at)); err != nil {
		return fmt.Errorf("revoke manifest key: %w", err)
	}
	return nil
}

type fleet struct{ *Tx }

// fleetPaper is what of a worker never changes and nobody asks for by itself.
type fleetPaper struct {
	State     json.RawMessage    `json:"state"`
	Resources manifest.Resources `json:"resources"`
	Signature string             `json:"signature"`
	Until     int64              `json:"until"`
}

// fleetBody is what of a worker changes and is kept as JSON.
type fleetBody struct {
	Reason     string               `json:"reason,omitempty"`
	Registered int64                `json:"registered,omitempty"`
	Started    int64                `json:"started,omitempty"`
	Spawned    int64                `json:"spawned,omitempty"`
	Expires    int64                `json:"expires,omitempty"`
	Suspended  int64                `json:"suspended,omitempty"`
	Revived    int64                `json:"revived,omitempty"`
	Bundle     *manifest.Bundle     `json:"bundle,omitempty"`
	Quarantine *manifest.Quarantine `json:"quarantine,omitempty"`
}

func fleetText(w *manifest.Worker) (string, error) {
	body, err := json.Marshal(fleetBody{
		Reason: w.Reason, Registered: micros(w.RegisteredAt), Started: micros(w.StartedAt), Spawned: micros(w.SpawnedAt),
		Expires: micros(w.ExpiresAt), Suspended: micros(w.SuspendedAt), Revived: micros(w.RevivedAt), Bundle: w.Bundle, Quarantine: w.Quarantine,
	})
	if err != nil {
		return "", fmt.Errorf("encode a worker of the fleet: %w", err)
	}
	return string(body), nil
}

func (t fleet) Add(ctx context.Context, w *manifest.Worker) error {
	m := &w.Manifest
	paper, err := json.Marshal(fleetPaper{State: m.State, Resources: m.Resources, Signature: m.Signature, Until: micros(w.Terms.Until)})
	if err != nil {
		return fmt.Errorf("encode a manifest: %w", err)
	}
	body, err := fleetText(w)
	if err != nil {
		return err
	}
	n, err := t.q.Exec(ctx, fleetInsert, m.WorkerID, w.Terms.Contract, w.Terms.Owner, m.ParentID, m.Depth, micros(m.IssuedAt), string(w.State), w.Sandbox,
		number(w.Quarantined()), micros(w.HeartbeatAt), micros(w.DueAt()), micros(w.UpdatedAt), micros(w.EndedAt), string(paper), body)
	if err != nil {
		return fmt.Errorf("add a worker of the fleet: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "a worker of the fleet has the id %q", m.WorkerID).WithCode("worker_exists")
	}
	return nil
}

func (t fleet) Get(ctx context.Context, id string) (manifest.Worker, error) {
	w, ok, err := one(ctx, t.Tx, scanFleet, fleetSelect+` WHERE id = $1`, id)
	if err != nil {
		return w, fmt.Errorf("get a worker of the fleet: %w", err)
	}
	if !ok {
		return w, fault.New(fault.NotFound, "the fleet has no worker %q", id)
	}
	return w, nil
}

func (t fleet) Put(ctx context.Context, w *manifest.Worker) error {
	body, err := fleetText(w)
	if err != nil {
		return err
	}
	err = t.q.Write(ctx, fleetPut, w.ID(), string(w.State), w.Sandbox, number(w.Quarantined()), micros(w.HeartbeatAt), micros(w.DueAt()),
		micros(w.UpdatedAt), micros(w.EndedAt), body)
	if err != nil {
		return fmt.Errorf("put a worker of the fleet: %w", err)
	}
	return nil
}

func (t fleet) List(ctx context.Context, f store.FleetFilter) ([]manifest.Worker, error) {
	var c conditions
	for _, column := range []struct{ name, value string }{{"owner", f.Owner}, {"contract", f.Contract}, {"parent_id", f.Parent}} {
		if column.value != "" {
			c.add(column.name+" = ?", column.value)
		}
	}
	addIn(&c, "state", f.States)
	if f.Quarantined {
		c.terms = append(c.terms, "quarantined = 1")
	}
	if f.Bundled {
		c.terms = append(c.terms, `body LIKE '%"bundle":%'`)
	}
	if !f.Before.IsZero() {
		c.add("issued_at < ?", micros(f.Before))
	}
	limit := f.Limit
	if limit < 1 {
		limit = defaultFleet
	}
	return t.some(ctx, "list the fleet", fleetSelect+c.where()+` ORDER BY issued_at DESC, id`+c.limit(limit), c.args...)
}

func (t fleet) some(ctx context.Context, what, query string, args ...any) ([]manifest.Worker, error) {
	list, err := all(ctx, t.Tx, scanFleet, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

func (t fleet) Count(ctx context.Context, contract string, states ...manifest.State) (int, error) {
	var c conditions
	c.add("contract = ?", contract)
	addIn(&c, "state", states)
	n, _, err := one(ctx, t.Tx, scanInt, `SELECT COUNT(*) FROM fleet_worker`+c.where(), c.args...)
	if err != nil {
		return 0, fmt.Errorf("count the fleet: %w", err)
	}
	return int(n), nil
}

func (t fleet) Stale(ctx context.Context, before time.Time, limit int) ([]manifest.Worker, error) {
	return t.some(ctx, "list stale workers", fleetStale, micros(before), max(limit, 0))
}

func (t fleet) Due(ctx context.Context, now time.Time, limit int) ([]manifest.Worker, error) {
	return t.some(ctx, "list workers whose time is over", fleetDue, micros(now), max(limit, 0))
}

func (t fleet) Fallen(ctx context.Context, limit int) ([]manifest.Worker, error) {
	return t.some(ctx, "list workers without a sandbox", fleetFallen, max(limit, 0))
}

func (t fleet) Passing(ctx context.Context, before time.Time, limit int) ([]manifest.Worker, error) {
	return t.some(ctx, "list workers on their way", fleetPassing, micros(before), max(limit, 0))
}

func (t fleet) Running(ctx context.Context, limit int) ([]manifest.Worker, error) {
	return t.some(ctx, "list running workers", fleetRunning, max(limit, 0))
}

func (t fleet) Commands(ctx context.Context, since time.Time) (map[string]store.Commands, error) {
	counts := map[string]store.Commands{}
	for _, query := range []string{fleetBegun, fleetDone} {
		err := t.q.Query(ctx, func(row Row) error {
			var id string
			var n store.Commands
			if err := row.Scan(&id, &n.Begun, &n.Ended, &n.Failed); err != nil {
				return err
			}
			c := counts[id]
			counts[id] = store.Commands{Begun: c.Begun + n.Begun, Ended: c.Ended + n.Ended, Failed: c.Failed + n.Failed}
			return nil
		}, query, micros(since))
		if err != nil {
			return nil, fmt.Errorf("count the commands of the fleet: %w", err)
		}
	}
	return counts, nil
}

func (t fleet) Forget(ctx context.Context, before time.Time, most, limit int) (int64, error) {
	old, err := t.q.Exec(ctx, fleetForget, micros(before), max(limit, 0))
	if err != nil {
		return 0, fmt.Errorf("forget old workers of the fleet: %w", err)
	}
	many, err := t.q.Exec(ctx, fleetTrim, max(limit-int(old), 0), max(most, 0))
	if err != nil {
		return 0, fmt.Errorf("trim the history of the fleet: %w", err)
	}
	return old + many, nil
}

// scanFleet scans a row of fleetSelect.
func scanFleet(row Row) (w manifest.Worker, err error) {
	var depth, issued, quarantined, heartbeat, due, updated, ended int64
	var paperText, bodyText string
	var paper fleetPaper
	var body fleetBody
	m := &w.Manifest
	err = row.Scan(&m.WorkerID, &w.Terms.Contract, &w.Terms.Owner, &m.ParentID, &depth, &issued, (*string)(&w.State), &w.Sandbox, &quarantined,
		&heartbeat, &due, &updated, &ended, &paperText, &bodyText)
	if err == nil {
		err = json.Unmarshal([]byte(paperText), &paper)
	}
	if err == nil {
		err = json.Unmarshal([]byte(bodyText), &body)
	}
	if err != nil {
		return manifest.Worker{}, fmt.Errorf("scan a worker of the fleet: %w", err)
	}
	m.Depth, m.IssuedAt, m.State, m.Resources, m.Signature = int(depth), timeOf(issued), paper.State, paper.Resources, paper.Signature
	w.Terms.Until, w.Reason, w.Quarantine = timeOf(paper.Until), body.Reason, body.Quarantine
	w.RegisteredAt, w.StartedAt, w.SpawnedAt, w.ExpiresAt = timeOf(body.Registered), timeOf(body.Started), timeOf(body.Spawned), timeOf(body.Expires)
	w.SuspendedAt, w.RevivedAt, w.Bundle = timeOf(body.Suspended), timeOf(body.Revived), body.Bundle
	w.HeartbeatAt, w.UpdatedAt, w.EndedAt = timeOf(heartbeat), timeOf(updated), timeOf(ended)
	return w, nil
}
