package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// spool keeps what an exec of a kept sandbox prints: on disk from its first
// byte, because the driver may drop what Write has taken, and a later process
// must find it. Any number of readers read it from any offset, also while it
// grows.
type spool struct {
	path string // that the names of its files begin with

	mu      sync.Mutex
	streams [2]spooled
	counts  *os.File // what is counted beside the streams
	ended   bool
	gone    bool
	changed chan struct{} // closed when something came; nil while nobody waits
}

// spooled is one stream.
type spooled struct {
	memory []byte   // holds everything while the stream is small and not told
	file   *os.File // is written to; nil before the first byte and after the end
	size   int64
}

// The places in the file of counts.
const (
	countSeenOut = iota
	countSeenErr
	countFeeding // bytes of input that are about to be written
	countFed     // bytes of input that were
	countClosed  // 1: the input was ended
	counts
)

var (
	_ sandbox.Sink    = (*spool)(nil)
	_ sandbox.Witness = (*spool)(nil)
)

func (s *spool) name(i int) string  { return fmt.Sprintf("%s.%d", s.path, i+1) }
func (s *spool) countsName() string { return s.path + ".counts" }

// wake lets every reader look again.
//
// Preconditions: mu is held.
func (s *spool) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Write keeps a frame. Frames of one stream come in order.
func (s *spool) Write(_ context.Context, f sandbox.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return fault.New(fault.Conflict, "the output is closed")
	}
	i := index(f.Stream)
	to := &s.streams[i]
	if to.file == nil {
		file, err := os.OpenFile(s.name(i), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("spool output: %w", err)
		}
		to.file = file
	}
	if _, err := to.file.WriteAt(f.Data, to.size); err != nil {
		return fmt.Errorf("spool output: %w", err)
	}
	if int64(len(to.memory)) == to.size && to.size+int64(len(f.Data)) <= dispatch.MaxInline {
		to.memory = append(to.memory, f.Data...)
	} else {
		to.memory = nil
	}
	to.size += int64(len(f.Data))
	s.wake()
	return nil
}

// Saw writes down how far a stream was read where less of it is kept.
func (s *spool) Saw(_ context.Context, stream sandbox.Stream, seen int64) error {
	return s.count(index(stream), seen)
}

// count writes a number down for the process that comes after this one.
func (s *spool) count(place int, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return fault.New(fault.Conflict, "the output is gone")
	}
	if s.counts == nil {
		file, err := os.OpenFile(s.countsName(), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("spool counts: %w", err)
		}
		s.counts = file
	}
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(n)) //nolint:gosec // it counts bytes
	if _, err := s.counts.WriteAt(number[:], int64(place)*8); err != nil {
		return fmt.Errorf("spool counts: %w", err)
	}
	return nil
}

// counted reads what an earlier process counted.
func (s *spool) counted() (all [counts]int64, err error) {
	data, err := os.ReadFile(s.countsName())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return all, fmt.Errorf("open spool: %w", err)
	}
	for i := range all {
		if len(data) >= (i+1)*8 {
			all[i] = max(int64(binary.BigEndian.Uint64(data[i*8:])), 0) //nolint:gosec // held above zero
		}
	}
	return all, nil
}

// resume opens what an earlier process spooled, and returns where it ends. It can
// be done again.
func (s *spool) resume() (from sandbox.Resume, all [counts]int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all, err = s.counted(); err != nil {
		return from, all, err
	}
	defer s.wake()
	for i := range s.streams {
		s.close(&s.streams[i].file)
		if err := s.reopen(i); err != nil {
			return from, all, fmt.Errorf("open spool: %w", err)
		}
	}
	from.From = sandbox.Offsets{Stdout: max(s.streams[0].size, all[countSeenOut]), Stderr: max(s.streams[1].size, all[countSeenErr])}
	from.Stdout, from.Stderr = s.kept(0), s.kept(1)
	return from, all, nil
}

// reopen opens the file of one stream, if there is one.
func (s *spool) reopen(i int) error {
	file, err := os.OpenFile(s.name(i), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	to := &s.streams[i]
	to.file = file
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if to.size = info.Size(); to.size <= dispatch.MaxInline {
		to.memory = make([]byte, to.size)
		_, err = io.ReadFull(io.NewSectionReader(file, 0, to.size), to.memory)
	}
	return err
}

// kept reads what is kept of a stream that was reopened.
//
// Preconditions: mu is held.
func (s *spool) kept(i int) io.Reader {
	if s.streams[i].file == nil {
		return nil
	}
	return io.NewSectionReader(s.streams[i].file, 0, s.streams[i].size)
}

// small returns a stream that can ride along, if it is one.
func (s *spool) small(i int) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := &s.streams[i]
	return to.memory, int64(len(to.memory)) == to.size
}

// end says that nothing more will come.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for i := range s.streams {
		s.close(&s.streams[i].file)
	}
	s.close(&s.counts)
	s.wake()
}

// close closes one file.
//
// Preconditions: mu is held.
func (s *spool) close(f **os.File) {
	if *f != nil {
		(*f).Close() //nolint:errcheck // what was written is with the kernel
		*f = nil
	}
}

// rest lets go of what is in memory: from now on it is read from the disk.
func (s *spool) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.streams {
		if s.streams[i].size > 0 {
			s.streams[i].memory = nil
		}
	}
}

// remove removes everything.
func (s *spool) remove() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for _, name := range []string{s.name(0), s.name(1), s.countsName()} {
		os.Remove(name) //nolint:errcheck // what is left is swept at the next start
	}
}

// follow hands on what is there and what comes, from the offsets on, until the
// end of it.
func (s *spool) follow(ctx context.Context, from sandbox.Offsets, piece func(dispatch.Chunk) error) error {
	r := reader{spool: s, at: [2]int64{from.Stdout, from.Stderr}}
	defer r.close()
	for {
		changed, err := r.more(piece)
		if err != nil || changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reader reads a spool for one who follows.
type reader struct {
	*spool
	at    [2]int64
	files [2]*os.File
	buf   []byte
}

// more hands on all that is there. It returns what tells of more, or nil at the
// end.
func (r *reader) more(piece func(dispatch.Chunk) error) (<-chan struct{}, error) {
	for {
		memory, size, ended, changed := r.look()
		var came bool
		for i := range r.at {
			switch {
			case r.at[i] > size[i] && ended:
				return nil, fault.Field("from", "the stream has %d bytes, and you have %d", size[i], r.at[i])
			case r.at[i] >= size[i]:
				continue
			}
			data, err := r.read(i, memory[i], size[i])
			if err == nil {
				err = piece(dispatch.Chunk{Stream: sandbox.Stdout + sandbox.Stream(i), Offset: r.at[i], Data: data}) //nolint:gosec // 0 or 1
			}
			if err != nil {
				return nil, err
			}
			r.at[i] += int64(len(data))
			came = true
		}
		if !came {
			if ended {
				return nil, nil //nolint:nilnil // nothing more comes
			}
			return changed, nil
		}
	}
}

// look says what is there. What is in memory does not change: it only grows.
func (r *reader) look() (memory [2][]byte, size [2]int64, ended bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.streams {
		memory[i], size[i] = r.streams[i].memory, r.streams[i].size
	}
	if r.changed == nil && !r.ended {
		r.changed = make(chan struct{})
	}
	return memory, size, r.ended, r.changed
}

// read reads the next piece of a stream.
func (r *reader) read(i int, memory []byte, size int64) ([]byte, error) {
	n := min(size-r.at[i], dispatch.MaxChunk)
	if int64(len(memory)) == size {
		return memory[r.at[i] : r.at[i]+n], nil
	}
	if r.files[i] == nil {
		file, err := os.Open(r.name(i))
		if err != nil {
			return nil, fault.New(fault.Gone, "the output is not kept here any more: %w", err)
		}
		r.files[i] = file
	}
	if r.buf == nil {
		r.buf = make([]byte, dispatch.MaxChunk)
	}
	if _, err := r.files[i].ReadAt(r.buf[:n], r.at[i]); err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	return r.buf[:n], nil
}

func (r *reader) close() {
	for _, f := range r.files {
		if f != nil {
			f.Close() //nolint:errcheck // it was only read
		}
	}
}

// cutTo sets the streams back to where they were at a moment.
func (s *spool) cutTo(at sandbox.Offsets) error {
	for i, n := range []int64{at.Stdout, at.Stderr} {
		info, err := os.Stat(s.name(i))
		if err == nil && info.Size() > n {
			err = os.Truncate(s.name(i), n)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cut spool: %w", err)
		}
		if err := s.count(i, n); err != nil {
			return err
		}
	}
	return nil
}

// awaitSeen waits until what was taken from the driver by a moment is spooled.
func (s *spool) awaitSeen(ctx context.Context, at sandbox.Offsets) error {
	for {
		s.mu.Lock()
		if s.ended || s.streams[0].size >= at.Stdout && s.streams[1].size >= at.Stderr || s.counts != nil {
			s.mu.Unlock()
			return nil // or some of it is over the cap, and counted
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
