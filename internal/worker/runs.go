package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	oneshot "github.com/aurea-dev/aurea/internal/run"
)

// What is kept of runs that have ended, for managers that ask again.
const (
	keepRuns     = 256
	keepRunBytes = 128 << 20
	keepRunAge   = 15 * time.Minute
)

var (
	errNoRoom    = fault.New(fault.Exhausted, "the worker has no room for another run").WithCode("no_room")
	errStopping  = fault.New(fault.Unavailable, "the worker is stopping").WithCode("worker_stopping")
	errForgotten = fault.New(fault.Gone, "the run was stopped and forgotten").WithCode("run_forgotten")
	errRunTaken  = fault.New(fault.Conflict, "a run with this id is under way").WithCode("run_taken")
)

// runs are the runs that are under way, and those whose end is kept.
type runs struct {
	// destroying holds a token for each sandbox that is destroyed behind the
	// answer of its run.
	destroying chan struct{}

	mu       sync.Mutex
	all      map[string]*shot
	ended    []*shot // that are kept, oldest first
	active   int
	stopping bool
	fewer    chan struct{} // closed and replaced when a run has ended
}

func newRuns(slots int) *runs {
	return &runs{destroying: make(chan struct{}, slots), all: map[string]*shot{}, fewer: make(chan struct{})}
}

// Run does a run, or finds one that was begun before.
func (rc receiver) Run(ctx context.Context, o oneshot.Order, piece func(dispatch.Chunk) error) (oneshot.Result, error) {
	if err := dispatch.CheckOrder(o); err != nil {
		return oneshot.Result{}, err
	}
	s, err := rc.run.enter(o)
	if err != nil {
		return oneshot.Result{}, err
	}
	if err := s.out.follow(ctx, o.From, piece); err != nil {
		if !o.Keep {
			s.stop(err)
			<-s.gone
		}
		if ctx.Err() != nil {
			err = fault.New(fault.Unavailable, "the run was given up: %w", context.Cause(ctx))
		}
		return oneshot.Result{}, err
	}
	return s.result, s.err
}

// Forget drops what is kept of a run, and stops it where it still runs.
func (rc receiver) Forget(_ context.Context, id string) error {
	rc.run.runs.forget(id)
	return nil
}

// enter begins a run, or returns the one with the same id where that is kept.
func (r *run) enter(o oneshot.Order) (*shot, error) {
	if s, err := r.runs.find(o); s != nil || err != nil {
		return s, err
	}
	if why := r.degraded(r.Driver); why != "" {
		return nil, fault.New(fault.Unavailable, "the driver %s is not served: %s", r.Driver, line(why)).WithCode("driver_degraded")
	}
	if why := r.pausedFor(); why != "" {
		return nil, fault.New(fault.Exhausted, "the worker takes no work for now: %s", line(why)).WithCode("no_room")
	}
	s, err := r.newShot(o)
	if err != nil {
		return nil, err
	}
	if !r.room.takeOne(s.limits.Memory) {
		s.stop(errNoRoom)
		return nil, errNoRoom
	}
	known, err := r.runs.add(s, func() { r.working.Go(s.do) })
	if known != s {
		r.room.give(s.limits.Memory)
		s.stop(errRunTaken)
	}
	return known, err
}

// find returns the run with the order's id, where both are kept.
func (rs *runs) find(o oneshot.Order) (*shot, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.known(o)
}

// known is find.
//
// Preconditions: mu is held.
func (rs *runs) known(o oneshot.Order) (*shot, error) {
	s := rs.all[o.ID]
	switch {
	case s != nil && (!o.Keep || !s.order.Keep):
		return nil, errRunTaken
	case s == nil && rs.stopping:
		return nil, errStopping
	}
	return s, nil
}

// add makes a run one of those that are under way and starts it, unless another
// was faster, which is returned then.
func (rs *runs) add(s *shot, start func()) (*shot, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if other, err := rs.known(s.order); other != nil || err != nil {
		return other, err
	}
	rs.all[s.order.ID] = s
	rs.active++
	start()
	return s, nil
}

// leave says that a run has ended. One that is kept stays, the oldest of them
// only as long as there is room.
func (rs *runs) leave(s *shot) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.active--
	close(rs.fewer)
	rs.fewer = make(chan struct{})
	if !s.order.Keep || s.ctx.Err() != nil {
		rs.drop(s)
		return
	}
	s.size = s.out.size()
	for _, a := range s.result.Artifacts {
		s.size += int64(len(a.Data))
	}
	s.since = time.Now()
	rs.ended = append(rs.ended, s)
	rs.trim()
}

// trim drops what is too old or too much.
//
// Preconditions: mu is held.
func (rs *runs) trim() {
	var bytes int64
	for _, s := range rs.ended {
		bytes += s.size
	}
	for len(rs.ended) > 0 {
		oldest := rs.ended[0]
		if len(rs.ended) <= keepRuns && bytes <= keepRunBytes && time.Since(oldest.since) <= keepRunAge {
			return
		}
		bytes -= oldest.size
		rs.drop(oldest)
	}
}

// drop forgets a run.
//
// Preconditions: mu is held.
func (rs *runs) drop(s *shot) {
	if rs.all[s.order.ID] == s {
		delete(rs.all, s.order.ID)
	}
	rs.ended = slices.DeleteFunc(rs.ended, func(o *shot) bool { return o == s })
}

func (rs *runs) forget(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if s := rs.all[id]; s != nil {
		s.stop(errForgotten)
		rs.drop(s)
	}
	rs.trim()
}

// refuse takes no more runs.
func (rs *runs) refuse() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.stopping = true
}

// stopAll takes no more runs, stops those under way and forgets the others.
func (rs *runs) stopAll(why error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.stopping = true
	for _, s := range rs.all {
		s.stop(why)
	}
}

func (rs *runs) running() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.active
}

// awaitNone waits until no run is under way.
func (rs *runs) awaitNone(ctx context.Context) error {
	for {
		rs.mu.Lock()
		none, fewer := rs.active == 0, rs.fewer
		rs.mu.Unlock()
		if none {
			return nil
		}
		select {
		case <-fewer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
