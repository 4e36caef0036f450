package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
//
// Durable output is in the spool from its first byte: the driver may drop what
// Write has taken, and a later process must find it.
type output struct {
	base    *base
	name    string
	journal *journal // nil where nobody could go on; else the output is durable
	wake    func()   // the reporter

	mu      sync.Mutex
	closed  bool
	streams [2]stream
	seen    *os.File // how far the streams were read beyond what is kept
}

var (
	_ sandbox.Sink    = (*output)(nil)
	_ sandbox.Witness = (*output)(nil)
)

// stream is one of the two.
type stream struct {
	memory []byte   // holds everything while the stream is small
	file   *os.File // holds everything once it is open
	size   int64
	sent   int64
	since  time.Time // when the oldest byte came that was not sent
}

// small reports whether the stream is in memory.
func (s *stream) small() bool { return int64(len(s.memory)) == s.size }

func (o *output) init(b *base, h dispatch.Held, j *journal, wake func()) {
	o.base, o.name, o.journal, o.wake = b, leaseName(h), j, wake
}

// broken says that the spool has a hole, so that nobody can go on from it.
func (o *output) broken(err error) error {
	if o.journal != nil {
		o.journal.drop()
	}
	return fmt.Errorf("spool output: %w", err)
}

// spool names the file of a stream.
func (o *output) spool(i int) string { return o.base.spool(fmt.Sprintf("%s.%d", o.name, i+1)) }

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
		return o.broken(err)
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
	small := s.small() && s.size+int64(len(f.Data)) <= dispatch.MaxInline
	if s.file == nil && (o.journal != nil || !small) {
		file, err := os.OpenFile(o.spool(index(f.Stream)), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		if _, err := file.Write(s.memory); err != nil {
			file.Close() //nolint:errcheck // it is useless
			return err
		}
		s.file = file
	}
	if s.file != nil {
		if _, err := s.file.WriteAt(f.Data, s.size); err != nil {
			return err
		}
	}
	if small {
		s.memory = append(s.memory, f.Data...)
	} else {
		s.memory = nil
	}
	return nil
}

// Saw writes down how far a stream was read where less of it is kept.
func (o *output) Saw(_ context.Context, s sandbox.Stream, seen int64) error {
	if o.journal == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fault.New(fault.Conflict, "the output is closed")
	}
	if o.seen == nil {
		file, err := os.OpenFile(o.base.spool(o.name+".seen"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return o.broken(err)
		}
		o.seen = file
	}
	var number [seenBytes]byte
	binary.BigEndian.PutUint64(number[:], uint64(seen)) //nolint:gosec // it counts bytes
	if _, err := o.seen.WriteAt(number[:], int64(index(s))*seenBytes); err != nil {
		return o.broken(err)
	}
	return nil
}

// sizes counts what is kept of each stream.
func (o *output) sizes() (stdout, stderr int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams[0].size, o.streams[1].size
}

// seenBytes is the length of a count in the file of Saw.
const seenBytes = 8

// resume opens the spool of an earlier process, and returns where it ends.
func (o *output) resume() (sandbox.Resume, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var from sandbox.Resume
	for i := range o.streams {
		if err := o.reopen(i); err != nil {
			return from, fmt.Errorf("open spool: %w", err)
		}
	}
	file, err := os.OpenFile(o.base.spool(o.name+".seen"), os.O_RDWR, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return from, fmt.Errorf("open spool: %w", err)
	}
	if err == nil {
		o.seen = file
	}
	far := func(i int) int64 {
		var count [seenBytes]byte
		if o.seen == nil {
			return o.streams[i].size
		}
		if _, err := o.seen.ReadAt(count[:], int64(i)*seenBytes); err != nil {
			return o.streams[i].size // this stream never went so far
		}
		return max(o.streams[i].size, int64(binary.BigEndian.Uint64(count[:]))) //nolint:gosec // it counts bytes
	}
	from.From = sandbox.Offsets{Stdout: far(0), Stderr: far(1)}
	from.Stdout, from.Stderr = o.streams[0].reader(), o.streams[1].reader()
	return from, nil
}

func (s *stream) reader() io.Reader {
	if s.file == nil {
		return nil
	}
	return io.NewSectionReader(s.file, 0, s.size)
}

// reopen opens the file of one stream, if there is one.
func (o *output) reopen(i int) error {
	file, err := os.OpenFile(o.spool(i), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s := &o.streams[i]
	s.file = file
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// What was reported of it is reported again: the manager knows it by its
	// offset.
	s.size, s.since = info.Size(), time.Now()
	if s.size <= dispatch.MaxInline {
		s.memory = make([]byte, s.size)
		_, err = io.ReadFull(io.NewSectionReader(file, 0, s.size), s.memory)
	}
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
			if s.small() {
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
	if s.small() {
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
	if f := o.seen; f != nil {
		f.Close()           //nolint:errcheck // as above
		os.Remove(f.Name()) //nolint:errcheck // as above
	}
}
