package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// Shared is a database that several managers open at a time.
type Shared struct {
	Database
	// Waits reports whether somebody waits in the database for another.
	Waits func() bool
}

// RunShared tests an adapter whose databases can be shared. fresh makes a new
// one for one test.
func RunShared(t *testing.T, fresh func(t *testing.T) Shared) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, db Shared)
	}{
		{"a cursor misses nothing of a slow update", testSlowWriter},
		{"a cursor misses nothing of many writers", testManyWriters},
		{"updates of two do not interleave", testTwoInterleave},
		{"a watcher is woken by the other's commit", testTwoWatch},
		{"two start at once on an empty database", testTwoStart},
		{"an update that takes no number gives none back", testNoNumber},
		{"two append to one audit", testTwoAppend},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, fresh(t))
		})
	}
}

// cursor reads events as a stream does: it never looks back.
type cursor struct {
	after int64
	seen  []string // entity ids
}

func (c *cursor) read(t failing, s store.Store) {
	t.Helper()
	for _, e := range listEvents(t, s, event.Filter{After: c.after}, 1000) {
		c.after = e.Seq
		c.seen = append(c.seen, e.EntityID)
	}
}

// testSlowWriter has one update that took its events early and commits late,
// one that is quick, and a reader that looks as often as it can.
func testSlowWriter(t *testing.T, db Shared) {
	ctx, slow, quick, reader := t.Context(), open(t, db.Database), open(t, db.Database), open(t, db.Database)
	appended, release := make(chan struct{}), make(chan struct{})
	var slowErr, quickErr error
	var both sync.WaitGroup
	both.Go(func() {
		first := true
		slowErr = slow.Update(ctx, func(tx store.Tx) error {
			if err := tx.Events().Append(ctx, newEvent("slow")); err != nil {
				return err
			}
			// What was appended is with the database by the time that it answers.
			if _, err := tx.Events().Last(ctx); err != nil {
				return err
			}
			if first {
				first = false
				close(appended)
			}
			<-release
			return nil
		})
	})
	<-appended
	quickDone := make(chan struct{})
	both.Go(func() {
		defer close(quickDone)
		quickErr = quick.Update(ctx, func(tx store.Tx) error { return tx.Events().Append(ctx, newEvent("quick")) })
	})
	// Either the quick one gets by, or it is seen to wait.
	var c cursor
	for through := false; !through && !db.Waits(); {
		select {
		case <-quickDone:
			through = true
		default:
		}
		c.read(t, reader)
	}
	c.read(t, reader)
	close(release)
	both.Wait()
	check(t, errors.Join(slowErr, quickErr))
	c.read(t, reader)
	slices.Sort(c.seen)
	equal(t, "what the cursor has come by", c.seen, []string{"quick", "slow"})
}

// testManyWriters does the same with many, of which some fail.
func testManyWriters(t *testing.T, db Shared) {
	const writers, rounds = 4, 30
	ctx := t.Context()
	stores := []store.Store{open(t, db.Database), open(t, db.Database)}
	failure := errors.New("failure")
	var all sync.WaitGroup
	for _, s := range stores {
		for range writers {
			all.Go(func() {
				for i := range rounds {
					err := s.Update(ctx, func(tx store.Tx) error {
						if err := tx.Events().Append(ctx, newEvent("one"), newEvent("two")); err != nil {
							return err
						}
						if i%3 == 1 {
							return failure
						}
						return nil
					})
					if err != nil && !errors.Is(err, failure) {
						t.Error(err)
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	cursors := make([]cursor, len(stores))
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true // read once more
		default:
		}
		for i := range cursors {
			cursors[i].read(t, stores[i])
		}
	}
	for i := range cursors {
		equal(t, fmt.Sprint("events that cursor ", i, " came by"), len(cursors[i].seen), len(stores)*writers*rounds/3*2*2)
	}
}

func testTwoInterleave(t *testing.T, db Shared) {
	const clients, rounds = 4, 25
	ctx := t.Context()
	stores := []store.Store{open(t, db.Database), open(t, db.Database)}
	update(t, stores[0], func(tx store.Tx) error { return tx.Workers().Put(ctx, job.Worker{ID: "w"}) })
	var all sync.WaitGroup
	for _, s := range stores {
		for range clients {
			all.Go(func() {
				for range rounds {
					if err := increment(ctx, s); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	w := view(t, stores[1], func(tx store.Tx) (job.Worker, error) { return tx.Workers().Get(ctx, "w") })
	equal(t, "sum of all increments", w.Slots, len(stores)*clients*rounds)
}

func increment(ctx context.Context, s store.Store) error {
	return s.Update(ctx, func(tx store.Tx) error {
		w, err := tx.Workers().Get(ctx, "w")
		if err != nil {
			return err
		}
		w.Slots++
		return tx.Workers().Put(ctx, w)
	})
}

func testTwoWatch(t *testing.T, db Shared) {
	ctx, one, other := t.Context(), open(t, db.Database), open(t, db.Database)
	woken := other.Watch(ctx)
	for range 20 {
		e := newEvent("e")
		update(t, one, func(tx store.Tx) error { return tx.Events().Append(ctx, e) })
		for last := int64(0); last < e.Seq; {
			<-woken
			last = view(t, other, func(tx store.Tx) (int64, error) { return tx.Events().Last(ctx) })
		}
	}
}

func testTwoStart(t *testing.T, db Shared) {
	stores := make([]store.Store, 4)
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() { stores[i] = db.Database() })
	}
	all.Wait()
	for _, s := range stores {
		update(t, s, func(tx store.Tx) error { return tx.Events().Append(t.Context(), newEvent("e")) })
		check(t, s.Close())
	}
}

// testNoNumber has one write something that needs no number after the other has
// taken some: the next number is still a new one.
func testNoNumber(t *testing.T, db Shared) {
	ctx, a, b := t.Context(), open(t, db.Database), open(t, db.Database)
	say := func(s store.Store, id string) {
		t.Helper()
		update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, newEvent(id)) })
	}
	say(a, "1")
	say(b, "2")
	update(t, a, func(tx store.Tx) error { return tx.Workers().Put(ctx, job.Worker{ID: "w"}) })
	say(b, "3")
	say(a, "4")
	var c cursor
	c.read(t, b)
	equal(t, "events", c.seen, []string{"1", "2", "3", "4"})
}
