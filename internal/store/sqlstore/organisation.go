package sqlstore

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// The table has one row.
const (
	pauseSelect = `SELECT paused, reason, actor, changed_at FROM organisation WHERE name = 'organisation'`
	pausePut    = `INSERT INTO organisation (name, paused, reason, actor, changed_at) VALUES ('organisation', $1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET paused = $1, reason = $2, actor = $3, changed_at = $4`
)

type organisation struct{ *Tx }

// Organisation implements store.Tx.
func (t *Tx) Organisation() store.Organisation { return organisation{t} }

func (t organisation) Pause(ctx context.Context) (policy.Pause, error) {
	p, _, err := one(ctx, t.Tx, func(row Row) (p policy.Pause, err error) {
		var paused, at int64
		err = row.Scan(&paused, &p.Reason, &p.Actor, &at)
		p.Paused, p.At = paused != 0, timeOf(at)
		return p, err
	}, pauseSelect)
	if err != nil {
		return policy.Pause{}, fmt.Errorf("read whether the organisation is paused: %w", err)
	}
	return p, nil
}

func (t organisation) SetPause(ctx context.Context, p policy.Pause) error {
	if _, err := t.q.Exec(ctx, pausePut, number(p.Paused), p.Reason, p.Actor, micros(p.At)); err != nil {
		return fmt.Errorf("write whether the organisation is paused: %w", err)
	}
	return nil
}
