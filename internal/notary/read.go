package notary

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Report is what a verification of the whole log came to.
type Report struct {
	Size        int64 // records that there ever were
	Purged      int64 // of which only hashes are left
	Checkpoints int64 // that the log was held against
	Confirmed   int64 // up to this record a checkpoint holds
	Root        tlog.Hash
	Finding     *audit.Finding // the first thing that is wrong; nil where nothing is
}

// Inclusion proves that a record is in the log of a size.
type Inclusion struct {
	Seq, Size  int64
	Leaf, Root tlog.Hash
	Proof      tlog.RecordProof
}

// Consistency proves that the log of one size is the beginning of that of
// another.
type Consistency struct {
	From, To         int64
	FromRoot, ToRoot tlog.Hash
	Proof            tlog.TreeProof
}

// allow refuses who may not; a door asks too, and this holds for all of them.
func allow(ctx context.Context, a policy.Action) (policy.Caller, error) {
	c, ok := policy.From(ctx)
	if !ok {
		return c, fault.New(fault.Unauthenticated, "no caller could be established")
	}
	if !c.May(a) {
		return c, fault.New(fault.Denied, "a key of kind %q may not do this; it needs the permission %q", c.Kind, a)
	}
	if !c.SeesAll() {
		return c, fault.New(fault.Denied, "this key sees only what is its owner's, and the audit is about everybody")
	}
	return c, nil
}

// AuditRecords lists records, a page at a time.
func (n *Notary) AuditRecords(ctx context.Context, f audit.Filter, limit int) (list []audit.Record, err error) {
	if _, err := allow(ctx, policy.Audit); err != nil {
		return nil, err
	}
	err = n.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Audit().List(ctx, f, limit)
		return err
	})
	return list, err
}

// AuditCheckpoint returns a signed checkpoint of all records, and the key that
// checks it.
func (n *Notary) AuditCheckpoint(ctx context.Context) (signed, key string, err error) {
	if _, err := allow(ctx, policy.Audit); err != nil {
		return "", "", err
	}
	c, err := n.Sign(ctx)
	var found *audit.Finding
	if errors.As(err, &found) {
		return "", "", fault.New(fault.Conflict, "the audit is not what was signed before, so it is not signed again: %w", found).WithCode("audit_tampered")
	}
	return c.Note, n.vkey, err
}

// ProveRecord proves that a record is in the log; size 0 is all of it.
func (n *Notary) ProveRecord(ctx context.Context, seq, size int64) (p Inclusion, err error) {
	err = n.prove(ctx, &size, func(tx store.Tx, r tlog.HashReader) (err error) {
		if seq < 1 || seq > size {
			return fault.New(fault.NotFound, "there is no record %d in a log of %d", seq, size)
		}
		p = Inclusion{Seq: seq, Size: size}
		leaf, err := tx.Audit().Hashes(ctx, []int64{tlog.StoredHashIndex(0, seq-1)})
		if err != nil {
			return err
		}
		p.Leaf = leaf[0]
		if p.Root, err = tlog.TreeHash(size, r); err == nil {
			p.Proof, err = tlog.ProveRecord(size, seq-1, r)
		}
		return err
	})
	return p, err
}

// ProveConsistency proves that the log only grew; to 0 is all of it.
func (n *Notary) ProveConsistency(ctx context.Context, from, to int64) (p Consistency, err error) {
	err = n.prove(ctx, &to, func(_ store.Tx, r tlog.HashReader) (err error) {
		if from < 1 || from > to {
			return fault.New(fault.NotFound, "a log of %d records does not begin with %d", to, from)
		}
		p = Consistency{From: from, To: to}
		if p.FromRoot, err = tlog.TreeHash(from, r); err != nil {
			return err
		}
		if p.ToRoot, err = tlog.TreeHash(to, r); err == nil {
			p.Proof, err = tlog.ProveTree(to, from, r)
		}
		return err
	})
	return p, err
}

// prove runs fn over the stored hashes, with size set where it was 0.
func (n *Notary) prove(ctx context.Context, size *int64, fn func(store.Tx, tlog.HashReader) error) error {
	if _, err := allow(ctx, policy.Audit); err != nil {
		return err
	}
	return n.Store.View(ctx, func(tx store.Tx) error {
		tree, err := tx.Audit().Tree(ctx)
		if err != nil {
			return err
		}
		if *size == 0 {
			*size = tree.Size
		}
		if *size < 0 || *size > tree.Size {
			return fault.New(fault.NotFound, "the log has %d records, not %d", tree.Size, *size)
		}
		return fn(tx, reader(ctx, tx))
	})
}

// VerifyAudit reads the whole log and holds it against every checkpoint, that
// in the manager's own folder among them.
func (n *Notary) VerifyAudit(ctx context.Context) (report Report, err error) {
	if _, err := allow(ctx, policy.Audit); err != nil {
		return report, err
	}
	n.mu.Lock()
	last := n.last
	n.mu.Unlock()
	v := audit.NewVerifier(audit.Tree{})
	if last.Size > 0 {
		if err := v.Trust(last); err != nil {
			return report, err
		}
	}
	var stored audit.Tree
	err = n.walk(ctx, func(tree audit.Tree) { stored = tree }, func(e audit.Entry) error {
		if e.Record == nil {
			report.Purged++
		}
		return v.Add(e)
	}, func(c store.AuditCheckpoint) error {
		report.Checkpoints++
		return n.trust(v, c)
	})
	if err == nil {
		err = v.Finish()
	}
	report.Size, report.Confirmed, report.Root = stored.Size, v.Confirmed(), v.Tree().Root()
	if err == nil && report.Root != stored.Root() {
		err = &audit.Finding{First: 1, Last: max(stored.Size, 1), Problem: "the tree that is stored is not that of the records"}
	}
	if errors.As(err, &report.Finding) {
		err = nil
	}
	return report, err
}

// trust adds a stored checkpoint. Those of other managers count by their root
// alone: here nobody has their keys.
func (n *Notary) trust(v *audit.Verifier, c store.AuditCheckpoint) error {
	read, signed, err := audit.OpenCheckpoint(c.Note, n.key)
	if err == nil && (read.Size != c.Size || c.Signer == n.signer.Name() && !signed) {
		err = errors.New("it is not what was signed")
	}
	if err != nil {
		return &audit.Finding{First: v.Confirmed() + 1, Last: max(c.Size, v.Confirmed()+1), Problem: fmt.Sprintf("the checkpoint of size %d was changed: %v", c.Size, err)}
	}
	return v.Trust(read)
}

// walk reads the log as it is now: its tree first, then every entry in order,
// and each checkpoint right behind the entry of its size. It reads page by
// page, since a log only grows, so that nobody waits for one who reads all.
func (n *Notary) walk(ctx context.Context, begin func(audit.Tree), entry func(audit.Entry) error, checkpoint func(store.AuditCheckpoint) error) error {
	var size, after int64
	first := true
	for first || after < size {
		var entries []audit.Entry
		var checkpoints []store.AuditCheckpoint
		err := n.Store.View(ctx, func(tx store.Tx) (err error) {
			if first {
				tree, err := tx.Audit().Tree(ctx)
				if err != nil {
					return err
				}
				size = tree.Size
				begin(tree)
			}
			if entries, err = entriesOf(ctx, tx, after, size); err != nil || len(entries) == 0 {
				return err
			}
			checkpoints, err = checkpointsOf(ctx, tx, after, entries[len(entries)-1].Seq)
			return err
		})
		if err != nil {
			return err
		}
		if first = false; after < size && len(entries) == 0 {
			return &audit.Finding{First: after + 1, Last: size, Problem: "missing"}
		}
		for _, e := range entries {
			if err := entry(e); err != nil {
				return err
			}
			for len(checkpoints) > 0 && checkpoints[0].Size <= e.Seq {
				if err := checkpoint(checkpoints[0]); err != nil {
					return err
				}
				checkpoints = checkpoints[1:]
			}
			after = e.Seq
		}
	}
	return n.beyond(ctx, size)
}

// beyond finds what is outside the log: checkpoints of more records than there
// are, and records that are in no tree.
func (n *Notary) beyond(ctx context.Context, size int64) error {
	return n.Store.View(ctx, func(tx store.Tx) error {
		tree, err := tx.Audit().Tree(ctx)
		if err != nil {
			return err
		}
		list, err := tx.Audit().Checkpoints(ctx, max(tree.Size, size), 1)
		if err == nil && len(list) > 0 {
			return &audit.Finding{First: tree.Size + 1, Last: list[0].Size, Problem: fmt.Sprintf("missing: the log was cut off, a checkpoint of size %d was signed", list[0].Size)}
		}
		for _, f := range []audit.Filter{{After: tree.Size}, {After: math.MinInt64, Before: 1}} {
			stray, err := tx.Audit().List(ctx, f, 1)
			if err != nil {
				return err
			}
			if len(stray) > 0 {
				return &audit.Finding{First: stray[0].Seq, Last: stray[0].Seq, Problem: "it was put in beside the log"}
			}
		}
		return err
	})
}

// checkpointsOf reads the checkpoints of sizes behind one, through another.
func checkpointsOf(ctx context.Context, tx store.Tx, after, through int64) (all []store.AuditCheckpoint, err error) {
	for {
		list, err := tx.Audit().Checkpoints(ctx, after, pageSize)
		if err != nil || len(list) == 0 {
			return all, err
		}
		for _, c := range list {
			if c.Size > through {
				return all, nil
			}
			all = append(all, c)
			after = c.Size
		}
		if len(list) < pageSize {
			return all, nil
		}
	}
}

// ExportAudit writes the whole log with its checkpoints, for audit.VerifyExport.
func (n *Notary) ExportAudit(ctx context.Context, w io.Writer) error {
	if _, err := allow(ctx, policy.Audit); err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	err := n.walk(ctx, func(audit.Tree) {}, func(e audit.Entry) error {
		return audit.WriteEntry(out, e)
	}, func(c store.AuditCheckpoint) error {
		return audit.WriteCheckpoint(out, c.Note)
	})
	return errors.Join(err, out.Flush())
}

// ExportAuditCSV writes the records that a filter lets through as a table, for
// people. It is no proof.
func (n *Notary) ExportAuditCSV(ctx context.Context, w io.Writer, f audit.Filter) error {
	out := csv.NewWriter(w)
	err := out.Write([]string{"seq", "timestamp", "category", "severity", "action", "outcome", "source", "actor", "target", "request_id", "message", "before", "after", "metadata", "hash"})
	for f.Newest = false; err == nil; {
		var list []audit.Record
		if list, err = n.AuditRecords(ctx, f, pageSize); err != nil || len(list) == 0 {
			break
		}
		for i := range list {
			if err = out.Write(row(&list[i])); err != nil {
				break
			}
		}
		f.After = list[len(list)-1].Seq
	}
	out.Flush()
	return errors.Join(err, out.Error())
}

// row is a record as a line of a table. What a spreadsheet would take for a
// formula gets a quote before it.
func row(r *audit.Record) []string {
	more := ""
	if len(r.Metadata) > 0 {
		b, _ := json.Marshal(r.Metadata) // strings always can be
		more = string(b)
	}
	cells := []string{
		strconv.FormatInt(r.Seq, 10), r.At.Format(time.RFC3339Nano), string(r.Category), string(r.Severity), r.Action, r.Outcome, r.Source,
		r.Actor, r.Target, r.RequestID, r.Message, string(r.Before), string(r.After), more, r.Leaf().String(),
	}
	for i, c := range cells[:len(cells)-1] {
		if c != "" && (c[0] == '=' || c[0] == '+' || c[0] == '-' || c[0] == '@' || c[0] == '\t' || c[0] == '\r') {
			cells[i] = "'" + c
		}
	}
	return cells
}
