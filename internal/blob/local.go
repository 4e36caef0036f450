package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Local keeps blobs as files in a folder of its own. Nobody else writes there,
// and names are digests that were checked.
type Local struct {
	folder  string
	writing *os.File          // holds blobs that are not whole yet
	folders [folders]*os.File // blobs are spread over them by their first byte
	next    atomic.Uint64

	removing sync.RWMutex // held for reading while a blob is looked for

	mu      sync.Mutex
	putting map[string]*putting // by digest
}

const folders = 256

// putting is a Put on its way: what it has named is not on disk before it has
// ended.
type putting struct {
	done chan struct{}
	err  error
}

var _ Store = (*Local)(nil)

// OpenLocal opens the store in folder, makes it if need be, and removes what a
// crash left half written.
func OpenLocal(folder string) (*Local, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("find blob folder: %w", err)
	}
	s := &Local{folder: folder, putting: map[string]*putting{}}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare empties the folder of half-written files, and makes and opens those
// that blobs are spread over, so that Put never has to sync a new one.
func (s *Local) prepare() error {
	aside := filepath.Join(s.folder, writing)
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove half-written blobs: %w", err)
	}
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return fmt.Errorf("make blob folder: %w", err)
	}
	var err error
	if s.writing, err = os.Open(aside); err != nil {
		return fmt.Errorf("open blob folder: %w", err)
	}
	for i := range s.folders {
		path := filepath.Join(s.folder, hex.EncodeToString([]byte{byte(i)}))
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make blob folder: %w", err)
		}
		if s.folders[i], err = os.Open(path); err != nil {
			return fmt.Errorf("open blob folder: %w", err)
		}
	}
	root, err := os.Open(s.folder)
	if err != nil {
		return fmt.Errorf("open blob folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	return syncFolder(root)
}

// writing names the folder of blobs that are not whole yet. No first byte of a
// digest has this length.
const writing = "writing"

// Close releases the folder.
func (s *Local) Close() (err error) {
	for _, f := range append(s.folders[:], s.writing) {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Has reports whether the blob is there. One that is being put is waited for.
func (s *Local) Has(ctx context.Context, digest string) (bool, error) {
	if err := CheckDigest(digest); err != nil {
		return false, err
	}
	if digest == Empty {
		return true, nil
	}
	s.mu.Lock()
	p := s.putting[digest]
	s.mu.Unlock()
	if p != nil {
		select {
		case <-p.done:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return s.there(digest)
}

// there looks for the name of a blob, and notes that it is wanted.
func (s *Local) there(digest string) (bool, error) {
	s.removing.RLock() // what is found is not removed before it was noted
	defer s.removing.RUnlock()
	dir, name := s.place(digest)
	var info unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && time.Since(time.Unix(info.Mtim.Unix())) > noteEvery {
		now := unix.NsecToTimespec(time.Now().UnixNano())
		err = unix.UtimesNanoAt(int(dir.Fd()), name, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return false, fmt.Errorf("look for blob: %w", err)
	}
	return true, nil
}

// noteEvery bounds how often it is noted that a blob is wanted.
const noteEvery = time.Minute

// Put stores a blob: aside, checked, synced, renamed, and the folder synced.
// Of several that bring the same blob one stores it and the others wait.
func (s *Local) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	if err := CheckDigest(digest); err != nil {
		return err
	}
	if digest == Empty {
		return nil
	}
	for {
		s.mu.Lock()
		other := s.putting[digest]
		mine := &putting{done: make(chan struct{})}
		if other == nil {
			s.putting[digest] = mine
		}
		s.mu.Unlock()
		if other == nil {
			mine.err = s.put(ctx, digest, size, r)
			s.mu.Lock()
			delete(s.putting, digest)
			s.mu.Unlock()
			close(mine.done)
			return mine.err
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if other.err == nil {
			return nil
		}
	}
}

func (s *Local) put(ctx context.Context, digest string, size int64, r io.Reader) error {
	if there, err := s.there(digest); err != nil || there {
		return err
	}
	aside := strconv.FormatUint(s.next.Add(1), 10)
	if err := s.write(ctx, aside, digest, size, r); err != nil {
		_ = os.Remove(filepath.Join(s.folder, writing, aside)) // it may not exist; prepare removes what is left
		return err
	}
	dir, name := s.place(digest)
	if err := unix.Renameat(int(s.writing.Fd()), aside, int(dir.Fd()), name); err != nil {
		return fmt.Errorf("name blob: %w", err)
	}
	return syncFolder(dir)
}

func (s *Local) write(ctx context.Context, aside, digest string, size int64, r io.Reader) error {
	f, err := os.OpenFile(filepath.Join(s.folder, writing, aside), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return fmt.Errorf("write blob: %w", err)
	}
	defer func() { _ = f.Close() }()
	const most = 64 << 10
	sum := sha256.New()
	buf := make([]byte, min(max(size, 0), most)+1)
	n, err := io.CopyBuffer(io.MultiWriter(f, sum), io.LimitReader(reader{ctx, r}, size+1), buf)
	if err != nil {
		return fmt.Errorf("write blob: %w", err)
	}
	if n != size {
		return fault.New(fault.Invalid, "the blob does not have the %d bytes that were announced", size).WithCode("blob_size")
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fault.New(fault.Invalid, "the bytes have the digest %s, not %s", got, digest).WithCode("blob_digest")
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync blob: %w", err)
	}
	return nil
}

// Open returns a blob.
func (s *Local) Open(_ context.Context, digest string) (Blob, int64, error) {
	if err := CheckDigest(digest); err != nil {
		return nil, 0, err
	}
	if digest == Empty {
		return empty{bytes.NewReader(nil)}, 0, nil
	}
	dir, name := s.place(digest)
	f, err := os.Open(filepath.Join(dir.Name(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fault.New(fault.NotFound, "no blob has the digest %s", digest)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open blob: %w", err), f.Close())
	}
	return f, info.Size(), nil
}

// place says where a blob is.
//
// Preconditions: the digest was checked.
func (s *Local) place(digest string) (dir *os.File, name string) {
	first, _ := strconv.ParseUint(digest[:2], 16, 8)
	return s.folders[first], digest[2:]
}

func syncFolder(dir *os.File) error {
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync blob folder: %w", err)
	}
	return nil
}

// reader ends a copy when its context ends.
type reader struct {
	ctx context.Context //nolint:containedctx // lives for one copy
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// empty is the blob of no bytes.
type empty struct{ *bytes.Reader }

func (empty) Close() error { return nil }
