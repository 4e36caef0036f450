package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	runColumns = `id, owner, state, language, code_sha256, timeout_ns, sync, manager, fence, attempt, worker, verdict, reason,
		webhook, trace, created_at, started_at, ended_at, project_id`
	runSelect = `SELECT ` + runColumns + `, record FROM run`
	runInsert = `INSERT INTO run (` + runColumns + `, request)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) ON CONFLICT (id) DO NOTHING`
	runPut = `UPDATE run SET state = $2, manager = $3, fence = $4, attempt = $5, worker = $6, verdict = $7, reason = $8,
		started_at = $9, ended_at = $10 WHERE id = $1`
	runEnd = `UPDATE run SET state = $2, manager = $3, fence = $4, attempt = $5, worker = $6, verdict = $7, reason = $8,
		started_at = $9, ended_at = $10, record = $11, blobs = $12, request = '' WHERE id = $1`
	runOrder  = `SELECT request FROM run WHERE id = $1 AND request <> ''`
	runRecord = `SELECT record FROM run WHERE id = $1 AND record <> ''`
	runBlobs  = `SELECT blobs FROM run WHERE id = $1`

	runOpen    = runSelect + ` WHERE ended_at = 0 AND id > $1 ORDER BY id` + limit2
	runOrphans = runSelect + ` WHERE ended_at = 0 AND id > $1
		AND manager NOT IN (SELECT manager FROM run_manager WHERE alive_until > $3) ORDER BY id` + limit2
	runStats  = `SELECT state, COUNT(*), MIN(created_at) FROM run WHERE ended_at = 0 GROUP BY state`
	runAttend = `INSERT INTO run_manager (manager, alive_until) VALUES ($1, $2)
		ON CONFLICT (manager) DO UPDATE SET alive_until = excluded.alive_until`

	hookPut = `INSERT INTO run_hook (run_id, url, tries, next_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (run_id) DO UPDATE SET url = excluded.url, tries = excluded.tries, next_at = excluded.next_at`
	hookDue  = `SELECT run_id, url, tries, next_at FROM run_hook WHERE next_at <= $1 ORDER BY next_at` + limit2
	hookDrop = `DELETE FROM run_hook WHERE run_id = $1`
)

type runs struct{ *Tx }

func (t runs) Add(ctx context.Context, r *run.Run, order *run.Order) error {
	request := ""
	if order != nil {
		text, err := json.Marshal(order)
		if err != nil {
			return fmt.Errorf("encode order: %w", err)
		}
		request = string(text)
	}
	n, err := t.q.Exec(ctx, runInsert, r.ID, r.Owner, string(r.State), r.Language, r.CodeSHA256, int64(r.Timeout), number(r.Sync),
		r.Manager, r.Fence, r.Attempt, r.Worker, string(r.Verdict), r.Reason, r.Webhook, r.Trace,
		micros(r.CreatedAt), micros(r.StartedAt), micros(r.EndedAt), r.Project, request)
	if err != nil {
		return fmt.Errorf("add run: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "a run with the id %q exists", r.ID).WithCode("run_exists")
	}
	return nil
}

func (t runs) Get(ctx context.Context, id string) (run.Run, error) {
	r, ok, err := one(ctx, t.Tx, scanRun, runSelect+` WHERE id = $1`, id)
	if err != nil {
		return run.Run{}, fmt.Errorf("get run: %w", err)
	}
	if !ok {
		return run.Run{}, fault.New(fault.NotFound, "there is no run %q", id)
	}
	return r, nil
}

func (t runs) Order(ctx context.Context, id string) (o run.Order, err error) {
	text, err := t.text(ctx, runOrder, id)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return run.Order{}, fmt.Errorf("get the order of a run: %w", err)
	}
	return o, nil
}

func (t runs) Record(ctx context.Context, id string) ([]byte, error) {
	return t.text(ctx, runRecord, id)
}

// text reads one text of a run, or says that it is not there.
func (t runs) text(ctx context.Context, query, id string) ([]byte, error) {
	text, ok, err := one(ctx, t.Tx, scanBytes, query, id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fault.New(fault.NotFound, "there is nothing of this kind of a run %q", id)
	}
	return text, nil
}

func (t runs) Put(ctx context.Context, r *run.Run, blobs map[string][]byte) error {
	args := []any{
		r.ID, string(r.State), r.Manager, r.Fence, r.Attempt, r.Worker, string(r.Verdict), r.Reason, micros(r.StartedAt), micros(r.EndedAt),
	}
	query := runPut
	if !r.EndedAt.IsZero() {
		record, err := json.Marshal(r.Record())
		if err != nil {
			return fmt.Errorf("encode the record of a run: %w", err)
		}
		packed, err := packBlobs(blobs)
		if err != nil {
			return err
		}
		query, args = runEnd, append(args, string(record), packed)
	}
	if err := t.q.Write(ctx, query, args...); err != nil {
		return fmt.Errorf("put run: %w", err)
	}
	return nil
}

func (t runs) Blob(ctx context.Context, id, sha256 string) ([]byte, bool, error) {
	packed, _, err := one(ctx, t.Tx, scanBytes, runBlobs, id)
	if err != nil {
		return nil, false, fmt.Errorf("read a blob of a run: %w", err)
	}
	return findBlob(packed, sha256)
}

func (t runs) List(ctx context.Context, f store.RunFilter) ([]run.Run, error) {
	query, args := runList(f)
	list, err := page(ctx, t.Tx, store.RunBytes, scanRun, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return list, nil
}

// lastID is behind every id.
const lastID = "~"

// runList builds the query of List. Open states are looked for among the open
// runs alone: there the owner is hidden from the planner by a sum.
func runList(f store.RunFilter) (string, []any) {
	var c conditions
	owner := "owner = ?"
	if f.State != "" {
		c.add("state = ?", string(f.State))
		if !f.State.Ended() {
			c.terms = append(c.terms, "ended_at = 0")
			owner = "owner || '' = ?"
		}
	}
	if f.Owner != "" {
		c.add(owner, f.Owner)
	}
	if f.Project != 0 {
		c.add("project_id > 0 AND project_id = ?", f.Project) // the first lets the planner take the partial index
	}
	before := f.Before
	if before == "" {
		before = lastID
	}
	c.add("id < ?", before)
	limit := f.Limit
	if limit < 1 {
		limit = defaultListLimit
	}
	return runSelect + c.where() + ` ORDER BY id DESC` + c.limit(limit), c.args
}

func (t runs) Stats(ctx context.Context) (s store.RunStats, err error) {
	_, err = all(ctx, t.Tx, func(row Row) (struct{}, error) {
		var state run.State
		var n, oldest int64
		err := row.Scan((*string)(&state), &n, &oldest)
		if state == run.Queued {
			s.Queued, s.OldestQueued = n, timeOf(oldest)
		} else {
			s.Running = n
		}
		return struct{}{}, err
	}, runStats)
	if err != nil {
		return store.RunStats{}, fmt.Errorf("count runs: %w", err)
	}
	return s, nil
}

func (t runs) Open(ctx context.Context, after string, limit int) ([]run.Run, error) {
	if limit < 1 {
		return nil, nil
	}
	return t.list(ctx, "list open runs", runOpen, after, limit)
}

func (t runs) Orphans(ctx context.Context, now time.Time, after string, limit int) ([]run.Run, error) {
	if limit < 1 {
		return nil, nil
	}
	return t.list(ctx, "list runs that nobody has", runOrphans, after, limit, micros(now))
}

func (t runs) list(ctx context.Context, what, query string, args ...any) ([]run.Run, error) {
	list, err := all(ctx, t.Tx, scanRun, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

func (t runs) Attend(ctx context.Context, manager string, until time.Time) error {
	if err := t.q.Write(ctx, runAttend, manager, micros(until)); err != nil {
		return fmt.Errorf("note that a manager is alive: %w", err)
	}
	return nil
}

// scanRun scans a row of runSelect.
func scanRun(row Row) (run.Run, error) {
	var (
		r                             run.Run
		sync, created, started, ended int64
		record                        string
	)
	err := row.Scan(&r.ID, &r.Owner, (*string)(&r.State), &r.Language, &r.CodeSHA256, (*int64)(&r.Timeout), &sync, &r.Manager, &r.Fence,
		&r.Attempt, &r.Worker, (*string)(&r.Verdict), &r.Reason, &r.Webhook, &r.Trace, &created, &started, &ended, &r.Project, &record)
	if err == nil && record != "" {
		var kept struct {
			Result *run.Result `json:"result"`
		}
		err = json.NewDecoder(strings.NewReader(record)).Decode(&kept)
		r.Result = kept.Result
	}
	if err != nil {
		return run.Run{}, fmt.Errorf("scan run: %w", err)
	}
	r.Sync, r.CreatedAt, r.StartedAt, r.EndedAt = sync != 0, timeOf(created), timeOf(started), timeOf(ended)
	return r, nil
}

// scanBytes scans a row of one value.
func scanBytes(row Row) (value []byte, err error) {
	err = row.Scan(&value)
	return value, err
}

type hooks struct{ *Tx }

func (t hooks) Put(ctx context.Context, h store.Hook) error {
	if err := t.q.Write(ctx, hookPut, h.RunID, h.URL, h.Tries, micros(h.NextAt)); err != nil {
		return fmt.Errorf("put webhook: %w", err)
	}
	return nil
}

func (t hooks) Due(ctx context.Context, now time.Time, limit int) ([]store.Hook, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, func(row Row) (h store.Hook, err error) {
		var next int64
		err = row.Scan(&h.RunID, &h.URL, &h.Tries, &next)
		h.NextAt = timeOf(next)
		return h, err
	}, hookDue, micros(now), limit)
	if err != nil {
		return nil, fmt.Errorf("list due webhooks: %w", err)
	}
	return list, nil
}

func (t hooks) Drop(ctx context.Context, runID string) error {
	if err := t.q.Write(ctx, hookDrop, runID); err != nil {
		return fmt.Errorf("drop webhook: %w", err)
	}
	return nil
}

const (
	runsEnded  = `SELECT id FROM run WHERE ended_at > 0 AND ended_at < $1 ORDER BY ended_at` + limit2
	runDelete  = `DELETE FROM run WHERE id = $1 AND ended_at > 0`
	runsKept   = `SELECT id, ended_at, record, LENGTH(blobs), dropped FROM run WHERE id > $1 AND ended_at > 0 ORDER BY id` + limit2
	runDropped = `UPDATE run SET blobs = $2, dropped = 1 WHERE id = $1 AND ended_at > 0`
)

func (t history) EndedRuns(ctx context.Context, before time.Time, limit int) ([]string, error) {
	if limit < 1 {
		return nil, nil
	}
	ids, err := all(ctx, t.Tx, func(row Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, runsEnded, micros(before), limit)
	if err != nil {
		return nil, fmt.Errorf("find ended runs: %w", err)
	}
	return ids, nil
}

func (t history) ForgetRuns(ctx context.Context, ids ...string) (gone int64, err error) {
	for _, id := range ids {
		n, err := t.q.Exec(ctx, runDelete, id)
		if err == nil && n > 0 {
			gone += n
			err = t.q.Write(ctx, hookDrop, id)
		}
		if err != nil {
			return 0, fmt.Errorf("forget runs: %w", err)
		}
	}
	return gone, nil
}

func (t history) KeptRuns(ctx context.Context, after string, limit int) ([]store.KeptRun, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := page(ctx, t.Tx, func(k *store.KeptRun) int { return 1 << 10 * (1 + len(k.Digests)) }, scanKeptRun, runsKept, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list what runs keep: %w", err)
	}
	return list, nil
}

func scanKeptRun(row Row) (store.KeptRun, error) {
	var (
		k              store.KeptRun
		ended, dropped int64
		record         []byte
		kept           struct {
			Result *run.Result `json:"result"`
		}
	)
	err := row.Scan(&k.ID, &ended, &record, &k.Small, &dropped)
	if err == nil {
		err = json.Unmarshal(record, &kept)
	}
	if err != nil {
		return store.KeptRun{}, fmt.Errorf("scan run: %w", err)
	}
	k.Ended, k.Dropped = timeOf(ended), dropped != 0
	if kept.Result != nil {
		k.Digests = kept.Result.Digests()
	}
	return k, nil
}

func (t history) DropRunBlobs(ctx context.Context, id string) (int64, error) {
	packed, ok, err := one(ctx, t.Tx, scanBytes, runBlobs, id)
	if err == nil && ok {
		err = t.q.Write(ctx, runDropped, id, []byte{})
	}
	if err != nil {
		return 0, fmt.Errorf("drop the blobs of a run: %w", err)
	}
	return int64(len(packed)), nil
}
