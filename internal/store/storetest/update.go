package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// write adds a job and an event of it.
func write(ctx context.Context, tx store.Tx, j *job.Job) error {
	if err := tx.Jobs().Add(ctx, j); err != nil {
		return err
	}
	return tx.Events().Append(ctx, newEvent(j.ID))
}

// wantKept checks that the job and its event are there, or that neither is.
func wantKept(t *testing.T, s store.Store, id string, kept bool) {
	t.Helper()
	err := viewErr(t, s, func(tx store.Tx) (job.Job, error) { return tx.Jobs().Get(t.Context(), id) })
	list := view(t, s, func(tx store.Tx) ([]event.Event, error) {
		return tx.Events().List(t.Context(), event.Filter{JobID: id}, 10)
	})
	if kept {
		check(t, err)
		equal(t, "events of the job", len(list), 1)
		return
	}
	wantKind(t, "get job of a failed update", err, fault.NotFound)
	equal(t, "events of a failed update", len(list), 0)
}

func testUpdate(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	kept, lost := newJob(), newJob()
	update(t, s, func(tx store.Tx) error { return write(ctx, tx, kept) })
	failure := fmt.Errorf("my own %w", errors.ErrUnsupported)
	err := s.Update(ctx, func(tx store.Tx) error {
		if err := write(ctx, tx, lost); err != nil {
			return err
		}
		return failure
	})
	if err != failure { //nolint:errorlint // as it is, not wrapped
		t.Fatalf("got error %v, want the function's own", err)
	}
	wantKept(t, s, kept.ID, true)
	wantKept(t, s, lost.ID, false)
}

func testOwnWrites(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	update(t, s, func(tx store.Tx) error {
		j := newJob()
		if err := write(ctx, tx, j); err != nil {
			return err
		}
		got, err := tx.Jobs().Get(ctx, j.ID)
		if err != nil {
			return err
		}
		equal(t, "job read where it was written", got, *j)
		last, err := tx.Events().Last(ctx)
		if err != nil || last == 0 {
			return fmt.Errorf("last event is %d, %w", last, err)
		}
		return nil
	})
}

func testPanic(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	lost, kept := newJob(), newJob()
	value := caught(func() {
		_ = s.Update(ctx, func(tx store.Tx) error {
			check(t, write(ctx, tx, lost))
			panic("boom")
		})
	})
	equal(t, "value of the panic", value, any("boom"))
	update(t, s, func(tx store.Tx) error { return write(ctx, tx, kept) })
	wantKept(t, s, lost.ID, false)
	wantKept(t, s, kept.ID, true)
}

// caught runs fn and returns the value of its panic.
func caught(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()
	return nil
}

func testGoexit(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	lost, kept := newJob(), newJob()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		_ = s.Update(ctx, func(tx store.Tx) error {
			done <- write(ctx, tx, lost)
			runtime.Goexit()
			return nil
		})
	}()
	for err := range done {
		check(t, err)
	}
	update(t, s, func(tx store.Tx) error { return write(ctx, tx, kept) })
	wantKept(t, s, lost.ID, false)
	wantKept(t, s, kept.ID, true)
}

func testEndedContext(t *testing.T, db Database) {
	s := open(t, db)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	for name, run := range map[string]func(context.Context, func(store.Tx) error) error{"Update": s.Update, "View": s.View} {
		err := run(ctx, func(store.Tx) error {
			t.Error(name + " ran although its context had ended")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got error %v, want the context's", name, err)
		}
	}
}

func testInterleave(t *testing.T, db Database) {
	const clients, rounds = 16, 25
	ctx, s := t.Context(), open(t, db)
	update(t, s, func(tx store.Tx) error { return tx.Workers().Put(ctx, job.Worker{ID: "w"}) })
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range rounds {
				err := s.Update(ctx, func(tx store.Tx) error {
					w, err := tx.Workers().Get(ctx, "w")
					if err != nil {
						return err
					}
					w.Slots++
					return tx.Workers().Put(ctx, w)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w := view(t, s, func(tx store.Tx) (job.Worker, error) { return tx.Workers().Get(ctx, "w") })
	equal(t, "sum of all increments", w.Slots, clients*rounds)
}

// testFailureIsolation mixes Updates that succeed, fail and panic, so that
// they meet in shared commits.
func testFailureIsolation(t *testing.T, db Database) {
	const clients, rounds = 16, 20
	ctx, s := t.Context(), open(t, db)
	failure := errors.New("failure")
	jobs := make([]*job.Job, clients*rounds)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for r := range rounds {
				i := c*rounds + r
				jobs[i] = newJob()
				var err error
				value := caught(func() {
					err = s.Update(ctx, func(tx store.Tx) error {
						if err := write(ctx, tx, jobs[i]); err != nil {
							return err
						}
						switch i % 4 {
						case 1:
							return failure
						case 3:
							panic(i)
						}
						return nil
					})
				})
				switch {
				case i%4 == 1 && !errors.Is(err, failure), i%4 != 1 && err != nil, i%4 == 3 && value != i:
					t.Errorf("update %d: got error %v and panic %v", i, err, value)
				}
			}
		})
	}
	wg.Wait()
	for i, j := range jobs {
		wantKept(t, s, j.ID, i%2 == 0)
	}
}
