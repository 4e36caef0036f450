package fake

import (
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxFrame is the most that one frame carries.
const maxFrame = 32 << 10

// segment is a piece of output: bytes, or a rule by which many bytes are made
// when somebody reads them, so that a flood costs no memory.
type segment struct {
	stream sandbox.Stream
	offset int64
	data   []byte
	rule   rule
	length int64
}

// rule makes the byte at an offset of its stream.
type rule uint8

const (
	asGiven rule = iota
	asLines      // lines of text
	asZeros
)

// slice returns up to maxFrame bytes of the segment from the stream's offset
// on, in buf when they have to be made.
func (s segment) slice(from int64, buf []byte) ([]byte, []byte) {
	n := min(s.offset+s.length-from, maxFrame)
	if s.rule == asGiven {
		return s.data[from-s.offset:][:n], buf
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, maxFrame)
	}
	buf = buf[:n]
	for i := range buf {
		buf[i] = s.rule.at(from + int64(i))
	}
	return buf, buf
}

func (r rule) at(offset int64) byte {
	const line = "the quick brown fox jumps over the lazy dog, again and again....\n"
	if r == asLines {
		return line[offset%int64(len(line))]
	}
	return 0
}

// reader is one reader's place in a process's output.
type reader struct {
	next int      // the segment to look at
	at   [3]int64 // by stream
	buf  []byte
}

// frame returns the next frame, if there is one.
//
// Preconditions: the process's mu is held.
func (r *reader) frame(segments []segment) (sandbox.Frame, bool) {
	for ; r.next < len(segments); r.next++ {
		s := segments[r.next]
		from := max(r.at[s.stream], s.offset)
		if from >= s.offset+s.length {
			continue
		}
		var data []byte
		data, r.buf = s.slice(from, r.buf)
		r.at[s.stream] = from + int64(len(data))
		return sandbox.Frame{Stream: s.stream, Offset: from, Data: data}, true
	}
	return sandbox.Frame{}, false
}
