package manager

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/store"
)

// SandboxTerms is how sandboxes are kept.
type SandboxTerms struct {
	live.Terms
	// Provision bounds how long one may take to be made, Back how long its
	// worker may be away before it counts as lost; 0 is a sensible time.
	Provision, Back time.Duration
	// Files bound what is stored of a session's files.
	Files filesync.Limits
}

// newKeeper makes the part that keeps sandboxes.
func (m *Manager) newKeeper(t SandboxTerms) *keeper.Keeper {
	return keeper.New(keeper.Config{
		Store: m.Store, Blobs: m.Blobs, Workers: m.sessions.hosts, Second: m.besides.of, Leads: func() bool { return m.fence.Load() != 0 },
		Demand: func(context.Context) error { return m.demandDisk() }, Stops: m.switches.refuse,
		Terms: t.Terms, Now: m.Now, Logger: m.Logger, Provision: t.Provision, Back: t.Back, FileLimits: t.Files, Alone: m.Alone, ID: m.ID,
	})
}

// hosts lists the workers whose command stream is open here.
func (ss *sessions) hosts() []keeper.Worker {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	list := make([]keeper.Worker, 0, len(ss.byWorker))
	for _, s := range ss.byWorker {
		s.mu.Lock()
		if s.stream != nil {
			if host, ok := s.stream.receiver.(dispatch.Host); ok {
				list = append(list, keeper.Worker{ID: s.worker.ID, Drivers: served(&s.worker), Paused: s.paused != "", Host: host})
			}
		}
		s.mu.Unlock()
	}
	return list
}

// sandboxes forgets sandboxes that ended long ago, with their execs.
func (p *pass) sandboxes(ctx context.Context) error {
	return p.forget(ctx, &p.result.Sandboxes, forgetBatch,
		func(h store.History, before time.Time, limit int) ([]string, error) {
			return h.EndedSandboxes(ctx, before, limit)
		},
		func(tx store.Tx, ids []string) error {
			_, err := tx.History().ForgetSandboxes(ctx, ids...)
			return err
		})
}

// execBlobs crosses out of the list what execs and snapshots refer to, and drops
// the small output of execs whose time is over.
func (p *pass) execBlobs(ctx context.Context, unwanted map[string]int64) error {
	for after := ""; ; {
		var page []store.KeptExec
		err := p.m.Store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.History().KeptExecs(ctx, after, keptPage)
			return err
		})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return p.snapshotBlobs(ctx, unwanted)
		}
		after = page[len(page)-1].ID
		for _, k := range page {
			if before, bounded := p.cutoff(p.m.Retention.Output); !bounded || !k.Ended.Before(before) {
				for _, digest := range k.Digests {
					delete(unwanted, digest)
				}
				continue
			}
			if k.Dropped || k.Small == 0 {
				continue
			}
			p.result.SmallBytes += k.Small
			if p.dry {
				continue
			}
			err := p.write(ctx, func(tx store.Tx) error {
				_, err := tx.History().DropExecBlobs(ctx, k.ID)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
}

// snapshotBlobs crosses out what snapshots of files refer to.
func (p *pass) snapshotBlobs(ctx context.Context, unwanted map[string]int64) error {
	for before := ""; ; {
		var page []live.Snapshot
		err := p.m.Store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.Sandboxes().Snapshots(ctx, store.SnapshotFilter{Before: before, Limit: keptPage})
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			delete(unwanted, page[i].SHA256)
		}
		before = page[len(page)-1].ID
	}
}
