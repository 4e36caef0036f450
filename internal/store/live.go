package store

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Sandboxes keeps the sandboxes that live longer than a call. Their ids are in
// order of time.
type Sandboxes interface {
	// Add stores a new one. An id that exists is a Conflict; a name that an open
	// sandbox of the owner has is one with code CodeNameTaken.
	Add(ctx context.Context, s *live.Sandbox) error
	// Get returns one, or a fault of kind NotFound.
	Get(ctx context.Context, id string) (live.Sandbox, error)
	// ByName returns the open one of an owner that has a name, or NotFound.
	ByName(ctx context.Context, owner, name string) (live.Sandbox, error)
	// Put stores one that exists: everything but ID, Owner, Name, CreatedAt.
	Put(ctx context.Context, s *live.Sandbox) error
	// List returns a page, newest first.
	List(ctx context.Context, f SandboxFilter) ([]live.Sandbox, error)
	// Held returns the open ones that a worker has, oldest first.
	Held(ctx context.Context, worker string) ([]live.Sandbox, error)
	// Due returns open ones whose time was over before now, the longest first.
	Due(ctx context.Context, now time.Time, limit int) ([]live.Sandbox, error)
	// Accounts adds up what was used by sandboxes that lived at some time
	// between: those that are open count until now.
	Accounts(ctx context.Context, f AccountFilter) ([]Account, error)

	// AddSnapshot stores a snapshot; GetSnapshot returns one or NotFound.
	AddSnapshot(ctx context.Context, s *live.Snapshot) error
	GetSnapshot(ctx context.Context, id string) (live.Snapshot, error)
	// Snapshots lists those of a sandbox, or of an owner, newest first.
	Snapshots(ctx context.Context, f SnapshotFilter) ([]live.Snapshot, error)
	// DropSnapshot removes one; it need not be there.
	DropSnapshot(ctx context.Context, id string) error

	// PutUnfinished stores unfinished work, in place of what has its id;
	// GetUnfinished returns it or NotFound; Unfinished lists it in order of the
	// id, after one; DropUnfinished removes it, and it need not be there.
	PutUnfinished(ctx context.Context, u *live.Unfinished) error
	GetUnfinished(ctx context.Context, id string) (live.Unfinished, error)
	Unfinished(ctx context.Context, after string, limit int) ([]live.Unfinished, error)
	DropUnfinished(ctx context.Context, id string) error
}

// CodeNameTaken is the code of the Conflict of a name that is in use.
const CodeNameTaken = "name_taken"

// SandboxFilter chooses sandboxes. Zero fields choose all.
type SandboxFilter struct {
	Owner, Session, App string
	State               sandbox.State
	Open                bool // only those that have not ended
	Labels              map[string]string
	Before              string // only those with a smaller id
	Limit               int    // 0 is 100
}

// SnapshotFilter chooses snapshots. Zero fields choose all.
type SnapshotFilter struct {
	Sandbox, Owner string
	Before         string
	Limit          int // 0 is 100
}

// AccountFilter chooses what is added up, and how.
type AccountFilter struct {
	Owner      string // "" is everybody's
	Project    int64  // 0 is every one, and none
	Since, Now time.Time
}

// Account is what somebody's sandboxes have used.
type Account struct {
	Owner, Session, App string
	Sandboxes           int64
	Lived               time.Duration
	CPU                 time.Duration
	// MemoryTime is the memory that they could use times how long, in
	// byte-seconds.
	MemoryTime float64
	// Disk is what those that are open have written, in bytes, as last measured.
	Disk int64
}

// Execs keeps the commands in sandboxes. Their ids are in order of time.
type Execs interface {
	// Add stores a new one. blobs are small ones that its result names, by
	// digest, where it has ended already. An id that exists is a Conflict.
	Add(ctx context.Context, e *live.Exec, blobs map[string][]byte) error
	// Get returns one, or a fault of kind NotFound.
	Get(ctx context.Context, id string) (live.Exec, error)
	// Put stores one that exists. blobs are as with Add.
	Put(ctx context.Context, e *live.Exec, blobs map[string][]byte) error
	// List returns a page, newest first.
	List(ctx context.Context, f ExecFilter) ([]live.Exec, error)
	// Open returns those of a sandbox that have not ended, oldest first.
	Open(ctx context.Context, sandboxID string) ([]live.Exec, error)
	// Blob returns a blob that is kept with one, and whether it is.
	Blob(ctx context.Context, id, sha256 string) ([]byte, bool, error)
}

// ExecFilter chooses execs. Zero fields choose all.
type ExecFilter struct {
	Sandbox, Owner string
	State          live.ExecState
	Before         string
	Limit          int // 0 is 100
}

// ExecBytes is about what an exec of a page counts for.
func ExecBytes(e *live.Exec) int {
	const row = 1 << 10
	n := row
	for _, a := range e.Command {
		n += len(a)
	}
	return n
}

// SandboxBytes is about what a sandbox of a page counts for.
func SandboxBytes(s *live.Sandbox) int {
	const row = 2 << 10
	n := row
	for k, v := range s.Spec.Env {
		n += len(k) + len(v)
	}
	for k, v := range s.Spec.Labels {
		n += len(k) + len(v)
	}
	return n
}

// KeptExec is what one ended exec refers to.
type KeptExec struct {
	ID      string
	Ended   time.Time
	Digests []string
	Small   int64 // bytes of the blobs that lie with it
	Dropped bool
}
