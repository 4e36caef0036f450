package keeper

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// FollowExec hands the output of an exec to piece from offsets on, until all of
// it was handed over or ctx ends. It goes on through restarts of the worker.
// only chooses a stream; 0 is both.
func (k *Keeper) FollowExec(ctx context.Context, id string, from sandbox.Offsets, only sandbox.Stream, piece func(live.Piece) error) error {
	take := func(c dispatch.Chunk) error {
		at := &from.Stdout
		if c.Stream == sandbox.Stderr {
			at = &from.Stderr
		}
		if skip := *at - c.Offset; skip > 0 {
			if skip >= int64(len(c.Data)) {
				return nil
			}
			c.Offset, c.Data = *at, c.Data[skip:]
		}
		*at = c.Offset + int64(len(c.Data))
		if only != 0 && c.Stream != only {
			return nil
		}
		if err := piece(live.Piece{Stream: c.Stream, Offset: c.Offset, Data: c.Data}); err != nil {
			return &refused{err}
		}
		return nil
	}
	for {
		moved := k.ended.Wait() // before the look
		e, err := k.Exec(ctx, id)
		if err != nil {
			return err
		}
		if e.State == live.Done {
			return unwrap(k.stored(ctx, &e, from, only, take))
		}
		err = k.followLive(ctx, &e, from, take)
		if r := (*refused)(nil); asRefused(err, &r) {
			return r.err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case <-moved:
		case <-time.After(rhythm / 4): // the worker is away for a moment, or its word is under way
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// followLive follows an exec at its worker.
func (k *Keeper) followLive(ctx context.Context, e *live.Exec, from sandbox.Offsets, take func(dispatch.Chunk) error) error {
	s, err := k.Sandbox(ctx, e.Sandbox)
	if err != nil {
		return err
	}
	host, err := k.host(ctx, &s)
	if err != nil {
		return err
	}
	k.touch(s.ID, true)
	return host.FollowExec(ctx, live.Follow{Sandbox: e.Sandbox, Exec: e.Inside(), From: from}, take)
}

// refused is an error of the reader, not of what it reads.
type refused struct{ err error }

func (r *refused) Error() string { return r.err.Error() }
func (r *refused) Unwrap() error { return r.err }

func asRefused(err error, into **refused) bool {
	for err != nil {
		if r, ok := err.(*refused); ok { //nolint:errorlint // the chain is walked here
			*into = r
			return true
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		err = u.Unwrap()
	}
	return false
}

func unwrap(err error) error {
	if r := (*refused)(nil); asRefused(err, &r) {
		return r.err
	}
	return err
}

// stored hands over output that lies in blobs.
func (k *Keeper) stored(ctx context.Context, e *live.Exec, from sandbox.Offsets, only sandbox.Stream, take func(dispatch.Chunk) error) error {
	for _, x := range []struct {
		stream sandbox.Stream
		out    run.Output
		at     int64
	}{{sandbox.Stdout, e.Result.Stdout, from.Stdout}, {sandbox.Stderr, e.Result.Stderr, from.Stderr}} {
		if only != 0 && x.stream != only || x.at >= x.out.Kept {
			continue
		}
		r, err := k.openOutput(ctx, e, x.out)
		if err != nil {
			return err
		}
		err = copyFrom(r, x.at, x.stream, take)
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFrom(r io.ReadSeekCloser, at int64, stream sandbox.Stream, take func(dispatch.Chunk) error) error {
	if _, err := r.Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	buf := make([]byte, dispatch.MaxChunk)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := take(dispatch.Chunk{Stream: stream, Offset: at, Data: buf[:n]}); err != nil {
				return err
			}
			at += int64(n)
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF: //nolint:errorlint // as io.ReadFull returns them
			return nil
		case err != nil:
			return fmt.Errorf("read output: %w", err)
		}
	}
}

// openOutput opens one stream of an exec that has ended.
func (k *Keeper) openOutput(ctx context.Context, e *live.Exec, o run.Output) (io.ReadSeekCloser, error) {
	if o.SHA256 == blob.Empty || o.SHA256 == "" {
		return nopSeeker{bytes.NewReader(nil)}, nil
	}
	var small []byte
	var there bool
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		small, there, err = tx.Execs().Blob(ctx, e.ID, o.SHA256)
		return err
	})
	if err != nil {
		return nil, err
	}
	if there {
		return nopSeeker{bytes.NewReader(small)}, nil
	}
	b, _, err := k.Blobs.Open(ctx, o.SHA256)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.Gone, "the output of exec %s was removed, as the retention says; its record stays", e.ID).WithCode("expired")
	}
	return b, err
}

type nopSeeker struct{ *bytes.Reader }

func (nopSeeker) Close() error { return nil }

// ExecOutput returns what is kept of an ended exec's stream, at most so many
// bytes of it.
func (k *Keeper) ExecOutput(ctx context.Context, e *live.Exec, s sandbox.Stream, limit int64) ([]byte, error) {
	if e.Result == nil {
		return nil, nil
	}
	o := e.Result.Stdout
	if s == sandbox.Stderr {
		o = e.Result.Stderr
	}
	r, err := k.openOutput(ctx, e, o)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(r, limit))
}
