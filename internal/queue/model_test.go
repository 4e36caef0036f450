package queue_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
)

// model is the queue as one would explain it on a blackboard: a list of tasks,
// no counters, every consequence found by looking at all of them again.
type model struct {
	now   time.Time
	tasks []*entry
	roots map[string]bool // by id: whether it was cancelled
}

// entry is what the model knows of one task.
type entry struct {
	id, root  string
	deps      []*entry
	retries   int
	validate  bool
	priority  int
	state     job.State
	outcome   job.Outcome
	bound     string
	worker    string
	submitter string
	fence     int64
	attempt   int
	failures  int
	losses    int
	until     time.Time
	ready     time.Time
	taken     map[int64]string // by number: whose result was accepted under it
	reported  int64            // the last happening that was taken under this number
	told      int              // happenings that were taken in all
}

func (m *model) find(id string) *entry {
	i := slices.IndexFunc(m.tasks, func(t *entry) bool { return t.id == id })
	return m.tasks[i]
}

func (m *model) children(root string) (out []*entry) {
	for _, t := range m.tasks {
		if t.root == root {
			out = append(out, t)
		}
	}
	return out
}

// waiting counts the dependencies that are not completed.
func (t *entry) waiting() (n int) {
	for _, d := range t.deps {
		if d.state != job.Completed {
			n++
		}
	}
	return n
}

// blocked reports whether a dependency has ended without being completed.
func (t *entry) blocked() bool {
	return slices.ContainsFunc(t.deps, func(d *entry) bool { return d.state == job.Failed || d.state == job.Escalated })
}

func (t *entry) out() bool { return t.state == job.InProgress || t.state == job.Validating }

// spread ends, until nothing changes, what waits for something that failed.
func (m *model) spread() {
	for changed := true; changed; {
		changed = false
		for _, t := range m.tasks {
			if !t.state.Ended() && t.blocked() {
				t.state, t.outcome = job.Failed, job.OutcomeDependencyFailed
				changed = true
			}
		}
	}
}

// rootState is how a root must stand.
func (m *model) rootState(root string) (state job.State, outcome job.Outcome, open int) {
	done := true
	for _, t := range m.children(root) {
		if !t.state.Ended() {
			open++
		}
		done = done && t.state == job.Completed
	}
	switch {
	case open > 0:
		return job.InProgress, "", open
	case done:
		return job.Completed, job.OutcomeOK, 0
	case m.roots[root]:
		return job.Failed, job.OutcomeCancelled, 0
	default:
		return job.Failed, job.OutcomeFailed, 0
	}
}

func (m *model) schedule() (n int) {
	for _, t := range m.tasks {
		if t.state == job.Queued && t.waiting() == 0 && !t.ready.After(m.now) {
			t.state, t.bound = job.Assigned, ""
			n++
		}
	}
	return n
}

func (m *model) lease(worker string, most int) (ids []string) {
	var can []*entry
	for _, t := range m.tasks {
		if t.state == job.Assigned && (t.bound == "" || t.bound == worker) {
			can = append(can, t)
		}
	}
	slices.SortStableFunc(can, func(a, b *entry) int { return cmp.Compare(b.priority, a.priority) })
	for _, t := range can[:min(most, len(can))] {
		m.start(t, worker)
		ids = append(ids, t.id)
	}
	return ids
}

func (m *model) start(t *entry, worker string) {
	t.state, t.worker = job.InProgress, worker
	t.fence++
	t.attempt++
	t.reported = 0
	t.until = m.now.Add(30 * time.Second)
}

// claim reports whether a worker may take a task, and takes it.
func (m *model) claim(t *entry, worker string) bool {
	switch {
	case t.state == job.Submitted && worker != t.submitter:
		t.state, t.worker = job.Validating, worker
		t.fence++
		t.reported = 0
		t.until = m.now.Add(30 * time.Second)
		return true
	case t.state == job.Queued && t.waiting() == 0 && !t.ready.After(m.now),
		t.state == job.Assigned && (t.bound == "" || t.bound == worker):
		m.start(t, worker)
		return true
	}
	return false
}

// report reports whether the happenings 1 to n are answered with success.
func (m *model) report(t *entry, worker string, fence, n int64) bool {
	if t.worker != worker || t.fence != fence || t.state != job.InProgress && n > t.reported {
		return false
	}
	t.told += int(max(n-t.reported, 0))
	t.reported = max(t.reported, n)
	return true
}

// finish reports whether a result is answered with success.
func (m *model) finish(t *entry, worker string, fence int64, success bool) bool {
	if t.state != job.InProgress || t.worker != worker || t.fence != fence {
		return t.taken[fence] == worker
	}
	t.taken[fence] = worker
	m.settle(t, success)
	return true
}

func (m *model) settle(t *entry, success bool) {
	switch {
	case success && t.validate:
		t.state, t.submitter = job.Submitted, t.worker
	case success:
		t.state, t.outcome = job.Completed, job.OutcomeOK
	default:
		t.failures++
		if t.failures > t.retries {
			t.state, t.outcome = job.Failed, job.OutcomeFailed
			m.spread()
			return
		}
		t.state, t.ready = job.Queued, m.now.Add(wait(t.failures))
	}
}

// wait is the longest wait, which is what the jitter of the tests draws.
func wait(n int) time.Duration { return min(time.Second<<(n-1), time.Minute) }

func (m *model) lose(t *entry, wait time.Duration) {
	t.fence++
	if t.state == job.Validating {
		t.state = job.Submitted
		return
	}
	if t.losses++; t.losses > job.MaxLosses {
		t.state, t.outcome = job.Failed, job.OutcomeLost
		m.spread()
		return
	}
	t.state, t.ready = job.Queued, m.now.Add(wait)
}

func (m *model) reap() (n int) {
	for _, t := range m.tasks {
		if t.out() && t.until.Before(m.now) {
			m.lose(t, wait(t.losses+1))
			n++
		}
	}
	return n
}

func (m *model) release(worker string) {
	for _, t := range m.tasks {
		if t.out() && t.worker == worker {
			m.lose(t, time.Second)
		}
	}
}

func (m *model) judge(t *entry, worker string, passes bool) bool {
	if t.state == job.Submitted {
		if !m.claim(t, worker) {
			return false
		}
	} else if t.state != job.Validating || t.worker != worker {
		return false
	}
	t.state, t.outcome = job.Completed, job.OutcomeOK
	if !passes {
		t.state, t.outcome = job.Escalated, job.OutcomeRejected
		m.spread()
	}
	return true
}

// cancel ends open tasks and counts those that ran.
func (m *model) cancel(tasks []*entry) (ended, ran int) {
	for _, t := range tasks {
		if t.state.Ended() {
			continue
		}
		if t.out() {
			ran++
		}
		t.state, t.outcome = job.Failed, job.OutcomeCancelled
		t.fence++
		ended++
	}
	m.spread()
	return ended, ran
}

// retry reopens tasks, and then all that had ended only because of them.
func (m *model) retry(tasks []*entry) (n int) {
	reopen := func(t *entry) {
		t.state, t.outcome, t.failures, t.losses = job.Queued, "", 0, 0
		t.worker, t.submitter, t.ready = "", "", m.now
		m.roots[t.root] = false
		n++
	}
	var hit []*entry
	for changed := true; changed; {
		changed = false
		for _, t := range m.tasks {
			named := slices.Contains(tasks, t)
			follows := t.outcome == job.OutcomeDependencyFailed && slices.ContainsFunc(t.deps, func(d *entry) bool { return slices.Contains(hit, d) })
			if (t.state == job.Failed || t.state == job.Escalated) && !t.blocked() && (named || follows) {
				reopen(t)
				hit = append(hit, t)
				changed = true
			}
		}
	}
	return n
}
