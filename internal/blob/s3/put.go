package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
)

const (
	// partBytes is how much is sent at a time; a blob that is no larger goes in
	// one request. S3 takes no smaller parts than this.
	partBytes = 5 << 20
	// maxParts is how many parts S3 takes.
	maxParts = 10_000
	// abortTime bounds how long it takes to let go of parts.
	abortTime = 20 * time.Second
)

// Put implements blob.Store. Nothing can be seen under the digest before all
// bytes were checked: a small blob is checked before it is sent, the parts of a
// large one become a blob only at the end.
func (s *Store) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	if err := blob.CheckDigest(digest); err != nil {
		return err
	}
	if digest == blob.Empty {
		return nil
	}
	if size < 0 || size > partBytes*maxParts {
		return fault.New(fault.Invalid, "a blob cannot have %d bytes", size).WithCode("blob_size")
	}
	there, err := s.want(ctx, digest)
	if err == nil && !there {
		// Who removes it now has not seen ours; what he still sends must not meet it.
		_, err = s.settle(ctx, digest)
	}
	if err == nil && !there {
		err = s.upload(ctx, &source{r: r, sum: sha256.New(), left: size}, digest, size)
	}
	return s.wrong("put a blob", err)
}

// source is what is to be stored.
type source struct {
	r    io.Reader
	sum  hash.Hash
	left int64
}

// next reads the next part into to, and checks the whole behind the last.
func (in *source) next(ctx context.Context, to []byte, digest string) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	to = to[:min(in.left, partBytes)]
	n, err := io.ReadFull(in.r, to)
	in.sum.Write(to[:n])
	in.left -= int64(n)
	if err == nil && in.left == 0 {
		var more [1]byte
		if m, _ := io.ReadFull(in.r, more[:]); m > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF: //nolint:errorlint // ReadFull's own, not those of a reader that broke
		return nil, fault.New(fault.Invalid, "the blob does not have the bytes that were announced").WithCode("blob_size")
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errInput, err)
	case in.left == 0 && hex.EncodeToString(in.sum.Sum(nil)) != digest:
		return nil, fault.New(fault.Invalid, "the bytes do not have the digest %s", digest).WithCode("blob_digest")
	}
	return to, nil
}

func (s *Store) upload(ctx context.Context, in *source, digest string, size int64) error {
	buffer := make([]byte, min(size, partBytes))
	if size > partBytes {
		return s.uploadParts(ctx, in, buffer, digest)
	}
	data, err := in.next(ctx, buffer, digest)
	if err != nil {
		return err
	}
	return s.put(ctx, blobs+digest, data, digest)
}

// put sends an object in one request. The bucket checks the digest too.
func (s *Store) put(ctx context.Context, name string, data []byte, digest string) error {
	_, err := s.core.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)), "", digest, minio.PutObjectOptions{})
	return err
}

// uploadParts sends a large blob.
func (s *Store) uploadParts(ctx context.Context, in *source, buffer []byte, digest string) (err error) {
	name := s.prefix + blobs + digest
	upload, err := s.core.NewMultipartUpload(ctx, s.bucket, name, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
		defer cancel()
		if err := s.core.AbortMultipartUpload(ctx, s.bucket, name, upload); err != nil {
			s.log.Warn("parts of a blob stay in the bucket until the next sweep", "bucket", s.name, "error", err)
		}
	}()
	var parts []minio.CompletePart
	for in.left > 0 {
		data, err := in.next(ctx, buffer, digest)
		if err != nil {
			return err
		}
		part, err := s.core.PutObjectPart(ctx, s.bucket, name, upload, len(parts)+1, bytes.NewReader(data), int64(len(data)),
			minio.PutObjectPartOptions{Sha256Hex: blob.Digest(data)})
		if err != nil {
			return err
		}
		parts = append(parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	}
	// The object's time is that at which its first part was announced, which
	// may be long ago.
	if err := s.mark(ctx, wanted+digest); err != nil {
		return err
	}
	return s.complete(ctx, digest, upload, parts)
}

// complete makes a blob of its parts. When the answer is lost and the request
// said again the bucket knows the upload no more, but has the blob.
func (s *Store) complete(ctx context.Context, digest, upload string, parts []minio.CompletePart) error {
	_, err := s.core.CompleteMultipartUpload(ctx, s.bucket, s.prefix+blobs+digest, upload, parts, minio.PutObjectOptions{})
	if err == nil {
		return nil
	}
	if _, there, lookErr := s.stat(ctx, blobs+digest); lookErr == nil && there {
		return nil
	}
	return err
}

// unique is a word that nobody else says.
func unique() string { return rand.Text() }
