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
	cut    bool
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

// send sends a piece, and asks to be told when it was taken. A piece that was
// cut off ends the flow: nobody would tell when that was.
func (f *inflow) send(ctx context.Context, piece []byte) (n int, err error) {
	c := f.p.client
	if f.cut {
		return 0, fault.New(fault.Unavailable, "what was sent before was cut off")
	}
	tag, answer, err := c.expect()
	if err != nil {
		return 0, err
	}
	frames, rest := whole(f.p.channel, piece, tag)
	if len(frames) > 0 {
		sent, err := c.sendWhole(ctx, frames)
		n = sent * wire.MaxInput
		if err != nil {
			f.cut = n > 0
			c.drop(tag)
			return n, err
		}
	}
	if len(rest) > 0 {
		if err := c.send(ctx, wire.TypeInput, 0, f.p.channel, wire.Input{Tag: tag, Data: rest}.Append(nil)); err != nil {
			f.cut = n > 0
			c.drop(tag)
			return n, err
		}
	}
	f.asked = append(f.asked, asked{tag: tag, answer: answer, size: len(piece)})
	f.ahead += len(piece)
	return len(piece), nil
}

// whole puts what fills frames into such, and returns the rest. The last of a
// piece has the tag.
func whole(channel uint32, piece []byte, tag uint32) (frames, rest []byte) {
	frames = make([]byte, 0, len(piece)+len(piece)/wire.MaxInput*(wire.HeaderSize+4))
	payload := make([]byte, 0, wire.MaxRequest)
	for len(piece) >= wire.MaxInput {
		in := wire.Input{Data: piece[:wire.MaxInput]}
		if piece = piece[wire.MaxInput:]; len(piece) == 0 {
			in.Tag = tag
		}
		payload = in.Append(payload[:0])
		frames = wire.AppendFrame(frames, wire.TypeInput, 0, channel, payload)
	}
	return frames, piece
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
