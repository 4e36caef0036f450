package worker

import (
	"context"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var errCheckpointed = fault.New(fault.Conflict, "the sandbox lies on disk as a checkpoint").WithCode("paused")

// PauseSandbox freezes a sandbox.
func (rc receiver) PauseSandbox(ctx context.Context, id string) error {
	k, err := rc.run.hosted.there(ctx, id)
	if err != nil {
		return err
	}
	if err := k.takeTurn(ctx); err != nil {
		return err
	}
	defer k.giveTurn()
	box, paused, err := k.stands()
	if err != nil || paused != "" {
		return err
	}
	if err := box.Pause(ctx); err != nil {
		return err
	}
	k.stand(live.Frozen)
	return nil
}

// ResumeSandbox lets a sandbox go on.
func (rc receiver) ResumeSandbox(ctx context.Context, id string) (live.Made, error) {
	k, err := rc.run.hosted.there(ctx, id)
	if err != nil {
		return live.Made{}, err
	}
	if err := k.takeTurn(ctx); err != nil {
		return live.Made{}, err
	}
	defer k.giveTurn()
	box, paused, err := k.stands()
	switch {
	case err != nil:
		return live.Made{}, err
	case paused == live.Checkpointed:
		if err := k.fromAside(ctx); err != nil {
			return live.Made{}, err
		}
	case paused == live.Frozen:
		if err := box.Resume(ctx); err != nil {
			return live.Made{}, err
		}
		k.stand("")
		k.attachDetached(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.made, nil
}

// there returns a sandbox, however it stands.
func (h *hosted) there(ctx context.Context, id string) (*kept, error) {
	if err := dispatch.CheckSandboxID("id", id); err != nil {
		return nil, err
	}
	return h.find(ctx, id)
}

// takeTurn waits for those who pause, resume or save the sandbox.
func (k *kept) takeTurn(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "wait for the sandbox: %w", context.Cause(ctx))
	}
}

func (k *kept) giveTurn() { <-k.turn }

// stands says how the sandbox stands, unless it has ended.
func (k *kept) stands() (*sandbox.Sandbox, live.Paused, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over != nil || k.closing != nil {
		return nil, "", errBoxEnded
	}
	return k.box, k.paused, nil
}

// stand notes how it stands from now on.
func (k *kept) stand(p live.Paused) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused = p
	k.ledger.note(boxEntry{Paused: &p})
}

// attachDetached goes on with the commands that could not be met while the
// sandbox stood still.
func (k *kept) attachDetached(ctx context.Context) {
	k.mu.Lock()
	unmet := k.detached
	k.detached = nil
	k.mu.Unlock()
	for _, d := range unmet {
		if err := d.exec.attach(context.WithoutCancel(ctx), d.past); err != nil {
			k.log.Warn("could not go on with a command of an earlier run", "exec", d.past.order.ID, "error", err)
			k.then(func() { d.exec.lost(sandbox.Lost, err.Error(), d.past.began) })
			continue
		}
		k.then(d.exec.see)
	}
	k.goOn()
}
