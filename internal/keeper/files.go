package keeper

import (
	"context"
	"net"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// filing is a worker that reaches the files and ports of its sandboxes.
type filing interface {
	Files(id string) sandbox.Filer
	DialSandbox(ctx context.Context, id string, port uint16) (net.Conn, error)
}

var errOldWorker = fault.New(fault.Unavailable, "the worker is of a release that cannot do this").WithCode("worker_old")

// Files are the files of a sandbox that runs.
func (k *Keeper) Files(ctx context.Context, id string) (sandbox.Filer, error) {
	_, host, err := k.awake(ctx, id)
	if err != nil {
		return nil, err
	}
	f, ok := host.(filing)
	if !ok {
		return nil, errOldWorker
	}
	return f.Files(id), nil
}

// DialSandbox connects to a port in a sandbox.
func (k *Keeper) DialSandbox(ctx context.Context, id string, port uint16) (net.Conn, error) {
	_, host, err := k.awake(ctx, id)
	if err != nil {
		return nil, err
	}
	f, ok := host.(filing)
	if !ok {
		return nil, errOldWorker
	}
	return f.DialSandbox(ctx, id, port)
}

// BeforeWrite takes a snapshot of a sandbox's files, for those who want to go
// back.
func (k *Keeper) BeforeWrite(ctx context.Context, id, path string) (live.Snapshot, error) {
	return k.SnapshotSandbox(ctx, id, live.Files, "before writing "+path)
}
