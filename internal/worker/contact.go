package worker

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/killswitch"
)

// contact is when a manager could last have stopped what runs here. A word about
// the kill switch counts, and so does a command stream that is open: both ends
// notice when the other is gone, and a manager whose database is away can still
// pull the switch over it.
type contact struct {
	back chan struct{} // one token: a manager was heard of

	mu     sync.Mutex
	heard  time.Time // at first the start of this process
	opened time.Time // when the stream began to be opened; zero while there is none
}

func newContact() *contact { return &contact{heard: time.Now(), back: make(chan struct{}, 1)} }

// hear notes a manager's word.
func (c *contact) hear() {
	c.mu.Lock()
	c.heard = time.Now()
	c.mu.Unlock()
	wake(c.back)
}

// attend notes that a command stream is about to be opened; ended, that it is
// over.
func (c *contact) attend() (ended func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if now := time.Now(); c.streams(now) {
			c.heard = now
		}
		c.opened = time.Time{}
	}
}

// streams reports whether the stream is open: opening it takes a bounded time.
//
// Preconditions: mu is held.
func (c *contact) streams(now time.Time) bool {
	return !c.opened.IsZero() && now.Sub(c.opened) > dispatch.ReportTimeout
}

// silence is for how long no manager could have stopped anything here.
func (c *contact) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.streams(now) {
		return 0
	}
	return now.Sub(c.heard)
}

// partitionLimit is how long the worker goes on without a manager: never shorter
// than its leases, which it is given for that; 0 is for good.
func (r *run) partitionLimit() time.Duration {
	if r.PartitionLimit <= 0 {
		return 0
	}
	return max(r.PartitionLimit, r.session.leaseTerm())
}

// watchContact ends everything here once no manager has been there for too long,
// until the run ends. Whoever cannot be told to stop has to stop by himself.
func (r *run) watchContact() {
	const again = time.Second
	if r.PartitionLimit <= 0 {
		return
	}
	for {
		left, back := r.partitionLimit()-r.contact.silence(), (<-chan struct{})(nil)
		if left <= 0 {
			if left = again; r.stops.cutOff(r.life) {
				left, back = r.partitionLimit(), r.contact.back
			}
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-back:
		case <-r.life.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

var errCutOff = fault.New(fault.Unavailable, "the worker was cut off from its manager")

// cutOff ends everything here, and reports whether that is done. It holds until
// a manager has said what its switches say, is told to none and not written
// down: it is not one of theirs, and nothing here is begun without them.
func (s *stops) cutOff(ctx context.Context) bool {
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTime, errSlowStop)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-bounded.Done():
		return false
	}
	limit, silence := s.run.partitionLimit(), s.run.contact.silence()
	if silence < limit {
		return true // somebody was heard of meanwhile
	}
	s.mu.Lock()
	known, short := s.cut != nil, s.short
	stands := s.holds().Everything() != nil
	if !known && !stands {
		s.cut = &killswitch.Switch{
			ID: uuid.NewString(), Level: killswitch.Kill, Scope: killswitch.All, Worker: s.run.WorkerID, By: "worker " + s.run.WorkerID,
			Reason: "no manager could be reached for " + limit.String(), At: time.Now().UTC(),
		}
	}
	all := s.holds()
	s.mu.Unlock()
	if stands && !short {
		return true
	}
	s.run.log.Error("no manager could be reached for too long; everything here is ended", "silence", silence, "limit", limit)
	s.run.tasks.dropUnfinished(errCutOff)
	_, _ = s.apply(bounded, all) // what it could not do is in short
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.short
}
