package guest

import (
	"context"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// inflowPiece is how much input is sent before the guest is asked to say that
// it was taken.
const inflowPiece = 16 * wire.MaxInput

// inflow sends input ahead of what the guest has taken, up to a window. One
// goroutine at a time may use it.
type inflow struct {
	p      *Process
	window int
	ahead  int
	asked  []asked
}

// asked is a piece of input whose taking was not told yet.
type asked struct {
	tag    uint32
	answer <-chan wire.Outcome
	size   int
}

func newInflow(p *Process, window int) *inflow { return &inflow{p: p, window: window} }

// write sends b, and says how much of it went out. What it returns may be about
// input that was sent before.
func (f *inflow) write(ctx context.Context, b []byte) (n int, err error) {
	for n < len(b) {
		piece := b[n:min(len(b), n+min(inflowPiece, f.window))]
		if err := f.room(ctx, len(piece)); err != nil {
			return n, err
		}
		sent, err := f.send(ctx, piece)
		n += sent
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// room waits until there is room in the window.
func (f *inflow) room(ctx context.Context, size int) error {
	for len(f.asked) > 0 {
		first := f.asked[0]
		if f.ahead+size <= f.window {
			select { // what is known is taken note of
			case outcome := <-first.answer:
				if err := f.took(outcome); err != nil {
					return err
				}
				continue
			default:
				return nil
			}
		}
		select {
		case outcome := <-first.answer:
			if err := f.took(outcome); err != nil {
				return err
			}
		case <-f.p.client.done:
			return f.p.client.ended().err
		case <-f.p.client.halt():
			return errPaused
		case <-ctx.Done():
			return errWaiting(ctx)
		}
	}
	return nil
}

// took notes the answer to the oldest piece.
func (f *inflow) took(o wire.Outcome) error {
	f.ahead -= f.asked[0].size
	f.asked = f.asked[1:]
	return asFault(o)
}

// send sends a piece, and asks to be told when it was taken.
func (f *inflow) send(ctx context.Context, piece []byte) (n int, err error) {
	c := f.p.client
	for n < len(piece) {
		in := wire.Input{Data: piece[n:min(len(piece), n+wire.MaxInput)]}
		var answer <-chan wire.Outcome
		if n+len(in.Data) == len(piece) {
			if in.Tag, answer, err = c.expect(); err != nil {
				return n, err
			}
		}
		if err := c.send(ctx, wire.TypeInput, 0, f.p.channel, in.Append(nil)); err != nil {
			if in.Tag != 0 {
				c.drop(in.Tag)
			}
			// Nobody will say when these were taken: the window is smaller now.
			return n, err
		}
		if in.Tag != 0 {
			f.asked = append(f.asked, asked{tag: in.Tag, answer: answer, size: len(piece)})
		}
		n += len(in.Data)
		f.ahead += len(in.Data)
	}
	return n, nil
}

// drop stops listening for answers.
func (f *inflow) drop() {
	for _, a := range f.asked {
		f.p.client.drop(a.tag)
	}
	f.asked = nil
}

// refusedInput reports whether an error says that the guest takes no more
// input, and not that it cannot be reached.
func refusedInput(err error) bool {
	return fault.Is(err, fault.Conflict) && fault.CodeOf(err) == fault.Conflict.String() || fault.Is(err, fault.NotFound)
}
