// Package notary looks after the audit, the manager's side: it signs
// checkpoints of the log, and lists, proves, verifies, exports and purges it.
//
// It never writes records of what others decide; those who decide do, in the
// transaction of their decision. Its own act, the purge, leaves one like any
// other.
package notary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/store"
)

// Config is what a notary is made of.
type Config struct {
	Store store.Store
	// Keys is the folder of the manager's keys, and Dir one for its last
	// checkpoint: that belongs to this installation, and into no backup.
	Keys, Dir string
	// Keep is how long records are kept before they may be purged; 0 is for good.
	Keep   time.Duration
	Now    func() time.Time
	Logger *slog.Logger
}

// Notary signs for one manager.
type Notary struct {
	Config
	signer note.Signer
	key    note.Verifier
	vkey   string

	mu     sync.Mutex
	last   audit.Checkpoint // the newest that was signed here, also before a restart
	told   string           // what was last said to be wrong
	denied map[denied]refusals
	wrong  wrongKeys
}

// Open reads the key from the folder, or makes it.
func Open(cfg Config) (*Notary, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	n := &Notary{Config: cfg}
	if err := n.openKey(); err != nil {
		return nil, err
	}
	return n, n.readLast()
}

// Key returns what checks the notary's signatures: the name of the key, its
// hash, and the public key.
func (n *Notary) Key() string { return n.vkey }

// pause is how long the notary rests between two checkpoints, so that a busy
// log does not have one for each record.
const pause = time.Second

// Run signs a checkpoint whenever there are new records, until ctx ends.
func (n *Notary) Run(ctx context.Context) {
	woken := n.Store.Watch(ctx)
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
		if _, err := n.Sign(ctx); err != nil && ctx.Err() == nil {
			n.tell(err)
		}
		select {
		case _, open := <-woken:
			if !open {
				return
			}
		case <-ctx.Done():
			return
		}
		rest.Reset(pause)
	}
}

// tell logs what is wrong, once while it stays the same.
func (n *Notary) tell(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err.Error() == n.told {
		return
	}
	n.told = err.Error()
	var found *audit.Finding
	if errors.As(err, &found) {
		n.Logger.Error("the audit was tampered with; nothing is signed any more", "first", found.First, "last", found.Last, "problem", found.Problem)
		return
	}
	n.Logger.Error("could not sign a checkpoint of the audit", "error", err)
}

// Sign signs a checkpoint of all records, unless there is one, and returns the
// newest. What came since the last one is checked first: a log that is not
// what was signed before is never signed again, and that is a *audit.Finding.
func (n *Notary) Sign(ctx context.Context) (store.AuditCheckpoint, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tree, err := n.follow(ctx)
	if err != nil {
		return store.AuditCheckpoint{}, err
	}
	next := audit.Checkpoint{Origin: n.signer.Name(), Size: tree.Size, Root: tree.Root()}
	text, err := next.Sign(n.signer)
	if err != nil {
		return store.AuditCheckpoint{}, err
	}
	c := store.AuditCheckpoint{Size: next.Size, Signer: n.signer.Name(), At: n.Now(), Note: text}
	if next == n.last || next.Size == 0 {
		return c, nil
	}
	// First here, where whoever bends the database does not reach it.
	if err := n.writeLast(text); err != nil {
		return store.AuditCheckpoint{}, err
	}
	n.last = next
	err = n.Store.Update(ctx, func(tx store.Tx) error { return tx.Audit().AddCheckpoint(ctx, c) })
	if err != nil {
		return store.AuditCheckpoint{}, fmt.Errorf("keep a checkpoint: %w", err)
	}
	return c, nil
}

// follow checks what was appended since the last checkpoint, and returns the
// tree with it.
func (n *Notary) follow(ctx context.Context) (tree audit.Tree, err error) {
	err = n.Store.View(ctx, func(tx store.Tx) error {
		now, err := tx.Audit().Tree(ctx)
		if err != nil {
			return err
		}
		start := now
		if now.Size > n.last.Size { // else there is nothing to add to it
			if start, err = audit.TreeAt(n.last.Size, reader(ctx, tx)); err != nil {
				return &audit.Finding{First: 1, Last: max(n.last.Size, 1), Problem: err.Error()}
			}
		}
		v := audit.NewVerifier(start)
		switch {
		case n.last.Size == 0: // nothing was signed yet
		case now.Size < n.last.Size:
			return &audit.Finding{First: now.Size + 1, Last: n.last.Size, Problem: "missing: the log was cut off, or an older one put in its place"}
		case start.Root() != n.last.Root:
			return &audit.Finding{First: 1, Last: n.last.Size, Problem: fmt.Sprintf("not what was signed in the checkpoint of size %d", n.last.Size)}
		}
		for after := start.Size; after < now.Size; {
			entries, err := entriesOf(ctx, tx, after, now.Size)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := v.Add(e); err != nil {
					return err
				}
			}
			if len(entries) == 0 {
				return &audit.Finding{First: after + 1, Last: now.Size, Problem: "missing"}
			}
			after = entries[len(entries)-1].Seq
		}
		if tree = v.Tree(); tree.Root() != now.Root() {
			return &audit.Finding{First: start.Size + 1, Last: now.Size, Problem: "the tree that is stored is not that of the records"}
		}
		return nil
	})
	return tree, err
}

// reader reads hashes for tlog.
func reader(ctx context.Context, tx store.Tx) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { return tx.Audit().Hashes(ctx, indexes) })
}

// pageSize is how many entries are read at once.
const pageSize = 500

// entriesOf reads a page of the log behind a number, up to a size.
func entriesOf(ctx context.Context, tx store.Tx, after, size int64) ([]audit.Entry, error) {
	leaves, err := tx.Audit().Leaves(ctx, after, int(min(pageSize, size-after)))
	if err != nil || len(leaves) == 0 {
		return nil, err
	}
	records, err := tx.Audit().List(ctx, audit.Filter{After: after, Before: leaves[len(leaves)-1].Seq + 1}, len(leaves))
	if err != nil {
		return nil, err
	}
	cut := store.Full(records, (*audit.Record).Bytes) // a page ends where its bytes do
	entries := make([]audit.Entry, 0, len(leaves))
	for _, l := range leaves {
		e := audit.Entry{Seq: l.Seq}
		if len(l.Hashes) > 0 {
			e.Leaf = l.Hashes[0]
		}
		if len(records) > 0 && records[0].Seq <= l.Seq {
			e.Record = &records[0]
			records = records[1:]
		} else if cut && len(records) == 0 {
			break
		}
		entries = append(entries, e)
	}
	return entries, nil
}
