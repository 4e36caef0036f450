package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// output holds what came of both streams of one try. Its readers may read
// while it grows.
type output struct {
	most    int64 // bytes of each stream
	attempt int   // whose output it is

	mu             sync.Mutex
	stdout, stderr []byte
}

// take adds a piece. What came before is left out; a gap, or more than was
// agreed, is the worker's fault.
func (o *output) take(c dispatch.Chunk) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := o.of(c.Stream)
	if to == nil || c.Offset < 0 {
		return fault.New(fault.Invalid, "a piece of output belongs to no stream")
	}
	have := int64(len(*to))
	if c.Offset > have || c.Offset+int64(len(c.Data)) > o.most {
		return fault.New(fault.Invalid, "a piece of output at %d does not follow %d", c.Offset, have)
	}
	if skip := have - c.Offset; skip < int64(len(c.Data)) {
		*to = append(*to, c.Data[skip:]...)
	}
	return nil
}

func (o *output) of(s sandbox.Stream) *[]byte {
	switch s {
	case sandbox.Stdout:
		return &o.stdout
	case sandbox.Stderr:
		return &o.stderr
	}
	return nil
}

// read returns a copy of what there is from an offset on.
func (o *output) read(s sandbox.Stream, offset int64, limit int) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := *o.of(s)
	if offset >= int64(len(all)) {
		return nil
	}
	rest := all[offset:]
	return bytes.Clone(rest[:min(len(rest), limit)])
}

// Small blobs lie in the row of their run, so that nearly every run needs no
// file; these bound one of them, and all of a run together.
const (
	maxSmall    = dispatch.MaxInline
	maxSmallAll = 256 << 10
)

// bytesOf is what a run left, by digest.
type bytesOf struct {
	small map[string][]byte
	large map[string][]byte
	sum   int
}

// keep takes bytes and returns their digest.
func (b *bytesOf) keep(data []byte) string {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	if _, there := b.small[digest]; there || len(data) == 0 {
		return digest
	}
	if len(data) <= maxSmall && b.sum+len(data) <= maxSmallAll {
		b.sum += len(data)
		b.small[digest] = data
	} else {
		b.large[digest] = data
	}
	return digest
}

// settle replaces what a worker says of the bytes by what came: digests and
// sizes in the record are always those of bytes that are kept. The bytes of
// the artifacts leave the result, so it is done once. No result, no bytes.
func settle(res *run.Result, out *output) *bytesOf {
	b := &bytesOf{small: map[string][]byte{}, large: map[string][]byte{}}
	if res == nil {
		return b
	}
	for _, s := range []struct {
		to   *run.Output
		data []byte
	}{{&res.Stdout, out.stdout}, {&res.Stderr, out.stderr}} {
		kept := int64(len(s.data))
		s.to.Kept, s.to.Seen, s.to.SHA256 = kept, max(s.to.Seen, kept), b.keep(s.data)
		s.to.Truncated = s.to.Truncated || s.to.Seen > kept
	}
	artifacts := make(map[string]run.Artifact, len(res.Artifacts))
	for name, a := range res.Artifacts {
		if err := job.CheckPath("artifacts", name); err != nil {
			res.Skipped = append(res.Skipped, "an artifact with a name that is no path")
			continue
		}
		artifacts[name] = run.Artifact{SHA256: b.keep(a.Data), Bytes: int64(len(a.Data))}
	}
	res.Artifacts = artifacts
	return b
}

// store puts the large ones where they last.
func (r *Runner) store(ctx context.Context, b *bytesOf) error {
	for digest, data := range b.large {
		if err := r.Blobs.Put(ctx, digest, int64(len(data)), bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return nil
}
