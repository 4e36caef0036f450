package manager

import (
	"context"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Retention says how long what is kept of the past is kept. 0 is for good.
type Retention struct {
	Jobs      time.Duration // plans that ended, with their jobs and records
	Events    time.Duration
	Output    time.Duration // what jobs printed and left; their records stay
	Snapshots time.Duration // of workspaces; their records stay
	Workers   time.Duration // that are away
	// Unreferenced is how long a blob that nothing refers to is left to whoever
	// put it. It must be longer than the way from there to a record.
	Unreferenced time.Duration
}

// The rhythm of letting go. A batch is one transaction, so it is small.
const (
	collectEvery  = time.Hour
	forgetBatch   = 500
	planBatch     = 20
	keptPage      = 200
	maxDry        = 100_000 // plans that a dry run counts
	maxCandidates = 500_000 // blobs that one pass looks at
)

// collect lets go of the past now and then while this manager leads.
func (m *Manager) collect(ctx context.Context) {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if m.fence.Load() == 0 {
			continue
		}
		if c, err := m.Collect(ctx, false); err != nil && ctx.Err() == nil {
			m.Logger.Error("could not let go of old history", "error", err)
		} else if err == nil {
			m.Logger.Info("let go of old history", "plans", c.Plans, "runs", c.Runs, "events", c.Events, "blobs", c.Blobs, "bytes", c.BlobBytes+c.SmallBytes)
		}
	}
}

// Collect removes what is older than its retention, and blobs that nothing
// refers to; with dry it only says what it would remove. One pass runs at a
// time.
func (m *Manager) Collect(ctx context.Context, dry bool) (c job.Collection, err error) {
	if !m.collecting.TryLock() {
		return c, fault.New(fault.Conflict, "old history is being removed already; try again when that is done").WithCode("gc_running")
	}
	defer m.collecting.Unlock()
	p := &pass{m: m, now: m.Now(), fence: m.fence.Load(), dry: dry, result: job.Collection{DryRun: dry}}
	if p.fence == 0 && !dry {
		return c, fault.New(fault.Unavailable, "another manager leads; ask that one").WithCode("not_leader")
	}
	if _, asked := policy.From(ctx); asked && !dry {
		if err := m.acted(ctx, store.Act{Source: "manager", Action: "history.collect", Target: "history"}); err != nil {
			return c, err
		}
	}
	for _, step := range []func(context.Context) error{p.plans, p.runs, p.sandboxes, p.machines, p.fleet, p.events, p.workers, p.outputs, p.blobs} {
		if err := step(ctx); err != nil {
			return p.result, err
		}
	}
	m.blobBytes.Store(p.result.KeptBytes)
	m.blobCount.Store(p.result.KeptBlobs)
	return p.result, nil
}

// pass is one pass over the history.
type pass struct {
	m      *Manager
	now    time.Time
	fence  int64
	dry    bool
	result job.Collection
}

// cutoff returns the time before which things go; ok is false when all stay.
func (p *pass) cutoff(keep time.Duration) (before time.Time, ok bool) {
	return p.now.Add(-keep), keep > 0
}

// write is an update that only the leader makes.
func (p *pass) write(ctx context.Context, fn func(store.Tx) error) error {
	return p.m.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Leaders().Check(ctx, p.fence); err != nil {
			return err
		}
		return fn(tx)
	})
}

// forget forgets what has ended longer ago than jobs are kept, a batch at a
// time, and counts it. ended lists ids, forget removes those of a batch.
func (p *pass) forget(ctx context.Context, count *int64, batch int, ended func(h store.History, before time.Time, limit int) ([]string, error), forget func(tx store.Tx, ids []string) error) error {
	before, ok := p.cutoff(p.m.Retention.Jobs)
	if p.dry {
		batch = maxDry
	}
	for ok {
		var ids []string
		err := p.m.Store.View(ctx, func(tx store.Tx) (err error) {
			ids, err = ended(tx.History(), before, batch)
			return err
		})
		if err == nil && !p.dry && len(ids) > 0 {
			err = p.write(ctx, func(tx store.Tx) error { return forget(tx, ids) })
		}
		if err != nil {
			return err
		}
		*count += int64(len(ids))
		ok = len(ids) == batch && !p.dry
	}
	return nil
}

// plans forgets plans that ended long ago.
func (p *pass) plans(ctx context.Context) error {
	return p.forget(ctx, &p.result.Plans, planBatch,
		func(h store.History, before time.Time, limit int) ([]string, error) {
			return h.EndedPlans(ctx, before, limit)
		},
		func(tx store.Tx, roots []string) error { return forgetPlans(ctx, tx, roots) })
}

// forgetPlans passes over a plan that was given another life meanwhile.
func forgetPlans(ctx context.Context, tx store.Tx, roots []string) error {
	for _, root := range roots {
		if _, err := tx.History().ForgetPlan(ctx, root); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	return nil
}

// errDry undoes what a dry run did to see what it would do.
var errDry = errors.New("only a dry run")

// events forgets old events, from the front. A dry run looks at one large
// batch, undone.
func (p *pass) events(ctx context.Context) error {
	before, ok := p.cutoff(p.m.Retention.Events)
	for ok {
		limit := forgetBatch
		if p.dry {
			limit = maxDry
		}
		var n int64
		update := p.write
		if p.dry {
			update = p.m.Store.Update
		}
		err := update(ctx, func(tx store.Tx) (err error) {
			if n, err = tx.History().ForgetEvents(ctx, before, limit); err == nil && p.dry {
				err = errDry
			}
			return err
		})
		if err != nil && !errors.Is(err, errDry) {
			return err
		}
		p.result.Events += n
		ok = n == int64(limit) && !p.dry
	}
	return nil
}

// workers forgets registrations of workers that went away long ago.
func (p *pass) workers(ctx context.Context) error {
	before, ok := p.cutoff(p.m.Retention.Workers)
	if !ok {
		return nil
	}
	if p.dry {
		ws, err := p.m.Workers(ctx)
		for _, w := range ws {
			if !w.Connected && w.SeenAt.Before(before) {
				p.result.Workers++
			}
		}
		return err
	}
	p.m.sessions.dropStale(before)
	return p.write(ctx, func(tx store.Tx) (err error) {
		p.result.Workers, err = tx.History().ForgetWorkers(ctx, before)
		return err
	})
}

// outputs removes the live output of leases that are over: those whose result
// came dropped it themselves, those that were lost could not.
func (p *pass) outputs(ctx context.Context) error {
	for _, h := range p.m.outputs.leases() {
		over := false
		err := p.m.Store.View(ctx, func(tx store.Tx) error {
			j, err := tx.Jobs().Get(ctx, h.JobID)
			over = fault.Is(err, fault.NotFound) || err == nil && (j.Fence != h.Fence || j.State.Ended())
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		if over {
			p.result.Outputs++
			if !p.dry {
				p.m.outputs.Drop(ctx, h.JobID, h.Fence)
			}
		}
	}
	return nil
}

// CheckCursor refuses a cursor below what is kept: the reader that holds it has
// missed something, and has to know. 0 stands for the beginning of what there
// is.
func (m *Manager) CheckCursor(ctx context.Context, after int64) error {
	return m.Store.View(ctx, func(tx store.Tx) error { return checkCursor(ctx, tx, after) })
}

func checkCursor(ctx context.Context, tx store.Tx, after int64) error {
	if after == 0 {
		return nil
	}
	floor, err := tx.History().Floor(ctx)
	if err != nil {
		return err
	}
	if after < floor {
		return fault.New(fault.Gone, "The events up to %d were removed, as the retention says, so those after %d are not all there. Begin again with after=%d, or with after=0 for the oldest that are kept.",
			floor, after, floor).WithCode("gap")
	}
	return nil
}

// eventPage lists events in one look with the check of the cursor, so that
// nothing is forgotten between the two.
func eventPage(ctx context.Context, tx store.Tx, f event.Filter, limit int) ([]event.Event, error) {
	if err := checkCursor(ctx, tx, f.After); err != nil {
		return nil, err
	}
	return tx.Events().List(ctx, f, limit)
}

// diskAgain is when somebody may ask again who found the disk full: room comes
// when history is collected, or an operator makes it.
const diskAgain = 30 * time.Second

// demandDisk refuses new work while the organisation is paused, and when there is
// only just room for the old to end.
func (m *Manager) demandDisk() error {
	if err := m.DemandIntake(); err != nil {
		return err
	}
	const most, share = 1 << 30, 20
	free, size := measureDisk(m.Data)
	need := m.MinDisk
	if need == 0 {
		need = min(size/share, most)
	}
	if size == 0 || free >= need {
		return nil
	}
	return fault.New(fault.Unavailable, "The manager's disk is nearly full: %d MiB are free and %d MiB must be, so that what runs can end. Make room, or shorten the retention and run aurea gc.",
		free>>20, need>>20).WithCode("disk_full").Retry(diskAgain)
}
