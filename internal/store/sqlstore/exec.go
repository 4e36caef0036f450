package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	execSelect = `SELECT body FROM exec`
	execInsert = `INSERT INTO exec (id, sandbox_id, owner, state, created_at, ended_at, body, blobs) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	execPut    = `UPDATE exec SET state = $2, body = $3 WHERE id = $1`
	execEnd    = `UPDATE exec SET state = $2, body = $3, ended_at = $4, blobs = $5 WHERE id = $1`
	execOpen   = execSelect + ` WHERE sandbox_id = $1 AND ended_at = 0 ORDER BY id`
	execBlobs  = `SELECT blobs FROM exec WHERE id = $1`

	execsKept   = `SELECT body, LENGTH(blobs), dropped FROM exec WHERE id > $1 AND ended_at > 0 ORDER BY id` + limit2
	execDropped = `UPDATE exec SET blobs = $2, dropped = 1 WHERE id = $1 AND ended_at > 0`
	execsForget = `DELETE FROM exec WHERE sandbox_id = $1`
)

type execs struct{ *Tx }

func (t execs) Add(ctx context.Context, e *live.Exec, blobs map[string][]byte) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode exec: %w", err)
	}
	packed, err := packBlobs(blobs)
	if err != nil {
		return err
	}
	added, err := t.q.Add(ctx, execInsert, e.ID, e.Sandbox, e.Owner, string(e.State), micros(e.CreatedAt), micros(e.EndedAt), string(body), packed)
	if err != nil {
		return fmt.Errorf("add exec: %w", err)
	}
	if !added {
		return fault.New(fault.Conflict, "an exec with the id %q exists", e.ID).WithCode("exec_exists")
	}
	return nil
}

func (t execs) Get(ctx context.Context, id string) (live.Exec, error) {
	e, ok, err := one(ctx, t.Tx, scanExec, execSelect+` WHERE id = $1`, id)
	if err != nil {
		return live.Exec{}, fmt.Errorf("get exec: %w", err)
	}
	if !ok {
		return live.Exec{}, fault.New(fault.NotFound, "there is no exec %q", id)
	}
	return e, nil
}

func (t execs) Put(ctx context.Context, e *live.Exec, blobs map[string][]byte) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode exec: %w", err)
	}
	query, args := execPut, []any{e.ID, string(e.State), string(body)}
	if !e.EndedAt.IsZero() {
		packed, err := packBlobs(blobs)
		if err != nil {
			return err
		}
		query, args = execEnd, append(args, micros(e.EndedAt), packed)
	}
	if err := t.q.Write(ctx, query, args...); err != nil {
		return fmt.Errorf("put exec: %w", err)
	}
	return nil
}

func (t execs) List(ctx context.Context, f store.ExecFilter) ([]live.Exec, error) {
	var c conditions
	for _, column := range []struct{ name, value string }{{"sandbox_id", f.Sandbox}, {"owner", f.Owner}, {"state", string(f.State)}} {
		if column.value != "" {
			c.add(column.name+" = ?", column.value)
		}
	}
	query := execSelect + c.newest(f.Before, f.Limit)
	list, err := page(ctx, t.Tx, store.ExecBytes, scanExec, query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list execs: %w", err)
	}
	return list, nil
}

func (t execs) Open(ctx context.Context, sandboxID string) ([]live.Exec, error) {
	list, err := all(ctx, t.Tx, scanExec, execOpen, sandboxID)
	if err != nil {
		return nil, fmt.Errorf("list open execs: %w", err)
	}
	return list, nil
}

func (t execs) Blob(ctx context.Context, id, sha256 string) ([]byte, bool, error) {
	packed, _, err := one(ctx, t.Tx, scanBytes, execBlobs, id)
	if err != nil {
		return nil, false, fmt.Errorf("read a blob of an exec: %w", err)
	}
	return findBlob(packed, sha256)
}

func scanExec(row Row) (e live.Exec, err error) {
	var text string
	if err = row.Scan(&text); err == nil {
		err = json.Unmarshal([]byte(text), &e)
	}
	if err != nil {
		return live.Exec{}, fmt.Errorf("scan exec: %w", err)
	}
	return e, nil
}

func (t history) EndedSandboxes(ctx context.Context, before time.Time, limit int) ([]string, error) {
	if limit < 1 {
		return nil, nil
	}
	ids, err := all(ctx, t.Tx, func(row Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, sandboxEnded, micros(before), limit)
	if err != nil {
		return nil, fmt.Errorf("find ended sandboxes: %w", err)
	}
	return ids, nil
}

func (t history) ForgetSandboxes(ctx context.Context, ids ...string) (gone int64, err error) {
	for _, id := range ids {
		n, err := t.q.Exec(ctx, sandboxDelete, id)
		if err == nil && n > 0 {
			gone += n
			for _, query := range []string{labelDelete, execsForget, syncedForget} {
				if err = t.q.Write(ctx, query, id); err != nil {
					break
				}
			}
		}
		if err != nil {
			return 0, fmt.Errorf("forget sandboxes: %w", err)
		}
	}
	return gone, nil
}

func (t history) KeptExecs(ctx context.Context, after string, limit int) ([]store.KeptExec, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, func(row Row) (k store.KeptExec, err error) {
		var text string
		var dropped int64
		var e live.Exec
		if err = row.Scan(&text, &k.Small, &dropped); err == nil {
			err = json.Unmarshal([]byte(text), &e)
		}
		k.ID, k.Ended, k.Dropped = e.ID, e.EndedAt, dropped != 0
		if e.Result != nil {
			k.Digests = []string{e.Result.Stdout.SHA256, e.Result.Stderr.SHA256}
		}
		return k, err
	}, execsKept, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list what execs keep: %w", err)
	}
	return list, nil
}

func (t history) DropExecBlobs(ctx context.Context, id string) (int64, error) {
	packed, ok, err := one(ctx, t.Tx, scanBytes, execBlobs, id)
	if err == nil && ok {
		err = t.q.Write(ctx, execDropped, id, []byte{})
	}
	if err != nil {
		return 0, fmt.Errorf("drop the output of an exec: %w", err)
	}
	return int64(len(packed)), nil
}
