package dispatch

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Host is the part of the worker's end that keeps sandboxes: it goes over the
// same command stream. Calls come from several goroutines. A fault is about the
// call or the worker; kind NotFound with code CodeNoSandbox says that the
// worker does not have the sandbox, kind Exhausted that it has no room.
//
// What a worker was told to make outlives the call, the manager, and the worker
// itself: a later process of it goes on with what it finds, and says so when it
// registers. Ends are told by Manager.Tell, once and again until they are taken.
type Host interface {
	// OpenSandbox makes a sandbox. One with the same id that is there already is
	// a success; with Restore it is set back to that snapshot, in place.
	OpenSandbox(ctx context.Context, o live.Order) (live.Made, error)
	// EndSandbox destroys one. One that is not there is a success. The end is
	// told as any other.
	EndSandbox(ctx context.Context, c live.Closing) error
	// PauseSandbox freezes one, ResumeSandbox lets it go on, also from a
	// checkpoint. Both are idempotent.
	PauseSandbox(ctx context.Context, id string) error
	ResumeSandbox(ctx context.Context, id string) (live.Made, error)
	// AdjustSandbox gives one other limits.
	AdjustSandbox(ctx context.Context, id string, l sandbox.Limits) (live.Made, error)
	// SnapshotSandbox takes a snapshot; DropSnapshot removes one that is kept
	// here, and need not find it.
	SnapshotSandbox(ctx context.Context, o live.SnapshotOrder) (live.SnapshotMade, error)
	DropSnapshot(ctx context.Context, id string) error
	// SandboxStats measures one.
	SandboxStats(ctx context.Context, id string) (live.Stats, error)

	// StartExec starts a command, and returns once it was started. One with the
	// same id that was started before is a success.
	StartExec(ctx context.Context, c live.Command) error
	// RunExec is StartExec that brings the end along where it comes within a
	// while; nil is that it runs on. The end is told as well, in its time: the
	// answer may be lost.
	RunExec(ctx context.Context, c live.Command, within time.Duration) (*live.ExecEnded, error)
	// FollowExec hands what an exec prints to piece, from the offsets on, until
	// it has ended and all of it was handed over, or ctx ends. Pieces come from
	// one goroutine, each stream in order and without a gap. It is known until
	// the manager has taken its end, and then for a while.
	FollowExec(ctx context.Context, f live.Follow, piece func(Chunk) error) error
	// FeedExec writes to the standard input, and returns once the exec has taken
	// all of it. What was taken before is not written again; a gap is a fault of
	// kind Conflict with code CodeInputGap. An offset of -1 stands for the end of
	// what was taken; no bytes there ask whether the exec is known, and change
	// nothing.
	FeedExec(ctx context.Context, in live.Input) error
	ResizeExec(ctx context.Context, s live.Size) error
	// SignalExec sends a signal; with Kill it returns when the exec has ended.
	SignalExec(ctx context.Context, s live.Signal) error

	// PutFiles unpacks a tar stream below dir, GetFiles packs path as one. What w
	// got before a fault is of no use.
	PutFiles(ctx context.Context, id, dir string, tar io.Reader) error
	GetFiles(ctx context.Context, id, path string, w io.Writer) error
	// Files are the files of a sandbox, one by one. Whether there is such a
	// sandbox the calls on it say. Paths are valid UTF-8; in names that come out
	// what is not is replaced.
	Files(id string) sandbox.Filer
	// DialSandbox connects to a port in a sandbox, as sandbox.Dialer does.
	DialSandbox(ctx context.Context, id string, port uint16) (net.Conn, error)
}

// CodeNoSandbox is the code of the fault that says that a worker does not have
// a sandbox, CodeNoExec that it does not know an exec. CodeSandboxEnded says
// that a sandbox is there no more, CodeExecEnded that an exec has ended, and
// CodeInputGap that input was left out.
const (
	CodeNoSandbox    = "no_such_sandbox"
	CodeNoExec       = "no_such_exec"
	CodeSandboxEnded = "sandbox_ended"
	CodeExecEnded    = "exec_ended"
	CodeInputGap     = "input_gap"
)

// TellRequest says what has ended at a worker. It may be said again.
type TellRequest struct {
	Session   string           `json:"session"`
	Execs     []live.ExecEnded `json:"execs,omitempty"`
	Sandboxes []live.Ended     `json:"sandboxes,omitempty"`
}

// Bounds of what is kept of sandboxes as it crosses.
const (
	MaxSandboxes  = 4096     // that a worker says it has
	MaxTold       = 64       // ends in one Tell
	MaxInput      = 64 << 10 // bytes of input in one call
	MaxExecOutput = 1 << 30  // bytes kept of each stream of an exec
)
