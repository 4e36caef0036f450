package httpapi

import (
	"context"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Bounds of what followers cost everybody else.
const (
	// maxStreams is how many streams one caller may hold open.
	maxStreams = 512
	// maxReading is how many streams read from the store at a time. It is less
	// than what the store serves at once: a request never queues behind a crowd
	// of followers that one event has woken.
	maxReading = 2
)

// streams keeps account of the streams that are open.
type streams struct {
	reading chan struct{} // has one element for each that reads

	mu   sync.Mutex
	open map[string]int // by the caller's id
}

func newStreams() *streams {
	return &streams{reading: make(chan struct{}, maxReading), open: map[string]int{}}
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
