package keeper

import (
	"context"
	"net"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
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

// BeforeWrite takes a snapshot of a sandbox's files, for those who want to go
// back.
func (k *Keeper) BeforeWrite(ctx context.Context, id, path string) (live.Snapshot, error) {
	return k.SnapshotSandbox(ctx, id, live.Files, "before writing "+path)
}
