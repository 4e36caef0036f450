package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// errGivenUp is told to who wants to finish what was given up meanwhile.
var errGivenUp = fault.New(fault.Unavailable, "another manager took this for lost and undid it; ask again").WithCode("undone").Retry(time.Second)

// undertake writes down what is about to be done, with the record of the act, so
// that it is undone should this manager die over it. done is called when it was
// answered or taken back.
func (k *Keeper) undertake(ctx context.Context, u *live.Unfinished, act *store.Act) (done func(), err error) {
	u.Manager, u.SeenAt = k.ID, k.now()
	done = k.begin(undertaking(u.ID))
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		if act != nil {
			act.Source = "keeper"
			if err := store.Acted(ctx, tx, *act); err != nil {
				return err
			}
		}
		return tx.Sandboxes().PutUnfinished(ctx, u)
	})
	if err != nil {
		done()
	}
	return done, err
}

// undertaking is what unfinished work is called among what is begun.
func undertaking(id string) string { return "unfinished " + id }

// answerIn writes down that what was made is somebody's: only left is still to
// be undone.
func (k *Keeper) answerIn(ctx context.Context, tx store.Tx, left *live.Unfinished) error {
	u, err := tx.Sandboxes().GetUnfinished(ctx, left.ID)
	switch {
	case fault.Is(err, fault.NotFound) || err == nil && u.GivenUp:
		return errGivenUp
	case err != nil:
		return err
	case left.Snapshot != "" || len(left.Sandboxes) > 0:
		return tx.Sandboxes().PutUnfinished(ctx, left)
	}
	return tx.Sandboxes().DropUnfinished(ctx, left.ID)
}

// takeBack undoes what could not be finished, as far as that goes now; the rest
// is tried again.
func (k *Keeper) takeBack(ctx context.Context, u live.Unfinished, outcome sandbox.Outcome, why string) {
	if err := k.undo(context.WithoutCancel(ctx), u, true, outcome, why); err != nil {
		k.Logger.Warn("could not undo all of what was not finished; it is tried again", "what", u.What, "sandbox", u.Sandbox, "error", err)
	}
}

// undo ends the sandboxes and removes the snapshot of unfinished work, and
// forgets it then. Who undoes its own knows that nobody was told of its forks,
// also where they are crossed out: the database may have done it and could not
// say so.
func (k *Keeper) undo(ctx context.Context, u live.Unfinished, own bool, outcome sandbox.Outcome, why string) error {
	if !u.GivenUp {
		err := k.Store.Update(ctx, func(tx store.Tx) error {
			written, err := tx.Sandboxes().GetUnfinished(ctx, u.ID)
			if fault.Is(err, fault.NotFound) && own && u.What == live.Forking {
				written, err = u, nil
			}
			if err != nil {
				return err
			}
			u, u.GivenUp = written, true
			return tx.Sandboxes().PutUnfinished(ctx, &u)
		})
		if fault.Is(err, fault.NotFound) {
			return nil // it was finished
		}
		if err != nil {
			return err
		}
	}
	var failed error
	for _, id := range u.Sandboxes {
		failed = errors.Join(failed, k.endMade(ctx, id, outcome, why))
	}
	if failed == nil && u.Snapshot != "" {
		failed = k.dropUnkept(ctx, &u)
	}
	if failed != nil {
		return failed
	}
	return k.Store.Update(ctx, func(tx store.Tx) error { return tx.Sandboxes().DropUnfinished(ctx, u.ID) })
}

// endMade ends a sandbox, if it was made. Its worker is asked in any case: one
// that was just being made has nobody else who would tell it, and what stands in
// the database may be all that was ended.
func (k *Keeper) endMade(ctx context.Context, id string, outcome sandbox.Outcome, why string) error {
	var s live.Sandbox
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		s, err = tx.Sandboxes().Get(ctx, id)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !s.State.Ended() {
		if _, err := k.end(ctx, id, outcome, why); err != nil {
			return err
		}
	}
	if s.Worker == "" || k.forgotten(ctx, s.Worker) {
		return nil
	}
	host, err := k.host(ctx, &s)
	if err != nil {
		return err
	}
	bounded, stop := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
	defer stop()
	return host.EndSandbox(bounded, unwanted(id))
}

// endAt ends what nobody waits for at a worker, where that is here.
func (k *Keeper) endAt(ctx context.Context, worker, id string) {
	for _, w := range k.Workers() {
		if w.ID == worker {
			k.endUnwanted(ctx, id, w)
		}
	}
}

// dropUnkept removes a snapshot that nobody knows of. With a worker that is
// known no more it is gone.
func (k *Keeper) dropUnkept(ctx context.Context, u *live.Unfinished) error {
	if k.forgotten(ctx, u.Worker) {
		return nil
	}
	host, err := k.host(ctx, &live.Sandbox{ID: u.Sandbox, Worker: u.Worker})
	if err != nil {
		return err
	}
	bounded, stop := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
	defer stop()
	return host.DropSnapshot(bounded, u.Snapshot)
}

// undoUnfinished undoes what nobody goes on with, because its manager was killed.
func (k *Keeper) undoUnfinished(ctx context.Context) (failed error) {
	k.unfinished.look(k.Now())
	for after := ""; ; {
		var page []live.Unfinished
		err := k.Store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.Sandboxes().Unfinished(ctx, after, maxPage)
			return err
		})
		if err != nil {
			return errors.Join(failed, err)
		}
		for i := range page {
			failed = errors.Join(failed, k.lookAfter(ctx, page[i]))
		}
		if len(page) < maxPage {
			return failed
		}
		after = page[len(page)-1].ID
	}
}

// lookAfter says of unfinished work that it goes on here, or undoes it where
// nobody goes on with it.
func (k *Keeper) lookAfter(ctx context.Context, u live.Unfinished) error {
	_, unchanged := k.unfinished.see(u.ID, u.SeenAt)
	if k.isBegun(undertaking(u.ID)) {
		return k.stillGoing(ctx, u, unchanged)
	}
	if !k.abandoned(ctx, &u, unchanged) {
		return nil
	}
	done, alone := k.beginAlone(undertaking(u.ID))
	if !alone {
		return nil
	}
	k.tasks.Go(func() {
		defer done()
		system := policy.With(ctx, policy.System())
		err := k.undo(system, u, false, sandbox.OutcomeReaped, "nobody was told of it: the manager stopped in the middle of a "+string(u.What))
		if err != nil && ctx.Err() == nil && !fault.Is(err, fault.Unavailable) {
			k.Logger.Error("could not undo what was not finished; it is tried again", "what", u.What, "sandbox", u.Sandbox, "error", err)
		}
	})
	return nil
}

// stillGoing writes down that unfinished work goes on here, for other managers:
// they look whether what is written changes, and not at the time that it names.
func (k *Keeper) stillGoing(ctx context.Context, u live.Unfinished, unchanged time.Duration) error {
	const often = heardWithin / 4
	if k.Alone || u.GivenUp || unchanged < often && k.now().Sub(u.SeenAt).Abs() < often { // it is this manager's own time
		return nil
	}
	return k.Store.Update(ctx, func(tx store.Tx) error {
		u, err := tx.Sandboxes().GetUnfinished(ctx, u.ID)
		if fault.Is(err, fault.NotFound) || err == nil && u.GivenUp {
			return nil
		}
		if err != nil {
			return err
		}
		if now := k.now(); !now.Equal(u.SeenAt) {
			u.SeenAt = now
		} else {
			u.SeenAt = now.Add(time.Microsecond)
		}
		return tx.Sandboxes().PutUnfinished(ctx, &u)
	})
}

// abandoned reports whether unfinished work is this manager's to undo now: it is
// of its own earlier life, or of another manager that was not heard of, and
// whose worker is here by now. What was given up waits for the worker alone.
func (k *Keeper) abandoned(ctx context.Context, u *live.Unfinished, unchanged time.Duration) bool {
	if u.GivenUp {
		_, err := k.host(ctx, &live.Sandbox{ID: u.Sandbox, Worker: u.Worker})
		return err == nil || fault.CodeOf(err) != CodeElsewhere && k.forgotten(ctx, u.Worker)
	}
	return u.Manager == k.ID || k.here(u.Worker) && unchanged > heardWithin
}

// forgotten reports whether a worker is known no more.
func (k *Keeper) forgotten(ctx context.Context, worker string) bool {
	err := k.Store.View(ctx, func(tx store.Tx) error {
		_, err := tx.Workers().Get(ctx, worker)
		return err
	})
	return fault.Is(err, fault.NotFound) && !k.here(worker)
}
