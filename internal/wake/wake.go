// Package wake is how those who wait in one process are told that there may be
// something for them.
package wake

import "sync"

// Signal wakes everybody who waits, and needs no list of them. Its zero value
// is ready.
type Signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait returns a channel that the next Wake closes.
func (s *Signal) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Wake wakes those who wait, and leaves nothing for those who come later.
func (s *Signal) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
