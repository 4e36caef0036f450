package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// framesType is the type of an answer that comes bit by bit: frames, each a
// kind, the length of what follows, and that. Pieces of output or bytes of a
// file come first; the last frame is the result, the end, or a problem, so that
// an answer that was cut short is known as such.
const framesType = "application/vnd.aurea.run-frames"

const (
	framePiece   byte = 1
	frameResult  byte = 2
	frameProblem byte = 3
	frameData    byte = 4
	frameEnd     byte = 5
	frameCredit  byte = 6

	frameHead   = 1 + 4
	pieceHead   = 1 + 8
	creditBytes = 4
)

// appendPiece appends a frame with a piece of output.
//
// Preconditions: the piece is in bounds.
func appendPiece(b []byte, c dispatch.Chunk) []byte {
	b = appendHead(b, framePiece, pieceHead+len(c.Data))
	b = append(b, byte(c.Stream))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Offset)) //nolint:gosec // it is not negative
	return append(b, c.Data...)
}

func appendHead(b []byte, kind byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, kind), uint32(n)) //nolint:gosec // bounded by who calls
}

// frames reads such an answer.
type frames struct {
	r    io.Reader
	buf  []byte
	next [2]int64 // where each stream goes on
}

func newFrames(r io.Reader, from sandbox.Offsets) *frames {
	return &frames{r: r, next: [2]int64{from.Stdout, from.Stderr}}
}

// read reads one frame of the answer to a run: a piece, whose data is good until
// the next call, or the result, or the fault that the worker tells.
func (f *frames) read() (*dispatch.Chunk, *run.Result, error) {
	kind, err := f.frame(framePiece, frameResult)
	switch {
	case err != nil:
		return nil, nil, err
	case kind == framePiece:
		c, err := f.piece()
		return c, nil, err
	}
	res, err := decodeResult(f.buf)
	return nil, res, err
}

// frame reads one frame into the buffer, which must be one of these kinds, or the
// fault that the worker tells. Everything in it is outside input.
func (f *frames) frame(kinds ...byte) (kind byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return 0, brokenOff(err)
	}
	kind, n := head[0], int64(binary.BigEndian.Uint32(head[1:]))
	if kind != frameProblem && !slices.Contains(kinds, kind) {
		return 0, fault.New(fault.Unavailable, "the worker sent a frame of kind %d, which has no place here", kind)
	}
	if most := mostOf(kind); n > most {
		return 0, fault.New(fault.Unavailable, "the worker sent a frame of kind %d with %d bytes; at most %d were agreed on", kind, n, most)
	}
	if err := f.fill(int(n)); err != nil {
		return 0, brokenOff(err)
	}
	if kind != frameProblem {
		return kind, nil
	}
	var p problem
	if err := json.Unmarshal(f.buf, &p); err != nil {
		return 0, fault.New(fault.Unavailable, "the worker's problem cannot be read: %w", err)
	}
	return 0, p.fault()
}

// mostOf bounds what a frame holds.
func mostOf(kind byte) int64 {
	switch kind {
	case framePiece:
		return pieceHead + dispatch.MaxChunk
	case frameResult:
		return dispatch.MaxResultBytes
	case frameProblem:
		return maxProblem
	case frameData:
		return dispatch.MaxChunk
	case frameCredit:
		return creditBytes
	}
	return 0
}

// fill reads n bytes into the buffer, which grows with what comes and not with
// what was promised.
func (f *frames) fill(n int) error {
	const step = 1 << 20
	f.buf = f.buf[:0]
	for len(f.buf) < n {
		at := len(f.buf)
		more := min(n-at, step)
		if cap(f.buf) < at+more {
			f.buf = append(f.buf, make([]byte, more)...)
		}
		f.buf = f.buf[:at+more]
		if _, err := io.ReadFull(f.r, f.buf[at:]); err != nil {
			return err
		}
	}
	return nil
}

// piece reads a piece, which must go on where the one before it ended.
func (f *frames) piece() (*dispatch.Chunk, error) {
	if len(f.buf) < pieceHead {
		return nil, fault.New(fault.Unavailable, "the worker sent half a piece of output")
	}
	offset := binary.BigEndian.Uint64(f.buf[1:])
	if offset > math.MaxInt64 {
		return nil, fault.New(fault.Unavailable, "the worker sent output at an offset that cannot be")
	}
	c := &dispatch.Chunk{Stream: sandbox.Stream(f.buf[0]), Offset: int64(offset), Data: f.buf[pieceHead:]}
	if err := c.Check(); err != nil {
		return nil, fault.New(fault.Unavailable, "the worker sent output that is out of bounds: %w", err)
	}
	next := &f.next[c.Stream-sandbox.Stdout]
	if c.Offset != *next {
		return nil, fault.New(fault.Unavailable, "the worker sent output at %d, expected at %d", c.Offset, *next)
	}
	*next += int64(len(c.Data))
	return c, nil
}

func decodeResult(body []byte) (*run.Result, error) {
	var res run.Result
	err := json.Unmarshal(body, &res)
	if err == nil {
		err = dispatch.CheckRunResult(res)
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the worker's result cannot be used: %w", err)
	}
	return &res, nil
}

func brokenOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutShort
	}
	return fmt.Errorf("read the answer: %w", err)
}

var errCutShort = fault.New(fault.Unavailable, "the worker's answer ends before its result")
