package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
)

// task is the work under one lease, from its beginning until its result was
// taken or the lease is gone.
type task struct {
	lease dispatch.Lease
	began time.Time
	log   *slog.Logger
	// ctx is the task's own, stored because commands from elsewhere end it.
	ctx    context.Context
	stop   context.CancelCauseFunc
	let    chan struct{} // closed when it uses its workspace no more
	output output
	// journal outlives the process; past is what an earlier process wrote, and
	// nil for a task that began in this one.
	journal journal
	past    *past
	memory  int64 // what it takes of what the worker may give

	mu        sync.Mutex
	dropped   bool                 // the lease is not ours any more
	said      []event.Type         // what has happened, also what was taken
	happened  []dispatch.Happening // that the manager has not taken
	result    *dispatch.Result     // once it is ready to be handed over
	reporting bool                 // a report of it is on its way
	handing   bool                 // its result is on its way
}

// newTask prepares the work under a lease. It is written down where its driver
// could go on with it.
func newTask(r *run, l dispatch.Lease, recovers bool) *task {
	t := &task{
		lease: l, began: time.Now(), log: r.log.With("job", l.JobID, "attempt", l.Attempt, "fence", l.Fence),
		let: make(chan struct{}), memory: r.Limits.Memory,
	}
	t.ctx, t.stop = context.WithCancelCause(r.life)
	var kept *journal
	if recovers && validJobID(l.JobID) {
		kept = &t.journal
		kept.path, kept.log = r.base.lease(l.Held), t.log
		kept.write(entry{Version: journalVersion, Boot: r.base.boot, Lease: &l, Began: t.began})
	}
	t.output.init(r.base, l.Held, kept, func() { wake(r.printed) })
	return t
}

// happen notes an event, each type once: a task that was taken over may come by
// the same place again. Data must marshal to a small object.
func (t *task) happen(typ event.Type, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		t.log.Error("could not write an event down", "type", typ, "error", err)
		raw = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	again := slices.Contains(t.said, typ) && typ != event.SandboxAdopted
	if again || len(t.said) >= maxHappenings {
		return
	}
	t.said = append(t.said, typ)
	h := dispatch.Happening{N: int64(len(t.said)), Type: typ, At: time.Now().UTC(), Data: raw}
	// First, because after a restart its number must mean the same.
	t.journal.write(entry{Happened: &h})
	t.happened = append(t.happened, h)
}

// tell returns the happenings to report now, and whether the task has anything
// to report at all. One that has is held back from being handed over until
// told is called, so that its result cannot overtake its reports.
func (t *task) tell(now time.Time) (happened []dispatch.Happening, due bool) {
	out := t.output.due(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	old := len(t.happened) > 0 && now.Sub(t.began) >= tellAfter
	if t.result != nil || (!old && !out) {
		return nil, false
	}
	t.reporting = true
	return slices.Clone(t.happened), true
}

// told ends what tell began.
func (t *task) told() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reporting = false
}

// taken forgets the happenings up to the ordinal n.
func (t *task) taken(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.happened = slices.DeleteFunc(t.happened, func(h dispatch.Happening) bool { return h.N <= n })
}

// finished makes the result ready to be handed over. It is false when the lease
// is gone.
func (t *task) finished(res *dispatch.Result) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped {
		return false
	}
	t.result = res
	return true
}

// leave says that nobody wants anything more of the task. What is still at work
// removes what it has left; a result that waited leaves only its journal.
func (t *task) leave(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = true
	t.stop(why)
	if t.result != nil {
		t.journal.drop()
	}
}

// hand returns the result, with what happened and was not taken, if it can be
// handed over now. It does so once.
func (t *task) hand() *dispatch.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.result == nil || t.reporting || t.handing {
		return nil
	}
	t.handing = true
	t.result.Happenings = slices.Clone(t.happened)
	return t.result
}

// taskSet is all that the worker holds.
type taskSet struct {
	mu      sync.Mutex
	tasks   map[dispatch.Held]*task
	order   []*task                  // oldest first
	users   map[string]chan struct{} // by job: closed when its workspace is free
	early   []dispatch.Held          // cancelled before their lease came
	fewer   chan struct{}            // closed when a task left; nil while nobody waits
	stopped bool
}

func newTaskSet() *taskSet {
	return &taskSet{tasks: map[dispatch.Held]*task{}, users: map[string]chan struct{}{}}
}

// add takes a lease. It returns nil when the lease is held already, or was
// cancelled before it came. An older lease of the same job is dropped; before
// is closed when that one has let go of the workspace.
func (s *taskSet) add(r *run, l dispatch.Lease) (t *task, before <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.tasks[l.Held] != nil || slices.Contains(s.early, l.Held) {
		return nil, nil
	}
	for _, old := range s.order {
		if old.lease.JobID == l.JobID {
			s.remove(old, errGone)
			break
		}
	}
	t = newTask(r, l, r.driver.Capabilities().Recover)
	before = s.users[l.JobID]
	s.put(t)
	return t, before
}

// adopt takes a task that an earlier process began.
func (s *taskSet) adopt(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(t)
}

// put makes a task one of those that are held.
//
// Preconditions: mu is held.
func (s *taskSet) put(t *task) {
	s.users[t.lease.JobID] = t.let
	s.tasks[t.lease.Held] = t
	s.order = append(s.order, t)
}

// letGo says that a task's goroutine has ended.
func (s *taskSet) letGo(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[t.lease.JobID] == t.let {
		delete(s.users, t.lease.JobID)
	}
	close(t.let)
}

// drop stops a task and reports nothing more of it. An unknown lease is none.
func (s *taskSet) drop(h dispatch.Held, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tasks[h]; t != nil {
		s.remove(t, why)
	}
}

// cancel drops a task. One that is not here may be on its way: the command
// stream can be faster than the answer that brings the lease.
func (s *taskSet) cancel(h dispatch.Held) {
	const most = 256
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tasks[h]; t != nil {
		s.remove(t, errCancelled)
		return
	}
	if len(s.early) >= most {
		s.early = slices.Delete(s.early, 0, 1)
	}
	s.early = append(s.early, h)
}

func (s *taskSet) dropAll(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for len(s.order) > 0 {
		s.remove(s.order[0], why)
	}
}

// dropUnfinished drops the tasks that have no result yet.
func (s *taskSet) dropUnfinished(why error) {
	for _, t := range s.all() {
		t.mu.Lock()
		finished := t.result != nil
		t.mu.Unlock()
		if !finished {
			s.drop(t.lease.Held, why)
		}
	}
}

// remove forgets a task and ends its context.
//
// Preconditions: mu is held.
func (s *taskSet) remove(t *task, why error) {
	t.leave(why)
	delete(s.tasks, t.lease.Held)
	if i := slices.Index(s.order, t); i >= 0 {
		s.order = slices.Delete(s.order, i, i+1)
	}
	if s.fewer != nil {
		close(s.fewer)
		s.fewer = nil
	}
}

// ending reports whether nothing more is begun.
func (s *taskSet) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// all returns the tasks, oldest first.
func (s *taskSet) all() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// get returns the task under a lease, or nil.
func (s *taskSet) get(h dispatch.Held) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[h]
}

func (s *taskSet) held() []dispatch.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make([]dispatch.Held, len(s.order))
	for i, t := range s.order {
		held[i] = t.lease.Held
	}
	return held
}

func (s *taskSet) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.order)
}

// awaitFewer waits until fewer than n tasks are held.
func (s *taskSet) awaitFewer(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		if len(s.order) < n {
			s.mu.Unlock()
			return nil
		}
		if s.fewer == nil {
			s.fewer = make(chan struct{})
		}
		fewer := s.fewer
		s.mu.Unlock()
		select {
		case <-fewer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
