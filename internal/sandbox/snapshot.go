package sandbox

import "context"

// Snapshotter is implemented by a Box whose driver has Capabilities.Snapshot.
//
// Snapshot writes the memory and the files of the sandbox, as they are at one
// moment, into folder, which it makes, for its owner alone; an existing folder is
// a fault of kind Conflict. The sandbox goes on afterwards, or stays paused if it
// was, in which case it runs unseen for a moment. After an error the sandbox is as
// before, and the folder is gone.
//
// Create with Spec.Restore makes a sandbox that goes on from that moment, under
// the same id, once that was destroyed, or under any number of others: a fork.
// Every command runs on under its process number. Attach goes on with its output
// at any offset that had not been acknowledged by then and had come: those of
// Snapshot.Offsets are such. Files that were being moved are left where they were.
// Spec.Env is the environment of commands that are started later; nothing is taken
// over. The limits on memory and processors are the Spec's, and the number of
// processors that programs see, like all other limits, must be those of the
// sandbox that was saved, as must image and release.
//
// A folder that is empty, torn, or changed is a fault of kind Invalid with code
// CodeSnapshotBroken; one of another generation, image, release or other limits,
// with code CodeSnapshotMismatch. Never is a sandbox started anew instead.
type Snapshotter interface {
	Snapshot(ctx context.Context, folder string, o SnapshotOptions) (Snapshot, error)
}

// The codes of faults of Create with Spec.Restore.
const (
	CodeSnapshotBroken   = "snapshot_broken"
	CodeSnapshotMismatch = "snapshot_mismatch"
)

// SnapshotOptions says how a snapshot is taken.
type SnapshotOptions struct {
	// Generation is the caller's number for it.
	Generation int64
	// Aside leaves the sandbox paused: nothing that happens in it after the
	// moment of the snapshot is ever seen, unless it is resumed.
	Aside bool
}

// Snapshot is what was taken.
type Snapshot struct {
	Generation int64 `json:"generation"`
	Bytes      int64 `json:"bytes"`
	// Offsets says how far the output of each command that was read had been
	// taken.
	Offsets map[string]Offsets `json:"offsets,omitempty"`
}
