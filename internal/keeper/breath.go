package keeper

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// breath is how long a command may take that is done and told in one call.
const breath = 20 * time.Millisecond

// RunExec is StartExec for who waits for the end. A command that ends in one
// breath is told in one call and written down once, with its end: that is half
// the work of a brief one. Any other is written down as it runs, a breath later
// than with StartExec.
//
// Nobody is told of a command before it is written down. If this manager is
// killed in that breath, its worker kills the command, which nobody knows, and
// forgets one that has ended. Managers that share a database go the old way: one
// could be told of an end by a worker before another has written the start down.
func (k *Keeper) RunExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error) {
	e, host, err := k.order(ctx, &c)
	if err != nil {
		return e, false, err
	}
	if asked.Key != "" || !k.Alone { // it must be written down before it is begun
		return k.start(ctx, e, c, host, asked)
	}
	who, err := policy.Asking(ctx)
	if err != nil {
		return e, false, err
	}
	end := k.begin(e.ID)
	defer end()
	ctx, stop := outlast(ctx, cleanupTime) // who hangs up does not end what was begun
	defer stop()
	told, err := k.runBriefly(ctx, c, host)
	if fault.Is(err, fault.Unavailable) { // it may have been started all the same, or just now
		return k.start(ctx, e, c, host, asked)
	}
	if err != nil {
		return e, false, err
	}
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, errSlow)
	defer cancel()
	if err := k.writeRun(bounded, &e, who.ID, told); err != nil {
		if e.State != live.Done {
			k.killUnstored(context.WithoutCancel(ctx), &e, host)
		}
		return e, false, err
	}
	k.recent.add(e)
	return e, false, nil
}

// runBriefly asks a worker, and gives it another breath for the answer: a start
// that takes longer is written down like any other, and asked for again.
func (k *Keeper) runBriefly(ctx context.Context, c live.Command, host hosting) (*live.ExecEnded, error) {
	soon, cancel := context.WithTimeoutCause(ctx, 2*breath, errSlow)
	defer cancel()
	return host.RunExec(soon, c, breath)
}

// outlast is a context that goes on for a while when ctx has ended.
func outlast(ctx context.Context, d time.Duration) (context.Context, func()) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(d, func() { cancel(errSlow) })
		context.AfterFunc(lasting, func() { late.Stop() })
	})
	return lasting, func() {
		stop()
		cancel(nil)
	}
}

// writeRun writes an exec down with what its worker told of its end, if it did.
// What cannot be right in that is left to be told again.
func (k *Keeper) writeRun(ctx context.Context, e *live.Exec, actor string, told *live.ExecEnded) error {
	events := []*event.Event{begins(e, actor)}
	var blobs map[string][]byte
	if told != nil && told.ID == e.ID && told.Sandbox == e.Sandbox && k.demandBlobs(ctx, told) == nil {
		k.close(e, told.Result)
		events = append(events, ends(e, actor))
		blobs = small(e, told.Inline)
	}
	return k.records.Update(ctx, func(tx store.Tx) error {
		if err := tx.Execs().Add(ctx, e, blobs); err != nil {
			return err
		}
		return tx.Events().Append(ctx, events...)
	})
}
