package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Outputs keeps the live output of running jobs in the database, where every
// manager reaches it.
type Outputs struct {
	store *Store

	mu    sync.Mutex
	swept time.Time
}

// Outputs returns the live output of this database. It ends with the Store.
func (s *Store) Outputs() *Outputs { return &Outputs{store: s} }

// sweepEvery bounds how often output of leases that have ended is removed.
const sweepEvery = 10 * time.Second

const (
	// outputTake leaves a gap to the result to fill, as the files do.
	outputTake = `INSERT INTO output (job_id, fence, stream, at, data) SELECT $1, $2, $3, $4, $5
		WHERE CAST($4 AS BIGINT) <= (SELECT COALESCE(MAX(at + LENGTH(data)), 0) FROM output WHERE job_id = $1 AND fence = $2 AND stream = $3)
		ON CONFLICT (job_id, fence, stream, at) DO UPDATE SET data = excluded.data WHERE LENGTH(excluded.data) > LENGTH(output.data)`
	outputRead = `SELECT at, data FROM output WHERE job_id = $1 AND fence = $2 AND stream = $3 AND at + LENGTH(data) > $4
		ORDER BY at LIMIT $5`
	outputSweep = `DELETE FROM output WHERE NOT EXISTS
		(SELECT FROM job WHERE id = output.job_id AND fence = output.fence AND state = 'IN_PROGRESS')
		AND NOT EXISTS (SELECT FROM run WHERE id = output.job_id AND attempt = output.fence AND ended_at = 0)`
)

// maxPieces bounds the pieces of one Read; a piece is what one report carried.
const maxPieces = 256

// Take keeps a piece of a stream at its offset.
func (o *Outputs) Take(ctx context.Context, jobID string, fence int64, stream int, offset int64, data []byte) error {
	err := o.store.borrow(ctx, func(c *conn) error {
		c.add(statement{query: outputTake, args: []any{jobID, fence, int64(stream), offset, data}})
		c.add(statement{query: `SELECT pg_notify($1, $2)`, args: []any{o.store.channel + outputSuffix, o.store.id}})
		return c.flush(context.WithoutCancel(ctx))
	})
	if err != nil {
		return fmt.Errorf("keep live output: %w", err)
	}
	return nil
}

// Read returns what there is of a stream from an offset on, at most limit.
func (o *Outputs) Read(ctx context.Context, jobID string, fence int64, stream int, offset int64, limit int) (got []byte, err error) {
	err = o.store.borrow(ctx, func(c *conn) error {
		c.add(statement{query: outputRead, args: []any{jobID, fence, int64(stream), offset, int64(maxPieces)}, scan: func(rows pgx.Rows) error {
			for rows.Next() {
				var at int64
				var data []byte
				if err := rows.Scan(&at, &data); err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
				next := offset + int64(len(got)) - at // where in this piece to go on
				if next < 0 || next >= int64(len(data)) {
					continue
				}
				got = append(got, data[next:]...)
			}
			return rows.Err()
		}})
		return c.flush(context.WithoutCancel(ctx))
	})
	if err != nil {
		return nil, fmt.Errorf("read live output: %w", err)
	}
	return got[:min(len(got), limit)], nil
}

// Leases lists none: Drop finds those that have ended.
func (o *Outputs) Leases(func(jobID string, fence int64)) {}

// Drop forgets the output of leases that have ended: not of this one alone, and
// only now and then, since most jobs have none.
func (o *Outputs) Drop(ctx context.Context, _ string, _ int64) {
	o.mu.Lock()
	due := time.Since(o.swept) >= sweepEvery
	if due {
		o.swept = time.Now()
	}
	o.mu.Unlock()
	if !due {
		return
	}
	err := o.store.borrow(ctx, func(c *conn) error {
		c.add(statement{query: outputSweep})
		return c.flush(context.WithoutCancel(ctx))
	})
	if err != nil {
		o.store.log.Warn("could not remove old output", "error", err)
	}
}

// Watch returns wake-ups after output that another manager took.
func (o *Outputs) Watch(ctx context.Context) <-chan struct{} { return o.store.outputs.Watch(ctx) }
