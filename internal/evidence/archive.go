package evidence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Archive is the folder that keeps snapshots. A snapshot appears there whole or
// not at all, is read-only, and is never overwritten.
type Archive struct {
	folder  string
	dir     *os.File // for syncs
	bounds  Bounds
	sync    groupSync
	buffers sync.Pool
	begun   atomic.Int64 // names what is being written
}

// aside begins the names of snapshots that are being written.
const aside = ".tmp-"

// OpenArchive makes the folder where it is missing, and removes what an earlier
// process left half-written. Only one process may have it open; the worker's
// lock sees to that.
func OpenArchive(folder string, b Bounds) (*Archive, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make snapshot folder: %w", err)
	}
	if err := sweep(folder); err != nil {
		return nil, fmt.Errorf("sweep snapshot folder: %w", err)
	}
	dir, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("open snapshot folder: %w", err)
	}
	a := &Archive{folder: folder, dir: dir, bounds: b, sync: groupSync{do: dir.Sync}}
	a.buffers.New = func() any { return newBuffer() }
	return a, nil
}

func sweep(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), aside) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close releases the folder.
func (a *Archive) Close() error { return a.dir.Close() }

// Store packs a workspace as the snapshot of one try and returns once it is on
// disk. The first try of a job is {job}.tar, the second {job}.2.tar; a name
// that is taken is left alone and the next number is used. A survey, where there
// is one, is made on the way.
func (a *Archive) Store(ctx context.Context, jobID string, attempt int, workspace string, s *Survey) (Stored, error) {
	if jobID == "" || strings.ContainsAny(jobID, "/\x00") || strings.HasPrefix(jobID, ".") {
		return Stored{}, fault.New(fault.Invalid, "%q cannot name a snapshot", jobID)
	}
	f, err := a.create()
	if err != nil {
		return Stored{}, fmt.Errorf("create snapshot: %w", err)
	}
	kept := head{to: f}
	packed, err := a.write(ctx, f, &kept, jobID, workspace, s)
	if err == nil {
		var name string
		if name, err = a.name(f.Name(), jobID, max(attempt, 1)); err == nil {
			snap := Snapshot{Path: name, SHA256: packed.SHA256, Bytes: packed.Bytes, TreeDigest: packed.TreeDigest}
			return Stored{Snapshot: snap, Skipped: packed.Skipped, Data: kept.data}, a.sync.Do()
		}
	}
	os.Remove(f.Name()) //nolint:errcheck // what is left is swept at the next start
	return Stored{}, err
}

// Stored is a snapshot that is on disk. Skipped is what was left out of it; Data
// holds its bytes where they are few.
type Stored struct {
	Snapshot
	Skipped []string
	Data    []byte
}

// create opens a new file beside the snapshots. It asks the kernel itself:
// os.OpenFile would try to poll a file that cannot be polled.
func (a *Archive) create() (*os.File, error) {
	path := filepath.Join(a.folder, aside+strconv.FormatInt(a.begun.Add(1), 10))
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// head passes bytes on, and keeps them as long as they are few.
type head struct {
	to   io.Writer
	data []byte
	over bool
}

func (h *head) Write(p []byte) (int, error) {
	if h.over = h.over || len(h.data)+len(p) > packBuffer; h.over {
		h.data = nil
	} else {
		h.data = append(h.data, p...)
	}
	return h.to.Write(p)
}

// write fills the file, makes it read-only and puts it on disk.
func (a *Archive) write(ctx context.Context, f *os.File, w io.Writer, jobID, workspace string, s *Survey) (Packed, error) {
	buf := a.buffers.Get().(*buffer) //nolint:forcetypeassert // New makes no other
	defer a.buffers.Put(buf)
	packed, err := pack(ctx, w, workspace, jobID, a.bounds, s, buf)
	if err == nil {
		err = f.Chmod(0o444)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return Packed{}, fmt.Errorf("write snapshot: %w", err)
	}
	return packed, nil
}

// name moves the finished file to the first name that is free.
func (a *Archive) name(from, jobID string, attempt int) (string, error) {
	const tries = 1000
	for n := attempt; n < attempt+tries; n++ {
		to := filepath.Join(a.folder, jobID+".tar")
		if n > 1 {
			to = filepath.Join(a.folder, fmt.Sprintf("%s.%d.tar", jobID, n))
		}
		err := moveNew(from, to)
		if err == nil {
			return to, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("name snapshot: %w", err)
		}
	}
	return "", fault.New(fault.Conflict, "job %s has %d snapshots already", jobID, tries)
}

// moveNew renames without ever replacing. File systems that cannot do it in one
// step get a second name and lose the first.
func moveNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// groupSync lets callers that come while a sync runs share the next one.
type groupSync struct {
	do   func() error
	turn sync.Mutex // held by the round that syncs

	mu   sync.Mutex
	next *syncRound // not begun; those who come join it
}

type syncRound struct {
	done chan struct{}
	err  error
}

// Do returns after a sync that began after Do was called.
func (g *groupSync) Do() error {
	g.mu.Lock()
	round, first := g.next, g.next == nil
	if first {
		round = &syncRound{done: make(chan struct{})}
		g.next = round
	}
	g.mu.Unlock()
	if !first {
		<-round.done
		return round.err
	}
	g.turn.Lock()
	g.mu.Lock()
	g.next = nil
	g.mu.Unlock()
	if err := g.do(); err != nil {
		round.err = fmt.Errorf("sync snapshot folder: %w", err)
	}
	g.turn.Unlock()
	close(round.done)
	return round.err
}
