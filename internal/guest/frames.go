package guest

import (
	"context"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// sendAll writes frames in order, several at once where they fit: each write
// costs the guest a way through the sandbox's kernel.
func (c *Client) sendAll(ctx context.Context, frames [][]byte) error {
	const most = wire.HeaderSize + wire.MaxRequest // what a pipe takes whole
	for len(frames) > 0 {
		b := frames[0]
		for frames = frames[1:]; len(frames) > 0 && len(b)+len(frames[0]) <= most; frames = frames[1:] {
			b = append(b, frames[0]...)
		}
		if _, err := c.sendWhole(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// sendOpen sends the message in pieces. Others may speak between them.
func (c *Client) sendOpen(ctx context.Context, channel uint32, message []byte) error {
	return c.sendAll(ctx, openFrames(channel, message))
}

func openFrames(channel uint32, message []byte) (frames [][]byte) {
	for {
		piece := message[:min(len(message), wire.MaxRequest)]
		message = message[len(piece):]
		var flags uint8
		if len(message) > 0 {
			flags = wire.FlagMore
		}
		frames = append(frames, wire.AppendFrame(nil, wire.TypeOpen, flags, channel, piece))
		if len(message) == 0 {
			return frames
		}
	}
}

// inputFrames are all of an input and its end.
func inputFrames(channel uint32, b []byte) (frames [][]byte) {
	for len(b) > 0 {
		in := wire.Input{Data: b[:min(len(b), wire.MaxInput)]}
		b = b[len(in.Data):]
		frames = append(frames, wire.AppendFrame(nil, wire.TypeInput, 0, channel, in.Append(nil)))
	}
	return append(frames, wire.AppendFrame(nil, wire.TypeCloseInput, 0, channel, wire.Control{}.Append(nil)))
}
