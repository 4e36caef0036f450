package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	sandboxColumns = `id, owner, name, session, app, state, worker, created_at, started_at, ended_at, due_at, cpu_ns, memory_bytes, disk_bytes, body`
	sandboxSelect  = `SELECT ` + sandboxColumns + ` FROM sandbox`
	sandboxInsert  = `INSERT INTO sandbox (` + sandboxColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)` + OnConflict
	sandboxPut = `UPDATE sandbox SET session = $2, app = $3, state = $4, worker = $5, started_at = $6, ended_at = $7, due_at = $8,
		cpu_ns = $9, memory_bytes = $10, disk_bytes = $11, body = $12 WHERE id = $1`
	sandboxNamed  = sandboxSelect + ` WHERE owner = $1 AND name = $2 AND name <> '' AND ended_at = 0`
	sandboxHeld   = sandboxSelect + ` WHERE worker = $1 AND ended_at = 0 ORDER BY id`
	sandboxDue    = sandboxSelect + ` WHERE ended_at = 0 AND due_at > 0 AND due_at <= $1 ORDER BY due_at` + limit2
	sandboxDelete = `DELETE FROM sandbox WHERE id = $1 AND ended_at > 0`
	sandboxEnded  = `SELECT id FROM sandbox WHERE ended_at > 0 AND ended_at < $1
		AND NOT EXISTS (SELECT 1 FROM sandbox_snapshot WHERE sandbox_id = sandbox.id) ORDER BY ended_at` + limit2

	labelInsert = `INSERT INTO sandbox_label (sandbox_id, label, value) VALUES ($1, $2, $3)` + OnConflict
	labelDelete = `DELETE FROM sandbox_label WHERE sandbox_id = $1`

	// The time of each is cut to what lies between $1 and $2.
	accounts = `SELECT owner, session, app, COUNT(*), SUM(lived), SUM(cpu_ns), SUM(lived * (memory_bytes / 1048576.0)),
		SUM(CASE WHEN ended_at = 0 THEN disk_bytes ELSE 0 END)
		FROM (SELECT owner, session, app, cpu_ns, memory_bytes, disk_bytes, ended_at,
			CASE WHEN ended_at = 0 OR ended_at > $2 THEN $2 ELSE ended_at END
			- CASE WHEN started_at < $1 THEN $1 ELSE started_at END AS lived
			FROM sandbox WHERE started_at > 0 AND started_at < $2 AND (ended_at = 0 OR ended_at > $1)`
	accountsOf = `) AS lives GROUP BY owner, session, app ORDER BY owner, session, app`

	snapshotSelect = `SELECT body FROM sandbox_snapshot`
	snapshotInsert = `INSERT INTO sandbox_snapshot (id, sandbox_id, owner, created_at, body) VALUES ($1, $2, $3, $4, $5)` + OnConflict
	snapshotDelete = `DELETE FROM sandbox_snapshot WHERE id = $1`
)

type sandboxes struct{ *Tx }

// sandboxBody is what of a sandbox is kept as JSON.
type sandboxBody struct {
	Spec       live.Spec       `json:"spec"`
	Outcome    sandbox.Outcome `json:"outcome,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Paused     live.Paused     `json:"paused,omitempty"`
	Made       live.Made       `json:"made"`
	Generation int64           `json:"generation,omitempty"`
	Parent     string          `json:"parent,omitempty"`
	Usage      sandbox.Usage   `json:"usage"`
	ActiveAt   int64           `json:"active_at"`
	Deadline   int64           `json:"deadline,omitempty"`
	LinkKey    []byte          `json:"link_key,omitempty"`
}

func bodyOf(s *live.Sandbox) (string, error) {
	body, err := json.Marshal(sandboxBody{
		Spec: s.Spec, Outcome: s.Outcome, Reason: s.Reason, Paused: s.Paused, Made: s.Made,
		Generation: s.Generation, Parent: s.Parent, Usage: s.Usage, ActiveAt: micros(s.ActiveAt), Deadline: micros(s.Deadline), LinkKey: s.LinkKey,
	})
	if err != nil {
		return "", fmt.Errorf("encode sandbox: %w", err)
	}
	return string(body), nil
}

func (t sandboxes) Add(ctx context.Context, s *live.Sandbox) error {
	body, err := bodyOf(s)
	if err != nil {
		return err
	}
	n, err := t.q.Exec(ctx, sandboxInsert, s.ID, s.Owner, s.Name, s.Session, s.App, string(s.State), s.Worker, micros(s.CreatedAt),
		micros(s.StartedAt), micros(s.EndedAt), micros(s.ExpiresAt), int64(s.Usage.CPU), s.Spec.Limits.Memory, s.Disk, body)
	if err != nil {
		return fmt.Errorf("add sandbox: %w", err)
	}
	if n == 0 {
		if _, err := t.Get(ctx, s.ID); err == nil || s.Name == "" {
			return fault.New(fault.Conflict, "a sandbox with the id %q exists", s.ID).WithCode("sandbox_exists")
		}
		return fault.New(fault.Conflict, "an open sandbox has the name %q", s.Name).WithCode(store.CodeNameTaken)
	}
	return t.label(ctx, s)
}

func (t sandboxes) label(ctx context.Context, s *live.Sandbox) error {
	for _, key := range slices.Sorted(maps.Keys(s.Spec.Labels)) {
		if err := t.q.Write(ctx, labelInsert, s.ID, key, s.Spec.Labels[key]); err != nil {
			return fmt.Errorf("label sandbox: %w", err)
		}
	}
	return nil
}

func (t sandboxes) Get(ctx context.Context, id string) (live.Sandbox, error) {
	s, ok, err := one(ctx, t.Tx, scanSandbox, sandboxSelect+` WHERE id = $1`, id)
	if err != nil {
		return live.Sandbox{}, fmt.Errorf("get sandbox: %w", err)
	}
	if !ok {
		return live.Sandbox{}, fault.New(fault.NotFound, "there is no sandbox %q", id)
	}
	return s, nil
}

func (t sandboxes) ByName(ctx context.Context, owner, name string) (live.Sandbox, error) {
	s, ok, err := one(ctx, t.Tx, scanSandbox, sandboxNamed, owner, name)
	if err != nil {
		return live.Sandbox{}, fmt.Errorf("get sandbox: %w", err)
	}
	if !ok {
		return live.Sandbox{}, fault.New(fault.NotFound, "there is no open sandbox with the name %q", name)
	}
	return s, nil
}

func (t sandboxes) Put(ctx context.Context, s *live.Sandbox) error {
	body, err := bodyOf(s)
	if err != nil {
		return err
	}
	err = t.q.Write(ctx, sandboxPut, s.ID, s.Session, s.App, string(s.State), s.Worker, micros(s.StartedAt), micros(s.EndedAt),
		micros(s.ExpiresAt), int64(s.Usage.CPU), s.Spec.Limits.Memory, s.Disk, body)
	if err == nil {
		err = t.q.Write(ctx, labelDelete, s.ID)
	}
	if err != nil {
		return fmt.Errorf("put sandbox: %w", err)
	}
	return t.label(ctx, s)
}

func (t sandboxes) List(ctx context.Context, f store.SandboxFilter) ([]live.Sandbox, error) {
	var c conditions
	for _, column := range []struct{ name, value string }{
		{"owner", f.Owner}, {"session", f.Session}, {"app", f.App}, {"state", string(f.State)},
	} {
		if column.value != "" {
			c.add(column.name+" = ?", column.value)
		}
	}
	if f.Open || f.State != "" && !f.State.Ended() {
		c.terms = append(c.terms, "ended_at = 0")
	}
	for _, key := range slices.Sorted(maps.Keys(f.Labels)) {
		c.add("id IN (SELECT sandbox_id FROM sandbox_label WHERE label = ? AND value = ?)", key, f.Labels[key])
	}
	query := sandboxSelect + c.newest(f.Before, f.Limit)
	list, err := page(ctx, t.Tx, store.SandboxBytes, scanSandbox, query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	return list, nil
}

// newest ends the query of a list by id, newest first.
func (c *conditions) newest(before string, limit int) string {
	if before == "" {
		before = lastID
	}
	c.add("id < ?", before)
	if limit < 1 {
		limit = defaultListLimit
	}
	return c.where() + ` ORDER BY id DESC` + c.limit(limit)
}

func (t sandboxes) Held(ctx context.Context, worker string) ([]live.Sandbox, error) {
	list, err := all(ctx, t.Tx, scanSandbox, sandboxHeld, worker)
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes of a worker: %w", err)
	}
	return list, nil
}

func (t sandboxes) Due(ctx context.Context, now time.Time, limit int) ([]live.Sandbox, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, scanSandbox, sandboxDue, micros(now), limit)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes whose time is over: %w", err)
	}
	return list, nil
}

func (t sandboxes) Accounts(ctx context.Context, f store.AccountFilter) ([]store.Account, error) {
	query, args := accounts, []any{micros(f.Since), micros(f.Now)}
	if f.Owner != "" {
		query, args = query+` AND owner = $3`, append(args, f.Owner)
	}
	if f.Project != 0 {
		args = append(args, strconv.FormatInt(f.Project, 10))
		query += fmt.Sprintf(` AND id IN (SELECT sandbox_id FROM sandbox_label WHERE label = '%s' AND value = $%d)`, live.LabelProject, len(args))
	}
	list, err := all(ctx, t.Tx, func(row Row) (a store.Account, err error) {
		var lived, cpu int64
		var megabytes float64
		err = row.Scan(&a.Owner, &a.Session, &a.App, &a.Sandboxes, &lived, &cpu, &megabytes, &a.Disk)
		a.Lived, a.CPU = time.Duration(lived)*time.Microsecond, time.Duration(cpu)
		a.MemoryTime = megabytes * (1 << 20) / 1e6
		return a, err
	}, query+accountsOf, args...)
	if err != nil {
		return nil, fmt.Errorf("add up accounts: %w", err)
	}
	return list, nil
}

// scanSandbox scans a row of sandboxSelect.
func scanSandbox(row Row) (live.Sandbox, error) {
	var (
		s                                      live.Sandbox
		created, started, ended, due, cpu, mem int64
		text                                   string
		body                                   sandboxBody
	)
	err := row.Scan(&s.ID, &s.Owner, &s.Name, &s.Session, &s.App, (*string)(&s.State), &s.Worker, &created, &started, &ended, &due, &cpu, &mem, &s.Disk, &text)
	if err == nil {
		err = json.Unmarshal([]byte(text), &body)
	}
	if err != nil {
		return live.Sandbox{}, fmt.Errorf("scan sandbox: %w", err)
	}
	s.Spec, s.Outcome, s.Reason, s.Paused, s.Made = body.Spec, body.Outcome, body.Reason, body.Paused, body.Made
	s.Generation, s.Parent, s.Usage = body.Generation, body.Parent, body.Usage
	s.ActiveAt, s.Deadline, s.LinkKey = timeOf(body.ActiveAt), timeOf(body.Deadline), body.LinkKey
	s.CreatedAt, s.StartedAt, s.EndedAt, s.ExpiresAt = timeOf(created), timeOf(started), timeOf(ended), timeOf(due)
	return s, nil
}

func (t sandboxes) AddSnapshot(ctx context.Context, s *live.Snapshot) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode snapshot: %w", err)
	}
	n, err := t.q.Exec(ctx, snapshotInsert, s.ID, s.Sandbox, s.Owner, micros(s.CreatedAt), string(body))
	if err != nil {
		return fmt.Errorf("add snapshot: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "a snapshot with the id %q exists", s.ID).WithCode("snapshot_exists")
	}
	return nil
}

func (t sandboxes) GetSnapshot(ctx context.Context, id string) (live.Snapshot, error) {
	s, ok, err := one(ctx, t.Tx, scanSnapshot, snapshotSelect+` WHERE id = $1`, id)
	if err != nil {
		return live.Snapshot{}, fmt.Errorf("get snapshot: %w", err)
	}
	if !ok {
		return live.Snapshot{}, fault.New(fault.NotFound, "there is no snapshot %q", id)
	}
	return s, nil
}

func (t sandboxes) Snapshots(ctx context.Context, f store.SnapshotFilter) ([]live.Snapshot, error) {
	var c conditions
	if f.Sandbox != "" {
		c.add("sandbox_id = ?", f.Sandbox)
	}
	if f.Owner != "" {
		c.add("owner = ?", f.Owner)
	}
	query := snapshotSelect + c.newest(f.Before, f.Limit)
	list, err := all(ctx, t.Tx, scanSnapshot, query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return list, nil
}

func (t sandboxes) DropSnapshot(ctx context.Context, id string) error {
	if err := t.q.Write(ctx, snapshotDelete, id); err != nil {
		return fmt.Errorf("drop snapshot: %w", err)
	}
	return nil
}

func scanSnapshot(row Row) (s live.Snapshot, err error) {
	var text string
	if err = row.Scan(&text); err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	if err != nil {
		return live.Snapshot{}, fmt.Errorf("scan snapshot: %w", err)
	}
	return s, nil
}
