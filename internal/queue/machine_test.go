package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite/sqlitetest"
)

// TestTheQueueAgreesWithItsModel plays random stories to the queue and to the
// model, and after each step compares all that is stored with what must be.
func TestTheQueueAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	mould := sqlitetest.NewMould(t)
	rapid.Check(t, func(rt *rapid.T) {
		db, _ := mould.Open(rt)
		w := &world{T: rt, f: over(rt, db), m: &model{roots: map[string]bool{}}, replayed: map[string]job.State{}, told: map[string]int{}}
		w.m.now = w.f.clock.Now()
		rt.Repeat(map[string]func(*rapid.T){
			"":         w.check,
			"submit":   w.submit,
			"schedule": w.schedule,
			"lease":    w.lease,
			"extend":   w.extend,
			"report":   w.report,
			"finish":   w.finish,
			"late":     w.finishLate,
			"complete": w.complete,
			"claim":    w.claim,
			"validate": w.validate,
			"assign":   w.assign,
			"cancel":   w.cancel,
			"retry":    w.retry,
			"crash":    w.crash,
			"reap":     w.reap,
			"time":     w.pass,
		})
		w.evidence(rt)
	})
}

// world is one story: the queue, its model, and what its workers remember.
type world struct {
	*rapid.T
	f        *fixture
	m        *model
	leases   []job.Job            // every lease that was ever given
	replayed map[string]job.State // the state of each job, from its events alone
	told     map[string]int       // events that came from workers, by job
	cursor   int64
}

func workers() *rapid.Generator[string] { return rapid.SampledFrom([]string{"w1", "w2", "w3"}) }

// any draws a task, or ends the step when there is none.
func (w *world) any(t *rapid.T) *entry {
	if len(w.m.tasks) == 0 {
		t.Skip("no task yet")
	}
	return rapid.SampledFrom(w.m.tasks).Draw(t, "task")
}

func (w *world) submit(t *rapid.T) {
	if len(w.m.roots) >= 4 {
		t.Skip("enough PRDs")
	}
	n := rapid.IntRange(1, 5).Draw(t, "tasks")
	// Tasks stand in the PRD in another order than that of their dependencies.
	order := rapid.Permutation(seqOf(n)).Draw(t, "order")
	prd := job.PRD{Title: "story", Tasks: make([]job.Task, n)}
	entries := make([]*entry, n)
	for i := range n {
		e := &entry{
			retries: rapid.IntRange(0, 2).Draw(t, "retries"), validate: rapid.Bool().Draw(t, "validate"),
			priority: rapid.IntRange(-1, 1).Draw(t, "priority"), state: job.Queued, ready: w.m.now, taken: map[int64]string{},
		}
		task := job.Task{Key: fmt.Sprint(i), MaxRetries: &e.retries, Validate: e.validate, Priority: e.priority}
		for d := range i {
			if rapid.IntRange(0, 2).Draw(t, "depends") == 0 {
				task.DependsOn = append(task.DependsOn, fmt.Sprint(d))
				e.deps = append(e.deps, entries[order[d]])
			}
		}
		entries[order[i]], prd.Tasks[order[i]] = e, task
	}
	s, err := w.f.Submit(context.Background(), policy.LocalCaller(), prd, "", "")
	w.f.must(err)
	for i, e := range entries {
		e.id, e.root = s.JobIDs[i], s.RootID
	}
	w.m.roots[s.RootID] = false
	w.m.tasks = append(w.m.tasks, entries...)
}

func seqOf(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func (w *world) schedule(t *rapid.T) {
	if got, want := w.f.schedule(), w.m.schedule(); got != want {
		t.Fatalf("assigned %d, want %d", got, want)
	}
}

func (w *world) lease(t *rapid.T) {
	worker, most := workers().Draw(t, "worker"), rapid.IntRange(1, 4).Draw(t, "most")
	got := w.f.lease(worker, most)
	if want := w.m.lease(worker, most); fmt.Sprint(idsOf(got)) != fmt.Sprint(want) {
		t.Fatalf("leased %v, want %v", idsOf(got), want)
	}
	for _, j := range got {
		if w.m.find(j.ID).waiting() > 0 {
			t.Fatalf("job %s was given out before its dependencies completed", j.ID)
		}
	}
	w.leases = append(w.leases, got...)
}

func (w *world) anyLease(t *rapid.T) job.Job {
	if len(w.leases) == 0 {
		t.Skip("no lease yet")
	}
	return rapid.SampledFrom(w.leases).Draw(t, "lease")
}

func (w *world) extend(t *rapid.T) {
	j, worker := w.anyLease(t), workers().Draw(t, "worker")
	gone, until, err := w.f.Extend(context.Background(), worker, []dispatch.Held{heldOf(j)})
	w.f.must(err)
	e := w.m.find(j.ID)
	if held := e.out() && e.worker == worker && e.fence == j.Fence; held {
		e.until = until
		if len(gone) != 0 {
			t.Fatalf("a lease that is held is gone: %v", gone)
		}
	} else if len(gone) != 1 {
		t.Fatal("a lease that is not held was extended")
	}
}

func (w *world) report(t *rapid.T) {
	j, worker, n := w.anyLease(t), workers().Draw(t, "worker"), rapid.Int64Range(1, 4).Draw(t, "n")
	if rapid.Bool().Draw(t, "holder") {
		worker = j.Worker
	}
	var items []dispatch.ReportItem
	for i := range n {
		items = append(items, say(j, i+1, event.JobStarted))
	}
	refused := w.f.report(worker, items...)
	if want := w.m.report(w.m.find(j.ID), worker, j.Fence, n); (len(refused) == 0) != want {
		t.Fatalf("a report under %d by %s: refused %v, but the model says accepted %v", j.Fence, worker, refused, want)
	}
}

// finish is a worker that does what it leased.
func (w *world) finish(t *rapid.T) {
	var current []job.Job
	for _, j := range w.leases {
		if e := w.m.find(j.ID); e.state == job.InProgress && e.fence == j.Fence {
			current = append(current, j)
		}
	}
	if len(current) == 0 {
		t.Skip("nothing runs")
	}
	j := rapid.SampledFrom(current).Draw(t, "lease")
	w.hand(t, j, j.Worker)
}

// finishLate is a worker that says anything, at any time, also twice.
func (w *world) finishLate(t *rapid.T) {
	w.hand(t, w.anyLease(t), workers().Draw(t, "worker"))
}

func (w *world) hand(t *rapid.T, j job.Job, worker string) {
	success := rapid.IntRange(0, 3).Draw(t, "success") > 0
	e := w.m.find(j.ID)
	refused, err := w.f.Finish(context.Background(), worker, []dispatch.Result{resultOf(j, success)})
	w.f.must(err)
	if want := w.m.finish(e, worker, j.Fence, success); (len(refused) == 0) != want {
		t.Fatalf("a result under %d by %s: refused %v, but the model says accepted %v", j.Fence, worker, refused, want)
	}
}

func (w *world) complete(t *rapid.T) {
	e, worker, success := w.any(t), workers().Draw(t, "worker"), rapid.Bool().Draw(t, "success")
	_, err := w.f.Complete(context.Background(), policy.LocalCaller(), e.id, worker, nil, success, nil)
	want := e.state == job.InProgress && e.worker == worker && !e.until.Before(w.m.now)
	if want {
		w.m.settle(e, success)
	}
	w.agree(t, err, want)
}

// agree demands that the queue accepted what the model accepts, and that a
// refusal is a conflict or denied.
func (w *world) agree(t *rapid.T, err error, want bool) {
	t.Helper()
	if (err == nil) != want {
		t.Fatalf("got %v, but the model says accepted %v", err, want)
	}
	if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Denied) {
		t.Fatalf("refused as %s: %v", fault.KindOf(err), err)
	}
}

func (w *world) claim(t *rapid.T) {
	e, worker := w.any(t), workers().Draw(t, "worker")
	j, err := w.f.Claim(context.Background(), policy.LocalCaller(), e.id, worker)
	w.agree(t, err, w.m.claim(e, worker))
	if err == nil && j.State == job.InProgress {
		w.leases = append(w.leases, j)
	}
}

func (w *world) validate(t *rapid.T) {
	e, worker, passes := w.any(t), workers().Draw(t, "worker"), rapid.Bool().Draw(t, "passes")
	_, err := w.f.Validate(context.Background(), policy.LocalCaller(), e.id, says(worker, 0.9, true, passes))
	w.agree(t, err, w.m.judge(e, worker, passes))
}

func (w *world) assign(t *rapid.T) {
	e, worker := w.any(t), workers().Draw(t, "worker")
	_, err := w.f.Assign(context.Background(), policy.LocalCaller(), e.id, worker)
	want := e.state == job.Queued && e.waiting() == 0 || e.state == job.Assigned
	if want {
		e.state, e.bound, e.ready = job.Assigned, worker, w.m.now
	}
	w.agree(t, err, want)
}

// target draws one task, or a whole PRD.
func (w *world) target(t *rapid.T) (id string, tasks []*entry) {
	e := w.any(t)
	if rapid.IntRange(0, 3).Draw(t, "root") > 0 {
		return e.id, []*entry{e}
	}
	return e.root, w.m.children(e.root)
}

func (w *world) cancel(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "really") > 0 {
		t.Skip("stories in which all is cancelled are dull")
	}
	id, tasks := w.target(t)
	_, stopped, err := w.f.Cancel(context.Background(), policy.LocalCaller(), id, "")
	ended, ran := w.m.cancel(tasks)
	if ended > 0 && id == tasks[0].root {
		w.m.roots[id] = true
	}
	w.agree(t, err, ended > 0)
	if len(stopped) != ran {
		t.Fatalf("%d are to be stopped, want %d", len(stopped), ran)
	}
}

func (w *world) retry(t *rapid.T) {
	id, tasks := w.target(t)
	_, err := w.f.Retry(context.Background(), policy.LocalCaller(), id)
	w.agree(t, err, w.m.retry(tasks) > 0)
}

func (w *world) crash(t *rapid.T) {
	worker := workers().Draw(t, "worker")
	w.f.must(w.f.Release(context.Background(), worker, nil, "worker_left"))
	w.m.release(worker)
}

func (w *world) reap(t *rapid.T) {
	lost, err := w.f.Reap(context.Background(), w.f.fence)
	w.f.must(err)
	if want := w.m.reap(); len(lost) != want {
		t.Fatalf("lost %d leases, want %d", len(lost), want)
	}
}

func (w *world) pass(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 70_000).Draw(t, "ms")) * time.Millisecond
	w.f.clock.pass(d)
	w.m.now = w.m.now.Add(d)
}

// check compares all that is stored with the model, and the record with both.
func (w *world) check(t *rapid.T) {
	ctx := context.Background()
	w.f.must(w.f.store.View(ctx, func(tx store.Tx) error {
		w.replay(t, tx)
		all, err := tx.Jobs().List(ctx, store.JobFilter{Limit: 1000})
		w.f.must(err)
		if want := len(w.m.tasks) + len(w.m.roots); len(all) != want {
			t.Fatalf("%d jobs are stored, want %d", len(all), want)
		}
		for i := range all {
			if all[i].IsRoot() {
				w.compareRoot(t, &all[i])
			} else {
				w.compare(t, w.m.find(all[i].ID), &all[i])
			}
		}
		return nil
	}))
}

// evidence demands one record for each result that was accepted, one event
// for each happening, and no other.
func (w *world) evidence(t *rapid.T) {
	ctx := context.Background()
	w.f.must(w.f.store.View(ctx, func(tx store.Tx) error {
		for _, e := range w.m.tasks {
			stored := map[int64]string{}
			for attempt := 1; attempt <= e.attempt; attempt++ {
				if r, err := tx.Records().Get(ctx, e.id, attempt); err == nil {
					stored[r.Fence] = r.Worker
				}
			}
			if w.told[e.id] != e.told {
				t.Fatalf("task %s has %d events of its worker, want %d", e.id, w.told[e.id], e.told)
			}
			if !maps.Equal(stored, e.taken) {
				t.Fatalf("task %s has records of %v, but results were accepted of %v", e.id, stored, e.taken)
			}
		}
		return nil
	}))
}

func (w *world) compareRoot(t *rapid.T, j *job.Job) {
	state, outcome, open := w.m.rootState(j.ID)
	if j.State != state || j.Outcome != outcome || j.Open != open || j.CompletedAt.IsZero() == j.State.Ended() {
		t.Fatalf("root is %s %q with %d open, want %s %q with %d", j.State, j.Outcome, j.Open, state, outcome, open)
	}
	if w.replayed[j.ID] != j.State {
		t.Fatalf("the record says that the root is %s, it is %s", w.replayed[j.ID], j.State)
	}
}

func (w *world) compare(t *rapid.T, e *entry, j *job.Job) {
	got := fmt.Sprint(j.State, j.Outcome, j.Fence, j.Attempt, j.Failures, j.Losses, j.Submitter, j.Waiting)
	want := fmt.Sprint(e.state, e.outcome, e.fence, e.attempt, e.failures, e.losses, e.submitter, e.waiting())
	if got != want {
		t.Fatalf("task %s stands\n %s, want\n %s", e.id, got, want)
	}
	if j.State == job.Queued && !j.ReadyAt.Equal(e.ready) {
		t.Fatalf("task %s is ready at %s, want %s", e.id, j.ReadyAt, e.ready)
	}
	if e.out() && (j.Worker != e.worker || !j.LeaseUntil.Equal(e.until)) || !e.out() && !j.LeaseUntil.IsZero() {
		t.Fatalf("task %s is %s, held by %s until %s, want by %s until %s", e.id, j.State, j.Worker, j.LeaseUntil, e.worker, e.until)
	}
	if j.CompletedAt.IsZero() == j.State.Ended() {
		t.Fatalf("task %s is %s, ended at %s", e.id, j.State, j.CompletedAt)
	}
	if w.replayed[e.id] != j.State {
		t.Fatalf("the record says that task %s is %s, it is %s", e.id, w.replayed[e.id], j.State)
	}
}

// replay follows the record on from where it stopped: each move must start
// where the one before it ended, and be legal.
func (w *world) replay(t *rapid.T, tx store.Tx) {
	events, err := tx.Events().List(context.Background(), event.Filter{After: w.cursor}, 10_000)
	w.f.must(err)
	for _, e := range events {
		w.cursor = e.Seq
		if e.Type == event.JobStarted {
			w.told[e.JobID]++
			continue
		}
		var move struct{ From, To job.State }
		if err := json.Unmarshal(e.Data, &move); err != nil {
			t.Fatalf("event %s has data %s: %v", e.Type, e.Data, err)
		}
		still := e.Type == event.JobRefused || e.Type == event.JobValidated
		if still != (move.To == "") {
			t.Fatalf("event %s moves to %q", e.Type, move.To)
		}
		if still {
			continue
		}
		was, known := w.replayed[e.JobID]
		if move.From != was || known == (e.Type == event.JobCreated) || known && !was.Can(move.To) {
			t.Fatalf("event %s moves job %s from %s to %s, but it was %s", e.Type, e.JobID, move.From, move.To, was)
		}
		if known && move.To != job.Queued && !slices.Contains(job.States(), move.To) {
			t.Fatalf("event %s moves to %q, which is no state", e.Type, move.To)
		}
		w.replayed[e.JobID] = move.To
	}
}
