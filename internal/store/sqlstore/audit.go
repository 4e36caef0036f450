package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	auditColumns = `seq, at, category, severity, action, message, source, actor, target, outcome, request_id, before_state, after_state, metadata`
	auditWidth   = 14 // columns
	auditOldest  = `SELECT seq, at FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2 + 0`
	auditDelete  = `DELETE FROM audit WHERE seq <= $1`

	treeGet   = `SELECT size, floor, peaks FROM audit_tree WHERE name = 'audit'`
	treePut   = `INSERT INTO audit_tree (name, size, floor, peaks) VALUES ('audit', $1, $2, $3) ON CONFLICT (name) DO UPDATE SET size = excluded.size, floor = excluded.floor, peaks = excluded.peaks`
	leafAfter = `SELECT seq, hashes FROM audit_leaf WHERE seq > $1 ORDER BY seq LIMIT $2 + 0`

	checkpointColumns = `size, signer, at, note`
	checkpointAdd     = `INSERT INTO audit_checkpoint (` + checkpointColumns + `) VALUES ($1, $2, $3, $4) ON CONFLICT (size, signer) DO NOTHING`
	checkpointAfter   = `SELECT ` + checkpointColumns + ` FROM audit_checkpoint WHERE size > $1 ORDER BY size, signer LIMIT $2 + 0`
	checkpointLast    = `SELECT ` + checkpointColumns + ` FROM audit_checkpoint ORDER BY size DESC, signer DESC LIMIT 1`
	checkpointLastOf  = `SELECT ` + checkpointColumns + ` FROM audit_checkpoint WHERE signer = $1 ORDER BY size DESC LIMIT 1`
)

type audits struct{ *Tx }

// Audit implements store.Tx.
func (t *Tx) Audit() store.Audit { return audits{t} }

// auditTree is the one row about the log.
type auditTree struct {
	audit.Tree
	floor int64
}

func (t audits) Append(ctx context.Context, list ...*audit.Record) error {
	if len(list) == 0 {
		return nil
	}
	tree, err := t.tree(ctx)
	if err != nil {
		return fmt.Errorf("append audit record: %w", err)
	}
	for part := range slices.Chunk(list, maxRows) {
		if err := t.append(ctx, &tree, part); err != nil {
			return fmt.Errorf("append audit record: %w", err)
		}
	}
	if err := t.putTree(ctx, &tree); err != nil {
		return fmt.Errorf("append audit record: %w", err)
	}
	t.appended += len(list)
	audit.Note(ctx)
	return nil
}

// append stores records, and what the tree keeps for them, by two statements.
func (t audits) append(ctx context.Context, tree *auditTree, list []*audit.Record) error {
	args, leaves := make([]any, 0, len(list)*auditWidth), make([]any, 0, len(list)*2)
	for _, r := range list {
		if r.RequestID == "" {
			r.RequestID = audit.RequestOf(ctx)
		}
		if err := r.Seal(tree.Size+1, time.Now()); err != nil {
			return err
		}
		more := ""
		if len(r.Metadata) > 0 {
			text, err := json.Marshal(r.Metadata)
			if err != nil {
				return fmt.Errorf("encode metadata: %w", err)
			}
			more = string(text)
		}
		args = append(args, r.Seq, micros(r.At), string(r.Category), string(r.Severity), r.Action, r.Message, r.Source,
			r.Actor, r.Target, r.Outcome, r.RequestID, string(r.Before), string(r.After), more)
		leaves = append(leaves, r.Seq, audit.WriteHashes(tree.Add(r.Leaf())))
	}
	if err := t.q.Write(ctx, `INSERT INTO audit (`+auditColumns+`) `+values(len(list), auditWidth), args...); err != nil {
		return err
	}
	return t.q.Write(ctx, `INSERT INTO audit_leaf (seq, hashes) `+values(len(list), 2), leaves...)
}

// tree reads the row about the log: writers take turns, so nobody adds to the
// tree between this and the end of the transaction.
func (t audits) tree(ctx context.Context) (auditTree, error) {
	tree, _, err := one(ctx, t.Tx, func(row Row) (tree auditTree, err error) {
		var size int64
		var peaks []byte
		if err := row.Scan(&size, &tree.floor, &peaks); err != nil {
			return auditTree{}, fmt.Errorf("scan the tree: %w", err)
		}
		tree.Tree, err = audit.ReadTree(size, peaks)
		return tree, err
	}, treeGet)
	return tree, err
}

func (t audits) putTree(ctx context.Context, tree *auditTree) error {
	return t.q.Write(ctx, treePut, tree.Size, tree.floor, tree.Peaks())
}

func (t audits) List(ctx context.Context, f audit.Filter, limit int) ([]audit.Record, error) {
	if limit < 1 {
		return nil, nil
	}
	query, args := auditList(&f, limit)
	list, err := page(ctx, t.Tx, (*audit.Record).Bytes, scanAudit, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list audit records: %w", err)
	}
	return list, nil
}

// auditList builds the query that agrees with audit.Filter.Matches.
func auditList(f *audit.Filter, limit int) (string, []any) {
	var c conditions
	c.add("seq > ?", f.After)
	if f.Before != 0 {
		c.add("seq < ?", f.Before)
	}
	addIn(&c, "category", f.Categories)
	addIn(&c, "severity", f.Severities)
	addIn(&c, "action", f.Actions)
	for _, equal := range []struct{ column, value string }{
		{"actor", f.Actor}, {"target", f.Target}, {"outcome", f.Outcome}, {"request_id", f.RequestID},
	} {
		if equal.value != "" {
			c.add(equal.column+" = ?", equal.value)
		}
	}
	// Kept to the microsecond: a bound within one is that of the next.
	if !f.From.IsZero() {
		c.add("at >= ?", ceilMicros(f.From))
	}
	if !f.To.IsZero() {
		c.add("at < ?", ceilMicros(f.To))
	}
	order := ` ORDER BY seq`
	if f.Newest {
		order += ` DESC`
	}
	return `SELECT ` + auditColumns + ` FROM audit` + c.where() + order + c.limit(limit), c.args
}

func ceilMicros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

func scanAudit(row Row) (audit.Record, error) {
	var (
		r                   audit.Record
		at                  int64
		before, after, more string
	)
	err := row.Scan(&r.Seq, &at, (*string)(&r.Category), (*string)(&r.Severity), &r.Action, &r.Message, &r.Source,
		&r.Actor, &r.Target, &r.Outcome, &r.RequestID, &before, &after, &more)
	if err != nil {
		return audit.Record{}, fmt.Errorf("scan audit record: %w", err)
	}
	r.At, r.Before, r.After = timeOf(at), rawJSON(before), rawJSON(after)
	if more != "" {
		if err := json.Unmarshal([]byte(more), &r.Metadata); err != nil {
			// Somebody bent it. The reader gets what is there, and verify says which it is.
			r.Metadata = map[string]string{"damaged": more}
		}
	}
	return r, nil
}

func (t audits) Tree(ctx context.Context) (audit.Tree, error) {
	tree, err := t.tree(ctx)
	if err != nil {
		return audit.Tree{}, fmt.Errorf("read the audit tree: %w", err)
	}
	return tree.Tree, nil
}

func (t audits) Leaves(ctx context.Context, after int64, limit int) ([]store.AuditLeaf, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, scanLeaf, leafAfter, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list audit hashes: %w", err)
	}
	return list, nil
}

func scanLeaf(row Row) (l store.AuditLeaf, err error) {
	var packed []byte
	if err := row.Scan(&l.Seq, &packed); err != nil {
		return store.AuditLeaf{}, fmt.Errorf("scan audit hashes: %w", err)
	}
	l.Hashes, err = audit.ReadHashes(packed)
	return l, err
}

func (t audits) Hashes(ctx context.Context, indexes []int64) ([]tlog.Hash, error) {
	seqs := make([]int64, len(indexes))
	for i, index := range indexes {
		seqs[i], _ = audit.Place(index)
	}
	found := make(map[int64][]tlog.Hash, len(seqs))
	for part := range slices.Chunk(seqs, maxAsked) {
		in, args := among(part)
		list, err := all(ctx, t.Tx, scanLeaf, `SELECT seq, hashes FROM audit_leaf WHERE seq `+in, args...)
		if err != nil {
			return nil, fmt.Errorf("read audit hashes: %w", err)
		}
		for _, l := range list {
			found[l.Seq] = l.Hashes
		}
	}
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		seq, level := audit.Place(index)
		if level >= len(found[seq]) {
			return nil, fmt.Errorf("read audit hashes: one of record %d is missing", seq)
		}
		hashes[i] = found[seq][level]
	}
	return hashes, nil
}

func (t audits) Floor(ctx context.Context) (int64, error) {
	tree, err := t.tree(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the oldest audit record: %w", err)
	}
	return tree.floor, nil
}

func (t audits) Purge(ctx context.Context, before time.Time, limit int) (int64, error) {
	if limit < 1 {
		return 0, nil
	}
	tree, err := t.tree(ctx)
	if err != nil {
		return 0, fmt.Errorf("purge audit records: %w", err)
	}
	// One more than may go: what is kept shows that the newest is not among them.
	oldest, err := all(ctx, t.Tx, func(row Row) (p [2]int64, err error) {
		err = row.Scan(&p[0], &p[1])
		return p, err
	}, auditOldest, tree.floor, limit+1)
	if err != nil {
		return 0, fmt.Errorf("find old audit records: %w", err)
	}
	old := 0
	for old < len(oldest)-1 && oldest[old][1] < micros(before) {
		old++
	}
	if old == 0 {
		return 0, nil
	}
	tree.floor = oldest[old-1][0]
	n, err := t.q.Exec(ctx, auditDelete, tree.floor)
	if err == nil {
		err = t.putTree(ctx, &tree)
	}
	if err != nil {
		return 0, fmt.Errorf("purge audit records: %w", err)
	}
	return n, nil
}

func (t audits) AddCheckpoint(ctx context.Context, c store.AuditCheckpoint) error {
	if err := t.q.Write(ctx, checkpointAdd, c.Size, c.Signer, micros(c.At), c.Note); err != nil {
		return fmt.Errorf("store checkpoint: %w", err)
	}
	t.appended++
	return nil
}

func (t audits) Checkpoints(ctx context.Context, after int64, limit int) ([]store.AuditCheckpoint, error) {
	if limit < 1 {
		return nil, nil
	}
	list, err := all(ctx, t.Tx, scanCheckpoint, checkpointAfter, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	return list, nil
}

func (t audits) LastCheckpoint(ctx context.Context, signer string) (store.AuditCheckpoint, error) {
	query, args := checkpointLast, []any{}
	if signer != "" {
		query, args = checkpointLastOf, []any{signer}
	}
	c, _, err := one(ctx, t.Tx, scanCheckpoint, query, args...)
	if err != nil {
		return store.AuditCheckpoint{}, fmt.Errorf("find the last checkpoint: %w", err)
	}
	return c, nil
}

func scanCheckpoint(row Row) (c store.AuditCheckpoint, err error) {
	var at int64
	if err := row.Scan(&c.Size, &c.Signer, &at, &c.Note); err != nil {
		return store.AuditCheckpoint{}, fmt.Errorf("scan checkpoint: %w", err)
	}
	c.At = timeOf(at)
	return c, nil
}
