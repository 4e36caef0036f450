package guest

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// send writes one frame, unless the sandbox is paused.
func (c *Client) send(ctx context.Context, t wire.Type, flags uint8, channel uint32, payload []byte) error {
	c.mu.Lock()
	err := c.refusal()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.push(ctx, t, flags, channel, payload)
}

// push writes one frame. It goes out whole or not at all.
func (c *Client) push(ctx context.Context, t wire.Type, flags uint8, channel uint32, payload []byte) error {
	if len(payload) > wire.MaxRequest {
		return fmt.Errorf("a frame of %d bytes is too long", len(payload))
	}
	select {
	case c.turn <- struct{}{}:
	case <-c.done:
		return c.ended().err
	case <-ctx.Done():
		return errWaiting(ctx)
	}
	defer func() { <-c.turn }()
	return c.transmit(ctx, t, flags, channel, payload)
}

// transmit is push for who has the turn.
func (c *Client) transmit(ctx context.Context, t wire.Type, flags uint8, channel uint32, payload []byte) error {
	stop := interruptible(ctx, c.in.SetWriteDeadline)
	defer stop()
	frame := wire.AppendFrame(make([]byte, 0, wire.HeaderSize+len(payload)), t, flags, channel, payload)
	_, err := c.in.Write(frame)
	return writeError(ctx, err)
}

// sendWhole writes frames that are each as long as they can be, and says how
// many went out. That is a page of the pipe, and the kernel takes such a write
// page by page: also one that is cut off, or whose writer dies, leaves no half
// frame.
func (c *Client) sendWhole(ctx context.Context, frames []byte) (n int, err error) {
	c.mu.Lock()
	err = c.refusal()
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	select {
	case c.turn <- struct{}{}:
	case <-c.done:
		return 0, c.ended().err
	case <-ctx.Done():
		return 0, errWaiting(ctx)
	}
	defer func() { <-c.turn }()
	stop := interruptible(ctx, c.in.SetWriteDeadline)
	defer stop()
	n, err = c.in.Write(frames)
	return n / (wire.HeaderSize + wire.MaxRequest), writeError(ctx, err)
}

// writeError says why a write to the guest has failed, if it has.
func writeError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil:
		return errPaused
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errWaiting(ctx)
	case errors.Is(err, unix.EPIPE), errors.Is(err, os.ErrClosed):
		return errGone
	}
	return fmt.Errorf("write to the guest: %w", err)
}
