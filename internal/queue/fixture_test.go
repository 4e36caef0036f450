package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
	"github.com/aurea-dev/aurea/internal/store/sqlite/sqlitetest"
)

// clock is the only time that a queue under test knows.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// testingT is what a testing.T and a rapid.T have in common.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// fixture is a queue over a real database, under a clock that tests turn.
type fixture struct {
	testingT
	*queue.Queue
	clock *clock
	store store.Store
	fence int64 // of the leader
}

// open makes a fixture; change, where given, changes its queue's config. The
// wait between tries is the longest possible, so that tests know it.
func open(t *testing.T, change ...func(*queue.Config)) *fixture {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(sqlitetest.Folder(t), "queue.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return over(t, db, change...)
}

func over(t testingT, db store.Store, change ...func(*queue.Config)) *fixture {
	t.Helper()
	f := &fixture{testingT: t, clock: newClock(), store: db}
	cfg := queue.Config{
		Store: db, Now: f.clock.Now,
		Jitter: func(most time.Duration) time.Duration { return most },
	}
	for _, c := range change {
		c(&cfg)
	}
	q, err := queue.New(cfg)
	if err != nil {
		t.Fatalf("make a queue: %v", err)
	}
	f.Queue = q
	f.lead("leader-1")
	return f
}

// lead makes holder the leader, whoever leads now.
func (f *fixture) lead(holder string) {
	f.Helper()
	err := f.store.Update(context.Background(), func(tx store.Tx) (err error) {
		f.fence, _, err = tx.Leaders().Acquire(context.Background(), holder, f.clock.Now(), time.Hour, true)
		return err
	})
	f.must(err)
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("unexpected: %v", err)
	}
}

// refused demands a fault of a kind with a code.
func (f *fixture) refused(err error, kind fault.Kind, code string) {
	f.Helper()
	if !fault.Is(err, kind) || fault.CodeOf(err) != code {
		f.Fatalf("got %v (%s, %s), want %s with code %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

// task is the shortest way to say what a story needs of a task.
func task(key string, change ...func(*job.Task)) job.Task {
	t := job.Task{Key: key}
	for _, c := range change {
		c(&t)
	}
	return t
}

func after(keys ...string) func(*job.Task) { return func(t *job.Task) { t.DependsOn = keys } }
func validated(t *job.Task)                { t.Validate = true }
func retries(n int) func(*job.Task)        { return func(t *job.Task) { t.MaxRetries = &n } }
func role(r string) func(*job.Task)        { return func(t *job.Task) { t.Role = r } }
func priority(n int) func(*job.Task)       { return func(t *job.Task) { t.Priority = n } }

// submit stores a PRD and returns the ids by key; the root has the key "".
func (f *fixture) submit(tasks ...job.Task) map[string]string {
	f.Helper()
	return f.submitAs(policy.LocalCaller(), 1, tasks...)
}

func (f *fixture) submitAs(caller policy.Caller, project int64, tasks ...job.Task) map[string]string {
	f.Helper()
	prd := job.PRD{ProjectID: project, Title: "a plan", Tasks: tasks, Source: json.RawMessage(`{"title":"a plan","more":[1,2]}`)}
	s, err := f.Submit(context.Background(), caller, prd, "", "")
	f.must(err)
	ids := map[string]string{"": s.RootID}
	for i, id := range s.JobIDs {
		ids[tasks[i].Key] = id
	}
	return ids
}

func (f *fixture) schedule() int {
	f.Helper()
	n, _, err := f.Schedule(context.Background(), f.fence)
	f.must(err)
	return n
}

func (f *fixture) lease(worker string, most int) []job.Job {
	f.Helper()
	jobs, err := f.Lease(context.Background(), job.Worker{ID: worker}, most)
	f.must(err)
	return jobs
}

// begin schedules, and leases one job, which must be the one with the id.
func (f *fixture) begin(worker, id string) job.Job {
	f.Helper()
	f.schedule()
	jobs := f.lease(worker, 1)
	if len(jobs) != 1 || jobs[0].ID != id {
		f.Fatalf("leased %v, want %s", idsOf(jobs), id)
	}
	return jobs[0]
}

func idsOf(jobs []job.Job) []string {
	ids := make([]string, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}
	return ids
}

func heldOf(j job.Job) dispatch.Held { return dispatch.Held{JobID: j.ID, Fence: j.Fence} }

// resultOf is the result of a lease.
func resultOf(j job.Job, success bool) dispatch.Result {
	r := dispatch.Result{Held: heldOf(j), Success: success, Details: json.RawMessage(fmt.Sprintf(`{"try":%d}`, j.Attempt))}
	r.Record.Attempt = j.Attempt
	return r
}

// finish hands a result over, which must be taken.
func (f *fixture) finish(j job.Job, success bool) {
	f.Helper()
	if refused := f.tryFinish(j, success); len(refused) > 0 {
		f.Fatalf("the result was refused: %v", refused)
	}
}

func (f *fixture) tryFinish(j job.Job, success bool) []dispatch.Refusal {
	f.Helper()
	refused, err := f.Finish(context.Background(), j.Worker, []dispatch.Result{resultOf(j, success)})
	f.must(err)
	return refused
}

func (f *fixture) job(id string) job.Job {
	f.Helper()
	j, err := f.Job(context.Background(), policy.LocalCaller(), id)
	f.must(err)
	return j
}

// stands demands the state and outcome of a job.
func (f *fixture) stands(id string, state job.State, outcome job.Outcome) job.Job {
	f.Helper()
	j := f.job(id)
	if j.State != state || j.Outcome != outcome {
		f.Fatalf("job %q is %s with outcome %q, want %s with %q", j.Key, j.State, j.Outcome, state, outcome)
	}
	return j
}

// events returns what the record says of a job.
func (f *fixture) events(id string) []event.Event {
	f.Helper()
	var events []event.Event
	f.must(f.store.View(context.Background(), func(tx store.Tx) (err error) {
		events, err = tx.Events().List(context.Background(), event.Filter{JobID: id}, 10000)
		return err
	}))
	return events
}

// told demands the types of a job's events, in order.
func (f *fixture) told(id string, want ...event.Type) []event.Event {
	f.Helper()
	events := f.events(id)
	got := make([]event.Type, len(events))
	for i, e := range events {
		got[i] = e.Type
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("the record says\n %v, want\n %v", got, want)
	}
	return events
}

// data reads the data of an event.
func (f *fixture) data(e event.Event) map[string]any {
	f.Helper()
	var m map[string]any
	if err := json.Unmarshal(e.Data, &m); err != nil {
		f.Fatalf("event %s has data %q: %v", e.Type, e.Data, err)
	}
	return m
}

// register makes a worker known.
func (f *fixture) register(w job.Worker) {
	f.Helper()
	f.must(f.store.Update(context.Background(), func(tx store.Tx) error { return tx.Workers().Put(context.Background(), w) }))
}
