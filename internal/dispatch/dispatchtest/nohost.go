package dispatchtest

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// NoHost is the part of a worker's end that keeps sandboxes, for one that keeps
// none.
type NoHost struct{}

var _ dispatch.Host = NoHost{}

func noSandbox(id string) error {
	return fault.New(fault.NotFound, "the worker does not have the sandbox %s", id).WithCode(dispatch.CodeNoSandbox)
}

// OpenSandbox refuses: there is no room.
func (NoHost) OpenSandbox(context.Context, live.Order) (live.Made, error) {
	return live.Made{}, fault.New(fault.Exhausted, "this worker keeps no sandboxes").WithCode("no_room")
}

// EndSandbox has nothing to end.
func (NoHost) EndSandbox(context.Context, live.Closing) error { return nil }

// PauseSandbox knows no sandbox.
func (NoHost) PauseSandbox(_ context.Context, id string) error { return noSandbox(id) }

// ResumeSandbox knows no sandbox.
func (NoHost) ResumeSandbox(_ context.Context, id string) (live.Made, error) {
	return live.Made{}, noSandbox(id)
}

// AdjustSandbox knows no sandbox.
func (NoHost) AdjustSandbox(_ context.Context, id string, _ sandbox.Limits) (live.Made, error) {
	return live.Made{}, noSandbox(id)
}

// SnapshotSandbox knows no sandbox.
func (NoHost) SnapshotSandbox(_ context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
	return live.SnapshotMade{}, noSandbox(o.Sandbox)
}

// DropSnapshot has nothing to drop.
func (NoHost) DropSnapshot(context.Context, string) error { return nil }

// SandboxStats knows no sandbox.
func (NoHost) SandboxStats(_ context.Context, id string) (live.Stats, error) {
	return live.Stats{}, noSandbox(id)
}

// StartExec knows no sandbox.
func (NoHost) StartExec(_ context.Context, c live.Command) error { return noSandbox(c.Sandbox) }

// RunExec knows no sandbox.
func (NoHost) RunExec(_ context.Context, c live.Command, _ time.Duration) (*live.ExecEnded, error) {
	return nil, noSandbox(c.Sandbox)
}

// FollowExec knows no sandbox.
func (NoHost) FollowExec(_ context.Context, f live.Follow, _ func(dispatch.Chunk) error) error {
	return noSandbox(f.Sandbox)
}

// FeedExec knows no sandbox.
func (NoHost) FeedExec(_ context.Context, in live.Input) error { return noSandbox(in.Sandbox) }

// ResizeExec knows no sandbox.
func (NoHost) ResizeExec(_ context.Context, s live.Size) error { return noSandbox(s.Sandbox) }

// SignalExec knows no sandbox.
func (NoHost) SignalExec(_ context.Context, s live.Signal) error { return noSandbox(s.Sandbox) }

// PutFiles knows no sandbox.
func (NoHost) PutFiles(_ context.Context, id, _ string, _ io.Reader) error { return noSandbox(id) }

// GetFiles knows no sandbox.
func (NoHost) GetFiles(_ context.Context, id, _ string, _ io.Writer) error { return noSandbox(id) }

// Files are those of no sandbox.
func (NoHost) Files(id string) sandbox.Filer { return noFiles{id} }

// DialSandbox knows no sandbox.
func (NoHost) DialSandbox(_ context.Context, id string, _ uint16) (net.Conn, error) {
	return nil, noSandbox(id)
}

// noFiles are the files of a sandbox that is not there.
type noFiles struct{ id string }

func (n noFiles) Stat(context.Context, string) (sandbox.FileInfo, error) {
	return sandbox.FileInfo{}, noSandbox(n.id)
}

func (n noFiles) List(context.Context, string, int, int) ([]sandbox.FileInfo, bool, error) {
	return nil, false, noSandbox(n.id)
}

func (n noFiles) ReadFile(context.Context, string, int64, int64, io.Writer) (sandbox.FileInfo, error) {
	return sandbox.FileInfo{}, noSandbox(n.id)
}

func (n noFiles) WriteFile(context.Context, string, uint32, io.Reader) (sandbox.FileInfo, error) {
	return sandbox.FileInfo{}, noSandbox(n.id)
}

func (n noFiles) Mkdir(context.Context, string, uint32) error { return noSandbox(n.id) }
func (n noFiles) Move(context.Context, string, string) error  { return noSandbox(n.id) }
func (n noFiles) Copy(context.Context, string, string) error  { return noSandbox(n.id) }
func (n noFiles) Remove(context.Context, string, bool) error  { return noSandbox(n.id) }
func (n noFiles) Watch(context.Context, string, bool) (sandbox.Watch, error) {
	return nil, noSandbox(n.id)
}
