package guest

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// errPaused is what requests get while nothing in the sandbox runs.
var errPaused = fault.New(fault.Conflict, "the sandbox is paused").WithCode(sandbox.CodePaused)

// WithPaused has Connect not wait for a guest that cannot answer, because its
// sandbox is paused. The first Resume meets it.
func WithPaused() Option {
	return func(c *Client) {
		c.paused = true
		close(c.halted)
	}
}

// refusal says why no request can be made. The client's mu is held.
func (c *Client) refusal() error {
	switch {
	case c.over != nil:
		return c.over.err
	case c.paused:
		return errPaused
	}
	return nil
}

// halt is closed once the sandbox is paused.
func (c *Client) halt() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.halted
}

// halt ends waits for a transfer when the sandbox is paused. Who waits for a
// command waits on.
func (p *Process) halt() <-chan struct{} {
	if !p.move {
		return nil
	}
	return p.client.halt()
}

// Pause has every request fail, also those under way, until Resume. To be called
// before the sandbox is stopped: when it returns, no frame is half written.
func (c *Client) Pause(ctx context.Context) error {
	c.Refuse()
	_ = c.in.SetWriteDeadline(time.Unix(1, 0)) // wakes who waits for room
	select {
	case c.turn <- struct{}{}:
		_ = c.in.SetWriteDeadline(time.Time{})
		<-c.turn
		return nil
	case <-c.done:
		return c.ended().err
	case <-ctx.Done():
		return errWaiting(ctx)
	}
}

// Refuse is Pause for who holds the guest, when no frame is under way.
func (c *Client) Refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.paused {
		c.paused = true
		close(c.halted)
	}
}

// Resume undoes Pause, once the sandbox runs again.
func (c *Client) Resume(ctx context.Context) error {
	c.mu.Lock()
	met := c.fresh == nil
	c.mu.Unlock()
	if !met {
		if err := c.meet(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over.err
	}
	if !c.paused {
		return nil
	}
	c.paused = false
	_ = c.in.SetWriteDeadline(time.Time{}) // of a Pause that was not waited for
	c.halted = make(chan struct{})
	for _, p := range c.channels {
		p.wake() // what could not be acknowledged meanwhile is now
	}
	return nil
}
