package wire

import (
	"context"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// seconds are the second streams of a worker, for sandboxes alone, one to each
// manager. The one that has the first stream has one as well: which manager that
// is changes, and nothing that is under way anywhere is cut by it.
type seconds struct {
	mu      sync.Mutex
	session string
	life    context.Context         //nolint:containedctx // of the worker that attends; what is open ends with it
	replace context.CancelCauseFunc // opens the streams of session no more

	open sync.WaitGroup // grows only in keep
}

var errNewSession = fault.New(fault.Unavailable, "the worker has another session by now")

// keep holds second streams of a session open until ctx ends. Those of a session
// before it are not opened again, and end when their manager says so: it does as
// soon as nothing is under way there.
func (s *seconds) keep(ctx context.Context, to []*Client, session string, rc dispatch.Receiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || s.session == session && s.life.Err() == nil {
		return
	}
	if s.replace != nil {
		s.replace(errNewSession)
	}
	var wanted context.Context
	wanted, s.replace = context.WithCancelCause(ctx)
	s.session, s.life = session, ctx
	for _, c := range to {
		s.open.Go(func() { c.standBeside(ctx, wanted, session, rc) })
	}
}

// The pauses between tries to open a second stream.
const (
	minBeside = 100 * time.Millisecond
	maxBeside = 5 * time.Second
)

// standBeside keeps a second stream open until ctx ends, and opens it again
// while it is wanted.
func (c *Client) standBeside(ctx, wanted context.Context, session string, rc dispatch.Receiver) {
	for pause := minBeside; wanted.Err() == nil; pause = min(2*pause, maxBeside) {
		begun := time.Now()
		err := c.AttendBeside(ctx, session, rc)
		if wanted.Err() != nil {
			return
		}
		c.log.Debug("the second stream to a manager ended; it is opened again", "manager", c.base.Host, "error", err)
		if time.Since(begun) > maxBeside {
			pause = minBeside
		}
		select {
		case <-time.After(pause):
		case <-wanted.Done():
		}
	}
}
