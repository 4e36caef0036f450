package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/aurea-dev/aurea/internal/fault"
)

// zstdWindow bounds the memory that a frame may ask for.
const zstdWindow = 128 << 20

// The first bytes of what can be unpacked.
func isGzip(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) }
func isZstd(head []byte) bool { return bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) }

// unpacked reads gzip, zstd, or what is not packed, by its first bytes: what a
// manifest says of it need not be true.
func unpacked(r io.Reader) (io.ReadCloser, error) {
	const head = 4
	b := bufio.NewReaderSize(r, 256<<10)
	first, err := b.Peek(head)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case isGzip(first):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, hostile("unpack: %w", err)
		}
		return corrupt{z}, nil
	case isZstd(first):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, hostile("unpack: %w", err)
		}
		return corrupt{z.IOReadCloser()}, nil
	}
	return io.NopCloser(b), nil
}

// corrupt calls what an unpacker stumbles over hostile, but for the faults of
// what it reads from.
type corrupt struct{ io.ReadCloser }

func (c corrupt) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	var known *fault.Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return n, err
	}
	return n, hostile("unpack: %w", err)
}

// swollen refuses a stream that grows out of proportion to what it was packed
// in.
type swollen struct {
	r    io.Reader
	left int64
}

func (s *swollen) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left -= int64(n); s.left < 0 {
		return n, tooMuch("a layer unpacks to far more than its size")
	}
	return n, err
}

// layer lays one blob over the tree, and checks that it unpacks to what the
// configuration says.
func (s *Store) layer(ctx context.Context, t *tree, l Layer, content string, into keeper, progress Progress) error {
	f, err := s.openBlob(l.Digest)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := unpacked(patient{ctx, &told{r: f, progress: progress, step: Step{Doing: "unpack", What: l.Digest, Total: l.Size}}})
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }()
	sum := sha256.New()
	stream := io.TeeReader(&swollen{z, s.config.Bounds.Slack + l.Size*s.config.Bounds.Ratio}, sum)
	if err := t.apply(ctx, stream, into); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return fmt.Errorf("read the end of the layer: %w", err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != content {
		return fault.New(fault.Invalid, "a layer unpacks to %s, not to %s", got, content).WithCode("bad_digest")
	}
	return nil
}
