package worker

import (
	"context"
	"io"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func noSandbox(id string) error {
	return fault.New(fault.NotFound, "the worker does not have the sandbox %s", id).WithCode(dispatch.CodeNoSandbox)
}

// OpenSandbox refuses: there is no room.
func (receiver) OpenSandbox(context.Context, live.Order) (live.Made, error) {
	return live.Made{}, fault.New(fault.Exhausted, "this worker keeps no sandboxes").WithCode("no_room")
}

// EndSandbox has nothing to end.
func (receiver) EndSandbox(context.Context, live.Closing) error { return nil }

// PauseSandbox knows no sandbox.
func (receiver) PauseSandbox(_ context.Context, id string) error { return noSandbox(id) }

// ResumeSandbox knows no sandbox.
func (receiver) ResumeSandbox(_ context.Context, id string) (live.Made, error) {
	return live.Made{}, noSandbox(id)
}

// AdjustSandbox knows no sandbox.
func (receiver) AdjustSandbox(_ context.Context, id string, _ sandbox.Limits) (live.Made, error) {
	return live.Made{}, noSandbox(id)
}

// SnapshotSandbox knows no sandbox.
func (receiver) SnapshotSandbox(_ context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
	return live.SnapshotMade{}, noSandbox(o.Sandbox)
}

// DropSnapshot has nothing to drop.
func (receiver) DropSnapshot(context.Context, string) error { return nil }

// SandboxStats knows no sandbox.
func (receiver) SandboxStats(_ context.Context, id string) (live.Stats, error) {
	return live.Stats{}, noSandbox(id)
}

// StartExec knows no sandbox.
func (receiver) StartExec(_ context.Context, c live.Command) error { return noSandbox(c.Sandbox) }

// FollowExec knows no sandbox.
func (receiver) FollowExec(_ context.Context, f live.Follow, _ func(dispatch.Chunk) error) error {
	return noSandbox(f.Sandbox)
}

// FeedExec knows no sandbox.
func (receiver) FeedExec(_ context.Context, in live.Input) error { return noSandbox(in.Sandbox) }

// ResizeExec knows no sandbox.
func (receiver) ResizeExec(_ context.Context, s live.Size) error { return noSandbox(s.Sandbox) }

// SignalExec knows no sandbox.
func (receiver) SignalExec(_ context.Context, s live.Signal) error { return noSandbox(s.Sandbox) }

// PutFiles knows no sandbox.
func (receiver) PutFiles(_ context.Context, id, _ string, _ io.Reader) error { return noSandbox(id) }

// GetFiles knows no sandbox.
func (receiver) GetFiles(_ context.Context, id, _ string, _ io.Writer) error { return noSandbox(id) }
