package session_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/session"
	"github.com/aurea-dev/aurea/internal/store"
)

// bench is a stage whose jobs go through a real queue.
type bench struct {
	*stage
	queue *queue.Queue
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := newStage(t, sqliteStore(t))
	q, err := queue.New(queue.Config{Store: s.db, Jitter: func(time.Duration) time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(t.Context(), func(tx store.Tx) error {
		fence, _, err := tx.Leaders().Acquire(t.Context(), "m", time.Now(), time.Hour, true)
		q.Lead(fence)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{s, q}
	b.Lifecycle = session.New(session.Config{
		Store: s.db, Sandboxes: s.keeper, Queue: q, Execs: s.keeper, LeaseTerm: time.Minute,
		Submit: func(ctx context.Context, prd job.PRD) (job.Submission, error) {
			c, _ := policy.From(ctx)
			return q.Submit(ctx, c, prd, "", "")
		},
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// submit queues one task and returns its job.
func (b *bench) submit(task job.Task) string {
	b.t.Helper()
	none := 0
	task.MaxRetries = &none
	done, err := b.queue.Submit(b.t.Context(), policy.Caller{Kind: policy.Viewer, ID: "o"}, job.PRD{Title: "t", Tasks: []job.Task{task}}, "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	return done.JobIDs[0]
}

// ended waits until a job has ended.
func (b *bench) ended(id string) job.Job {
	b.t.Helper()
	events := b.db.Watch(b.t.Context())
	for {
		j, err := b.queue.Job(b.t.Context(), policy.System(), id)
		if err != nil {
			b.t.Fatal(err)
		}
		if j.State == job.Completed || j.State == job.Failed {
			return j
		}
		<-events
	}
}

type details struct {
	SandboxID, Verdict, Stdout, Error string
	ExitCode                          int `json:"exit_code"`
}

func read(t *testing.T, j job.Job) (d details) {
	t.Helper()
	var raw map[string]any
	if err := json.Unmarshal(j.Details, &raw); err != nil {
		t.Fatalf("%s: %v", j.Details, err)
	}
	d.SandboxID, _ = raw["sandbox_id"].(string)
	d.Verdict, _ = raw["verdict"].(string)
	d.Stdout, _ = raw["stdout"].(string)
	d.Error, _ = raw["error"].(string)
	return d
}

// TestJobOfASession is the first thing that an orchestrator of coding sessions
// does with a job: it greets from the session's sandbox.
func TestJobOfASession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, _, err := b.StartSession(as("o"), live.SessionRequest{Prompt: "make me a small app"})
	if err != nil {
		t.Fatal(err)
	}
	j := b.ended(x.Job)
	if d := read(t, j); j.State != job.Completed || d.SandboxID != x.Sandbox || !strings.Contains(d.Stdout, "Hello from sandbox") {
		t.Errorf("%s: %s", j.State, j.Details)
	}
	j = b.ended(b.submit(job.Task{SessionID: x.ID, Payload: json.RawMessage(`{"action":"exec","command":["echo","Hello again"]}`)}))
	if d := read(t, j); d.SandboxID != x.Sandbox || d.Stdout != "Hello again\n" {
		t.Errorf("%s", j.Details)
	}
	if b.worker.opened != 1 {
		t.Errorf("%d sandboxes were made for one session", b.worker.opened)
	}
	j = b.ended(b.submit(job.Task{SessionID: x.ID, Payload: json.RawMessage(`{"action":"run","language":"python","code":"x"}`)}))
	if d := read(t, j); j.State != job.Failed || !strings.Contains(d.Error, "exec") {
		t.Errorf("%s: %s", j.State, j.Details)
	}
}

// TestFailedJobFailsItsSession uses up the tries of a job.
func TestFailedJobFailsItsSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, _, err := b.StartSession(as("o"), live.SessionRequest{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	j := b.ended(b.submit(job.Task{SessionID: x.ID, Payload: json.RawMessage(`{"action":"exec","command":["exit","3"]}`)}))
	if j.State != job.Failed {
		t.Fatalf("it is %s", j.State)
	}
	events := b.db.Watch(t.Context())
	for b.state("s") != live.SessionFailed {
		<-events
	}
	for b.open() != 0 {
		<-events
	}
}

// TestSessionsOfOthers holds that a word which is no session of the owner's
// binds nothing, and that workers get no job of a session.
func TestSessionsOfOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, _, err := b.StartSession(as("another"), live.SessionRequest{ID: "theirs"}); err != nil {
		t.Fatal(err)
	}
	free := b.submit(job.Task{SessionID: "theirs", Payload: json.RawMessage(`{}`)})
	leased, err := b.queue.Lease(t.Context(), job.Worker{ID: "w"}, 10)
	if err != nil || len(leased) != 1 || leased[0].ID != free {
		t.Errorf("leased %+v, %v", leased, err)
	}
}
