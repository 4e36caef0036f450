package keeper

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// How the open sandboxes are measured: all at this rhythm, so many at a time.
const (
	measureRhythm = 15 * time.Second
	measureAtOnce = 4
	measureTime   = 5 * time.Second
)

// measures is what the open sandboxes of the workers here last used.
type measures struct {
	mu    sync.Mutex
	last  map[string]live.Stats
	spent time.Duration // processor time of all, since this manager began
}

// watchUsage measures the open sandboxes again and again, until ctx ends.
func (k *Keeper) watchUsage(ctx context.Context) {
	k.keepOn(ctx, "could not measure the sandboxes", k.Measure)
}

// keepOn does something in the rhythm of measuring, until ctx ends.
func (k *Keeper) keepOn(ctx context.Context, complaint string, do func(context.Context) error) {
	tick := time.NewTicker(measureRhythm)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			k.Logger.Error(complaint, "error", err)
		}
	}
}

// Measure asks the workers here what their open sandboxes use, and writes it
// down: the accounts count what is open, too.
func (k *Keeper) Measure(ctx context.Context) error {
	now := map[string]live.Stats{}
	for _, w := range k.Workers() {
		var held []live.Sandbox
		err := k.Store.View(ctx, func(tx store.Tx) (err error) {
			held, err = tx.Sandboxes().Held(ctx, w.ID)
			return err
		})
		if err != nil {
			return err
		}
		k.measureAt(ctx, w.Host, held, now)
	}
	k.measured.take(now)
	return k.writeUsage(ctx, now)
}

// measureAt asks one worker. What it cannot say now it may say next time.
func (k *Keeper) measureAt(ctx context.Context, host hosting, held []live.Sandbox, into map[string]live.Stats) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	turns := make(chan struct{}, measureAtOnce)
	for i := range held {
		s := &held[i]
		if s.State != sandbox.StateRunning {
			continue
		}
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			bounded, cancel := context.WithTimeout(ctx, measureTime)
			defer cancel()
			stats, err := host.SandboxStats(bounded, s.ID)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			into[s.ID] = stats
		})
	}
	asking.Wait()
}

// writeUsage writes down what has changed.
func (k *Keeper) writeUsage(ctx context.Context, now map[string]live.Stats) error {
	if len(now) == 0 {
		return nil
	}
	return k.Store.Update(ctx, func(tx store.Tx) error {
		for id, stats := range now {
			s, err := tx.Sandboxes().Get(ctx, id)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			disk := lastDisk(s.Disk, stats.Disk)
			if s.State.Ended() || stats.Usage.CPU <= s.Usage.CPU && disk == s.Disk {
				continue
			}
			s.Usage, s.Disk = lastKnown(s.Usage, stats.Usage), disk
			if err := tx.Sandboxes().Put(ctx, &s); err != nil {
				return err
			}
		}
		return nil
	})
}

// lastKnown is what was measured, and where that is nothing, what was before.
func lastKnown(before, now sandbox.Usage) sandbox.Usage {
	if now.CPU < 0 {
		now.CPU = before.CPU
	}
	if now.PeakMemory < 0 {
		now.PeakMemory = before.PeakMemory
	}
	return now
}

// lastDisk is the same of the disk: a sandbox that stands still does not tell.
func lastDisk(before, now int64) int64 {
	if now < 0 {
		return before
	}
	return now
}

// take puts new measures in the place of those before.
func (m *measures) take(now map[string]live.Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, stats := range now {
		if more := stats.Usage.CPU - max(0, m.last[id].Usage.CPU); more > 0 {
			m.spent += more
		}
	}
	m.last = now
}

// SandboxFigures are what the open sandboxes of the workers here last used, the
// busiest of them one by one.
func (k *Keeper) SandboxFigures(busiest int) job.SandboxFigures {
	k.measured.mu.Lock()
	defer k.measured.mu.Unlock()
	f := job.SandboxFigures{Open: len(k.measured.last), Spent: k.measured.spent}
	for id, stats := range k.measured.last {
		u := stats.Usage
		f.Memory += max(0, u.Memory)
		f.Disk += max(0, stats.Disk)
		f.Processes += max(0, u.Processes)
		f.Execs += int64(stats.Execs)
		if busiest > 0 {
			f.Busiest = append(f.Busiest, job.SandboxFigure{ID: id, CPU: max(0, u.CPU), Memory: max(0, u.Memory), Disk: max(0, stats.Disk), Processes: max(0, u.Processes)})
		}
	}
	slices.SortFunc(f.Busiest, func(a, b job.SandboxFigure) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.ID, b.ID))
	})
	f.Busiest = f.Busiest[:min(len(f.Busiest), busiest)]
	return f
}
