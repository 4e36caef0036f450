package httpapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

func as(t *testing.T, id string) context.Context {
	t.Helper()
	return policy.With(t.Context(), policy.Caller{Kind: policy.Viewer, ID: id})
}

// One caller that opens streams without end is stopped; the others are not.
func TestStreamsOfOneCallerAreBounded(t *testing.T) {
	t.Parallel()
	s := newStreams()
	var leave func()
	for range maxStreams {
		var err error
		if leave, err = s.enter(as(t, "greedy")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.enter(as(t, "greedy")); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("one too many gives %v", err)
	}
	other, err := s.enter(as(t, "modest"))
	if err != nil {
		t.Fatal(err)
	}
	other()
	leave()
	leave() // the second time counts for nothing
	if _, err := s.enter(as(t, "greedy")); err != nil {
		t.Fatalf("after one has left: %v", err)
	}
	if _, err := s.enter(as(t, "greedy")); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("one too many again gives %v", err)
	}
	if n := len(s.open); n != 1 {
		t.Errorf("%d callers are counted, want 1", n)
	}
}

// A crowd that wakes at once reads in turns, and who goes away does not wait.
func TestFollowersReadInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreams()
		var now, most, done atomic.Int64
		gate := make(chan struct{})
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() {
				if err := s.read(t.Context(), func() error {
					most.Store(max(most.Load(), now.Add(1)))
					<-gate
					now.Add(-1)
					done.Add(1)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		crowd.Go(func() {
			if err := s.read(ctx, func() error { t.Error("it read"); return nil }); !errors.Is(err, gone) {
				t.Errorf("who goes away gets %v", err)
			}
		})
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		close(gate)
		crowd.Wait()
		if most.Load() != maxReading || done.Load() != 50 {
			t.Errorf("%d read at a time, %d have read", most.Load(), done.Load())
		}
	})
}

// Readers that ask for large pages and stop reading hold a few of them, not one
// each; small pages go on.
func TestLargePagesHaveLittleRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStreams()
		of := func(n int) func() ([]event.Event, error) {
			return func() ([]event.Event, error) { return []event.Event{{Data: make([]byte, n)}}, nil }
		}
		var held, sent atomic.Int64
		stalled := make(chan struct{})
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() {
				events, done, err := s.page(t.Context(), of(largePage+1))
				if err != nil || len(events) != 1 {
					t.Errorf("%d events, %v", len(events), err)
					return
				}
				defer done()
				held.Add(1)
				<-stalled
				sent.Add(1)
			})
		}
		synctest.Wait()
		if held.Load() != maxLarge {
			t.Errorf("%d large pages are held, want %d", held.Load(), maxLarge)
		}
		events, done, err := s.page(t.Context(), of(10))
		if err != nil || len(events) != 1 {
			t.Fatalf("a small page: %d events, %v", len(events), err)
		}
		done()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		crowd.Go(func() {
			if _, _, err := s.page(ctx, of(largePage+1)); !errors.Is(err, gone) {
				t.Errorf("who goes away gets %v", err)
			}
		})
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		close(stalled)
		crowd.Wait()
		if sent.Load() != 50 || len(s.large) != 0 || len(s.reading) != 0 {
			t.Errorf("%d were sent; %d and %d places are taken", sent.Load(), len(s.large), len(s.reading))
		}
	})
}
