package keeper

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Tell takes what a worker says has ended.
func (k *Keeper) Tell(ctx context.Context, worker string, req dispatch.TellRequest) error {
	if req.Execs = k.news(req.Execs); len(req.Execs)+len(req.Sandboxes) == 0 {
		return nil
	}
	for i := range req.Execs {
		if err := k.demandBlobs(ctx, &req.Execs[i]); err != nil {
			return err
		}
	}
	enough := time.NewTimer(earlyWait)
	defer enough.Stop()
	for {
		settled := k.settled.Wait() // before the try
		err := k.takeTold(ctx, worker, req)
		if !errors.Is(err, errEarly) {
			return err
		}
		select {
		case <-settled:
		case <-enough.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// earlyWait bounds how long an end waits here for its beginning.
const earlyWait = 500 * time.Millisecond

// takeTold writes down what a worker says has ended.
func (k *Keeper) takeTold(ctx context.Context, worker string, req dispatch.TellRequest) error {
	to := k.records
	if len(req.Sandboxes) > 0 {
		to = k.Store
	}
	var ended []live.Exec
	err := to.Update(ctx, func(tx store.Tx) error {
		ended = nil
		for i := range req.Execs {
			e, err := k.takeExec(ctx, tx, worker, &req.Execs[i])
			if err != nil {
				return err
			}
			if e.State == live.Done {
				ended = append(ended, e)
			}
		}
		for i := range req.Sandboxes {
			if err := k.takeEnd(ctx, tx, worker, &req.Sandboxes[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		k.recent.add(ended...)
		k.ended.Wake()
	}
	return err
}

// news are the ends that are not known to be written down.
func (k *Keeper) news(told []live.ExecEnded) []live.ExecEnded {
	return slices.DeleteFunc(told, func(end live.ExecEnded) bool {
		e, there := k.recent.get(end.ID)
		return there && e.State == live.Done && e.Sandbox == end.Sandbox
	})
}

// demandBlobs makes sure that the output that an end names is there.
func (k *Keeper) demandBlobs(ctx context.Context, e *live.ExecEnded) error {
	for digest, data := range e.Inline {
		if blob.Digest(data) != digest {
			return fault.New(fault.Invalid, "the blob that is called %s has another digest", digest).WithCode("blob_digest")
		}
	}
	for _, o := range []string{e.Result.Stdout.SHA256, e.Result.Stderr.SHA256} {
		if _, rides := e.Inline[o]; rides || o == blob.Empty {
			continue
		}
		there, err := k.Blobs.Has(ctx, o)
		if err != nil {
			return err
		}
		if !there {
			return fault.New(fault.Invalid, "the end of an exec names the blob %s, which was never put", o).WithCode("blob_missing")
		}
	}
	return nil
}

// errEarly: what has ended is just being written down as begun.
var errEarly = fault.New(fault.Unavailable, "what ended is not recorded as begun yet; say it again").WithCode("early").Retry(50 * time.Millisecond)

// takeExec writes down what a worker says of an exec, and returns the exec as it
// stands then.
func (k *Keeper) takeExec(ctx context.Context, tx store.Tx, worker string, end *live.ExecEnded) (live.Exec, error) {
	e, err := tx.Execs().Get(ctx, end.ID)
	if err == nil && e.Sandbox != end.Sandbox { // it may be a fork of that one
		e, err = forked(ctx, tx, end)
	}
	if fault.Is(err, fault.NotFound) && k.isBegun(end.ID) {
		return e, errEarly
	}
	if fault.Is(err, fault.NotFound) || err == nil && e.State == live.Done {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	s, err := tx.Sandboxes().Get(ctx, e.Sandbox)
	if err != nil || s.Worker != worker {
		if err == nil || fault.Is(err, fault.NotFound) {
			return e, nil
		}
		return e, err
	}
	err = k.endExec(ctx, tx, &e, end.Result, end.Inline)
	return e, err
}

// forked finds the exec of a fork by the id of the one that it is a fork of.
func forked(ctx context.Context, tx store.Tx, end *live.ExecEnded) (live.Exec, error) {
	open, err := tx.Execs().Open(ctx, end.Sandbox)
	for i := range open {
		if open[i].Origin == end.ID {
			return open[i], nil
		}
	}
	if err == nil {
		err = fault.New(fault.NotFound, "the sandbox %s has no fork of exec %s", end.Sandbox, end.ID)
	}
	return live.Exec{}, err
}

func (k *Keeper) takeEnd(ctx context.Context, tx store.Tx, worker string, end *live.Ended) error {
	s, err := tx.Sandboxes().Get(ctx, end.ID)
	if fault.Is(err, fault.NotFound) && k.isBegun(end.ID) {
		return errEarly
	}
	if fault.Is(err, fault.NotFound) || err == nil && (s.State.Ended() || s.Worker != worker) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.finishIn(ctx, tx, &s, end.Outcome, end.Reason, &end.Usage)
}

// Strangers are what a worker has and nobody knows.
type Strangers struct {
	Sandboxes []string
	Execs     []live.ExecID
}

// Meet compares what a worker that registers has with what it should have. It
// returns what it is to destroy and to kill.
func (k *Keeper) Meet(ctx context.Context, worker string, has []live.Standing) (strangers Strangers, err error) {
	var stand []*live.Sandbox
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		strangers, stand = Strangers{}, nil
		held, err := tx.Sandboxes().Held(ctx, worker)
		if err != nil {
			return err
		}
		known := make(map[string]*live.Sandbox, len(held))
		for i := range held {
			known[held[i].ID] = &held[i]
		}
		named := make(map[string]bool, len(has))
		for _, x := range has {
			named[x.ID] = true
			s := known[x.ID]
			if s == nil || s.State == sandbox.StateCompleting {
				if !k.isBegun(x.ID) {
					strangers.Sandboxes = append(strangers.Sandboxes, x.ID)
				}
				continue
			}
			unknown, err := k.stands(ctx, tx, s, x)
			if err != nil {
				return err
			}
			strangers.Execs = append(strangers.Execs, unknown...)
			stand = append(stand, s)
		}
		for i := range held {
			s := &held[i]
			if named[s.ID] || s.State == sandbox.StateCreating || k.isBegun(s.ID) {
				continue
			}
			if err := k.finishIn(ctx, tx, s, sandbox.OutcomeLost, "its worker was restarted and does not have it any more", nil); err != nil {
				return err
			}
		}
		return nil
	})
	k.ended.Wake()
	if err == nil {
		for _, s := range stand {
			k.follow(s) //nolint:contextcheck // following goes on in the keeper's life
		}
	}
	return strangers, err
}

// stands brings what is known of a sandbox to what its worker says of it, and
// returns the execs that run in it and that nobody wrote down: a manager was
// killed between their start and their record.
func (k *Keeper) stands(ctx context.Context, tx store.Tx, s *live.Sandbox, x live.Standing) (unknown []live.ExecID, err error) {
	running := make(map[string]bool, len(x.Execs))
	for _, id := range x.Execs {
		running[id] = true
	}
	open, err := tx.Execs().Open(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(open))
	for i := range open {
		known[open[i].ID], known[open[i].Inside()] = true, true
	}
	for _, id := range x.Execs {
		if !known[id] && !k.isBegun(id) {
			unknown = append(unknown, live.ExecID{Sandbox: s.ID, Exec: id})
		}
	}
	err = k.loseExecs(ctx, tx, s, func(id string) bool { return running[id] || k.isBegun(id) }, "its worker was restarted and does not know it any more")
	if err != nil || s.Paused == x.Paused || s.State != sandbox.StateRunning {
		return unknown, err
	}
	s.Paused = x.Paused
	s.ExpiresAt = due(s)
	return unknown, tx.Sandboxes().Put(ctx, s)
}
