package httpapi

import (
	"context"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

// maxQueuedInput is how many messages of input wait for an exec. A client that
// sends more without an answer is not heard until one was taken.
const maxQueuedInput = 4

// attachedInput is what a socket carries to the standard input of its exec.
type attachedInput struct {
	next  int64 // the offset of the next byte; -1 where the client does not count
	queue chan inputPiece
}

type inputPiece struct {
	data []byte
	last bool
}

func (i *attachedInput) put(ctx context.Context, p inputPiece) error {
	select {
	case i.queue <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// feed hands input to the exec, one message after the other. To a client that
// counts it says how far it came; after a message that was not taken, no other
// of such a client is: there would be a gap.
func (t *attached) feed(ctx context.Context) {
	counted, refused := t.input.next >= 0, false
	for {
		var p inputPiece
		select {
		case p = <-t.input.queue:
		case <-ctx.Done():
			return
		}
		if refused {
			continue
		}
		err := t.api.cfg.Keeper.FeedExec(ctx, t.exec, t.input.next, p.data, p.last)
		if err != nil {
			refused = counted
			if !t.tellRefused(ctx, err) {
				return
			}
			continue
		}
		if !counted {
			continue
		}
		t.input.next += int64(len(p.data))
		if t.say(ctx, map[string]any{"type": "input", "offset": t.input.next}) != nil {
			return
		}
	}
}

// tellRefused says why input was not taken; that of an exec that has ended is of
// no use to anybody. It reports whether the client is there.
func (t *attached) tellRefused(ctx context.Context, err error) bool {
	if fault.CodeOf(err) == "exec_ended" {
		return true
	}
	p := problem.From(err)
	return t.say(ctx, map[string]any{"type": "error", "of": "input", "status": p.Status, "code": p.Code, "error": p.Detail}) == nil
}
