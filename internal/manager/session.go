package manager

import (
	"context"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

// session is one registration of a worker, as long as this manager lives.
type session struct {
	id     string
	worker job.Worker

	mu     sync.Mutex
	seen   time.Time // when the worker's row was last refreshed
	paused string    // why the worker takes no more work for now
	stream *stream   // nil while the command stream is closed
}

// stream is an open command stream.
type stream struct {
	receiver dispatch.Receiver
	close    context.CancelCauseFunc
}

// sessions are the registrations that this manager knows. A restarted manager
// knows none, and the workers register again.
type sessions struct {
	mu       sync.Mutex
	byID     map[string]*session
	byWorker map[string]*session
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

func (ss *sessions) get(id string) (*session, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.byID[id]; s != nil {
		return s, nil
	}
	return nil, fault.New(fault.Unauthenticated, "the session is not known here; register again").WithCode("unknown_session")
}

// known reports whether the worker has a session here.
func (ss *sessions) known(worker string) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.byWorker[worker] != nil
}

// attending reports whether the worker's command stream is open here.
func (ss *sessions) attending(worker string) bool { return ss.receiver(worker) != nil }

// proofs are what the worker's drivers came to, where it has a session here.
func (ss *sessions) proofs(worker string) []job.Driver {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.byWorker[worker]; s != nil {
		return s.worker.Proofs
	}
	return nil
}

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

func (ss *sessions) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.byID, s.id)
	if ss.byWorker[s.worker.ID] == s {
		delete(ss.byWorker, s.worker.ID)
	}
}

// paused is why the worker takes no more work, where it has a session here.
func (ss *sessions) paused(worker string) string {
	ss.mu.Lock()
	s := ss.byWorker[worker]
	ss.mu.Unlock()
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

func (s *session) pause(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = why
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
	s.close(fault.New(fault.Conflict, "a newer command stream took over"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = &stream{receiver: rc, close: cancel}
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
func (s *session) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.seen) < seenEvery {
		return false
	}
	s.seen = now
	return true
}

// seenEvery bounds how often a worker's sign of life is written down.
const seenEvery = 5 * time.Second
