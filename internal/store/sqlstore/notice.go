package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

const (
	noticePut = `INSERT INTO fleet_notice (id, firing_id, event, url, body, tries, next_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (id) DO UPDATE SET tries = excluded.tries, next_at = excluded.next_at`
	noticeDue  = `SELECT id, firing_id, event, url, body, tries, next_at FROM fleet_notice WHERE next_at <= $1 ORDER BY next_at, id` + limit2
	noticeDrop = `DELETE FROM fleet_notice WHERE id = $1`
	noticeTrim = `DELETE FROM fleet_notice WHERE id IN (SELECT id FROM fleet_notice ORDER BY id DESC LIMIT $1 + 0 OFFSET $2 + 0)`
)

type notices struct{ *Tx }

var _ store.Notices = notices{}

func (t notices) Put(ctx context.Context, n *trigger.Notice) error {
	if err := t.q.Write(ctx, noticePut, n.ID, n.Firing, n.Event, n.URL, string(n.Body), n.Tries, micros(n.NextAt)); err != nil {
		return fmt.Errorf("put a notice: %w", err)
	}
	return nil
}

func (t notices) Due(ctx context.Context, now time.Time, limit int) ([]trigger.Notice, error) {
	list, err := all(ctx, t.Tx, func(row Row) (n trigger.Notice, err error) {
		var body string
		var next int64
		err = row.Scan(&n.ID, &n.Firing, &n.Event, &n.URL, &body, &n.Tries, &next)
		n.Body, n.NextAt = []byte(body), timeOf(next)
		return n, err
	}, noticeDue, micros(now), max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("list due notices: %w", err)
	}
	return list, nil
}

func (t notices) Drop(ctx context.Context, id string) error {
	if err := t.q.Write(ctx, noticeDrop, id); err != nil {
		return fmt.Errorf("drop a notice: %w", err)
	}
	return nil
}

func (t notices) Trim(ctx context.Context, most, limit int) (int64, error) {
	n, err := t.q.Exec(ctx, noticeTrim, max(limit, 0), max(most, 0))
	if err != nil {
		return 0, fmt.Errorf("trim the notices: %w", err)
	}
	return n, nil
}
