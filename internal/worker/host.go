package worker

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// usable returns a sandbox that runs.
func (h *hosted) usable(ctx context.Context, id string) (*kept, *sandbox.Sandbox, error) {
	if err := dispatch.CheckSandboxID("id", id); err != nil {
		return nil, nil, err
	}
	k, err := h.find(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over != nil || k.closing != nil:
		return nil, nil, errBoxEnded
	case k.paused != "":
		return nil, nil, errPaused
	}
	return k, k.box, nil
}

// AdjustSandbox gives a sandbox other limits; 0 leaves one as it is.
func (rc receiver) AdjustSandbox(ctx context.Context, id string, l sandbox.Limits) (live.Made, error) {
	if err := dispatch.CheckAdjust(id, l); err != nil {
		return live.Made{}, err
	}
	k, _, err := rc.run.hosted.usable(ctx, id)
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
	box, running, over, spent := k.box, k.running, k.over, k.spent
	k.mu.Unlock()
	if over != nil {
		return live.Stats{}, errBoxEnded
	}
	stats := live.Stats{Usage: sandbox.Usage{CPU: spent}, Disk: -1, Execs: running, At: time.Now().UTC()}
	if box == nil { // it lies on disk, and uses nothing else
		return stats, nil
	}
	if stats.Usage, err = box.Usage(ctx); err != nil {
		return live.Stats{}, err
	}
	stats.Usage = withSpent(stats.Usage, spent)
	stats.Disk = k.disk(ctx, box)
	return stats, nil
}

// diskTimeout bounds asking a sandbox how much was written in it: what else is
// known of it must not wait for what it says itself.
const diskTimeout = time.Second

// disk is how many bytes were written, or -1 where the sandbox does not say so:
// it may stand still, or be too busy.
func (k *kept) disk(ctx context.Context, box *sandbox.Sandbox) int64 {
	bounded, cancel := context.WithTimeoutCause(ctx, diskTimeout, errFetch)
	defer cancel()
	n, err := box.Disk(bounded)
	if err != nil {
		k.log.Debug("could not measure a sandbox's disk", "error", err)
		return -1
	}
	return n
}
