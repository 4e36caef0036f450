package manager

import (
	"cmp"
	"context"
	"slices"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trace"
)

// Observer is told what happens to jobs. It must not block.
type Observer interface {
	// Leased says that a job was given to a worker for the first time, so long
	// after it was submitted.
	Leased(waited time.Duration)
	// Finished says how a try ended. Usage is nil where nothing was measured.
	Finished(driver string, verdict sandbox.Verdict, took time.Duration, usage *sandbox.Usage)
}

// noteLeased tells the observer of first leases. A job that waited for others,
// or for a second try, says nothing about the queue.
func (m *Manager) noteLeased(jobs []job.Job) {
	for i := range jobs {
		if j := &jobs[i]; m.Tracer != nil && j.Attempt == 1 {
			m.Tracer.Record(trace.Parse(j.Trace), "queue.wait", trace.Internal, j.CreatedAt, j.StartedAt, "job", j.ID, "worker", j.Worker)
		}
	}
	if m.Observer == nil {
		return
	}
	for i := range jobs {
		if j := &jobs[i]; j.Attempt == 1 && len(j.DependsOn) == 0 {
			m.Observer.Leased(j.StartedAt.Sub(j.CreatedAt))
		}
	}
}

func (m *Manager) noteFinished(results []dispatch.Result, refused []dispatch.Refusal) {
	if m.Observer == nil {
		return
	}
	for i := range results {
		r := &results[i]
		if slices.ContainsFunc(refused, func(x dispatch.Refusal) bool { return x.Held == r.Held }) {
			continue
		}
		m.Observer.Finished(r.Record.Driver, r.Record.Verdict, r.Record.Ended.Sub(r.Record.Started), r.Record.Usage)
	}
}

// Figures measures the whole, whoever's the jobs are.
func (m *Manager) Figures(ctx context.Context) (job.Figures, error) {
	var f job.Figures
	err := m.Store.View(ctx, func(tx store.Tx) error {
		stats, err := tx.Jobs().Stats(ctx, "")
		if err != nil {
			return err
		}
		f.Jobs, f.DeadLetters, f.OldestQueued = stats.Counts, stats.DeadLetters, stats.OldestQueued
		f.LastEvent, err = tx.Events().Last(ctx)
		return err
	})
	f.Workers = m.sessions.figures()
	f.DiskFree, f.DiskBytes = measureDisk(m.Data)
	f.Blobs, f.BlobBytes = m.blobCount.Load(), m.blobBytes.Load()
	return f, err
}

// figures are what the workers that are connected here said of themselves.
func (ss *sessions) figures() []job.WorkerFigures {
	ss.mu.Lock()
	all := make([]*session, 0, len(ss.byWorker))
	for _, s := range ss.byWorker {
		all = append(all, s)
	}
	ss.mu.Unlock()
	var out []job.WorkerFigures
	for _, s := range all {
		s.mu.Lock()
		if s.stream != nil {
			out = append(out, job.WorkerFigures{
				ID: s.worker.ID, Slots: s.worker.Slots, Leases: s.leases, Sandboxes: s.worked.Sandboxes, Paused: s.paused != "",
				DiskFree: s.worked.DiskFree, DiskBytes: s.worked.DiskBytes, Drivers: s.worker.Proofs,
			})
		}
		s.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b job.WorkerFigures) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// measureDisk asks for what an ordinary process could still write; zeros where
// that is not known.
func measureDisk(folder string) (free, size int64) {
	var fs syscall.Statfs_t
	if folder == "" || syscall.Statfs(folder, &fs) != nil {
		return 0, 0
	}
	return int64(fs.Bavail) * fs.Bsize, int64(fs.Blocks) * fs.Bsize //nolint:gosec // no disk has so much
}
