package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/fault"
)

func (s *Store) blobPath(digest string) (string, error) {
	if !isDigest(digest) {
		return "", hostile("%q is not a digest that is known", digest)
	}
	return filepath.Join(s.config.Dir, "blobs", "sha256", hexOf(digest)), nil
}

// hasBlob reports whether a blob is there, in its size.
func (s *Store) hasBlob(digest string, size int64) (bool, error) {
	path, err := s.blobPath(digest)
	if err != nil {
		return false, err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a blob: %w", err)
	}
	return info.Size() == size, nil
}

// putBlob keeps the bytes of r under their digest. With want, bytes of another
// digest are refused. No more than most are read.
func (s *Store) putBlob(ctx context.Context, r io.Reader, want string, most int64) (digest string, size int64, err error) {
	f, err := s.aside()
	if err != nil {
		return "", 0, err
	}
	defer f.drop()
	sum := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(patient{ctx, r}, most+1))
	if err != nil {
		return "", 0, fmt.Errorf("write a blob: %w", err)
	}
	if size > most {
		return "", 0, tooMuch("a blob has more than %d bytes", most)
	}
	digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	if want != "" && digest != want {
		return "", 0, fault.New(fault.Invalid, "the bytes have the digest %s, not %s", digest, want).WithCode("bad_digest")
	}
	path, err := s.blobPath(digest)
	if err != nil {
		return "", 0, err
	}
	return digest, size, f.keep(path, 0o400)
}

// readBlob returns a small blob, checked.
func (s *Store) readBlob(digest string) ([]byte, error) {
	f, err := s.openBlob(digest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	body, err := io.ReadAll(io.LimitReader(f, s.config.Bounds.Document+1))
	if err != nil {
		return nil, fmt.Errorf("read a blob: %w", err)
	}
	if sum := sha256.Sum256(body); "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return nil, fault.New(fault.Internal, "the blob %s is damaged; remove the image and pull it again", digest)
	}
	return body, nil
}

func (s *Store) openBlob(digest string) (*os.File, error) {
	path, err := s.blobPath(digest)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "the store has no blob %s; pull or import the image again", digest)
	}
	if err != nil {
		return nil, fmt.Errorf("open a blob: %w", err)
	}
	return f, nil
}

// patient is a reader that ends with a context.
type patient struct {
	ctx context.Context //nolint:containedctx // it bounds one copy
	r   io.Reader
}

func (p patient) Read(b []byte) (int, error) {
	if err := context.Cause(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// told is a reader that tells how far it has come, every so often.
type told struct {
	r        io.Reader
	progress Progress
	step     Step
	last     int64
}

func (t *told) Read(b []byte) (int, error) {
	const often = 1 << 20
	n, err := t.r.Read(b)
	t.step.Done += int64(n)
	if t.step.Done-t.last >= often || err != nil {
		t.last = t.step.Done
		t.progress.tell(t.step)
	}
	return n, err
}
