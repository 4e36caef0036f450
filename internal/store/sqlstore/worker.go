package sqlstore

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

const (
	workerSelect = `SELECT id, identity, incarnation, role, models, drivers, slots, version, connected,
		registered_at, seen_at, session, manager, proofs, paused FROM worker`
	workerPut = `INSERT INTO worker (id, identity, incarnation, role, models, drivers, slots, version, connected,
		registered_at, seen_at, session, manager, proofs, paused)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
		ON CONFLICT (id) DO UPDATE SET identity = excluded.identity, incarnation = excluded.incarnation,
			role = excluded.role, models = excluded.models, drivers = excluded.drivers, slots = excluded.slots,
			version = excluded.version, connected = excluded.connected,
			registered_at = excluded.registered_at, seen_at = excluded.seen_at,
			session = excluded.session, manager = excluded.manager, proofs = excluded.proofs, paused = excluded.paused`
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

func (t workers) BySession(ctx context.Context, session string) (job.Worker, error) {
	if session == "" {
		return job.Worker{}, fault.New(fault.NotFound, "no worker has no session")
	}
	w, ok, err := one(ctx, t.Tx, scanWorker, workerSelect+` WHERE session = $1`, session)
	if err != nil {
		return job.Worker{}, fmt.Errorf("get worker by its session: %w", err)
	}
	if !ok {
		return job.Worker{}, fault.New(fault.NotFound, "no worker has this session")
	}
	return w, nil
}

func (t workers) Put(ctx context.Context, w job.Worker) error {
	models, err := asJSON(w.Models)
	if err != nil {
		return err
	}
	drivers, err := asJSON(w.Drivers)
	if err != nil {
		return err
	}
	proofs, err := asJSON(w.Proofs)
	if err != nil {
		return err
	}
	err = t.q.Write(ctx, workerPut, w.ID, w.Identity, w.Incarnation, w.Role, models, drivers, w.Slots, w.Version,
		number(w.Connected), micros(w.RegisteredAt), micros(w.SeenAt), w.Session, w.Manager, proofs, w.Paused)
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

func scanWorker(row Row) (job.Worker, error) {
	var (
		w                           job.Worker
		models, drivers, proofs     string
		connected, registered, seen int64
	)
	err := row.Scan(&w.ID, &w.Identity, &w.Incarnation, &w.Role, &models, &drivers, &w.Slots, &w.Version,
		&connected, &registered, &seen, &w.Session, &w.Manager, &proofs, &w.Paused)
	if err != nil {
		return job.Worker{}, fmt.Errorf("scan worker: %w", err)
	}
	if w.Models, err = ofJSON[string](models); err != nil {
		return job.Worker{}, err
	}
	if w.Drivers, err = ofJSON[string](drivers); err != nil {
		return job.Worker{}, err
	}
	if w.Proofs, err = ofJSON[job.Driver](proofs); err != nil {
		return job.Worker{}, err
	}
	w.Connected, w.RegisteredAt, w.SeenAt = connected != 0, timeOf(registered), timeOf(seen)
	return w, nil
}
