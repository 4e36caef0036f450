package worker

import (
	"context"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// capture holds what a run has printed, so that whoever asks can have it from
// any offset on, also later and more than once. The sandbox's cap bounds it.
type capture struct {
	mu      sync.Mutex
	streams [2][]byte
	ended   bool
	changed chan struct{} // closed and replaced when something came
}

func newCapture() *capture { return &capture{changed: make(chan struct{})} }

// Write implements sandbox.Sink.
func (c *capture) Write(_ context.Context, f sandbox.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.streams[f.Stream-sandbox.Stdout]
	*s = append(*s, f.Data...)
	c.wake()
	return nil
}

// end says that nothing more will come.
func (c *capture) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.wake()
}

// wake lets everybody look again.
//
// Preconditions: mu is held.
func (c *capture) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// size is how many bytes are held.
func (c *capture) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.streams[0]) + len(c.streams[1]))
}

// follow hands on what is there and what comes, from the offsets on, until the
// end of it.
func (c *capture) follow(ctx context.Context, from sandbox.Offsets, piece func(dispatch.Chunk) error) error {
	at := [2]int64{from.Stdout, from.Stderr}
	for {
		pieces, ended, changed, err := c.since(at)
		if err != nil {
			return err
		}
		for _, p := range pieces {
			if err := piece(p); err != nil {
				return err
			}
			at[p.Stream-sandbox.Stdout] += int64(len(p.Data))
		}
		if len(pieces) > 0 {
			continue
		}
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// since returns the next piece of each stream. What is in it does not change:
// streams only grow.
func (c *capture) since(at [2]int64) (pieces []dispatch.Chunk, ended bool, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, held := range c.streams {
		switch have := int64(len(held)); {
		case at[i] > have && c.ended:
			return nil, false, nil, fault.Field("from", "the stream has %d bytes, and you have %d", have, at[i])
		case at[i] < have:
			next := held[at[i]:min(have, at[i]+dispatch.MaxChunk)]
			pieces = append(pieces, dispatch.Chunk{Stream: sandbox.Stdout + sandbox.Stream(i), Offset: at[i], Data: next}) //nolint:gosec // 0 or 1
		}
	}
	return pieces, c.ended, c.changed, nil
}
