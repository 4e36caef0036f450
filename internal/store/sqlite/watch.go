package sqlite

import (
	"context"
	"sync"
)

// watchers are the channels that Watch gave out.
type watchers struct {
	mu     sync.Mutex
	closed bool
	stops  map[chan struct{}]func() bool // each with what takes it off its context
}

// Watch implements store.Store.
func (w *watchers) Watch(ctx context.Context) <-chan struct{} {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		close(ch)
		return ch
	}
	if w.stops == nil {
		w.stops = map[chan struct{}]func() bool{}
	}
	w.stops[ch] = context.AfterFunc(ctx, func() { w.drop(ch) })
	return ch
}

// drop closes one channel, unless that was done.
func (w *watchers) drop(ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.stops[ch]; ok {
		delete(w.stops, ch)
		close(ch)
	}
}

// wake leaves a value in each channel. One that still holds a value needs no
// other: its reader has yet to look.
func (w *watchers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.stops {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// closeWatchers closes all channels, and those of later Watches.
func (w *watchers) closeWatchers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for ch, stop := range w.stops {
		stop()
		close(ch)
	}
	clear(w.stops)
}
