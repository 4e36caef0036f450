package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
)

const (
	// wholeBytes is how large a blob may be to be fetched and checked before it
	// is handed out.
	wholeBytes = partBytes
	// tries is how often a read that was cut goes on without a byte between.
	tries = 5
)

// Open implements blob.Store. A small blob is checked before it is handed out;
// a large one while it is read, and whoever reads it from its beginning gets an
// error in place of its last bytes when it is damaged.
func (s *Store) Open(ctx context.Context, digest string) (blob.Blob, int64, error) {
	if err := blob.CheckDigest(digest); err != nil {
		return nil, 0, err
	}
	if digest == blob.Empty {
		return held{bytes.NewReader(nil)}, 0, nil
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	o := &opened{store: s, ctx: own, cancel: cancel, digest: digest, sum: sha256.New()}
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) }) // ctx bounds this call
	defer stop()
	err := o.connect()
	if absent(err) {
		cancel(nil)
		return nil, 0, fault.New(fault.NotFound, "there is no blob %s", digest)
	}
	if err == nil && o.size > wholeBytes {
		// It is wanted for as long as it is read.
		if _, err = s.want(ctx, digest); err == nil {
			return o, o.size, nil
		}
	}
	if err == nil {
		data := make([]byte, o.size)
		if _, err = io.ReadFull(o, data); err == nil {
			return held{bytes.NewReader(data)}, o.size, o.Close()
		}
	}
	_ = o.Close()
	return nil, 0, s.wrong("open a blob", err)
}

// held is a blob in memory.
type held struct{ *bytes.Reader }

func (held) Close() error { return nil }

// opened is a blob that is read from the bucket. What is cut is asked for again
// where it was.
type opened struct {
	store  *Store
	ctx    context.Context //nolint:containedctx // io.Reader has none
	cancel context.CancelCauseFunc
	digest string
	etag   string
	size   int64

	at     int64         // where Read goes on
	body   io.ReadCloser // nil is none
	bodyAt int64

	sum    hash.Hash
	summed int64 // how many bytes, from the beginning
}

// connect asks for the bytes from at on.
func (o *opened) connect() error {
	o.disconnect()
	body, info, err := o.get(o.at, -1)
	if err != nil {
		return err
	}
	if o.etag == "" {
		o.etag, o.size = info.ETag, info.Size
	}
	o.body, o.bodyAt = body, o.at
	return nil
}

func (o *opened) disconnect() {
	if o.body != nil {
		_ = o.body.Close()
		o.body = nil
	}
}

// get asks for bytes; length -1 is to the end.
func (o *opened) get(from, length int64) (io.ReadCloser, minio.ObjectInfo, error) {
	var options minio.GetObjectOptions
	var err error
	switch {
	case length >= 0:
		err = options.SetRange(from, from+length-1)
	case from > 0:
		err = options.SetRange(from, 0)
	}
	if err == nil && o.etag != "" {
		err = options.SetMatchETag(o.etag)
	}
	if err != nil {
		return nil, minio.ObjectInfo{}, fmt.Errorf("ask for bytes: %w", err)
	}
	body, info, _, err := o.store.core.GetObject(o.ctx, o.store.bucket, o.store.prefix+blobs+o.digest, options)
	return body, info, err
}

// Read implements io.Reader.
func (o *opened) Read(p []byte) (int, error) {
	if o.at >= o.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), o.size-o.at)]
	if len(p) == 0 {
		return 0, nil
	}
	n, err := o.persist(func() (int, error) { return o.read(p) })
	if err != nil {
		return 0, o.store.wrong("read a blob", err)
	}
	if o.summed >= o.at && o.summed < o.at+int64(n) {
		o.sum.Write(p[o.summed-o.at : n])
		o.summed = o.at + int64(n)
		if o.summed == o.size && hex.EncodeToString(o.sum.Sum(nil)) != o.digest {
			o.summed = 0 // never again to its end
			return 0, fault.New(fault.Internal, "the blob %s in the bucket %s is damaged", o.digest, o.store.name).WithCode("blob_damaged")
		}
	}
	o.at += int64(n)
	return n, nil
}

// read reads at least one byte.
func (o *opened) read(p []byte) (int, error) {
	if o.body == nil || o.bodyAt != o.at {
		if err := o.connect(); err != nil {
			return 0, err
		}
	}
	n, err := o.body.Read(p)
	o.bodyAt += int64(n)
	if n > 0 {
		return n, nil
	}
	o.disconnect()
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return 0, err
}

// persist tries again what was cut, after a moment.
func (o *opened) persist(do func() (int, error)) (int, error) {
	for try := 1; ; try++ {
		n, err := do()
		if err == nil {
			return n, nil
		}
		if _, answered := errors.AsType[minio.ErrorResponse](err); answered || try == tries || o.ctx.Err() != nil {
			return 0, err // the client has tried again what was answered
		}
		timer := time.NewTimer(time.Duration(try*try) * 50 * time.Millisecond)
		select {
		case <-timer.C:
		case <-o.ctx.Done():
			timer.Stop()
			return 0, context.Cause(o.ctx)
		}
	}
}

// ReadAt implements io.ReaderAt. What it returns was not checked: only the whole
// can be.
func (o *opened) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fault.New(fault.Invalid, "read a blob: the offset is negative")
	}
	if off >= o.size {
		return 0, io.EOF
	}
	part := p[:min(int64(len(p)), o.size-off)]
	if len(part) == 0 {
		return 0, nil
	}
	n, err := o.persist(func() (int, error) {
		body, _, err := o.get(off, int64(len(part)))
		if err != nil {
			return 0, err
		}
		defer func() { _ = body.Close() }()
		return io.ReadFull(body, part)
	})
	if err != nil {
		return 0, o.store.wrong("read a blob", err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Seek implements io.Seeker. Nothing is asked for before the next Read.
func (o *opened) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.size
	}
	if offset < 0 {
		return 0, fault.New(fault.Invalid, "seek in a blob: the offset is negative")
	}
	o.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (o *opened) Close() error {
	o.disconnect()
	o.cancel(nil)
	return nil
}
