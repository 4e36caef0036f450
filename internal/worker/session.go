package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// session keeps the worker known to the manager. Every call names the session;
// whoever meets unknown_session has it renewed, and the others that met it at
// the same time use what came of that.
type session struct {
	run  *run
	turn chan struct{} // holds one token while somebody registers

	mu    sync.Mutex
	id    string
	every time.Duration // between extensions
	term  time.Duration // of a lease
}

const (
	unknownSession = "unknown_session"
	workerIDTaken  = "worker_id_taken"
	// takenPatience is how long a taken id is tried again: the other may be an
	// earlier life of this worker on another folder, about to be given up.
	takenPatience = 10 * time.Second
)

func newSession(r *run) *session { return &session{run: r, turn: make(chan struct{}, 1)} }

func (s *session) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

func (s *session) extendEvery() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.every
}

func (s *session) leaseTerm() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term
}

// renew registers unless somebody has done so since the caller saw the session
// old. It tries for ever while the manager is away; what trying again does not
// mend ends the run.
func (s *session) renew(ctx context.Context, old string) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.current() != old {
		return nil
	}
	began := time.Now()
	var pause backoff
	for {
		err := s.register(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if final(err, time.Since(began)) {
			err = fmt.Errorf("register worker %s: %w", s.run.WorkerID, err)
			s.run.fail(err)
			return err
		}
		s.run.log.Warn("could not register with the manager, trying again", "error", err)
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

// final reports whether registering again would only fail again.
func final(err error, tried time.Duration) bool {
	switch fault.KindOf(err) {
	case fault.Conflict:
		return fault.CodeOf(err) != workerIDTaken || tried >= takenPatience
	case fault.Invalid, fault.Denied, fault.Unauthenticated, fault.TooLarge:
		return true
	case fault.Internal, fault.NotFound, fault.Gone, fault.Exhausted, fault.Unavailable:
		// NotFound too: behind a proxy the manager may be away.
		return false
	}
	return false
}

func (s *session) register(ctx context.Context) error {
	r := s.run
	bounded, cancel := context.WithTimeoutCause(ctx, dispatch.ReportTimeout, errSlow)
	defer cancel()
	tripped := r.stops.untold(true)
	welcome, err := r.Manager.Register(bounded, dispatch.Registration{
		Wire: dispatch.Version, WorkerID: r.WorkerID, Identity: r.base.identity, Incarnation: r.incarnation,
		Role: r.Role, Models: r.Models, Drivers: r.summaries(), Slots: r.Slots, Version: r.Version,
		Languages: r.languages(), Holding: r.tasks.held(), Lost: r.lostSoFar(),
		Sandboxes: r.hosted.standings(), Tripped: tripped,
	})
	if err != nil {
		return err
	}
	r.toldLost()
	s.mu.Lock()
	s.id, s.every, s.term = welcome.Session, welcome.ExtendEvery, welcome.LeaseTerm
	if s.every <= 0 {
		s.every = 10 * time.Second
	}
	s.mu.Unlock()
	r.log.Info("registered with the manager", "incarnation", r.incarnation)
	for _, h := range welcome.Gone {
		r.tasks.drop(h, errGone)
	}
	r.hosted.strangers(welcome.Strangers)
	r.hosted.killStrangers(welcome.StrangeExecs)           //nolint:contextcheck // in the lives of their sandboxes
	r.stops.heard(r.life, welcome.Switches, tripped, true) //nolint:contextcheck // what is stopped is stopped in the life of the run
	return nil
}

func (r *run) summaries() []dispatch.DriverSummary {
	all := make([]dispatch.DriverSummary, 0, len(r.Drivers))
	for name, d := range r.Drivers {
		all = append(all, r.summary(name, d))
	}
	slices.SortFunc(all, func(a, b dispatch.DriverSummary) int { return strings.Compare(a.Name, b.Name) })
	return all
}

var errSlow = fault.New(fault.Unavailable, "the manager did not answer in time")

// call makes one call under the current session, and once more under a new one
// when the manager has forgotten it.
func (s *session) call(ctx context.Context, timeout time.Duration, do func(ctx context.Context, session string) error) error {
	id := s.current()
	if id == "" { // work that was taken over does not wait for the registration
		if err := s.renew(ctx, id); err != nil {
			return err
		}
		id = s.current()
	}
	err := s.once(ctx, timeout, id, do)
	if fault.CodeOf(err) != unknownSession {
		return err
	}
	if err := s.renew(ctx, id); err != nil {
		return err
	}
	return s.once(ctx, timeout, s.current(), do)
}

func (s *session) once(ctx context.Context, timeout time.Duration, id string, do func(ctx context.Context, session string) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, errSlow)
	defer cancel()
	err := do(bounded, id)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return errSlow
	}
	return err
}

// insist repeats a call until it succeeds, ctx ends, or the manager says that
// the request itself is wrong.
func (s *session) insist(ctx context.Context, what string, timeout time.Duration, do func(ctx context.Context, session string) error) error {
	var pause backoff
	for {
		err := s.call(ctx, timeout, do)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch fault.KindOf(err) {
		case fault.Invalid, fault.TooLarge:
			return err
		case fault.Internal, fault.NotFound, fault.Conflict, fault.Unauthenticated, fault.Denied,
			fault.Exhausted, fault.Unavailable, fault.Gone:
			// All of these can pass: a proxy without its manager, a key that is
			// being changed. What was done is not given up for them.
		}
		s.run.log.Warn("the manager is away, trying again", "call", what, "error", err)
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

// backoff waits longer each time: 0.1 s, doubling up to 5 s, less some chance,
// so that many workers do not come back at once.
type backoff struct{ last time.Duration }

func (b *backoff) wait(ctx context.Context) error {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	b.last = min(max(2*b.last, shortest), longest)
	timer := time.NewTimer(b.last - rand.N(b.last/4))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *backoff) reset() { b.last = 0 }
