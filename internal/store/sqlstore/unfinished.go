package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

const (
	unfinishedSelect = `SELECT body FROM unfinished`
	unfinishedList   = unfinishedSelect + ` WHERE id > $1 ORDER BY id` + limit2
	unfinishedPut    = `INSERT INTO unfinished (id, created_at, body) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET body = excluded.body`
	unfinishedDelete = `DELETE FROM unfinished WHERE id = $1`
)

func (t sandboxes) PutUnfinished(ctx context.Context, u *live.Unfinished) error {
	body, err := json.Marshal(u)
	if err == nil {
		err = t.q.Write(ctx, unfinishedPut, u.ID, micros(u.CreatedAt), string(body))
	}
	if err != nil {
		return fmt.Errorf("put unfinished work: %w", err)
	}
	return nil
}

func (t sandboxes) GetUnfinished(ctx context.Context, id string) (live.Unfinished, error) {
	u, ok, err := one(ctx, t.Tx, scanUnfinished, unfinishedSelect+` WHERE id = $1`, id)
	if err != nil {
		return u, fmt.Errorf("get unfinished work: %w", err)
	}
	if !ok {
		return u, fault.New(fault.NotFound, "there is no unfinished work %q", id)
	}
	return u, nil
}

func (t sandboxes) Unfinished(ctx context.Context, after string, limit int) ([]live.Unfinished, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, scanUnfinished, unfinishedList, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list unfinished work: %w", err)
	}
	return list, nil
}

func (t sandboxes) DropUnfinished(ctx context.Context, id string) error {
	if err := t.q.Write(ctx, unfinishedDelete, id); err != nil {
		return fmt.Errorf("drop unfinished work: %w", err)
	}
	return nil
}

func scanUnfinished(row Row) (u live.Unfinished, err error) {
	var text string
	if err = row.Scan(&text); err == nil {
		err = json.Unmarshal([]byte(text), &u)
	}
	if err != nil {
		return live.Unfinished{}, fmt.Errorf("scan unfinished work: %w", err)
	}
	return u, nil
}
