package keeper

import (
	"context"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// mine reports whether what has its time is this manager's to do for a sandbox:
// that of the manager that has its worker, or, where none has, of who leads.
func (k *Keeper) mine(ctx context.Context, s *live.Sandbox) bool {
	if k.here(s.Worker) {
		return k.Leads() || !k.Alone
	}
	if !k.Leads() {
		return false
	}
	_, err := k.host(ctx, s)
	return fault.CodeOf(err) != CodeElsewhere
}

// Tends reports whether what has its time is this manager's to do for a sandbox.
// Of the managers that share a database it is one's at a time, but for the moment
// in which a worker goes from one to another.
func (k *Keeper) Tends(ctx context.Context, s *live.Sandbox) bool { return k.mine(ctx, s) }

// endAsked ends the sandboxes of the workers here that another manager was
// asked to end. Managers do not talk: it is written down that they are to end.
func (k *Keeper) endAsked(ctx context.Context) error {
	if k.Alone {
		return nil
	}
	var list []live.Sandbox
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Sandboxes().List(ctx, store.SandboxFilter{State: sandbox.StateCompleting, Limit: maxPage})
		return err
	})
	if err != nil {
		return err
	}
	for i := range list {
		s := &list[i]
		if !k.here(s.Worker) {
			continue
		}
		end, alone := k.beginAlone("end " + s.ID)
		if !alone {
			continue
		}
		k.tasks.Go(func() {
			defer end()
			work, stop := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
			defer stop()
			host, err := k.host(work, s)
			if err == nil {
				err = host.EndSandbox(work, live.Closing{ID: s.ID, Outcome: s.Outcome, Reason: s.Reason})
			}
			if err != nil && ctx.Err() == nil {
				k.Logger.Warn("a worker did not end a sandbox; it is asked again", "sandbox", s.ID, "worker", s.Worker, "error", err)
			}
		})
	}
	return nil
}
