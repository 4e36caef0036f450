package attacktest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// TestHostileUploads puts archives into sandboxes that grow without end, and
// looks at the host and at a neighbour afterwards.
func TestHostileUploads(t *testing.T) {
	if raced {
		t.Skip("sandboxes are other processes; this is run without the race detector")
	}
	for _, f := range factories() {
		t.Run(f.name, func(t *testing.T) {
			s := openStand(t, f)
			for name, upload := range uploads() {
				t.Run(name, func(t *testing.T) { s.upload(t, upload) })
			}
		})
	}
}

// upload is an archive, and what comes of it.
type upload struct {
	write func(io.Writer) error
	limit sandbox.Limits
	taken bool   // it is put in as a whole
	then  string // a script that succeeds afterwards
}

func uploads() map[string]upload {
	return map[string]upload{
		"a member without end":    {write: endless, then: "test ! -e /workspace/big"},
		"members without end":     {write: members, limit: sandbox.Limits{Memory: 96 << 20}},
		"a bomb that is no tar":   {write: squeezed, then: `test -z "$(ls /workspace)"`},
		"twins, and one of twice": {write: twins, taken: true, then: `cd /workspace && test "$(cat a A)" = "secondother"`},
	}
}

// endless is a file of a terabyte, of which eight gigabytes come.
func endless(w io.Writer) error {
	t := tar.NewWriter(w)
	if err := t.WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: 1 << 40}); err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for range 8 << 10 {
		if _, err := t.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// members is as many empty files as fit, and more.
func members(w io.Writer) error {
	t := tar.NewWriter(w)
	for i := range 300_000 {
		if err := t.WriteHeader(&tar.Header{Name: fmt.Sprintf("%0200d", i), Mode: 0o644}); err != nil {
			return err
		}
	}
	return t.Close()
}

func squeezed(w io.Writer) error {
	z := gzip.NewWriter(w)
	chunk := make([]byte, 1<<20)
	for range 256 {
		if _, err := z.Write(chunk); err != nil {
			return err
		}
	}
	return z.Close()
}

func twins(w io.Writer) error {
	t := tar.NewWriter(w)
	for _, f := range [][2]string{{"a", "first"}, {"A", "other"}, {"a", "second"}} {
		if err := t.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
			return err
		}
		if _, err := io.Copy(t, bytes.NewReader([]byte(f[1]))); err != nil {
			return err
		}
	}
	return t.Close()
}

func (s *stand) upload(t *testing.T, u upload) {
	before := look(t, s.state, s.bait, s.neighbour.ID())
	box := s.open(t, s.limits(u.limit))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*patience, errors.New("the upload did not end"))
	defer cancel()
	from, to := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		to.CloseWithError(u.write(to))
	}()
	err := box.Put(ctx, "/workspace", from)
	_ = from.CloseWithError(io.ErrClosedPipe)
	<-written
	t.Logf("put: %v", err)
	if ctx.Err() != nil || (err == nil) != u.taken {
		t.Errorf("put: %v, %v", err, context.Cause(ctx))
	}
	// Files cost memory: a sandbox may have ended of too many.
	if gone(box) {
		if u.then != "" {
			t.Errorf("its sandbox went with it: %+v", box.Status())
		}
	} else if u.then != "" {
		s.answers(t, box, "afterwards", u.then)
	}
	if err := box.Close(context.Background()); err != nil {
		t.Errorf("destroy: %v", err)
	}
	s.settled(t, before)
	s.answers(t, s.neighbour, "neighbour", "test -f /workspace/mine")
}
