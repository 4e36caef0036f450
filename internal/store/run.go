package store

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/run"
)

// Runs keeps the runs. Their ids are in order of time, and lists are in order
// of the id.
type Runs interface {
	// Add stores a new run. order is kept until it ends; nil is none. An id
	// that exists is a Conflict.
	Add(ctx context.Context, r *run.Run, order *run.Order) error
	// Get returns a run, or a fault of kind NotFound.
	Get(ctx context.Context, id string) (run.Run, error)
	// Order returns the order of a run that has not ended, or NotFound.
	Order(ctx context.Context, id string) (run.Order, error)
	// Put stores how a run that exists stands: State, Manager, Fence, Attempt,
	// Worker, Verdict, Reason, StartedAt and EndedAt. With EndedAt it also
	// stores the record with its result, and forgets the order. blobs are small
	// ones that the result names, by digest.
	Put(ctx context.Context, r *run.Run, blobs map[string][]byte) error
	// Record returns the record of an ended run as it was written, or NotFound.
	Record(ctx context.Context, id string) ([]byte, error)
	// Blob returns a blob that is kept with a run, and whether it is.
	Blob(ctx context.Context, id, sha256 string) ([]byte, bool, error)
	// List returns a page of runs, newest first.
	List(ctx context.Context, f RunFilter) ([]run.Run, error)
	// Stats counts the runs that have not ended, whoever's they are.
	Stats(ctx context.Context) (RunStats, error)

	// Open lists runs that have not ended, oldest first, after an id.
	Open(ctx context.Context, after string, limit int) ([]run.Run, error)
	// Orphans is Open of those whose manager nobody holds for alive at now.
	Orphans(ctx context.Context, now time.Time, after string, limit int) ([]run.Run, error)
	// Attend says that a manager is alive until then, and has its runs.
	Attend(ctx context.Context, manager string, until time.Time) error
}

// RunFilter chooses runs. Zero fields choose all.
type RunFilter struct {
	State   run.State
	Owner   string
	Project int64
	Before  string // only runs with a smaller id
	Limit   int    // 0 is 100
}

// RunStats counts open runs. OldestQueued is when the oldest QUEUED one was
// made; zero when there is none.
type RunStats struct {
	Queued, Running int64
	OldestQueued    time.Time
}

// RunBytes is about what a run of a page counts for.
func RunBytes(r *run.Run) int {
	const row, name = 1 << 10, 300
	if r.Result == nil {
		return row
	}
	return row + name*(len(r.Result.Artifacts)+len(r.Result.Skipped))
}

// Hooks keeps who is still to be told of the end of a run.
type Hooks interface {
	// Put keeps a hook, in place of an earlier one of the same run.
	Put(ctx context.Context, h Hook) error
	// Due returns hooks whose time has come: the longest due first.
	Due(ctx context.Context, now time.Time, limit int) ([]Hook, error)
	// Drop forgets the hook of a run; it need not be there.
	Drop(ctx context.Context, runID string) error
}

// Hook is a webhook that has to be called.
type Hook struct {
	RunID  string
	URL    string
	Tries  int // that failed
	NextAt time.Time
}

// KeptRun is what one ended run refers to.
type KeptRun struct {
	ID      string
	Ended   time.Time
	Digests []string // of its output and its artifacts
	Small   int64    // bytes of the blobs that lie with it
	Dropped bool
}
