package worker

import (
	"context"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
)

const (
	// leaseWait is how long one call waits for work, leaseGrace what the call
	// may take beyond that.
	leaseWait  = 30 * time.Second
	leaseGrace = 15 * time.Second
	// maxHeld bounds the jobs that are held at a time, above the slots: those
	// that are packed, and results that the manager has not taken yet.
	maxHeld = 256
	// leasers is how many calls ask for work at a time: while one waits, what
	// has become free meanwhile is asked for by the other.
	leasers = 2
)

// takeWork leases jobs until ctx ends or the run fails.
func (r *run) takeWork(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.life, func() { cancel(context.Cause(r.life)) })() //nolint:contextcheck // it ends with the run too
	r.awaitProof(ctx)
	var loops sync.WaitGroup
	for range leasers {
		loops.Go(func() { r.leaseLoop(ctx) })
	}
	loops.Wait()
}

// leaseLoop asks for as much work as there are free slots.
func (r *run) leaseLoop(ctx context.Context) {
	var pause backoff
	for {
		n := r.room.askFor(ctx, dispatch.MaxLeases)
		if n == 0 || r.tasks.awaitFewer(ctx, r.Slots+maxHeld) != nil || r.awaitDisk(ctx) != nil {
			return
		}
		var leases []dispatch.Lease
		err := r.session.call(ctx, leaseWait+leaseGrace, func(ctx context.Context, session string) (err error) {
			leases, err = r.Manager.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: n, Wait: leaseWait})
			return err
		})
		leases = leases[:min(len(leases), n)]
		r.room.asked(n, len(leases))
		for _, l := range leases {
			// Also when ctx has ended meanwhile: what was given is done.
			r.take(l) //nolint:contextcheck // a task has a context of its own
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.log.Warn("could not lease work, trying again", "error", err)
			if pause.wait(ctx) != nil {
				return
			}
			continue
		}
		pause.reset()
	}
}

// take starts the work under a lease in a goroutine that has room for one. The
// tries of one job share a workspace, so one waits until the one before it has
// let go.
func (r *run) take(l dispatch.Lease) {
	t, before := r.tasks.add(r, l)
	if t == nil {
		r.room.give(r.Limits.Memory)
		return
	}
	r.working.Go(func() {
		if before != nil {
			<-before
		}
		r.makeWay(t.ctx)
		r.room.settle(t.ctx)
		r.do(t)
		r.tasks.letGo(t)
	})
}
