package manager

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/keeper"
)

var _ dispatch.Beside = (*Manager)(nil)

// besides are the second streams of workers, by session: whoever registers again
// has another. They are of use while another manager has the worker's own stream.
type besides struct {
	mu  sync.Mutex
	all map[string]*beside
}

type beside struct {
	worker keeper.Worker
	close  context.CancelCauseFunc
}

// AttendBeside holds a second stream of a worker.
func (m *Manager) AttendBeside(ctx context.Context, id string, host dispatch.Host) error {
	if m.Alone {
		return fault.New(fault.NotFound, "this manager shares its database with no other").WithCode("alone")
	}
	s, err := m.session(ctx, id)
	if err != nil {
		return err
	}
	open, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &beside{worker: keeper.Worker{ID: s.worker.ID, Drivers: served(&s.worker), Host: host}, close: cancel}
	defer m.besides.add(id, b)()
	<-open.Done()
	return context.Cause(open)
}

// add puts b in the place of an earlier one; out takes it away again.
func (bs *besides) add(session string, b *beside) (out func()) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if old := bs.all[session]; old != nil {
		old.close(errReplaced)
	}
	if bs.all == nil {
		bs.all = map[string]*beside{}
	}
	bs.all[session] = b
	return func() {
		bs.mu.Lock()
		defer bs.mu.Unlock()
		if bs.all[session] == b {
			delete(bs.all, session)
		}
	}
}

// of returns the worker that has a session and a second stream here.
func (bs *besides) of(session string) (w keeper.Worker, there bool) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.all[session]
	if b == nil {
		return w, false
	}
	return b.worker, true
}

// dismiss ends the second streams of sessions that are over, but for those that
// are named: a worker that was replaced, or is gone for good, may never do it.
func (m *Manager) dismiss(ctx context.Context, current map[string]bool) {
	for _, id := range m.besides.sessions() {
		if current[id] {
			continue
		}
		if _, err := m.session(ctx, id); fault.CodeOf(err) == "unknown_session" { // it may have begun just now
			m.besides.end(id, errUnknown)
		}
	}
}

// sessions lists those that have a second stream here.
func (bs *besides) sessions() []string {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return slices.Collect(maps.Keys(bs.all))
}

// end ends the second stream of a session.
func (bs *besides) end(session string, why error) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if b := bs.all[session]; b != nil {
		b.close(why)
	}
}

// closeAll ends every second stream.
func (bs *besides) closeAll() {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for _, b := range bs.all {
		b.close(errStopped)
	}
}
