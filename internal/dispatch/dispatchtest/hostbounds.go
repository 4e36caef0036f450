package dispatchtest

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// hostBounds: what no worker should get does not reach it.
func hostBounds(t *testing.T, h HostHarness) {
	host := h.New(t, Cancels(nil)) // which knows no sandbox, and would say so
	ctx := t.Context()
	open := func(o live.Order) error { _, err := host.OpenSandbox(ctx, o); return err }
	snapshot := func(o live.SnapshotOrder) error { _, err := host.SnapshotSandbox(ctx, o); return err }
	start := func(c live.Command) error { return host.StartExec(ctx, c) }
	feed := func(in live.Input) error { return host.FeedExec(ctx, in) }
	_, resumed := host.ResumeSandbox(ctx, "../x")
	_, adjusted := host.AdjustSandbox(ctx, "b1", sandbox.Limits{Memory: -1})
	_, measured := host.SandboxStats(ctx, "")
	for _, c := range []struct {
		what, field string
		err         error
	}{
		{"an id with a path", "id", open(live.Order{ID: "../x"})},
		{"no id", "id", open(live.Order{})},
		{"a file that leads out", "files", open(live.Order{ID: "b1", Files: map[string][]byte{"../x": nil}})},
		{"an absolute file", "files", open(live.Order{ID: "b1", Files: map[string][]byte{"/x": nil}})},
		{"a file with a detour", "files", open(live.Order{ID: "b1", Files: map[string][]byte{"a/../b": nil}})},
		{"a network", "network", open(live.Order{ID: "b1", Spec: live.Spec{Network: "everything"}})},
		{"limits below zero", "limits", open(live.Order{ID: "b1", Spec: live.Spec{Limits: sandbox.Limits{Memory: -1}}})},
		{"a snapshot's path", "restore", open(live.Order{ID: "b1", Restore: "../x"})},
		{"a long image", "image", open(live.Order{ID: "b1", Spec: live.Spec{Image: strings.Repeat("x", 5000)}})},
		{"an outcome", "outcome", host.EndSandbox(ctx, live.Closing{ID: "b1", Outcome: "splendid"})},
		{"pause", "id", host.PauseSandbox(ctx, "A")},
		{"resume", "id", resumed},
		{"adjust", "limits", adjusted},
		{"stats", "id", measured},
		{"a snapshot", "id", snapshot(live.SnapshotOrder{ID: "/", Sandbox: "b1", Kind: live.Full})},
		{"a kind", "kind", snapshot(live.SnapshotOrder{ID: "s", Sandbox: "b1", Kind: "half"})},
		{"drop", "id", host.DropSnapshot(ctx, "..")},
		{"no command", "command", start(live.Command{ID: "e", Sandbox: "b1"})},
		{"an exec's path", "id", start(live.Command{ID: "../e", Sandbox: "b1", Command: []string{"x"}})},
		{"a relative folder", "dir", start(live.Command{ID: "e", Sandbox: "b1", Command: []string{"x"}, Dir: "x"})},
		{"too much output", "timeout_ns", start(live.Command{ID: "e", Sandbox: "b1", Command: []string{"x"}, OutputCap: dispatch.MaxExecOutput + 1})},
		{"much input", "data", feed(live.Input{Sandbox: "b1", Exec: "e", Data: make([]byte, dispatch.MaxInput+1)})},
		{"input before the beginning", "offset", feed(live.Input{Sandbox: "b1", Exec: "e", Offset: -2})},
		{"no signal", "signal", host.SignalExec(ctx, live.Signal{Sandbox: "b1", Exec: "e"})},
		{"a signal too far", "signal", host.SignalExec(ctx, live.Signal{Sandbox: "b1", Exec: "e", Signal: 65})},
		{"no terminal", "cols", host.ResizeExec(ctx, live.Size{Sandbox: "b1", Exec: "e"})},
		{"output before the beginning", "from", host.FollowExec(ctx, live.Follow{Sandbox: "b1", Exec: "e", From: sandbox.Offsets{Stderr: -1}}, drop)},
		{"a relative path", "path", host.GetFiles(ctx, "b1", "x", io.Discard)},
		{"a NUL", "path", host.PutFiles(ctx, "b1", "/x\x00", strings.NewReader(""))},
	} {
		var f *fault.Error
		if !errors.As(c.err, &f) || f.Kind != fault.Invalid || f.Field != c.field {
			t.Errorf("%s: got %v", c.what, c.err)
		}
	}
}
