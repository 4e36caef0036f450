package httpapi

import (
	"context"
	"sync"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Bounds of what followers cost everybody else.
const (
	// maxStreams is how many streams one caller may hold open.
	maxStreams = 512
	// maxReading is how many streams read from the store at a time. It is less
	// than what the store serves at once: a request never queues behind a crowd
	// of followers that one event has woken.
	maxReading = 2
	// largePage is where a page counts as large, and maxLarge how many of those
	// are held for readers at a time: who stops reading must not pile them up.
	largePage = 64 << 10
	maxLarge  = 8
)

// streams keeps account of the streams that are open.
type streams struct {
	reading chan struct{} // has one element for each that reads
	large   chan struct{} // has one element for each large page

	mu   sync.Mutex
	open map[string]int // by the caller's id
}

func newStreams() *streams {
	return &streams{reading: make(chan struct{}, maxReading), large: make(chan struct{}, maxLarge), open: map[string]int{}}
}

// enter counts a stream of the caller, until leave is called.
func (s *streams) enter(ctx context.Context) (leave func(), err error) {
	caller, _ := policy.From(ctx) // all who have no name count as one
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[caller.ID] >= maxStreams {
		return nil, fault.New(fault.Exhausted, "You hold %d streams open, which is the most that one caller may; close some.", maxStreams).WithCode("too_many_streams")
	}
	s.open[caller.ID]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[caller.ID]--; s.open[caller.ID] == 0 {
			delete(s.open, caller.ID)
		}
	}), nil
}

// read runs one look at the store when it is the stream's turn.
func (s *streams) read(ctx context.Context, look func() error) error {
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.reading }()
	return look()
}

// page reads a page of events for one stream. done gives back the room that it
// takes, and is called when it was sent. A large page for which there is no room
// is let go and read again when there is.
func (s *streams) page(ctx context.Context, read func() ([]event.Event, error)) (events []event.Event, done func(), err error) {
	look := func() (err error) {
		events, err = read()
		return err
	}
	err = s.read(ctx, look)
	if err != nil || !isLarge(events) {
		return events, func() {}, err
	}
	done = func() { <-s.large }
	select {
	case s.large <- struct{}{}:
		return events, done, nil
	default:
		events = nil
	}
	select {
	case s.large <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if err := s.read(ctx, look); err != nil {
		done()
		return nil, nil, err
	}
	return events, done, nil
}

func isLarge(events []event.Event) bool {
	sum := 0
	for i := range events {
		sum += store.EventBytes(&events[i])
	}
	return sum > largePage
}
