package worker

import (
	"context"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var errNoPause = fault.New(fault.Invalid, "the driver cannot pause a sandbox").WithCode("pause_unsupported")

// usable returns a sandbox that runs.
func (h *hosted) usable(ctx context.Context, id string) (*kept, error) {
	if err := dispatch.CheckSandboxID("id", id); err != nil {
		return nil, err
	}
	k, err := h.find(ctx, id)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over != nil || k.closing != nil:
		return nil, errBoxEnded
	case k.paused != "":
		return nil, errPaused
	}
	return k, nil
}

// PauseSandbox freezes a sandbox.
func (rc receiver) PauseSandbox(ctx context.Context, id string) error {
	if _, err := rc.run.hosted.usable(ctx, id); err != nil {
		return err
	}
	return errNoPause
}

// ResumeSandbox lets a sandbox go on.
func (rc receiver) ResumeSandbox(ctx context.Context, id string) (live.Made, error) {
	k, err := rc.run.hosted.usable(ctx, id)
	if err != nil {
		return live.Made{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.made, nil
}

// AdjustSandbox gives a sandbox other limits; 0 leaves one as it is.
func (rc receiver) AdjustSandbox(ctx context.Context, id string, l sandbox.Limits) (live.Made, error) {
	if err := dispatch.CheckAdjust(id, l); err != nil {
		return live.Made{}, err
	}
	k, err := rc.run.hosted.usable(ctx, id)
	if err != nil {
		return live.Made{}, err
	}
	return k.adjust(ctx, l)
}

func (k *kept) adjust(ctx context.Context, l sandbox.Limits) (live.Made, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wanted := overLimits(k.made.Enforced, l)
	if more := wanted.Memory - k.memory; more > 0 && !k.room.takeMemory(more) {
		return live.Made{}, errNoRoom
	} else if more < 0 {
		k.room.giveMemory(-more)
	}
	k.memory = wanted.Memory
	if err := k.box.Adjust(ctx, wanted); err != nil {
		return live.Made{}, err
	}
	k.made.Enforced = k.box.Enforced()
	k.ledger.note(boxEntry{Made: &k.made, Memory: k.memory})
	return k.made, nil
}

// SnapshotSandbox takes a snapshot.
func (rc receiver) SnapshotSandbox(ctx context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
	if err := dispatch.CheckSnapshotOrder(o); err != nil {
		return live.SnapshotMade{}, err
	}
	if _, err := rc.run.hosted.usable(ctx, o.Sandbox); err != nil {
		return live.SnapshotMade{}, err
	}
	return live.SnapshotMade{}, fault.New(fault.Invalid, "the driver cannot take snapshots").WithCode("snapshot_unsupported")
}

// DropSnapshot removes a snapshot.
func (rc receiver) DropSnapshot(context.Context, string) error { return nil }

// SandboxStats measures a sandbox.
func (rc receiver) SandboxStats(ctx context.Context, id string) (live.Stats, error) {
	if err := dispatch.CheckSandboxID("id", id); err != nil {
		return live.Stats{}, err
	}
	k, err := rc.run.hosted.find(ctx, id)
	if err != nil {
		return live.Stats{}, err
	}
	k.mu.Lock()
	box, running, over := k.box, k.running, k.over
	k.mu.Unlock()
	if over != nil {
		return live.Stats{}, errBoxEnded
	}
	usage, err := box.Usage(ctx)
	if err != nil {
		return live.Stats{}, err
	}
	return live.Stats{Usage: usage, Execs: running, At: time.Now().UTC()}, nil
}

// PutFiles unpacks a tar stream in a sandbox.
func (rc receiver) PutFiles(ctx context.Context, id, dir string, tar io.Reader) error {
	if err := dispatch.CheckSandboxPath("path", dir); err != nil {
		return err
	}
	k, err := rc.run.hosted.usable(ctx, id)
	if err != nil {
		return err
	}
	return k.box.Put(ctx, dir, tar)
}

// GetFiles packs what is in a sandbox.
func (rc receiver) GetFiles(ctx context.Context, id, path string, w io.Writer) error {
	if err := dispatch.CheckSandboxPath("path", path); err != nil {
		return err
	}
	k, err := rc.run.hosted.usable(ctx, id)
	if err != nil {
		return err
	}
	return k.box.Get(ctx, path, w)
}
