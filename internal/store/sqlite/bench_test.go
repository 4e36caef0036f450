package sqlite_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

// openFile opens a database that the caller closes.
func openFile(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens a database until the end of the test.
func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s := openFile(t, path)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func task() *job.Job {
	now := time.Now()
	return &job.Job{
		ID: job.NewID(), RootID: "root", Owner: "local", ProjectID: 7, Title: "a task", Role: job.DefaultRole,
		Payload: json.RawMessage(`{"action":"run","language":"python","code":"print(1)"}`),
		Timeout: job.DefaultTimeout, MaxRetries: 3, State: job.Queued, ReadyAt: now, CreatedAt: now, UpdatedAt: now,
	}
}

func created(j *job.Job) *event.Event {
	return &event.Event{
		Type: event.JobCreated, Version: 1, Entity: "job", EntityID: j.ID, JobID: j.ID, RootID: j.RootID,
		ProjectID: j.ProjectID, Actor: "local", Owner: "local", At: j.CreatedAt, Data: json.RawMessage(`{"a":1}`),
	}
}

func BenchmarkUpdate(b *testing.B) {
	ctx := context.Background()
	write := func(tx store.Tx) error { return tx.Events().Append(ctx, created(task())) }
	b.Run("serial", func(b *testing.B) {
		s := open(b, filepath.Join(b.TempDir(), "db"))
		for b.Loop() {
			if err := s.Update(ctx, write); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		s := open(b, filepath.Join(b.TempDir(), "db"))
		b.SetParallelism(8) // times two processors: 16
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := s.Update(ctx, write); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkStatements measures single calls within one transaction.
func BenchmarkStatements(b *testing.B) {
	ctx := context.Background()
	bench := func(name string, fn func(tx store.Tx, j *job.Job) error) {
		b.Run(name, func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "db"))
			err := s.Update(ctx, func(tx store.Tx) error {
				j := task()
				if err := tx.Jobs().Add(ctx, j); err != nil {
					return err
				}
				for b.Loop() {
					if err := fn(tx, j); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
	bench("append", func(tx store.Tx, j *job.Job) error { return tx.Events().Append(ctx, created(j)) })
	bench("add", func(tx store.Tx, _ *job.Job) error { return tx.Jobs().Add(ctx, task()) })
	bench("get", func(tx store.Tx, j *job.Job) error { _, err := tx.Jobs().Get(ctx, j.ID); return err })
	bench("put", func(tx store.Tx, j *job.Job) error {
		j.Fence++
		j.State = map[job.State]job.State{job.Queued: job.Assigned, job.Assigned: job.InProgress, job.InProgress: job.Queued}[j.State]
		return tx.Jobs().Put(ctx, j)
	})
	bench("leasable", func(tx store.Tx, _ *job.Job) error {
		_, err := tx.Jobs().Leasable(ctx, []string{"a", "b"}, 4)
		return err
	})
	bench("due", func(tx store.Tx, _ *job.Job) error { _, err := tx.Jobs().Due(ctx, time.Now(), 4); return err })
	bench("expired", func(tx store.Tx, _ *job.Job) error { _, err := tx.Jobs().Expired(ctx, time.Now(), 4); return err })
	bench("list events of a job", func(tx store.Tx, j *job.Job) error {
		_, err := tx.Events().List(ctx, event.Filter{JobID: j.ID, After: 1}, 100)
		return err
	})
	bench("list jobs", func(tx store.Tx, _ *job.Job) error {
		_, err := tx.Jobs().List(ctx, store.JobFilter{State: job.Queued, Owner: "local"})
		return err
	})
	bench("stats", func(tx store.Tx, _ *job.Job) error { _, err := tx.Jobs().Stats(ctx, "local"); return err })
	bench("acquire", func(tx store.Tx, _ *job.Job) error {
		_, _, err := tx.Leaders().Acquire(ctx, "a", time.Now(), time.Minute, false)
		return err
	})
}
