package postgres_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
)

// behind makes a database that is reached through a proxy.
func behind(t *testing.T) (proxy *pgtest.Proxy, through, direct string) {
	t.Helper()
	direct = fresh(t)
	proxy, err := pgtest.NewProxy("unix", server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	if through, err = proxy.URL(direct); err != nil {
		t.Fatal(err)
	}
	return proxy, through, direct
}

func appendEvent(ctx context.Context, s store.Store, name string) error {
	return s.Update(ctx, func(tx store.Tx) error {
		return tx.Events().Append(ctx, &event.Event{Type: event.JobCreated, Version: 1, Entity: "job", EntityID: name, JobID: name})
	})
}

func names(t *testing.T, s store.Store) (list []string) {
	t.Helper()
	err := s.View(t.Context(), func(tx store.Tx) error {
		events, err := tx.Events().List(t.Context(), event.Filter{}, 1e6)
		for _, e := range events {
			list = append(list, e.EntityID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A commit whose answer is lost was made, and is not made again; one that never
// arrived is.
func TestCutOffDuringACommit(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"after it arrived": true, "before it arrived": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, direct := behind(t)
			s, ctx := open(t, through), t.Context()
			for _, name := range []string{"first", "second"} { // by now every statement is prepared
				if err := appendEvent(ctx, s, name); err != nil {
					t.Fatal(err)
				}
			}
			var armed sync.Once
			err := s.Update(ctx, func(tx store.Tx) error {
				err := tx.Events().Append(ctx, &event.Event{Type: event.JobCreated, Version: 1, EntityID: "third"})
				// The commit tells the others, on a channel of this name.
				armed.Do(func() {
					proxy.CutAfter(func(sent []byte) bool { return bytes.Contains(sent, []byte("aurea test")) }, arrives)
				})
				return err
			})
			if err != nil {
				t.Error(err)
			}
			got := strings.Join(names(t, open(t, direct)), " ")
			if want := "first second third"; got != want {
				t.Errorf("got events %s, want %s", got, want)
			}
		})
	}
}

// Connections are cut while updates run: each that returned nil is there once,
// and no other more than once.
func TestCutOffUnderLoad(t *testing.T) {
	t.Parallel()
	const clients, rounds = 6, 25
	proxy, through, direct := behind(t)
	s, ctx := open(t, through), t.Context()
	var (
		mu    sync.Mutex
		acked = map[string]bool{}
		tried = map[string]bool{}
		all   sync.WaitGroup
	)
	for range clients {
		all.Go(func() {
			for range rounds {
				name := job.NewID()
				err := appendEvent(ctx, s, name)
				if err != nil && !fault.Is(err, fault.Unavailable) {
					t.Error(err)
				}
				mu.Lock()
				tried[name] = true
				acked[name] = err == nil
				if len(tried)%20 == 0 {
					proxy.Cut()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	there := map[string]int{}
	for _, name := range names(t, open(t, direct)) {
		there[name]++
	}
	for name := range tried {
		if acked[name] && there[name] != 1 || there[name] > 1 {
			t.Errorf("an event is there %d times, acknowledged: %v", there[name], acked[name])
		}
	}
}

// Who watches hears of what was committed while it was cut off.
func TestWatcherAfterACut(t *testing.T) {
	t.Parallel()
	proxy, through, direct := behind(t)
	other, s, ctx := open(t, through), open(t, direct), t.Context()
	woken := other.Watch(ctx)
	for range 5 {
		proxy.Cut()
		if err := appendEvent(ctx, s, "e"); err != nil {
			t.Fatal(err)
		}
		want := len(names(t, s))
		for got := 0; got < want; {
			<-woken
			err := other.View(ctx, func(tx store.Tx) error {
				last, err := tx.Events().Last(ctx)
				got = int(last)
				return err
			})
			if err != nil && !fault.Is(err, fault.Unavailable) {
				t.Fatal(err)
			}
		}
	}
}

// A statement that failed fails the whole transaction, also when its function
// looks away, and takes nothing of the others with it.
func TestFailedStatementIsNotForgotten(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), open(t, fresh(t))
	long := strings.Repeat("0123456789abcdef ", 1<<20) // more than an index holds
	var all sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		all.Go(func() {
			errs[i] = s.Update(ctx, func(tx store.Tx) error {
				id := job.NewID()
				if i%5 == 3 {
					id += randomText(long)
				}
				_ = tx.Events().Append(ctx, &event.Event{EntityID: id, JobID: id, Entity: "job", Type: event.JobCreated})
				return nil
			})
		})
	}
	all.Wait()
	for i, err := range errs {
		if (i%5 == 3) != (err != nil) {
			t.Errorf("update %d: got error %v", i, err)
		}
	}
	if got := len(names(t, s)); got != 16 {
		t.Errorf("got %d events, want 16", got)
	}
}

// randomText cannot be made smaller by compression.
func randomText(like string) string {
	var b strings.Builder
	for b.Len() < len(like)/256 {
		b.WriteString(job.NewID())
	}
	return b.String()
}
