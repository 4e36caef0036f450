package keeper

import (
	"context"
	"net"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Files are the files of a sandbox that runs.
func (k *Keeper) Files(ctx context.Context, id string) (sandbox.Filer, error) {
	_, host, err := k.awake(ctx, id)
	if err != nil {
		return nil, err
	}
	return host.Files(id), nil
}

// DialSandbox connects to a port in a sandbox.
func (k *Keeper) DialSandbox(ctx context.Context, id string, port uint16) (net.Conn, error) {
	_, host, err := k.awake(ctx, id)
	if err != nil {
		return nil, err
	}
	return host.DialSandbox(ctx, id, port)
}

// LinkSandbox makes a token for a port of one that runs, which opens it to
// whoever has it.
func (k *Keeper) LinkSandbox(ctx context.Context, id string, port uint16, until time.Time) (token string, err error) {
	s, err := k.Sandbox(ctx, id)
	if err == nil {
		err = s.State.Demand("link to it", sandbox.StateRunning)
	}
	if err == nil {
		err = k.record(ctx, store.Act{Action: "link.create", Target: id, After: map[string]any{"port": port, "until": until}})
	}
	if err != nil {
		return "", err
	}
	return s.Link(port, until), nil
}

// BeforeWrite takes a snapshot of a sandbox's files, for those who want to go
// back.
func (k *Keeper) BeforeWrite(ctx context.Context, id, path string) (live.Snapshot, error) {
	return k.SnapshotSandbox(ctx, id, live.Files, "before writing "+path)
}
