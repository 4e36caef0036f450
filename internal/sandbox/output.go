package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
)

// Sink takes the output of an exec that is kept: to spool it, to show it live.
// Frames of one stream come in order, without gap or overlap, from one
// goroutine. A Write that blocks holds up the exec's output, not its deadline;
// it returns soon once ctx ends. Data belongs to the sink only until Write
// returns. After the first error the sink gets no more frames.
type Sink interface {
	Write(ctx context.Context, f Frame) error
}

// Witness is implemented by a Sink that lives on when this process dies. Saw
// comes before more output is taken from the driver, and tells how far a stream
// was read where that is farther than what Write got: such bytes are over the
// cap, and the driver need not give them again. An error is one of Write.
type Witness interface {
	Saw(ctx context.Context, s Stream, seen int64) error
}

// SinkFunc is a function as a Sink.
type SinkFunc func(ctx context.Context, f Frame) error

// Write calls the function.
func (f SinkFunc) Write(ctx context.Context, frame Frame) error { return f(ctx, frame) }

// Output says what became of one stream. What is kept is always the beginning
// of the stream.
type Output struct {
	// Seen counts all bytes that the process wrote, Kept those that were kept.
	Seen int64 `json:"bytes_seen"`
	Kept int64 `json:"bytes_kept"`
	// Truncated says that something was dropped: it went over the cap, the
	// driver lost it, or the sink refused it.
	Truncated bool `json:"truncated"`
	// SHA256 is the digest of the kept bytes, in hexadecimal.
	SHA256 string `json:"sha256"`
}

// tally counts one stream and decides what of it is kept.
type tally struct {
	limit     int64
	seen      int64
	kept      int64
	truncated bool
	digest    hash.Hash
}

func newTally(limit int64) tally { return tally{limit: limit, digest: sha256.New()} }

// resume counts what an earlier worker saw and kept of the stream.
func (t *tally) resume(seen int64, kept io.Reader) error {
	if kept != nil {
		n, err := io.Copy(t.digest, kept)
		if err != nil {
			return fmt.Errorf("read what was kept: %w", err)
		}
		t.kept = n
	}
	t.seen = max(seen, t.kept)
	t.truncated = t.seen > t.kept
	return nil
}

// take counts a frame and returns the part of it that is to be kept. Frames
// come from a driver, and at last from inside a sandbox: an offset that does
// not join is not believed.
func (t *tally) take(f Frame) (Frame, bool) {
	const farthest = 1 << 60
	if len(f.Data) == 0 {
		return Frame{}, false
	}
	if f.Offset < 0 || f.Offset > farthest {
		t.truncated = true
		return Frame{}, false
	}
	if behind := t.seen - f.Offset; behind > 0 {
		if behind >= int64(len(f.Data)) {
			return Frame{}, false
		}
		f.Offset, f.Data = t.seen, f.Data[behind:]
	}
	t.seen = f.Offset + int64(len(f.Data))
	if f.Offset != t.kept || t.truncated {
		t.truncated = t.truncated || t.seen > t.kept
		return Frame{}, false
	}
	if room := t.limit - t.kept; int64(len(f.Data)) > room {
		f.Data, t.truncated = f.Data[:max(room, 0)], true
	}
	return f, len(f.Data) > 0
}

// keep counts a frame as kept, once the sink has it.
func (t *tally) keep(f Frame) {
	t.kept += int64(len(f.Data))
	t.digest.Write(f.Data)
}

func (t *tally) output() Output {
	return Output{Seen: t.seen, Kept: t.kept, Truncated: t.truncated, SHA256: hex.EncodeToString(t.digest.Sum(nil))}
}
