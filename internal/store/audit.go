package store

import (
	"context"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/aurea-dev/aurea/internal/audit"
)

// Audit keeps the records of what was decided, and the Merkle tree over them.
type Audit interface {
	// Append stores records in order, seals them, and adds their hashes to the
	// tree. One that has no RequestID gets that of ctx. Watchers wake as for events.
	Append(ctx context.Context, records ...*audit.Record) error
	// List returns a page of matching records in order of Seq, or from the newest
	// where the filter says so, at most limit.
	List(ctx context.Context, f audit.Filter, limit int) ([]audit.Record, error)
	// Tree returns the tree over all records that were ever appended.
	Tree(ctx context.Context) (audit.Tree, error)
	// Leaves returns what the tree keeps for the records behind a number, in
	// order, also for those that were purged.
	Leaves(ctx context.Context, after int64, limit int) ([]AuditLeaf, error)
	// Hashes returns the hashes with these indexes of tlog's; one that is missing
	// is an error.
	Hashes(ctx context.Context, indexes []int64) ([]tlog.Hash, error)
	// Floor returns the largest Seq of a record that was purged, or 0.
	Floor(ctx context.Context) (int64, error)
	// Purge removes the oldest records, at most limit, as long as they are older
	// than before, raises the floor, and returns how many went. Their hashes stay.
	// The newest record is always kept.
	Purge(ctx context.Context, before time.Time, limit int) (int64, error)
	// AddCheckpoint keeps a signed checkpoint; one of the signer for that size
	// that exists is left as it is. Watchers wake as for events.
	AddCheckpoint(ctx context.Context, c AuditCheckpoint) error
	// Checkpoints lists those behind a size, in order of size and signer.
	Checkpoints(ctx context.Context, after int64, limit int) ([]AuditCheckpoint, error)
	// LastCheckpoint returns a signer's newest, or anybody's where signer is "";
	// the zero value when there is none.
	LastCheckpoint(ctx context.Context, signer string) (AuditCheckpoint, error)
}

// AuditLeaf is what the tree keeps for a record: the hashes that were complete
// with it, from its leaf upwards.
type AuditLeaf struct {
	Seq    int64
	Hashes []tlog.Hash
}

// AuditCheckpoint is a signed note about the tree of a size.
type AuditCheckpoint struct {
	Size   int64
	Signer string
	At     time.Time
	Note   string
}
