package sqlstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

const (
	keyInsert = `INSERT INTO api_key (id, kind, name, hash, created_at, revoked_at, created_by, expires_at, used_at, owner, actions, project_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`
	keySelect = `SELECT id, kind, name, hash, created_at, revoked_at, created_by, expires_at, used_at, owner, actions, project_id FROM api_key`
	// keyUsed never goes back: two managers may say it in any order.
	keyUsed = `UPDATE api_key SET used_at = $2 WHERE id = $1 AND used_at < $2`
	// keyRevoke keeps the moment of the first revocation.
	keyRevoke = `UPDATE api_key SET revoked_at = CASE WHEN revoked_at = 0 THEN $2 ELSE revoked_at END WHERE id = $1`
)

type keys struct{ *Tx }

func (t keys) Add(ctx context.Context, k policy.Key) error {
	actions, err := asJSON(k.Scope.Actions)
	if err != nil {
		return fmt.Errorf("add key: %w", err)
	}
	n, err := t.q.Exec(ctx, keyInsert, k.ID, string(k.Kind), k.Name, hex.EncodeToString(k.Hash[:]),
		micros(k.CreatedAt), micros(k.RevokedAt), k.CreatedBy, micros(k.ExpiresAt), micros(k.UsedAt), k.Scope.Owner, actions, k.Scope.Project)
	if err != nil {
		return fmt.Errorf("add key: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "a key with the id %q or the same secret exists", k.ID).WithCode("key_exists")
	}
	return nil
}

func (t keys) ByHash(ctx context.Context, hash [32]byte) (policy.Key, error) {
	k, ok, err := one(ctx, t.Tx, scanKey, keySelect+` WHERE hash = $1`, hex.EncodeToString(hash[:]))
	if err != nil {
		return policy.Key{}, fmt.Errorf("get key: %w", err)
	}
	if !ok {
		return policy.Key{}, fault.New(fault.NotFound, "there is no such key")
	}
	return k, nil
}

func (t keys) Get(ctx context.Context, id string) (policy.Key, error) {
	k, ok, err := one(ctx, t.Tx, scanKey, keySelect+` WHERE id = $1`, id)
	if err != nil {
		return policy.Key{}, fmt.Errorf("get key: %w", err)
	}
	if !ok {
		return policy.Key{}, fault.New(fault.NotFound, "there is no such key")
	}
	return k, nil
}

func (t keys) Used(ctx context.Context, id string, at time.Time) error {
	if err := t.q.Write(ctx, keyUsed, id, micros(at)); err != nil {
		return fmt.Errorf("note the use of a key: %w", err)
	}
	return nil
}

func (t keys) List(ctx context.Context) ([]policy.Key, error) {
	list, err := all(ctx, t.Tx, scanKey, keySelect+` ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return list, nil
}

func (t keys) Revoke(ctx context.Context, id string, at time.Time) error {
	if micros(at) == 0 {
		// It would read back as a key that was never revoked.
		return fault.New(fault.Invalid, "a key cannot be revoked at no time")
	}
	n, err := t.q.Exec(ctx, keyRevoke, id, micros(at))
	if err != nil {
		return fmt.Errorf("revoke key: %w", err)
	}
	if n == 0 {
		return fault.New(fault.NotFound, "there is no key %q", id)
	}
	return nil
}

func scanKey(row Row) (policy.Key, error) {
	var (
		k                               policy.Key
		hash, actions                   string
		created, revoked, expires, used int64
	)
	err := row.Scan(&k.ID, (*string)(&k.Kind), &k.Name, &hash, &created, &revoked, &k.CreatedBy, &expires, &used, &k.Scope.Owner, &actions, &k.Scope.Project)
	if err != nil {
		return policy.Key{}, fmt.Errorf("scan key: %w", err)
	}
	b, err := hex.DecodeString(hash)
	if err != nil || len(b) != len(k.Hash) {
		return policy.Key{}, fmt.Errorf("decode hash of key %q: it is damaged", k.ID)
	}
	copy(k.Hash[:], b)
	if k.Scope.Actions, err = ofJSON[policy.Action](actions); err != nil {
		// A scope that cannot be read must not widen the key.
		return policy.Key{}, fmt.Errorf("decode scope of key %q: it is damaged", k.ID)
	}
	k.CreatedAt, k.RevokedAt, k.ExpiresAt, k.UsedAt = timeOf(created), timeOf(revoked), timeOf(expires), timeOf(used)
	return k, nil
}
