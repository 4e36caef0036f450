package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	switchNext   = `(SELECT COALESCE(MAX(changed), 0) + 1 FROM kill_switch)`
	switchInsert = `INSERT INTO kill_switch (id, changed, level, scope, body, engaged_at, released_at, released_by, release_reason)
		VALUES ($1, ` + switchNext + `, $2, $3, $4, $5, 0, '', '')` + OnConflict
	switchRelease = `UPDATE kill_switch SET changed = ` + switchNext + `, released_at = $2, released_by = $3, release_reason = $4
		WHERE id = $1 AND released_at = 0`
	switchSeq     = `SELECT COALESCE(MAX(changed), 0) FROM kill_switch`
	switchColumns = `body, released_at, released_by, release_reason`
	switchEngaged = `SELECT ` + switchColumns + ` FROM kill_switch WHERE released_at = 0 ORDER BY engaged_at, id`
	switchList    = `SELECT ` + switchColumns + ` FROM kill_switch ORDER BY engaged_at DESC, id DESC`
)

type switches struct{ *Tx }

func scanSwitch(row Row) (r store.SwitchRecord, err error) {
	var body string
	var released int64
	if err = row.Scan(&body, &released, &r.ReleasedBy, &r.ReleaseReason); err != nil {
		return r, err
	}
	r.ReleasedAt = timeOf(released)
	return r, json.Unmarshal([]byte(body), &r.Switch)
}

func (t switches) State(ctx context.Context) (killswitch.State, error) {
	seq, _, err := one(ctx, t.Tx, scanInt, switchSeq)
	if err != nil {
		return killswitch.State{}, fmt.Errorf("read the kill switch: %w", err)
	}
	engaged, err := all(ctx, t.Tx, scanSwitch, switchEngaged)
	if err != nil {
		return killswitch.State{}, fmt.Errorf("read the kill switch: %w", err)
	}
	s := killswitch.State{Seq: seq}
	for i := range engaged {
		s.Engaged = append(s.Engaged, engaged[i].Switch)
	}
	return s, nil
}

func (t switches) Engage(ctx context.Context, s *killswitch.Switch) (bool, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return false, fmt.Errorf("encode the kill switch: %w", err)
	}
	n, err := t.q.Exec(ctx, switchInsert, s.ID, string(s.Level), string(s.Scope), string(body), micros(s.At))
	if err != nil {
		return false, fmt.Errorf("engage the kill switch: %w", err)
	}
	return n > 0, nil
}

func (t switches) Release(ctx context.Context, id, by, reason string, at time.Time) (bool, error) {
	n, err := t.q.Exec(ctx, switchRelease, id, micros(at), by, reason)
	if err != nil {
		return false, fmt.Errorf("release the kill switch: %w", err)
	}
	return n > 0, nil
}

func (t switches) List(ctx context.Context, limit int) ([]store.SwitchRecord, error) {
	if limit < 1 {
		return nil, nil
	}
	var c conditions
	list, err := all(ctx, t.Tx, scanSwitch, switchList+c.limit(limit), c.args...)
	if err != nil {
		return nil, fmt.Errorf("list the kill switches: %w", err)
	}
	return list, nil
}
