package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/store"
)

// fullAudit has no zero field but Seq.
func fullAudit() *audit.Record {
	return &audit.Record{
		At: moment(3), Category: audit.Quarantine, Severity: audit.Critical, Action: "action " + odd, Message: "message " + odd,
		Source: "source " + odd, Actor: "actor " + odd, Target: "target " + odd, Outcome: audit.Denied, RequestID: "request " + odd,
		Before: json.RawMessage(`{"a":[1.50,{"b":null}]}`), After: json.RawMessage(`"日本\u0000"`), Metadata: map[string]string{"k": "v " + odd, "a": ""},
	}
}

func newAudit(target string) *audit.Record {
	return &audit.Record{At: moment(0), Category: audit.Access, Action: "job.cancel", Source: "queue", Actor: "local", Target: target}
}

func listAudit(t failing, s store.Store, f audit.Filter, limit int) []audit.Record {
	t.Helper()
	return view(t, s, func(tx store.Tx) ([]audit.Record, error) { return tx.Audit().List(t.Context(), f, limit) })
}

// wantTree ends the test unless the tree, the leaves and the records that are
// left agree, and returns the tree.
func wantTree(t failing, s store.Store) audit.Tree {
	t.Helper()
	ctx := t.Context()
	tree := view(t, s, func(tx store.Tx) (audit.Tree, error) { return tx.Audit().Tree(ctx) })
	leaves := view(t, s, func(tx store.Tx) ([]store.AuditLeaf, error) { return tx.Audit().Leaves(ctx, 0, 10000) })
	equal(t, "number of leaves", int64(len(leaves)), tree.Size)
	left := map[int64]audit.Record{}
	for _, r := range listAudit(t, s, audit.Filter{}, 10000) {
		left[r.Seq] = r
	}
	var again audit.Tree
	for i, l := range leaves {
		equal(t, "number of a leaf", l.Seq, int64(i+1))
		if r, ok := left[l.Seq]; ok {
			equal(t, "leaf of a record", l.Hashes[0], r.Leaf())
		}
		equal(t, "hashes of a record", l.Hashes, again.Add(l.Hashes[0]))
	}
	equal(t, "root", tree.Root(), again.Root())
	return tree
}

func testAuditRoundTrip(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	equal(t, "empty tree", wantTree(t, s).Size, int64(0))
	full, plain := fullAudit(), &audit.Record{Category: audit.Policy}
	update(t, s, func(tx store.Tx) error { return tx.Audit().Append(ctx, full, plain) })
	equal(t, "numbers", []int64{full.Seq, plain.Seq}, []int64{1, 2})
	if plain.At.IsZero() {
		t.Fatalf("a record has no time")
	}
	equal(t, "records", listAudit(t, s, audit.Filter{}, 10), []audit.Record{*full, *plain})
	equal(t, "newest first", listAudit(t, s, audit.Filter{Newest: true}, 1), []audit.Record{*plain})
	equal(t, "at most none", len(listAudit(t, s, audit.Filter{}, 0)), 0)
	hostile := newAudit("a zero \x00 byte, no \xff\xfe UTF-8")
	hostile.Before, hostile.Metadata = json.RawMessage("{\"a\":\"\xed\xa0\x80"), map[string]string{"\x00": "\xff"}
	update(t, s, func(tx store.Tx) error { return tx.Audit().Append(ctx, hostile) })
	equal(t, "hostile text", listAudit(t, s, audit.Filter{After: 2}, 10), []audit.Record{*hostile})
	equal(t, "size", wantTree(t, s).Size, int64(3))
	err := s.Update(ctx, func(tx store.Tx) error { return tx.Audit().Append(ctx, &audit.Record{Category: "gossip"}) })
	if err == nil {
		t.Fatalf("a category that there is not was stored")
	}
}

// testAuditRollback appends together with updates that fail: the numbers have
// no gaps, and the tree is that of what was kept.
func testAuditRollback(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	failure := errors.New("failure")
	var all sync.WaitGroup
	kept := make(chan int, 200)
	for i := range 100 {
		all.Go(func() {
			err := s.Update(ctx, func(tx store.Tx) error {
				a, b := newAudit(fmt.Sprint("a", i)), newAudit(fmt.Sprint("b", i))
				if err := tx.Audit().Append(ctx, a); err != nil {
					return err
				}
				if i%3 == 0 {
					return failure
				}
				return tx.Audit().Append(ctx, b)
			})
			if err == nil {
				kept <- 2
			} else if !errors.Is(err, failure) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(kept)
	want := 0
	for n := range kept {
		want += n
	}
	equal(t, "size", wantTree(t, s).Size, int64(want))
	equal(t, "records", len(listAudit(t, s, audit.Filter{}, 1000)), want)
	many := make([]*audit.Record, 50)
	for i := range many {
		many[i] = newAudit("many")
	}
	update(t, s, func(tx store.Tx) error { return tx.Audit().Append(ctx, many...) })
	equal(t, "size with many at once", wantTree(t, s).Size, int64(want+50))
}

// testAuditProofs holds tlog's own proofs over the stored hashes.
func testAuditProofs(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	roots := []tlog.Hash{wantTree(t, s).Root()}
	for i := range 21 {
		update(t, s, func(tx store.Tx) error { return tx.Audit().Append(ctx, newAudit(fmt.Sprint(i))) })
		tree := view(t, s, func(tx store.Tx) (audit.Tree, error) { return tx.Audit().Tree(ctx) })
		roots = append(roots, tree.Root())
	}
	records := listAudit(t, s, audit.Filter{}, 100)
	check(t, s.View(ctx, func(tx store.Tx) error {
		reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { return tx.Audit().Hashes(ctx, indexes) })
		for size := int64(1); size <= 21; size++ {
			for n := int64(1); n <= size; n++ {
				p, err := tlog.ProveRecord(size, n-1, reader)
				if err == nil {
					err = tlog.CheckRecord(p, size, roots[size], n-1, records[n-1].Leaf())
				}
				if err != nil {
					return fmt.Errorf("record %d in %d: %w", n, size, err)
				}
				c, err := tlog.ProveTree(size, n, reader)
				if err == nil {
					err = tlog.CheckTree(c, size, roots[size], n, roots[n])
				}
				if err != nil {
					return fmt.Errorf("size %d within %d: %w", n, size, err)
				}
			}
		}
		if _, err := tx.Audit().Hashes(ctx, []int64{1000}); err == nil {
			return errors.New("a hash that is missing is no error")
		}
		return nil
	}))
}

// testAuditPurge purges from the front: hashes stay, the newest record stays.
func testAuditPurge(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	purge := func(before time.Time, limit int) (n int64) {
		update(t, s, func(tx store.Tx) (err error) { n, err = tx.Audit().Purge(ctx, before, limit); return err })
		return n
	}
	floor := func() int64 {
		return view(t, s, func(tx store.Tx) (int64, error) { return tx.Audit().Floor(ctx) })
	}
	equal(t, "purged of none", purge(moment(9), 10), int64(0))
	for i := range 6 {
		r := newAudit(fmt.Sprint(i))
		r.At = moment(i)
		update(t, s, func(tx store.Tx) error { return tx.Audit().Append(ctx, r) })
	}
	root := wantTree(t, s).Root()
	equal(t, "purged before the first", purge(moment(0), 10), int64(0))
	equal(t, "purged, two at most", purge(moment(3), 2), int64(2))
	equal(t, "purged, the rest", purge(moment(3), 10), int64(1))
	equal(t, "floor", floor(), int64(3))
	equal(t, "purged, all that are old", purge(moment(30), 10), int64(2))
	equal(t, "left", listAudit(t, s, audit.Filter{}, 10)[0].Seq, int64(6))
	tree := wantTree(t, s)
	equal(t, "root after a purge", tree.Root(), root)
	next := newAudit("next")
	update(t, s, func(tx store.Tx) error { return tx.Audit().Append(ctx, next) })
	equal(t, "next number", next.Seq, int64(7))
	equal(t, "floor after it", floor(), int64(5))
	wantTree(t, s)
}

func testAuditCheckpoints(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	a := store.AuditCheckpoint{Size: 3, Signer: "a", At: moment(1), Note: "a\n" + odd}
	b := store.AuditCheckpoint{Size: 3, Signer: "b", At: moment(2), Note: "b"}
	c := store.AuditCheckpoint{Size: 5, Signer: "a", At: moment(3), Note: "c"}
	last := func(signer string) store.AuditCheckpoint {
		return view(t, s, func(tx store.Tx) (store.AuditCheckpoint, error) { return tx.Audit().LastCheckpoint(ctx, signer) })
	}
	equal(t, "last of none", last(""), store.AuditCheckpoint{})
	again := a
	again.Note = "another"
	for _, one := range []store.AuditCheckpoint{c, a, b, again} {
		update(t, s, func(tx store.Tx) error { return tx.Audit().AddCheckpoint(ctx, one) })
	}
	list := func(after int64, limit int) []store.AuditCheckpoint {
		return view(t, s, func(tx store.Tx) ([]store.AuditCheckpoint, error) { return tx.Audit().Checkpoints(ctx, after, limit) })
	}
	equal(t, "all", list(0, 10), []store.AuditCheckpoint{a, b, c})
	equal(t, "behind 3", list(3, 10), []store.AuditCheckpoint{c})
	equal(t, "one", list(0, 1), []store.AuditCheckpoint{a})
	equal(t, "none", len(list(0, 0)), 0)
	equal(t, "last", last(""), c)
	equal(t, "last of b", last("b"), b)
	equal(t, "last of nobody", last("x"), store.AuditCheckpoint{})
}

// testAuditFilter holds List against Matches.
func testAuditFilter(t *testing.T, fresh func() Database) {
	rapid.Check(t, func(r *rapid.T) {
		s := fresh()()
		defer func() { check(r, s.Close()) }()
		id := func(what string) string { return rapid.SampledFrom([]string{"", "a", "b", "A"}).Draw(r, what) }
		at := func(what string) time.Time {
			return moment(0).Add(time.Duration(rapid.IntRange(0, 3).Draw(r, what)) * 500 * time.Nanosecond)
		}
		var stored []*audit.Record
		for range rapid.IntRange(0, 20).Draw(r, "records") {
			stored = append(stored, &audit.Record{
				At: at("at"), Category: rapid.SampledFrom(audit.Categories()[:3]).Draw(r, "category"), Severity: rapid.SampledFrom(audit.Severities()).Draw(r, "severity"),
				Action: id("action"), Actor: id("actor"), Target: id("target"), Outcome: id("outcome"), RequestID: id("request"),
			})
		}
		update(r, s, func(tx store.Tx) error { return tx.Audit().Append(r.Context(), stored...) })
		for range 10 {
			f := audit.Filter{
				After: rapid.Int64Range(-1, 10).Draw(r, "after"), Before: rapid.Int64Range(0, 21).Draw(r, "before"), Newest: rapid.Bool().Draw(r, "newest"),
				Categories: rapid.SliceOfN(rapid.SampledFrom(audit.Categories()[:3]), 0, 2).Draw(r, "categories"),
				Severities: rapid.SliceOfN(rapid.SampledFrom(audit.Severities()), 0, 2).Draw(r, "severities"),
				Actions:    rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b"}), 0, 2).Draw(r, "actions"),
				Actor:      id("actor"), Target: id("target"), Outcome: id("outcome"), RequestID: id("request"),
			}
			if rapid.Bool().Draw(r, "from") {
				f.From = at("from")
			}
			if rapid.Bool().Draw(r, "to") {
				f.To = at("to")
			}
			limit := rapid.IntRange(1, 25).Draw(r, "limit")
			var want []audit.Record
			for i := range stored {
				if f.Newest {
					i = len(stored) - 1 - i
				}
				if f.Matches(stored[i]) && len(want) < limit {
					want = append(want, *stored[i])
				}
			}
			equal(r, fmt.Sprintf("records of %+v", f), listAudit(r, s, f, limit), want)
		}
	})
}

// testTwoAppend has two managers append to one log.
func testTwoAppend(t *testing.T, db Shared) {
	ctx := t.Context()
	stores := []store.Store{open(t, db.Database), open(t, db.Database)}
	var both sync.WaitGroup
	for i, s := range stores {
		for n := range 50 {
			both.Go(func() {
				if err := s.Update(ctx, func(tx store.Tx) error { return appendAudit(ctx, tx, fmt.Sprint(i, n)) }); err != nil {
					t.Error(err)
				}
			})
		}
	}
	both.Wait()
	for _, s := range stores {
		equal(t, "size", wantTree(t, s).Size, int64(100))
	}
}

func appendAudit(ctx context.Context, tx store.Tx, target string) error {
	return tx.Audit().Append(ctx, newAudit(target))
}
