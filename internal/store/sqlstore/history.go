package sqlstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	floorGet = `SELECT seq FROM history WHERE name = 'event'`
	floorPut = `INSERT INTO history (name, seq) VALUES ('event', $1) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq`

	eventsOldest = `SELECT seq, at FROM event WHERE seq > $1 ORDER BY seq LIMIT $2 + 0`
	eventsDelete = `DELETE FROM event WHERE seq <= $1`

	plansEnded = `SELECT id FROM job WHERE root = 1 AND completed_at > 0 AND completed_at < $1 ORDER BY completed_at LIMIT $2 + 0`
	planOpen   = `SELECT COUNT(*) FROM job WHERE root_id = $1 AND completed_at = 0`
	planCounts = `SELECT owner, state, outcome, COUNT(*) FROM job WHERE root_id = $1 AND root = 0 GROUP BY owner, state, outcome`

	recordsDelete      = `DELETE FROM record WHERE job_id IN (SELECT id FROM job WHERE root_id = $1)`
	dependenciesDelete = `DELETE FROM dependency WHERE on_id IN (SELECT id FROM job WHERE root_id = $1)`
	jobsDelete         = `DELETE FROM job WHERE root_id = $1`

	recordsKept   = `SELECT job_id, attempt, body, artifacts, LENGTH(blobs), dropped FROM record WHERE (job_id, attempt) > ($1, $2) ORDER BY job_id, attempt LIMIT $3 + 0`
	blobsPut      = `UPDATE record SET blobs = $3, dropped = $4 WHERE job_id = $1 AND attempt = $2`
	workersDelete = `DELETE FROM worker WHERE connected = 0 AND seen_at < $1`
)

type history struct{ *Tx }

func (t history) Floor(ctx context.Context) (int64, error) {
	seq, _, err := one(ctx, t.Tx, scanInt, floorGet)
	if err != nil {
		return 0, fmt.Errorf("find the oldest event: %w", err)
	}
	return seq, nil
}

func (t history) ForgetEvents(ctx context.Context, before time.Time, limit int) (int64, error) {
	floor, err := t.Floor(ctx)
	if err != nil || limit < 1 {
		return 0, err
	}
	type place struct{ seq, at int64 }
	// One more than may go: what is kept shows that the newest is not among them.
	oldest, err := all(ctx, t.Tx, func(row Row) (p place, err error) {
		err = row.Scan(&p.seq, &p.at)
		return p, err
	}, eventsOldest, floor, limit+1)
	if err != nil {
		return 0, fmt.Errorf("find old events: %w", err)
	}
	old := 0
	for old < len(oldest)-1 && oldest[old].at < micros(before) {
		old++
	}
	if old == 0 {
		return 0, nil
	}
	n, err := t.q.Exec(ctx, eventsDelete, oldest[old-1].seq)
	if err == nil {
		err = t.q.Write(ctx, floorPut, oldest[old-1].seq)
	}
	if err != nil {
		return 0, fmt.Errorf("forget events: %w", err)
	}
	return n, nil
}

func (t history) EndedPlans(ctx context.Context, before time.Time, limit int) ([]string, error) {
	if limit < 1 {
		return nil, nil
	}
	ids, err := all(ctx, t.Tx, func(row Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, plansEnded, micros(before), limit)
	if err != nil {
		return nil, fmt.Errorf("find ended plans: %w", err)
	}
	return ids, nil
}

func (t history) ForgetPlan(ctx context.Context, rootID string) (int64, error) {
	open, _, err := one(ctx, t.Tx, scanInt, planOpen, rootID)
	if err != nil {
		return 0, fmt.Errorf("forget plan: %w", err)
	}
	if open > 0 {
		return 0, fault.New(fault.Conflict, "plan %s has not ended", rootID).WithCode("wrong_state")
	}
	type group struct {
		job.Job
		n int64
	}
	groups, err := all(ctx, t.Tx, func(row Row) (g group, err error) {
		err = row.Scan(&g.Owner, (*string)(&g.State), (*string)(&g.Outcome), &g.n)
		g.ID = "a task" // which no root is
		return g, err
	}, planCounts, rootID)
	if err != nil {
		return 0, fmt.Errorf("forget plan: %w", err)
	}
	var gone int64
	for _, g := range groups {
		gone += g.n
		if err := jobs(t).countEnded(ctx, &g.Job, -int(g.n)); err != nil {
			return 0, err
		}
	}
	for _, query := range []string{recordsDelete, dependenciesDelete, jobsDelete} {
		if err := t.q.Write(ctx, query, rootID); err != nil {
			return 0, fmt.Errorf("forget plan: %w", err)
		}
	}
	maps.DeleteFunc(t.read, func(_ string, j job.Job) bool { return j.RootID == rootID })
	return gone, nil
}

func (t history) Kept(ctx context.Context, after store.Kept, limit int) ([]store.Kept, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := page(ctx, t.Tx, func(k *store.Kept) int { return 1 << 10 * (1 + len(k.Artifacts)) }, scanKept, recordsKept, after.JobID, after.Attempt, limit)
	if err != nil {
		return nil, fmt.Errorf("list what is kept: %w", err)
	}
	return list, nil
}

func scanKept(row Row) (store.Kept, error) {
	var (
		k               store.Kept
		body, artifacts []byte
		record          struct {
			Ended    time.Time          `json:"ended_at"`
			Snapshot *evidence.Snapshot `json:"snapshot"`
		}
	)
	err := row.Scan(&k.JobID, &k.Attempt, &body, &artifacts, &k.Small, (*int64)(&k.Dropped))
	if err == nil {
		err = json.Unmarshal(body, &record)
	}
	if err == nil {
		err = json.Unmarshal(artifacts, &k.Artifacts)
	}
	if err != nil {
		return store.Kept{}, fmt.Errorf("scan record: %w", err)
	}
	k.Ended = record.Ended
	if record.Snapshot != nil {
		k.Snapshot = record.Snapshot.SHA256
	}
	return k, nil
}

func (t history) DropBlobs(ctx context.Context, jobID string, attempt int, digests []string, what store.Dropped) (int64, error) {
	packed, ok, err := records(t).read(ctx, "blobs", jobID, attempt)
	if err != nil || !ok {
		return 0, err
	}
	rest, err := without(packed, digests)
	if err == nil {
		err = t.q.Write(ctx, blobsPut, jobID, attempt, rest, int64(what))
	}
	if err != nil {
		return 0, fmt.Errorf("drop blobs: %w", err)
	}
	return int64(len(packed) - len(rest)), nil
}

// without returns what packBlobs wrote, but for some digests.
func without(packed []byte, digests []string) ([]byte, error) {
	rest := []byte{}
	for len(packed) > 0 {
		size, err := blobSize(packed)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(digests, hex.EncodeToString(packed[:blobDigest])) {
			rest = append(rest, packed[:size]...)
		}
		packed = packed[size:]
	}
	return rest, nil
}

func (t history) ForgetWorkers(ctx context.Context, before time.Time) (int64, error) {
	n, err := t.q.Exec(ctx, workersDelete, micros(before))
	if err != nil {
		return 0, fmt.Errorf("forget workers: %w", err)
	}
	return n, nil
}
