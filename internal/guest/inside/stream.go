package inside

import (
	"cmp"
	"errors"
	"io"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// keep is how much of a stream is held. What a worker has taken stays, for
// another reader, until its place is needed.
const keep = 256 << 10

var errAborted = errors.New("the transfer was ended")

// stream is one output stream of a command. The engine's mu guards it.
type stream struct {
	base   int64 // offset of the first byte that is held
	held   []byte
	taken  int64 // offset up to which some worker has taken it
	most   int   // how much is held; 0 is what others hold
	closed bool
}

func (s *stream) end() int64 { return s.base + int64(len(s.held)) }

// room makes and returns the room for more.
func (s *stream) room() int {
	keep := cmp.Or(s.most, keep)
	if len(s.held) < keep {
		return keep - len(s.held)
	}
	if gone := int(min(s.taken, s.end()) - s.base); gone > 0 {
		n := copy(s.held, s.held[gone:])
		s.held = s.held[:n]
		s.base += int64(gone)
	}
	return keep - len(s.held)
}

// from returns what is held from offset on, at most most bytes.
func (s *stream) from(offset int64, most int) []byte {
	if most <= 0 || offset < s.base || offset >= s.end() {
		return nil
	}
	b := s.held[offset-s.base:]
	return b[:min(len(b), most)]
}

// sink is the writing end of a stream, for one goroutine.
type sink struct {
	e *Engine
	c *command
	s *stream
}

// wait blocks until there is room, and returns how much; 0 if the command was
// aborted.
func (k *sink) wait() int {
	k.e.mu.Lock()
	defer k.e.mu.Unlock()
	for {
		if k.c.aborted {
			return 0
		}
		if n := k.s.room(); n > 0 {
			return n
		}
		k.e.changed.Wait()
	}
}

// add appends what fits, which is all if it is within what wait returned.
func (k *sink) add(p []byte) {
	k.e.mu.Lock()
	k.s.held = append(k.s.held, p...)
	k.e.mu.Unlock()
	k.e.notify()
}

// Write adds all of p, waiting for room as often as need be.
func (k *sink) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n := min(k.wait(), len(p)-written)
		if n == 0 {
			return written, errAborted
		}
		k.add(p[written : written+n])
		written += n
	}
	return written, nil
}

func (k *sink) close() {
	k.e.mu.Lock()
	k.s.closed = true
	k.e.mu.Unlock()
	k.e.notify()
}

// maxInput is how much input is held for a command that does not read it. A
// worker sends no more before it has heard that all of it was taken.
const maxInput = 512 << 10

// input is what is to be fed to a command. The engine's mu guards it.
type input struct {
	e      *Engine
	queued []byte
	lent   int // bytes that the reader has, and has not come back from
	closed bool
	broken bool     // nobody reads
	behind *command // the transfer that comes first, or nil
	marks  []mark
	total  int64 // bytes ever queued
	gone   int64 // bytes ever taken
}

// mark is a worker that wants to know when input up to offset was taken.
type mark struct {
	channel, tag uint32
	offset       int64
}

// add queues input, or returns why it cannot.
func (q *input) add(in wire.Input, channel uint32) *wire.Outcome {
	switch {
	case q.broken || q.closed:
		return &wire.Outcome{Status: wire.StatusConflict, Message: "the input is closed"}
	case len(q.queued)+len(in.Data) > maxInput:
		return &wire.Outcome{Status: wire.StatusExhausted, Message: "the command does not read its input"}
	}
	q.queued = append(q.queued, in.Data...)
	q.total += int64(len(in.Data))
	if in.Tag != 0 {
		q.marks = append(q.marks, mark{channel: channel, tag: in.Tag, offset: q.total})
	}
	return nil
}

func (q *input) close() { q.closed = true }

// settle answers the marks up to what was taken.
func (q *input) settle() {
	for len(q.marks) > 0 && (q.broken || q.marks[0].offset <= q.gone) {
		m := q.marks[0]
		q.marks = q.marks[1:]
		var outcome wire.Outcome
		if m.offset > q.gone {
			outcome = wire.Outcome{Status: wire.StatusConflict, Message: "the command closed its input"}
		}
		q.e.reply(m.channel, m.tag, outcome)
	}
}

// Read waits for input. Coming back for more says that what was read before
// has arrived.
func (q *input) Read(p []byte) (int, error) {
	q.e.mu.Lock()
	defer q.e.mu.Unlock()
	q.gone += int64(q.lent)
	q.lent = 0
	q.settle()
	for {
		switch {
		case q.broken, q.behind != nil && q.behind.failed():
			return 0, errAborted
		case q.behind != nil && q.behind.exit == nil:
			q.e.changed.Wait()
			continue
		case len(q.queued) > 0:
			n := copy(p, q.queued)
			q.queued = q.queued[n:]
			q.lent = n
			return n, nil
		case q.closed:
			return 0, io.EOF
		}
		q.queued = nil
		q.e.changed.Wait()
	}
}

// stop says that nothing more will be wanted. What the reader has at this
// moment may still arrive: the reader tells, by coming back or by leaving. The
// engine's mu is held.
func (q *input) stop() {
	q.broken = true
	q.queued = nil
	if q.lent == 0 {
		q.settle()
	}
	q.e.changed.Broadcast()
}

// leave is called by the reader, or in its name once it is gone: it will not
// come back, and what it had did not arrive. The engine's mu is held.
func (q *input) leave() {
	q.lent = 0
	q.stop()
}
