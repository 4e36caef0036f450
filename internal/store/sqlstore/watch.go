package sqlstore

import (
	"context"
	"sync"
)

// Watchers are the channels that Watch gave out.
type Watchers struct {
	mu     sync.Mutex
	closed bool
	stops  map[chan struct{}]func() bool // each with what takes it off its context
}

// Watch implements store.Store.
func (w *Watchers) Watch(ctx context.Context) <-chan struct{} {
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
func (w *Watchers) drop(ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.stops[ch]; ok {
		delete(w.stops, ch)
		close(ch)
	}
}

// Wake leaves a value in each channel. One that still holds a value needs no
// other: its reader has yet to look.
func (w *Watchers) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.stops {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// CloseWatchers closes all channels, and those of later Watches.
func (w *Watchers) CloseWatchers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for ch, stop := range w.stops {
		stop()
		close(ch)
	}
	clear(w.stops)
}
