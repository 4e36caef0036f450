package guest

import (
	"context"

	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Hold has the guest say nothing of its commands, and nobody ask it anything,
// until release is called: who asks waits. No frame is under way in between, so
// that a sandbox that is saved then can go on with other pipes, and nothing that
// happens in it after that moment is seen before release. A sandbox that is
// paused must have been let go on, at least for itself; its client need not.
func (c *Client) Hold(ctx context.Context) (release func(), err error) {
	c.mu.Lock()
	met := c.fresh == nil
	c.mu.Unlock()
	if !met {
		if err := c.meet(ctx); err != nil {
			return nil, err
		}
	}
	select {
	case c.turn <- struct{}{}:
	case <-c.done:
		return nil, c.ended().err
	case <-ctx.Done():
		return nil, errWaiting(ctx)
	}
	release = func() {
		// It fails only where there is nobody to hear it any more.
		_ = c.transmit(context.WithoutCancel(ctx), wire.TypeHush, 0, 0, wire.Control{}.Append(nil))
		<-c.turn
	}
	if err := c.hush(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// hush asks for silence and waits for it. Whoever calls it has the turn.
func (c *Client) hush(ctx context.Context) error {
	c.mu.Lock()
	if c.over != nil {
		defer c.mu.Unlock()
		return c.over.err
	}
	tag, answer := c.newTag()
	c.mu.Unlock()
	defer c.drop(tag)
	if err := c.transmit(ctx, wire.TypeHush, 0, 0, wire.Control{Tag: tag, Tree: true}.Append(nil)); err != nil {
		return err
	}
	select {
	case outcome := <-answer:
		return asFault(outcome)
	case <-c.done:
		return c.ended().err
	case <-ctx.Done():
		return errWaiting(ctx)
	}
}

// Offsets says how far the readers of each command have come.
func (c *Client) Offsets() map[string]sandbox.Offsets {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]sandbox.Offsets{}
	for _, p := range c.channels {
		if p.id == "" {
			continue
		}
		at := p.position()
		at.Stdout = max(at.Stdout, found[p.id].Stdout)
		at.Stderr = max(at.Stderr, found[p.id].Stderr)
		found[p.id] = at
	}
	return found
}

// position is up to where the process's output was taken.
func (p *Process) position() sandbox.Offsets {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sandbox.Offsets{Stdout: p.streams[0].begin, Stderr: p.streams[1].begin}
}
