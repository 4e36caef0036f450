package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/store"
)

func testWatch(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	woken := s.Watch(ctx)
	for range 50 {
		update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, newEvent("e")) })
		<-woken
	}
	// A failure in between is no reason to miss the next.
	_ = s.Update(ctx, func(tx store.Tx) error {
		return errors.Join(tx.Events().Append(ctx, newEvent("lost")), errors.New("failure"))
	})
	update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, newEvent("e")) })
	<-woken
}

// testSlowWatcher reads to the end after each wake-up, while events go on to
// be appended: it must come to the last one without further help.
func testSlowWatcher(t *testing.T, db Database) {
	const total = 300
	ctx, s := t.Context(), open(t, db)
	woken := s.Watch(ctx)
	written := make(chan error, 1)
	go func() {
		defer close(written)
		for range total {
			if err := s.Update(ctx, func(tx store.Tx) error { return tx.Events().Append(ctx, newEvent("e")) }); err != nil {
				written <- err
				return
			}
		}
	}()
	seen, cursor := 0, int64(0)
	for seen < total {
		if _, ok := <-woken; !ok {
			t.Fatal("the watch ended by itself")
		}
		list := view(t, s, func(tx store.Tx) ([]event.Event, error) {
			return tx.Events().List(ctx, event.Filter{After: cursor}, total)
		})
		for _, e := range list {
			cursor = e.Seq
		}
		seen += len(list)
	}
	check(t, <-written)
}

func testWatchEnds(t *testing.T, db Database) {
	s := open(t, db)
	ctx, cancel := context.WithCancelCause(t.Context())
	one, other := s.Watch(ctx), s.Watch(t.Context())
	cancel(nil)
	for range one { //nolint:revive // until it is closed
	}
	update(t, s, func(tx store.Tx) error { return tx.Events().Append(t.Context(), newEvent("e")) })
	if _, ok := <-other; !ok {
		t.Error("the end of one watch ended another")
	}
	check(t, s.Close())
	for range other { //nolint:revive // until it is closed
	}
	for range s.Watch(t.Context()) { //nolint:revive // closed from the start
	}
}
