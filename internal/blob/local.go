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
	"strconv"
	"sync/atomic"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Local keeps blobs as files in a folder of its own.
type Local struct {
	root *os.Root
	next atomic.Uint64
}

var _ Store = (*Local)(nil)

// OpenLocal opens the store in folder, makes it if need be, and removes what a
// crash left half written.
func OpenLocal(folder string) (*Local, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make blob folder: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}
	s := &Local{root: root}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// prepare empties the folder of half-written files and makes the 256 folders
// that blobs are spread over, so that Put never has to sync a new folder.
func (s *Local) prepare() error {
	if err := s.root.RemoveAll(writing); err != nil {
		return fmt.Errorf("remove half-written blobs: %w", err)
	}
	if err := s.root.Mkdir(writing, 0o700); err != nil {
		return fmt.Errorf("make blob folder: %w", err)
	}
	for i := range 256 {
		err := s.root.Mkdir(hex.EncodeToString([]byte{byte(i)}), 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make blob folder: %w", err)
		}
	}
	return syncFolder(s.root, ".")
}

// writing holds blobs that are not whole yet. No digest has this length.
const writing = "writing"

// Close releases the folder.
func (s *Local) Close() error { return s.root.Close() }

// Has reports whether the blob is there.
func (s *Local) Has(_ context.Context, digest string) (bool, error) {
	if err := CheckDigest(digest); err != nil {
		return false, err
	}
	if digest == Empty {
		return true, nil
	}
	_, err := s.root.Lstat(name(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Put stores a blob: aside, checked, synced, renamed, and the folder synced.
func (s *Local) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	if there, err := s.Has(ctx, digest); err != nil || there {
		return err
	}
	aside := writing + "/" + strconv.FormatUint(s.next.Add(1), 10)
	if err := s.write(ctx, aside, digest, size, r); err != nil {
		_ = s.root.Remove(aside) // it may not exist; prepare removes what is left
		return err
	}
	if err := s.root.Rename(aside, name(digest)); err != nil {
		return fmt.Errorf("name blob: %w", err)
	}
	return syncFolder(s.root, digest[:2])
}

func (s *Local) write(ctx context.Context, aside, digest string, size int64, r io.Reader) error {
	f, err := s.root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return fmt.Errorf("write blob: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(reader{ctx, r}, size+1))
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
	f, err := s.root.Open(name(digest))
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

// name spreads blobs over folders by their first byte.
func name(digest string) string { return digest[:2] + "/" + digest[2:] }

func syncFolder(root *os.Root, folder string) error {
	d, err := root.Open(folder)
	if err != nil {
		return fmt.Errorf("sync blob folder: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
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
