package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	replyGet = `SELECT request, body, at FROM reply WHERE owner = $1 AND key = $2`
	replyPut = `INSERT INTO reply (owner, key, request, body, at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (owner, key) DO UPDATE SET request = excluded.request, body = excluded.body, at = excluded.at`
	replyForget = `DELETE FROM reply WHERE at < $1`
)

type replies struct{ *Tx }

func (t replies) Get(ctx context.Context, owner, key string) (store.Reply, error) {
	r, ok, err := one(ctx, t.Tx, func(row Row) (r store.Reply, err error) {
		var body string
		var at int64
		err = row.Scan(&r.Request, &body, &at)
		r.Body, r.At = rawJSON(body), timeOf(at)
		return r, err
	}, replyGet, owner, key)
	if err != nil {
		return store.Reply{}, fmt.Errorf("get reply: %w", err)
	}
	if !ok {
		return store.Reply{}, fault.New(fault.NotFound, "no reply is kept under the key %q", key)
	}
	return r, nil
}

func (t replies) Put(ctx context.Context, owner, key string, r store.Reply) error {
	if err := t.q.Write(ctx, replyPut, owner, key, r.Request, string(r.Body), micros(r.At)); err != nil {
		return fmt.Errorf("put reply: %w", err)
	}
	return nil
}

func (t replies) Forget(ctx context.Context, before time.Time) (int64, error) {
	n, err := t.q.Exec(ctx, replyForget, micros(before))
	if err != nil {
		return 0, fmt.Errorf("forget replies: %w", err)
	}
	return n, nil
}
