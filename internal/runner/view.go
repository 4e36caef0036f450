package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Run returns a run that the caller may see; what it may not see does not exist
// for it.
func (r *Runner) Run(ctx context.Context, id string) (x run.Run, err error) {
	err = r.Store.View(ctx, func(tx store.Tx) (err error) {
		x, err = visible(ctx, tx, id)
		return err
	})
	return x, err
}

func visible(ctx context.Context, tx store.Tx, id string) (run.Run, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return run.Run{}, err
	}
	x, err := tx.Runs().Get(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && !c.Sees(x.Owner, x.Project) {
		return run.Run{}, fault.New(fault.NotFound, "No run has the id %q.", id)
	}
	return x, err
}

// several returns runs by id, as far as they are still kept.
func (r *Runner) several(ctx context.Context, ids []string) (list []run.Run, err error) {
	err = r.Store.View(ctx, func(tx store.Tx) error {
		list = nil
		for _, id := range ids {
			x, err := visible(ctx, tx, id)
			if fault.Is(err, fault.NotFound) {
				x, err = run.Run{ID: id, State: run.Failed, Reason: "it was forgotten, as the retention says"}, nil
			}
			if err != nil {
				return err
			}
			list = append(list, x)
		}
		return nil
	})
	return list, err
}

// Runs lists runs that the caller may see, newest first.
func (r *Runner) Runs(ctx context.Context, f store.RunFilter) (list []run.Run, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	f.Owner = cmp.Or(c.OnlyOwner(), f.Owner)
	if f.Project, err = c.Place(f.Project); err != nil {
		return nil, err
	}
	err = r.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Runs().List(ctx, f)
		return err
	})
	return list, err
}

// Wait returns a run when it has ended, or as it stands when ctx does, with the
// cause.
func (r *Runner) Wait(ctx context.Context, id string) (run.Run, error) {
	watch, unwatch := context.WithCancelCause(ctx)
	defer unwatch(nil)
	var changed <-chan struct{}
	for {
		done := r.doneOf(id)
		if done == nil && changed == nil { // another manager's
			changed = r.Store.Watch(watch)
		}
		x, err := r.Run(context.WithoutCancel(ctx), id)
		if err != nil || x.State.Ended() {
			return x, err
		}
		select {
		case <-done:
		case _, more := <-changed:
			if !more && ctx.Err() == nil {
				return x, fault.New(fault.Unavailable, "The manager is stopping; ask again soon.").WithCode("stopping")
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return x, context.Cause(ctx)
		}
	}
}

// doneOf returns what is closed when a run that is here has ended.
func (r *Runner) doneOf(id string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil {
		return e.done
	}
	return nil
}

// CancelRun stops a run. One that waits ends at once; one that is at a worker
// when that has been told.
func (r *Runner) CancelRun(ctx context.Context, id, reason string) (run.Run, error) {
	if reason == "" {
		reason = "cancelled on request"
	}
	var x run.Run
	err := r.Store.Update(ctx, func(tx store.Tx) (err error) {
		if x, err = visible(ctx, tx, id); err != nil {
			return err
		}
		if x.State.Ended() {
			return fault.New(fault.Conflict, "run %s is %s and cannot be cancelled", id, x.State).WithCode("wrong_state")
		}
		err = store.Acted(ctx, tx, store.Act{Source: "runner", Action: "run.cancel", Target: id, Reason: reason, Before: map[string]any{"state": x.State}})
		if err != nil {
			return err
		}
		x.Reason = reason
		if x.State == run.Running {
			if err := tx.Runs().Put(ctx, &x, nil); err != nil {
				return err
			}
			return tx.Events().Append(ctx, happened(&x, event.RunCancelling, r.Now(), map[string]any{"reason": reason}))
		}
		if err := x.To(run.Cancelled); err != nil {
			return err
		}
		x.EndedAt = r.Now()
		x.Fence++
		return putEnd(ctx, tx, &x, nil)
	})
	if err != nil {
		return x, err
	}
	if x.State.Ended() {
		r.tellEnd(&x, x.EndedAt.Sub(x.CreatedAt))
	}
	done := r.Halt(id) //nolint:contextcheck // the end is told in the runner's life
	if done == nil || x.State.Ended() {
		return x, nil
	}
	bounded, cancel := context.WithTimeoutCause(ctx, cleanupTime, errOverdue)
	defer cancel()
	select {
	case <-done:
	case <-bounded.Done():
	}
	return r.Run(ctx, id)
}

// Halt stops a run that is here, since it was cancelled. It returns what is
// closed when it has ended; nil where it is not here.
func (r *Runner) Halt(id string) <-chan struct{} {
	r.mu.Lock()
	e := r.entries[id]
	if e == nil || r.stop == nil {
		r.mu.Unlock()
		return nil
	}
	e.halted = true
	waiting := !e.sync && r.line.leave(e.ticket)
	if e.cancel != nil {
		e.cancel(errCancelled)
	}
	lost := waiting && e.ticket.worker != ""
	life := r.life
	r.mu.Unlock()
	switch {
	case lost: // it runs somewhere, for all that we know; that ends with its worker
		r.tasks.Go(func() { r.back(life, e, true) })
	case waiting:
		r.drop(id, e)
	}
	return e.done
}

// maxPiece bounds one piece of output.
const maxPiece = 256 << 10

// RunOutput returns output of a run's newest try from an offset on.
func (r *Runner) RunOutput(ctx context.Context, id string, s sandbox.Stream, offset int64) (run.Piece, error) {
	if offset < 0 {
		return run.Piece{}, fault.Field("offset", "must not be negative")
	}
	live := r.live(id) // before the look: what ends meanwhile is still held by it
	x, err := r.Run(ctx, id)
	if err != nil {
		return run.Piece{}, err
	}
	p := run.Piece{Attempt: x.Attempt, Next: offset, Ended: x.State.Ended()}
	switch {
	case p.Ended:
		p.Data, err = r.storedOutput(ctx, &x, s, offset)
	case live != nil:
		p.Attempt, p.Data = live.attempt, live.read(s, offset, maxPiece)
	case r.Outputs != nil && !x.Sync:
		p.Data, err = r.Outputs.Read(ctx, id, int64(x.Attempt), int(s), offset, maxPiece)
	}
	p.Next += int64(len(p.Data))
	if len(p.Data) == maxPiece {
		p.Ended = false // there may be more to read
	}
	return p, err
}

func (r *Runner) live(id string) *output {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil {
		return e.out
	}
	return nil
}

func (r *Runner) storedOutput(ctx context.Context, x *run.Run, s sandbox.Stream, offset int64) ([]byte, error) {
	if x.Result == nil {
		return nil, nil
	}
	digest := x.Result.Stdout.SHA256
	if s == sandbox.Stderr {
		digest = x.Result.Stderr.SHA256
	}
	return r.bytes(ctx, x.ID, digest, offset, maxPiece)
}

// bytes reads bytes that a run left.
func (r *Runner) bytes(ctx context.Context, id, digest string, offset int64, limit int) ([]byte, error) {
	b, size, err := r.open(ctx, id, digest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }()
	p := make([]byte, max(min(int64(limit), size-offset), 0))
	if len(p) == 0 {
		return nil, nil
	}
	n, err := b.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return p[:n], nil
}

// open opens bytes that a run left, and says how many they are: the small ones
// lie with it.
func (r *Runner) open(ctx context.Context, id, digest string) (blob.Blob, int64, error) {
	if digest == blob.Empty || digest == "" {
		return held{bytes.NewReader(nil)}, 0, nil
	}
	var small []byte
	var there bool
	err := r.Store.View(ctx, func(tx store.Tx) (err error) {
		small, there, err = tx.Runs().Blob(ctx, id, digest)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if there {
		return held{bytes.NewReader(small)}, int64(len(small)), nil
	}
	b, size, err := r.Blobs.Open(ctx, digest)
	if fault.Is(err, fault.NotFound) {
		return nil, 0, fault.New(fault.Gone, "the bytes of run %s were removed, as the retention says; its record stays", id).WithCode("expired")
	}
	return b, size, err
}

// held is an open blob whose bytes are in memory.
type held struct{ *bytes.Reader }

func (held) Close() error { return nil }

// OpenRunArtifact opens a file that a run left. The name is looked up among
// those that it left, and is never a path of ours.
func (r *Runner) OpenRunArtifact(ctx context.Context, id, name string) (io.ReadSeekCloser, run.Artifact, error) {
	x, err := r.Run(ctx, id)
	if err != nil {
		return nil, run.Artifact{}, err
	}
	if x.Result != nil {
		if about, left := x.Result.Artifacts[name]; left {
			b, _, err := r.open(ctx, id, about.SHA256)
			return b, about, err
		}
	}
	return nil, run.Artifact{}, fault.New(fault.NotFound, "Run %s left no artifact named %q.", id, name)
}

// maxWhole bounds what an answer holds of one stream or artifact.
const maxWhole = 64 << 20

// RunAnswer returns a run with the bytes that it left. Bytes that the retention
// removed are left out.
func (r *Runner) RunAnswer(ctx context.Context, id string) (run.Answer, error) {
	x, err := r.Run(ctx, id)
	if err != nil || x.Result == nil {
		return run.Answer{Run: x}, err
	}
	a := run.Answer{Run: x, Artifacts: map[string][]byte{}, Stages: x.Result.Stages}
	whole := func(digest string) []byte {
		data, readErr := r.bytes(ctx, id, digest, 0, maxWhole)
		if readErr != nil && !fault.Is(readErr, fault.Gone) {
			err = readErr
		}
		return data
	}
	a.Stdout, a.Stderr = whole(x.Result.Stdout.SHA256), whole(x.Result.Stderr.SHA256)
	for name, art := range x.Result.Artifacts {
		a.Artifacts[name] = whole(art.SHA256)
	}
	if err != nil {
		return run.Answer{}, err
	}
	record, err := r.RunRecord(ctx, id)
	a.Evidence = blob.Digest(record)
	return a, err
}

// RunRecord returns the record of an ended run as it was written.
func (r *Runner) RunRecord(ctx context.Context, id string) (record []byte, err error) {
	err = r.Store.View(ctx, func(tx store.Tx) error {
		if _, err := visible(ctx, tx, id); err != nil {
			return err
		}
		if record, err = tx.Runs().Record(ctx, id); fault.Is(err, fault.NotFound) {
			err = fault.New(fault.NotFound, "There is no record of run %s before it has ended.", id)
		}
		return err
	})
	return record, err
}

// poolTime bounds the answer of one worker.
const poolTime = 2 * time.Second

// poolFor is how long an answer serves those who ask again: anybody may ask.
const poolFor = time.Second

// Pool says what waits at the workers that are connected here. One that does
// not answer is left out.
func (r *Runner) Pool(ctx context.Context) []run.Pool {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	if r.pool.asked.IsZero() || time.Since(r.pool.asked) > poolFor {
		r.pool.held = r.askPools(context.WithoutCancel(ctx))
		r.pool.asked = time.Now()
	}
	return r.pool.held
}

func (r *Runner) askPools(ctx context.Context) []run.Pool {
	workers := r.Workers()
	answers := make([]*run.Pool, len(workers))
	var asked sync.WaitGroup
	for i, w := range workers {
		asked.Go(func() {
			bounded, cancel := context.WithTimeoutCause(ctx, poolTime, errOverdue)
			defer cancel()
			if state, err := w.Runner.Pool(bounded); err == nil {
				answers[i] = &run.Pool{Worker: w.ID}
				for _, c := range state.Classes {
					answers[i].Classes = append(answers[i].Classes, run.PoolClass(c))
				}
			}
		})
	}
	asked.Wait()
	var list []run.Pool
	for _, a := range answers {
		if a != nil {
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(a, b run.Pool) int { return cmp.Compare(a.Worker, b.Worker) })
	return list
}
