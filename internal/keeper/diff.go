package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxDiffs is how many comparisons go on at a time: each holds the texts of one
// side.
const maxDiffs = 2

// workspace is the folder that snapshots of files are taken of.
const workspace = "/workspace"

// DiffSandbox says how the files of a sandbox changed from one snapshot to
// another, or until now, where to is "".
func (k *Keeper) DiffSandbox(ctx context.Context, id, from, to string) (evidence.Comparison, error) {
	s, err := k.Sandbox(ctx, id)
	if err != nil {
		return evidence.Comparison{}, err
	}
	select {
	case k.diffs <- struct{}{}:
		defer func() { <-k.diffs }()
	case <-ctx.Done():
		return evidence.Comparison{}, context.Cause(ctx)
	}
	before, err := k.openFiles(ctx, &s, "from", from)
	if err != nil {
		return evidence.Comparison{}, err
	}
	defer before.Close() //nolint:errcheck // it was only read
	after, err := k.filesAt(ctx, &s, to)
	if err != nil {
		return evidence.Comparison{}, err
	}
	defer after.Close() //nolint:errcheck // it was only read
	return evidence.Compare(ctx, before, after, evidence.DefaultBounds())
}

// filesAt are the files at a snapshot, or as they are now.
func (k *Keeper) filesAt(ctx context.Context, s *live.Sandbox, to string) (io.ReadCloser, error) {
	if to != "" {
		return k.openFiles(ctx, s, "to", to)
	}
	_, host, err := k.awake(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	return packing(ctx, func(ctx context.Context, w io.Writer) error { return host.GetFiles(ctx, s.ID, workspace, w) }), nil
}

// openFiles opens a snapshot of the files of a sandbox, or of the one that it
// was forked from.
func (k *Keeper) openFiles(ctx context.Context, s *live.Sandbox, field, id string) (io.ReadCloser, error) {
	snap, err := k.Snapshot(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound), err == nil && snap.Sandbox != s.ID && (s.Parent == "" || snap.Sandbox != s.Parent):
		return nil, fault.Field("query."+field, "is not a snapshot of this sandbox").WithCode("no_such_snapshot")
	case err != nil:
		return nil, err
	case snap.Kind == live.Full:
		return k.filesOfFull(ctx, &snap)
	}
	b, _, err := k.Blobs.Open(ctx, snap.SHA256)
	if err != nil {
		return nil, fmt.Errorf("open snapshot %s: %w", id, err)
	}
	return b, nil
}

// lookTTL is how long a sandbox lives at the most that is made to look at a
// snapshot: one whose manager is killed meanwhile ends by that.
const lookTTL = 10 * time.Minute

// filesOfFull packs the files of a snapshot that has the memory too. Only a
// sandbox can read them: one goes on from the snapshot for as long as it takes.
func (k *Keeper) filesOfFull(ctx context.Context, snap *live.Snapshot) (io.ReadCloser, error) {
	if c, err := policy.Asking(ctx); err != nil {
		return nil, err
	} else if !c.May(policy.Submit) { // who may only read makes nothing
		return nil, fault.New(fault.Denied, "Comparing a snapshot that has the memory too makes a sandbox, which this key may not; compare snapshots of files.").WithCode("not_files")
	}
	spec := snap.Spec.WithoutSecrets()
	spec.Sync, spec.OnTimeout, spec.TTL, spec.Idle = nil, live.Kill, lookTTL, 0
	s, _, err := k.create(ctx, live.Request{Spec: spec}, birth{
		parent: snap.Sandbox, worker: snap.Worker, snapshot: snap.ID, generation: snap.Generation, execs: snap.Execs,
	})
	if err != nil {
		return nil, fmt.Errorf("look into snapshot %s: %w", snap.ID, err)
	}
	return packing(ctx, func(ctx context.Context, w io.Writer) error {
		defer func() {
			bounded, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errStopped)
			defer stop()
			if _, err := k.end(bounded, s.ID, sandbox.OutcomeCancelled, "its files were compared"); err != nil {
				k.Logger.Error("could not end a sandbox that was made to look at a snapshot; it ends by its time", "sandbox", s.ID, "error", err)
			}
		}()
		host, err := k.host(ctx, &s)
		if err != nil {
			return err
		}
		return host.GetFiles(ctx, s.ID, workspace, w)
	}), nil
}

var errNotRead = errors.New("the rest is not read")

// stream is what a packer writes, to be read.
type stream struct {
	*io.PipeReader
	done chan struct{}
}

// packing lets something be read that is written. Who reads closes it.
func packing(ctx context.Context, pack func(ctx context.Context, w io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	s := &stream{PipeReader: r, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		_ = w.CloseWithError(pack(ctx, w))
	}()
	return s
}

// Close ends the packing and waits for it.
func (s *stream) Close() error {
	err := s.CloseWithError(errNotRead)
	<-s.done
	return err
}
