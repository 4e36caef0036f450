package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

const (
	workerSelect = `SELECT id, identity, incarnation, role, models, drivers, slots, version, connected,
		registered_at, seen_at FROM worker`
	workerPut = `INSERT INTO worker (id, identity, incarnation, role, models, drivers, slots, version, connected,
		registered_at, seen_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (id) DO UPDATE SET identity = excluded.identity, incarnation = excluded.incarnation,
			role = excluded.role, models = excluded.models, drivers = excluded.drivers, slots = excluded.slots,
			version = excluded.version, connected = excluded.connected,
			registered_at = excluded.registered_at, seen_at = excluded.seen_at`
)

type workers struct{ *Tx }

func (t workers) Get(ctx context.Context, id string) (job.Worker, error) {
	w, ok, err := one(ctx, t.Tx, scanWorker, workerSelect+` WHERE id = $1`, id)
	if err != nil {
		return job.Worker{}, fmt.Errorf("get worker: %w", err)
	}
	if !ok {
		return job.Worker{}, fault.New(fault.NotFound, "there is no worker %q", id)
	}
	return w, nil
}

func (t workers) Put(ctx context.Context, w job.Worker) error {
	models, err := words(w.Models)
	if err != nil {
		return err
	}
	drivers, err := words(w.Drivers)
	if err != nil {
		return err
	}
	_, err = t.q.Exec(ctx, workerPut, w.ID, w.Identity, w.Incarnation, w.Role, models, drivers, w.Slots, w.Version,
		number(w.Connected), micros(w.RegisteredAt), micros(w.SeenAt))
	if err != nil {
		return fmt.Errorf("put worker: %w", err)
	}
	return nil
}

func (t workers) List(ctx context.Context) ([]job.Worker, error) {
	list, err := all(ctx, t.Tx, scanWorker, workerSelect+` ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return list, nil
}

func scanWorker(rows *sql.Rows) (job.Worker, error) {
	var (
		w                           job.Worker
		models, drivers             string
		connected, registered, seen int64
	)
	err := rows.Scan(&w.ID, &w.Identity, &w.Incarnation, &w.Role, &models, &drivers, &w.Slots, &w.Version,
		&connected, &registered, &seen)
	if err != nil {
		return job.Worker{}, fmt.Errorf("scan worker: %w", err)
	}
	if w.Models, err = wordsOf(models); err != nil {
		return job.Worker{}, err
	}
	if w.Drivers, err = wordsOf(drivers); err != nil {
		return job.Worker{}, err
	}
	w.Connected, w.RegisteredAt, w.SeenAt = connected != 0, timeOf(registered), timeOf(seen)
	return w, nil
}
