package manager

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/runner"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// RunTerms is how runs of code are taken.
type RunTerms struct {
	run.Terms
	// Most is how many may wait, Patience how long somebody waits for a turn on
	// a connection; 0 is a sensible number.
	Most     int
	Patience time.Duration
	Hooks    webhook.Terms
	Observer runner.Observer // nil is nobody
}

// newRunner makes the part that does runs.
func (m *Manager) newRunner(t RunTerms) *runner.Runner {
	cfg := runner.Config{
		Store: m.Store, Blobs: m.Blobs, Workers: m.freeRunners, Disk: m.demandDisk, Stops: m.switches.refuse, Fence: m.fence.Load, Terms: t.Terms, Hooks: t.Hooks, Observer: t.Observer,
		Now: m.Now, Logger: m.Logger, ID: m.ID, Most: t.Most, Patience: t.Patience, Back: m.LeaseTerm,
	}
	if !m.Alone {
		cfg.Outputs = m.Outputs
	}
	return runner.New(cfg)
}

// freeRunners are the workers here; while everything is stopped none takes a run.
func (m *Manager) freeRunners() []runner.Worker {
	list := m.sessions.runners()
	if m.switches.refuse(sandbox.Subject{}) != nil {
		for i := range list {
			list[i].Paused = true
		}
	}
	return list
}

// runners lists the workers whose command stream is open here.
func (ss *sessions) runners() []runner.Worker {
	held := ss.held != nil && ss.held()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	list := make([]runner.Worker, 0, len(ss.byWorker))
	for _, s := range ss.byWorker {
		s.mu.Lock()
		if s.stream != nil {
			list = append(list, runner.Worker{ID: s.worker.ID, Slots: s.worker.Slots, Drivers: served(&s.worker), Paused: held || s.paused != "", Runner: s.stream.receiver})
		}
		s.mu.Unlock()
	}
	return list
}

// served are the drivers that a worker serves.
func served(w *job.Worker) (names []string) {
	for _, d := range w.Proofs {
		if d.Degraded == "" {
			names = append(names, d.Name)
		}
	}
	return names
}

// runs forgets runs that ended long ago.
func (p *pass) runs(ctx context.Context) error {
	return p.forget(ctx, &p.result.Runs, forgetBatch,
		func(h store.History, before time.Time, limit int) ([]string, error) {
			return h.EndedRuns(ctx, before, limit)
		},
		func(tx store.Tx, ids []string) error {
			_, err := tx.History().ForgetRuns(ctx, ids...)
			return err
		})
}

// runBlobs crosses out of the list what runs refer to, and drops small blobs
// whose time is over.
func (p *pass) runBlobs(ctx context.Context, unwanted map[string]int64) error {
	past := func(keep time.Duration, ended time.Time) bool {
		before, bounded := p.cutoff(keep)
		return bounded && ended.Before(before)
	}
	for after := ""; ; {
		var page []store.KeptRun
		err := p.m.Store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.History().KeptRuns(ctx, after, keptPage)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].ID
		var over []store.KeptRun
		for _, k := range page {
			// A dry run has not removed the runs that would go.
			switch gone := p.dry && past(p.m.Retention.Jobs, k.Ended); {
			case gone:
			case past(p.m.Retention.Output, k.Ended):
				if !k.Dropped && k.Small > 0 {
					over = append(over, k)
				}
			default:
				for _, digest := range k.Digests {
					delete(unwanted, digest)
				}
			}
		}
		if err := p.dropRuns(ctx, over); err != nil {
			return err
		}
	}
}

// dropRuns drops the small blobs of runs, those of one page together.
func (p *pass) dropRuns(ctx context.Context, over []store.KeptRun) error {
	if len(over) == 0 {
		return nil
	}
	var sum int64
	for _, k := range over {
		sum += k.Small
	}
	if !p.dry {
		err := p.write(ctx, func(tx store.Tx) error {
			for _, k := range over {
				if _, err := tx.History().DropRunBlobs(ctx, k.ID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	p.result.SmallBytes += sum
	return nil
}
