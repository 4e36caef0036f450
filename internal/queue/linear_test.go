package queue_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/queue"
)

// call is one call to the queue, as the checker of the history sees it.
type call struct {
	op      string // lease, finish, extend, release, schedule
	worker  string
	held    dispatch.Held
	attempt int
	success bool
}

// answer is what came back.
type answer struct {
	held  dispatch.Held // of a lease; zero when there was none
	ok    bool          // of finish and extend
	count int           // of schedule
}

// seat is one job in the sequential queue that the history is compared with.
type seat struct {
	order  int
	state  job.State
	worker string
	fence  int64
	taken  map[int64]string // results that were accepted, by number
}

// line is a sequential queue. Steps copy what they change.
type line map[string]seat

func (l line) with(id string, s seat) line {
	c := maps.Clone(l)
	c[id] = s
	return c
}

// key writes the whole state down, for comparing.
func (l line) key() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(l)) {
		fmt.Fprint(&b, id, l[id], ";")
	}
	return b.String()
}

// step says whether the sequential queue could give the answer, and what it
// is like afterwards.
func (l line) step(c call, a answer) (bool, line) {
	switch c.op {
	case "schedule":
		next, n := maps.Clone(l), 0
		for id, s := range l {
			if s.state == job.Queued {
				s.state = job.Assigned
				next[id] = s
				n++
			}
		}
		return n == a.count, next
	case "lease":
		id, ok := l.first()
		if !ok || a.held.JobID != id {
			return !ok && a.held.JobID == "", l
		}
		s := l[id]
		s.state, s.worker = job.InProgress, c.worker
		s.fence++
		return s.fence == a.held.Fence, l.with(id, s)
	case "extend":
		return a.ok == l.holds(c), l
	case "finish":
		return l.finish(c, a)
	case "release":
		next := maps.Clone(l)
		for id, s := range l {
			if s.state == job.InProgress && s.worker == c.worker {
				s.state = job.Queued
				s.fence++
				next[id] = s
			}
		}
		return true, next
	}
	return false, l
}

func (l line) finish(c call, a answer) (bool, line) {
	s := l[c.held.JobID]
	if !l.holds(c) {
		return a.ok == (s.taken[c.held.Fence] == c.worker), l
	}
	s.taken = maps.Clone(s.taken)
	s.taken[c.held.Fence] = c.worker
	s.state = job.Queued
	if c.success {
		s.state = job.Completed
	}
	return a.ok, l.with(c.held.JobID, s)
}

func (l line) holds(c call) bool {
	s := l[c.held.JobID]
	return s.state == job.InProgress && s.worker == c.worker && s.fence == c.held.Fence
}

// first is the job that a lease must give out.
func (l line) first() (string, bool) {
	var can []string
	for id, s := range l {
		if s.state == job.Assigned {
			can = append(can, id)
		}
	}
	if len(can) == 0 {
		return "", false
	}
	return slices.MinFunc(can, func(a, b string) int { return cmp.Compare(l[a].order, l[b].order) }), true
}

// TestTheHistoryIsLinearizable lets eight workers lease, extend, finish, crash
// and schedule at once, and demands that some order of their calls, one after
// the other, explains every answer.
func TestTheHistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	const clients, calls, jobs = 8, 40, 6
	f := open(t, func(c *queue.Config) { c.Jitter = func(time.Duration) time.Duration { return 0 } })
	begin := line{}
	tasks := make([]job.Task, jobs)
	for i := range tasks {
		tasks[i] = task(fmt.Sprint(i), retries(job.MaxMaxRetries))
	}
	for key, id := range f.submit(tasks...) {
		if key != "" {
			order := 0
			_, _ = fmt.Sscan(key, &order)
			begin[id] = seat{order: order, state: job.Queued, taken: map[int64]string{}}
		}
	}

	started := time.Now()
	histories := make([][]porcupine.Operation, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			client := &client{f: f, worker: fmt.Sprintf("w%d", i%4), random: rand.New(rand.NewPCG(uint64(i), 7))}
			for range calls {
				in := client.choose()
				called := time.Since(started).Nanoseconds()
				out := client.do(t, in)
				histories[i] = append(histories[i], porcupine.Operation{ClientId: i, Input: in, Call: called, Output: out, Return: time.Since(started).Nanoseconds()})
			}
		})
	}
	all.Wait()

	model := porcupine.Model{
		Init:  func() any { return begin },
		Step:  func(s, in, out any) (bool, any) { return s.(line).step(in.(call), out.(answer)) },
		Equal: func(a, b any) bool { return a.(line).key() == b.(line).key() },
	}
	history := slices.Concat(histories...)
	if !porcupine.CheckOperations(model, history) {
		for _, op := range history {
			t.Logf("%d..%d client %d: %+v -> %+v", op.Call, op.Return, op.ClientId, op.Input, op.Output)
		}
		t.Error("no order of these calls explains their answers")
	}
}

// client is a worker process; two of them share each worker's name, so that
// they get in each other's way.
type client struct {
	f      *fixture
	worker string
	random *rand.Rand
	leases []job.Job // all that it ever had
}

func (c *client) choose() call {
	in := call{worker: c.worker, success: c.random.IntN(8) == 0}
	if len(c.leases) > 0 {
		// Mostly the newest, at times one that is long gone.
		j := c.leases[max(len(c.leases)-1-c.random.IntN(3), 0)]
		in.held, in.attempt = heldOf(j), j.Attempt
	}
	switch n := c.random.IntN(20); {
	case n < 1:
		in.op = "release"
	case n < 5:
		in.op = "schedule"
	case n < 11 || len(c.leases) == 0:
		in.op = "lease"
	case n < 13:
		in.op = "extend"
	default:
		in.op = "finish"
	}
	return in
}

func (c *client) do(t *testing.T, in call) (out answer) {
	ctx := context.Background()
	var err error
	switch in.op {
	case "schedule":
		out.count, _, err = c.f.Schedule(ctx, c.f.fence)
	case "lease":
		var jobs []job.Job
		if jobs, err = c.f.Lease(ctx, job.Worker{ID: in.worker}, 1); len(jobs) == 1 {
			out.held = heldOf(jobs[0])
			c.leases = append(c.leases, jobs[0])
		}
	case "extend":
		var gone []dispatch.Held
		gone, _, err = c.f.Extend(ctx, in.worker, []dispatch.Held{in.held})
		out.ok = len(gone) == 0
	case "release":
		err = c.f.Release(ctx, in.worker, nil, "crashed")
	case "finish":
		var refused []dispatch.Refusal
		r := dispatch.Result{Held: in.held, Success: in.success}
		r.Record.Attempt = in.attempt
		refused, err = c.f.Finish(ctx, in.worker, []dispatch.Result{r})
		out.ok = len(refused) == 0
	}
	if err != nil {
		t.Errorf("%s: %v", in.op, err)
	}
	return out
}
