package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// unknownAfter is how long an exec has to be open before its worker is asked for
// it: until then whoever wrote it down may be about to start it.
const unknownAfter = 2 * time.Minute

// neverStarted is why such an exec ends.
const neverStarted = "its worker does not know it: the manager stopped before it was started, or before its end was recorded"

// watchExecs ends what no worker knows again and again, until ctx ends. Where a
// manager is alone it is not needed: its workers register again when it comes
// back, and say what they have.
func (k *Keeper) watchExecs(ctx context.Context) {
	k.keepOn(ctx, "could not compare the open execs with what the workers know", k.endUnknown)
}

// endUnknown ends the execs that the workers here do not know. What goes over a
// second stream is written down before it is started, and a manager that is
// killed in between leaves an exec of which nobody would ever hear. A worker
// that knows one tells its end, so each is asked for until it is known once.
func (k *Keeper) endUnknown(ctx context.Context) (err error) {
	k.openExecs.look(k.Now())
	for _, w := range k.Workers() {
		open, failed := k.openAt(ctx, w.ID)
		err = errors.Join(err, failed)
		for i := range open {
			e := &open[i]
			x, stood := k.openExecs.see(e.ID, e.CreatedAt)
			if x.sure || stood < unknownAfter || k.isBegun(e.ID) {
				continue
			}
			switch known, answered := knows(ctx, w.Host, e); {
			case !answered:
			case known:
				k.openExecs.settle(e.ID)
			default:
				err = errors.Join(err, k.endLost(ctx, e.ID, neverStarted))
			}
		}
	}
	return err
}

// openAt lists the execs that are open in the sandboxes of a worker.
func (k *Keeper) openAt(ctx context.Context, worker string) (list []live.Exec, err error) {
	err = k.Store.View(ctx, func(tx store.Tx) error {
		list = nil
		held, err := tx.Sandboxes().Held(ctx, worker)
		for i := range held {
			if err != nil || held[i].State != sandbox.StateRunning {
				continue
			}
			var open []live.Exec
			open, err = tx.Execs().Open(ctx, held[i].ID)
			list = append(list, open...)
		}
		return err
	})
	return list, err
}

// knows asks a worker whether it knows an exec: by input of no bytes, which
// changes nothing. One that cannot be asked now has not answered.
func knows(ctx context.Context, host hosting, e *live.Exec) (known, answered bool) {
	bounded, cancel := context.WithTimeoutCause(ctx, measureTime, errSlow)
	defer cancel()
	err := host.FeedExec(bounded, live.Input{Sandbox: e.Sandbox, Exec: e.Inside(), Offset: -1})
	switch {
	case fault.CodeOf(err) == dispatch.CodeNoExec:
		return false, true
	case fault.CodeOf(err) == dispatch.CodeNoSandbox, bounded.Err() != nil, fault.Is(err, fault.Unavailable), fault.Is(err, fault.Internal):
		return false, false
	}
	return true, true // also where it says that it has ended, or stands still
}
