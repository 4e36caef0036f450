package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	// Output is sent when so much has gathered, or when it has waited so long.
	flushBytes = 1 << 10
	flushAfter = 100 * time.Millisecond
)

// output keeps what an exec prints: in memory while it is small, then in the
// spool. It is read again by offset as often as it takes to report it, so what
// waits for a manager that is away costs disk and no memory.
type output struct {
	base *base
	name string
	wake func() // the reporter

	mu      sync.Mutex
	closed  bool
	streams [2]stream
}

var _ sandbox.Sink = (*output)(nil)

// stream is one of the two.
type stream struct {
	memory []byte
	file   *os.File // holds everything once it is open
	size   int64
	sent   int64
	since  time.Time // when the oldest byte came that was not sent
}

func (o *output) init(b *base, h dispatch.Held, wake func()) {
	o.base, o.name, o.wake = b, fmt.Sprintf("%s-%d", h.JobID, h.Fence), wake
}

func index(s sandbox.Stream) int {
	if s == sandbox.Stderr {
		return 1
	}
	return 0
}

// Write keeps a frame. Frames of one stream come in order.
func (o *output) Write(_ context.Context, f sandbox.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fault.New(fault.Conflict, "the output is closed")
	}
	s := &o.streams[index(f.Stream)]
	if err := o.keep(s, f); err != nil {
		return fmt.Errorf("spool output: %w", err)
	}
	unsent := s.size - s.sent
	if unsent == 0 {
		s.since = time.Now()
	}
	s.size += int64(len(f.Data))
	if unsent < flushBytes && s.size-s.sent >= flushBytes {
		o.wake()
	}
	return nil
}

func (o *output) keep(s *stream, f sandbox.Frame) error {
	if s.file == nil && s.size+int64(len(f.Data)) <= dispatch.MaxInline {
		s.memory = append(s.memory, f.Data...)
		return nil
	}
	if s.file == nil {
		path := o.base.spool(fmt.Sprintf("%s.%d", o.name, f.Stream))
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		if _, err := file.Write(s.memory); err != nil {
			file.Close() //nolint:errcheck // it is useless
			return err
		}
		s.file, s.memory = file, nil
	}
	_, err := s.file.WriteAt(f.Data, s.size)
	return err
}

// due reports whether there is something to send now.
func (o *output) due(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.streams {
		s := &o.streams[i]
		if unsent := s.size - s.sent; unsent >= flushBytes || (unsent > 0 && now.Sub(s.since) >= flushAfter) {
			return true
		}
	}
	return false
}

// chunks returns the next pieces that were not sent, at most most.
func (o *output) chunks(most int) ([]dispatch.Chunk, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []dispatch.Chunk
	if o.closed {
		return nil, nil
	}
	for i := range o.streams {
		s := &o.streams[i]
		for at := s.sent; at < s.size && len(all) < most; {
			data := make([]byte, min(s.size-at, dispatch.MaxChunk))
			if s.file == nil {
				copy(data, s.memory[at:])
			} else if _, err := s.file.ReadAt(data, at); err != nil {
				return all, fmt.Errorf("read spool: %w", err)
			}
			all = append(all, dispatch.Chunk{Stream: sandbox.Stream(i + 1), Offset: at, Data: data}) //nolint:gosec // 1 or 2
			at += int64(len(data))
		}
	}
	return all, nil
}

// sent notes that a piece was taken.
func (o *output) sent(c *dispatch.Chunk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.streams[index(c.Stream)]
	s.sent = max(s.sent, c.Offset+int64(len(c.Data)))
	s.since = time.Now()
}

// log returns the stream as a blob: its bytes where they are in memory, else a
// way to read them. It is called after the last Write.
func (o *output) log(name string, which sandbox.Stream, sha256 string) blob {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.streams[index(which)]
	b := blob{name: name, sha256: sha256, size: s.size}
	if s.file == nil {
		b.data = append([]byte{}, s.memory...)
		b.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.data)), nil }
		return b
	}
	file, size := s.file, s.size
	b.open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(file, 0, size)), nil }
	return b
}

// close gives the spool up. What was not sent live by then is not: the logs
// among the artifacts have it.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for i := range o.streams {
		if f := o.streams[i].file; f != nil {
			f.Close()           //nolint:errcheck // it was read where it mattered
			os.Remove(f.Name()) //nolint:errcheck // what is left is swept at the next start
		}
	}
}
