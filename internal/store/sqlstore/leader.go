package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// leaderAcquire takes or extends the lease row in one statement, so that two
// managers over one database cannot both see it free. It returns no row when
// somebody else's term runs. $4 is 1 to take it by force.
const (
	leaderAcquire = `INSERT INTO leader (name, holder, fence, term_until) VALUES ('manager', $1, 1, $2)
		ON CONFLICT (name) DO UPDATE SET
			fence = CASE WHEN leader.holder = excluded.holder THEN leader.fence ELSE leader.fence + 1 END,
			holder = excluded.holder,
			term_until = excluded.term_until
		WHERE leader.holder = excluded.holder OR leader.term_until <= $3 OR $4 = 1
		RETURNING fence`
	leaderHolder = `SELECT holder FROM leader WHERE name = 'manager'`
	leaderFence  = `SELECT fence FROM leader WHERE name = 'manager'`
)

type leaders struct{ *Tx }

func (t leaders) Acquire(ctx context.Context, holder string, now time.Time, term time.Duration, force bool) (fence int64, leads bool, err error) {
	fence, leads, err = one(ctx, t.Tx, scanInt, leaderAcquire, holder, micros(now.Add(term)), micros(now), number(force))
	if err != nil {
		return 0, false, fmt.Errorf("acquire leadership: %w", err)
	}
	if leads {
		return fence, true, nil
	}
	fence, _, err = t.current(ctx)
	return fence, false, err
}

func (t leaders) Holder(ctx context.Context) (string, error) {
	holder, _, err := one(ctx, t.Tx, func(row Row) (holder string, err error) {
		err = row.Scan(&holder)
		return holder, err
	}, leaderHolder)
	if err != nil {
		return "", fmt.Errorf("read who leads: %w", err)
	}
	return holder, nil
}

func (t leaders) Check(ctx context.Context, fence int64) error {
	current, ok, err := t.current(ctx)
	if err != nil {
		return err
	}
	if !ok || current != fence {
		return fault.New(fault.Conflict, "fence %d is not the leader's", fence).WithCode("not_leader")
	}
	return nil
}

// current returns the current fence; ok is false when nobody has ever led.
func (t leaders) current(ctx context.Context) (fence int64, ok bool, err error) {
	fence, ok, err = one(ctx, t.Tx, scanInt, leaderFence)
	if err != nil {
		return 0, false, fmt.Errorf("read the leader's fence: %w", err)
	}
	return fence, ok, nil
}
