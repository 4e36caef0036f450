package manager

import (
	"context"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/store"
)

// session is one registration of a worker, as this manager knows it.
type session struct {
	id     string
	worker job.Worker

	mu     sync.Mutex
	asked  time.Time // when the database last said that it is the worker's session
	seen   time.Time // when the worker's row was last refreshed
	paused string    // why the worker takes no more work for now
	leases int       // that it held when it last extended them
	worked dispatch.Figures
	// languages are what it said last; they are never changed in place.
	languages []language.Status
	stream    *stream // nil while the command stream is closed
}

// stream is an open command stream.
type stream struct {
	receiver dispatch.Receiver
	close    context.CancelCauseFunc
	since    time.Time
}

// sessions are the registrations that this manager has met. A manager that is
// alone forgets them when it is restarted, and the workers register again; one
// that shares its database finds those that others made there.
type sessions struct {
	mu       sync.Mutex
	byID     map[string]*session
	byWorker map[string]*session
	held     func() bool // nothing new is handed out; nil is never
}

func newSessions() *sessions {
	return &sessions{byID: map[string]*session{}, byWorker: map[string]*session{}}
}

// add makes s the session of its worker and closes the one before it.
func (ss *sessions) add(s *session) {
	ss.mu.Lock()
	old := ss.byWorker[s.worker.ID]
	if old != nil {
		delete(ss.byID, old.id)
	}
	ss.byID[s.id], ss.byWorker[s.worker.ID] = s, s
	ss.mu.Unlock()
	if old != nil {
		old.close(fault.New(fault.Unauthenticated, "another session of worker %s took over", s.worker.ID).WithCode("unknown_session"))
	}
}

func (ss *sessions) get(id string) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.byID[id]
}

var errUnknown = fault.New(fault.Unauthenticated, "the session is not known here; register again").WithCode("unknown_session")

// session returns the session of an id. Where another manager may have put a
// new one in its place, the database is asked.
func (m *Manager) session(ctx context.Context, id string) (*session, error) {
	if m.Alone {
		if s := m.sessions.get(id); s != nil {
			return s, nil
		}
		return nil, errUnknown
	}
	now := time.Now()
	var w job.Worker
	err := m.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = tx.Workers().BySession(ctx, id)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return nil, errUnknown
	}
	if err != nil {
		return nil, err
	}
	s := m.sessions.meet(&session{id: id, worker: w, seen: w.SeenAt, paused: w.Paused})
	s.mu.Lock()
	s.asked = now
	s.mu.Unlock()
	return s, nil
}

// believed is for how long the database's word on a session counts with what is
// called for each job. The follower tells of a new session sooner, and what is
// done under an old one until then is held up by the fences of its leases.
const believed = 250 * time.Millisecond

// recent is session without asking each time.
func (m *Manager) recent(ctx context.Context, id string) (*session, error) {
	if s := m.sessions.get(id); s != nil {
		s.mu.Lock()
		fresh := time.Since(s.asked) < believed
		s.mu.Unlock()
		if fresh {
			return s, nil
		}
	}
	return m.session(ctx, id)
}

// meet adds a session that another manager made, unless it was met meanwhile.
func (ss *sessions) meet(s *session) *session {
	if known := ss.get(s.id); known != nil {
		return known
	}
	ss.add(s)
	return s
}

// reconcile forgets what this manager knows of a worker, if another session
// has taken its place, and closes its stream if another manager has it.
func (m *Manager) reconcile(w *job.Worker) {
	m.sessions.mu.Lock()
	s := m.sessions.byWorker[w.ID]
	m.sessions.mu.Unlock()
	switch {
	case s == nil:
	case s.id != w.Session:
		m.sessions.remove(s)
		s.close(errUnknown)
	case w.Manager != "" && w.Manager != m.ID && s.old():
		s.close(errReplaced)
	}
}

// old reports whether the stream is open for so long that this is written down.
func (s *session) old() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream != nil && time.Since(s.stream.since) > compareAll
}

var errReplaced = fault.New(fault.Conflict, "a newer command stream took over")

// known reports whether the worker has a session here.
func (ss *sessions) known(worker string) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.byWorker[worker] != nil
}

// attending reports whether the worker's command stream is open here.
func (ss *sessions) attending(worker string) bool { return ss.receiver(worker) != nil }

func (ss *sessions) receiver(worker string) dispatch.Receiver {
	ss.mu.Lock()
	s := ss.byWorker[worker]
	ss.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil {
		return nil
	}
	return s.stream.receiver
}

// dropStale forgets sessions without a stream that were not heard of since: a
// worker that comes back after all registers again.
func (ss *sessions) dropStale(since time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for id, s := range ss.byID {
		s.mu.Lock()
		stale := s.stream == nil && s.seen.Before(since)
		s.mu.Unlock()
		if stale {
			delete(ss.byID, id)
			if ss.byWorker[s.worker.ID] == s {
				delete(ss.byWorker, s.worker.ID)
			}
		}
	}
}

func (ss *sessions) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.byID, s.id)
	if ss.byWorker[s.worker.ID] == s {
		delete(ss.byWorker, s.worker.ID)
	}
}

// said notes what the worker says of itself, and reports whether it is news
// that it takes no more work, or takes some again.
func (s *session) said(req *dispatch.ExtendRequest) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.paused != req.Paused
	s.paused, s.leases, s.worked, s.languages = req.Paused, len(req.Held), req.Figures, req.Languages
	return news
}

// closeAll ends every command stream.
func (ss *sessions) closeAll() {
	ss.mu.Lock()
	all := make([]*session, 0, len(ss.byID))
	for _, s := range ss.byID {
		all = append(all, s)
	}
	ss.mu.Unlock()
	for _, s := range all {
		s.close(errStopped)
	}
}

// open puts rc at the end of the command stream and closes the stream before
// it. The returned context ends when another takes its place.
func (s *session) open(ctx context.Context, rc dispatch.Receiver) (context.Context, *stream) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.close(errReplaced)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = &stream{receiver: rc, close: cancel, since: time.Now()}
	return ctx, s.stream
}

// leave takes a stream away again, unless another has taken its place. It
// reports whether it was the current one.
func (s *session) leave(st *stream) bool {
	st.close(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != st {
		return false
	}
	s.stream = nil
	return true
}

func (s *session) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream.close(cause)
	}
}

// due reports whether the worker's row is old enough to be refreshed, and if
// so takes it upon the caller.
func (s *session) due(now time.Time, news bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.seen) < seenEvery && !news {
		return false
	}
	s.seen = now
	return true
}

// seenEvery bounds how often a worker's sign of life is written down.
const seenEvery = 5 * time.Second
