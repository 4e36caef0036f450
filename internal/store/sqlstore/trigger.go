package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

const (
	triggerSelect = `SELECT body FROM fleet_trigger`
	triggerInsert = `INSERT INTO fleet_trigger (id, created_at, body) VALUES ($1, $2, $3)` + OnConflict
	triggerPut    = `UPDATE fleet_trigger SET body = $2 WHERE id = $1`
	triggerDrop   = `DELETE FROM fleet_trigger WHERE id = $1`

	breachSelect = `SELECT trigger_id, worker_id, since, fired_at, blocked_at FROM fleet_breach`
	breachPut    = `INSERT INTO fleet_breach (trigger_id, worker_id, since, fired_at, blocked_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (trigger_id, worker_id) DO UPDATE SET since = excluded.since, fired_at = excluded.fired_at, blocked_at = excluded.blocked_at`

	firingSelect = `SELECT body FROM fleet_firing`
	firingInsert = `INSERT INTO fleet_firing (id, trigger_id, worker_id, owner, outcome, fired_at, body) VALUES ($1, $2, $3, $4, $5, $6, $7)` + OnConflict
	firingPut    = `UPDATE fleet_firing SET outcome = $2, body = $3 WHERE id = $1`
	firingOpen   = firingSelect + ` WHERE outcome = '' ORDER BY id LIMIT $1 + 0`
	firingLast   = `SELECT fired_at FROM fleet_firing WHERE worker_id = $1 AND outcome <> 'cooldown_blocked' ORDER BY id DESC LIMIT 1`
	firingForget = `DELETE FROM fleet_firing WHERE id IN (SELECT id FROM fleet_firing WHERE outcome <> '' AND fired_at < $1 ORDER BY id` + limit2 + `)`
	firingTrim   = `DELETE FROM fleet_firing WHERE id IN (SELECT id FROM fleet_firing WHERE outcome <> '' ORDER BY id DESC LIMIT $1 + 0 OFFSET $2 + 0)`
)

// Triggers implements store.Tx.
func (t *Tx) Triggers() store.Triggers { return triggers{t} }

// Firings implements store.Tx.
func (t *Tx) Firings() store.Firings { return firings{t} }

// Notices implements store.Tx.
func (t *Tx) Notices() store.Notices { return notices{t} }

type triggers struct{ *Tx }

// scanBody scans a row of one column that is a thing as JSON.
func scanBody[T any](row Row) (x T, err error) {
	var body string
	if err = row.Scan(&body); err == nil {
		err = json.Unmarshal([]byte(body), &x)
	}
	return x, err
}

func (t triggers) Add(ctx context.Context, x *trigger.Trigger) error {
	body, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("encode a trigger: %w", err)
	}
	n, err := t.q.Exec(ctx, triggerInsert, x.ID, micros(x.CreatedAt), string(body))
	if err != nil {
		return fmt.Errorf("add a trigger: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "a trigger has the id %q", x.ID).WithCode("trigger_exists")
	}
	return nil
}

func (t triggers) Get(ctx context.Context, id string) (trigger.Trigger, error) {
	x, ok, err := one(ctx, t.Tx, scanBody[trigger.Trigger], triggerSelect+` WHERE id = $1`, id)
	if err != nil {
		return x, fmt.Errorf("get a trigger: %w", err)
	}
	if !ok {
		return x, fault.New(fault.NotFound, "there is no trigger %q", id)
	}
	return x, nil
}

func (t triggers) Put(ctx context.Context, x *trigger.Trigger) error {
	body, err := json.Marshal(x)
	if err == nil {
		err = t.q.Write(ctx, triggerPut, x.ID, string(body))
	}
	if err != nil {
		return fmt.Errorf("put a trigger: %w", err)
	}
	return nil
}

func (t triggers) Drop(ctx context.Context, id string) error {
	if err := t.q.Write(ctx, triggerDrop, id); err != nil {
		return fmt.Errorf("drop a trigger: %w", err)
	}
	return t.DropBreaches(ctx, id, "")
}

func (t triggers) List(ctx context.Context) ([]trigger.Trigger, error) {
	list, err := all(ctx, t.Tx, scanBody[trigger.Trigger], triggerSelect+` ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list triggers: %w", err)
	}
	return list, nil
}

func (t triggers) Breaches(ctx context.Context, worker string) ([]trigger.Breach, error) {
	var c conditions
	if worker != "" {
		c.add("worker_id = ?", worker)
	}
	list, err := all(ctx, t.Tx, func(row Row) (b trigger.Breach, err error) {
		var since, fired, blocked int64
		err = row.Scan(&b.Trigger, &b.Worker, &since, &fired, &blocked)
		b.Since, b.FiredAt, b.BlockedAt = timeOf(since), timeOf(fired), timeOf(blocked)
		return b, err
	}, breachSelect+c.where()+` ORDER BY trigger_id, worker_id`, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list breaches: %w", err)
	}
	return list, nil
}

func (t triggers) PutBreach(ctx context.Context, b *trigger.Breach) error {
	if err := t.q.Write(ctx, breachPut, b.Trigger, b.Worker, micros(b.Since), micros(b.FiredAt), micros(b.BlockedAt)); err != nil {
		return fmt.Errorf("put a breach: %w", err)
	}
	return nil
}

func (t triggers) DropBreaches(ctx context.Context, id, worker string) error {
	var c conditions
	if id != "" {
		c.add("trigger_id = ?", id)
	}
	if worker != "" {
		c.add("worker_id = ?", worker)
	}
	if err := t.q.Write(ctx, `DELETE FROM fleet_breach`+c.where(), c.args...); err != nil {
		return fmt.Errorf("drop breaches: %w", err)
	}
	return nil
}

type firings struct{ *Tx }

func (t firings) Add(ctx context.Context, f *trigger.Firing) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode a firing: %w", err)
	}
	n, err := t.q.Exec(ctx, firingInsert, f.ID, f.Trigger, f.Worker, f.Owner, string(f.Outcome), micros(f.At), string(body))
	if err != nil {
		return fmt.Errorf("add a firing: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "a firing has the id %q", f.ID).WithCode("firing_exists")
	}
	return nil
}

func (t firings) Get(ctx context.Context, id string) (trigger.Firing, error) {
	f, ok, err := one(ctx, t.Tx, scanBody[trigger.Firing], firingSelect+` WHERE id = $1`, id)
	if err != nil {
		return f, fmt.Errorf("get a firing: %w", err)
	}
	if !ok {
		return f, fault.New(fault.NotFound, "there is no firing %q", id)
	}
	return f, nil
}

func (t firings) Put(ctx context.Context, f *trigger.Firing) error {
	body, err := json.Marshal(f)
	if err == nil {
		err = t.q.Write(ctx, firingPut, f.ID, string(f.Outcome), string(body))
	}
	if err != nil {
		return fmt.Errorf("put a firing: %w", err)
	}
	return nil
}

func (t firings) List(ctx context.Context, f store.FiringFilter) ([]trigger.Firing, error) {
	var c conditions
	for _, column := range []struct{ name, value string }{{"owner", f.Owner}, {"worker_id", f.Worker}, {"trigger_id", f.Trigger}, {"outcome", string(f.Outcome)}} {
		if column.value != "" {
			c.add(column.name+" = ?", column.value)
		}
	}
	query := firingSelect + c.newest(f.Before, f.Limit)
	list, err := all(ctx, t.Tx, scanBody[trigger.Firing], query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list firings: %w", err)
	}
	return list, nil
}

func (t firings) Open(ctx context.Context, limit int) ([]trigger.Firing, error) {
	list, err := all(ctx, t.Tx, scanBody[trigger.Firing], firingOpen, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("list open firings: %w", err)
	}
	return list, nil
}

func (t firings) Last(ctx context.Context, worker string) (time.Time, error) {
	at, _, err := one(ctx, t.Tx, scanInt, firingLast, worker)
	if err != nil {
		return time.Time{}, fmt.Errorf("find the last firing: %w", err)
	}
	return timeOf(at), nil
}

func (t firings) Forget(ctx context.Context, before time.Time, most, limit int) (int64, error) {
	old, err := t.q.Exec(ctx, firingForget, micros(before), max(limit, 0))
	if err != nil {
		return 0, fmt.Errorf("forget old firings: %w", err)
	}
	many, err := t.q.Exec(ctx, firingTrim, max(limit-int(old), 0), max(most, 0))
	if err != nil {
		return 0, fmt.Errorf("trim the firings: %w", err)
	}
	return old + many, nil
}
