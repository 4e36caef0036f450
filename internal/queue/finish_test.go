package queue_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestFinishCompletesAndKeepsTheRecord(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	j := f.begin("w", ids["a"])
	f.clock.pass(3 * time.Second)

	r := resultOf(j, true)
	r.Details = json.RawMessage(`{"snapshot":"snapshots/x.tar"}`)
	r.Record = evidence.Record{
		JobID: "a lie", Worker: "a lie", Fence: 99, Attempt: 1, Driver: "fake", Verdict: sandbox.OK,
		Snapshot: &evidence.Snapshot{Path: "snapshots/x.tar", SHA256: "abc", Bytes: 12, TreeDigest: "def"},
	}
	r.Artifacts = []evidence.Artifact{{Name: evidence.StdoutLog, SHA256: "abc", Bytes: 1}}
	r.Happenings = []dispatch.Happening{{N: 1, Type: event.JobStarted}, {N: 2, Type: event.ExecEnded, Data: json.RawMessage(`{"exit_code":0}`)}}
	refused, err := f.Finish(context.Background(), "w", []dispatch.Result{r})
	f.must(err)
	if len(refused) != 0 {
		t.Fatalf("refused: %v", refused)
	}

	got := f.stands(j.ID, job.Completed, job.OutcomeOK)
	if string(got.Details) != string(r.Details) || !got.CompletedAt.Equal(f.clock.Now()) || !got.LeaseUntil.IsZero() || got.Worker != "w" {
		t.Errorf("the job ended as %+v", got)
	}
	events := f.told(j.ID, event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobStarted, event.ExecEnded, event.JobCompleted)
	want := map[string]any{
		"from": "IN_PROGRESS", "to": "COMPLETED", "outcome": "ok", "worker": "w", "attempt": 1.0, "fence": 1.0,
		"result": map[string]any{
			"verdict": "ok", "exit_code": 0.0, "driver": "fake", "snapshot": "snapshots/x.tar",
			"snapshot_sha256": "abc", "snapshot_bytes": 12.0, "tree_digest": "def",
		},
	}
	if diff := cmp.Diff(want, f.data(events[5])); diff != "" {
		t.Errorf("job.completed (-want +got):\n%s", diff)
	}
	root := f.stands(ids[""], job.Completed, job.OutcomeOK)
	if root.Open != 0 || string(root.Details) != `{"completed":1,"failed":0,"escalated":0}` {
		t.Errorf("the root has %d open, details %s", root.Open, root.Details)
	}
	f.told(root.ID, event.JobCreated, event.JobCompleted)

	rec, artifacts := f.record(j.ID, 1)
	if rec.JobID != j.ID || rec.Worker != "w" || rec.Fence != 1 || rec.Snapshot.TreeDigest != "def" || len(artifacts) != 1 {
		t.Errorf("the record says %+v with %d artifacts", rec, len(artifacts))
	}
}

// record reads the evidence of one try.
func (f *fixture) record(id string, attempt int) (r evidence.Record, a []evidence.Artifact) {
	f.Helper()
	ctx := context.Background()
	f.must(f.store.View(ctx, func(tx store.Tx) (err error) {
		if r, err = tx.Records().Get(ctx, id, attempt); err != nil {
			return err
		}
		a, err = tx.Records().Artifacts(ctx, id, attempt)
		return err
	}))
	return r, a
}

func TestFailuresSpendTriesThenTheJobIsADeadLetter(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a", retries(2)), task("b", after("a")), task("c", after("b")))
	for try := 1; try <= 3; try++ {
		j := f.begin("w", ids["a"])
		if j.Attempt != try {
			t.Fatalf("try %d is attempt %d", try, j.Attempt)
		}
		f.finish(j, false)
		if try == 3 {
			break
		}
		wait := time.Duration(1<<(try-1)) * time.Second
		back := f.stands(ids["a"], job.Queued, "")
		if !back.ReadyAt.Equal(f.clock.Now().Add(wait)) || back.Failures != try || back.AssignedModel != "" {
			t.Errorf("after try %d: %d failures, ready at %s, bound to %q", try, back.Failures, back.ReadyAt, back.AssignedModel)
		}
		f.clock.pass(wait)
	}
	f.stands(ids["a"], job.Failed, job.OutcomeFailed)
	f.stands(ids["b"], job.Failed, job.OutcomeDependencyFailed)
	f.stands(ids["c"], job.Failed, job.OutcomeDependencyFailed)
	root := f.stands(ids[""], job.Failed, job.OutcomeFailed)
	if string(root.Details) != `{"completed":0,"failed":3,"escalated":0}` {
		t.Errorf("the root's details are %s", root.Details)
	}
	f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRequeued,
		event.JobAssigned, event.JobClaimed, event.JobRequeued, event.JobAssigned, event.JobClaimed, event.JobFailed)
	if d := f.data(f.told(ids["c"], event.JobCreated, event.JobFailed)[1]); d["caused_by"] != ids["b"] || d["from"] != "QUEUED" {
		t.Errorf("c ended because of %v", d)
	}
	s, err := f.Stats(context.Background(), policy.LocalCaller())
	f.must(err)
	if s.DeadLetters != 1 {
		t.Errorf("%d dead letters, want 1", s.DeadLetters)
	}
	for try := 1; try <= 3; try++ { // every try has left its evidence
		if r, _ := f.record(ids["a"], try); r.Attempt != try {
			t.Errorf("the record of try %d is of %d", try, r.Attempt)
		}
	}
}

func TestCompletingWakesDependents(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("d", after("b", "c")), task("a"), task("b", after("a")), task("c", after("a")))
	f.finish(f.begin("w", ids["a"]), true)
	f.schedule()
	jobs := f.lease("w", 9)
	if len(jobs) != 2 {
		t.Fatalf("leased %d, want b and c", len(jobs))
	}
	f.finish(jobs[0], true)
	if n := f.schedule(); n != 0 {
		t.Fatal("d was assigned while c runs")
	}
	// Both in one call: what one result means must not undo the other.
	f.finish(jobs[1], true)
	f.finish(f.begin("w", ids["d"]), true)
	f.stands(ids[""], job.Completed, job.OutcomeOK)
}

func TestResultsOfOneCallAreTakenTogether(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"), task("b"), task("c", after("a", "b")))
	f.schedule()
	jobs := f.lease("w", 2)
	refused, err := f.Finish(context.Background(), "w", []dispatch.Result{resultOf(jobs[0], true), resultOf(jobs[1], true), resultOf(jobs[0], true)})
	f.must(err)
	if len(refused) != 0 {
		t.Fatalf("refused: %v", refused)
	}
	if c := f.job(ids["c"]); c.Waiting != 0 {
		t.Errorf("c waits for %d", c.Waiting)
	}
	if root := f.job(ids[""]); root.Open != 1 {
		t.Errorf("the root counts %d open", root.Open)
	}
	f.finish(f.begin("w", ids["c"]), true)
	f.stands(ids[""], job.Completed, job.OutcomeOK)
}

func TestAResultSaidAgainIsASuccess(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	first := f.begin("w", ids["a"])
	f.finish(first, false)
	n := len(f.events(first.ID))
	if refused := f.tryFinish(first, false); len(refused) != 0 {
		t.Errorf("said again, it was refused: %v", refused)
	}
	f.clock.pass(time.Minute)
	second := f.begin("w2", ids["a"])
	if refused := f.tryFinish(first, false); len(refused) != 0 {
		t.Errorf("said again while another try runs, it was refused: %v", refused)
	}
	if got := f.stands(first.ID, job.InProgress, ""); got.Failures != 1 || len(f.events(first.ID)) != n+2 {
		t.Errorf("said three times, it counts %d failures and %d more events", got.Failures, len(f.events(first.ID))-n)
	}
	f.finish(second, true)
	if refused := f.tryFinish(second, true); len(refused) != 0 {
		t.Errorf("said again after the end, it was refused: %v", refused)
	}
	thief := second
	thief.Worker = "thief"
	if refused := f.tryFinish(thief, true); len(refused) != 1 {
		t.Error("a result by another worker under the same number passed for a repetition")
	}
}

func TestALateResultIsRefusedAndAudited(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	ids := f.submit(task("a"))
	late := f.begin("w1", ids["a"])
	f.clock.pass(31 * time.Second)
	lost, err := f.Reap(ctx, f.fence)
	f.must(err)
	if len(lost) != 1 || lost[0].Worker != "w1" || lost[0].Held != heldOf(late) {
		t.Fatalf("lost %v", lost)
	}
	if refused := f.tryFinish(late, true); len(refused) != 1 || refused[0].Held != heldOf(late) {
		t.Fatalf("refused %v", refused)
	}
	f.stands(ids["a"], job.Queued, "")
	f.clock.pass(time.Minute)
	now := f.begin("w2", ids["a"])
	if refused := f.tryFinish(late, true); len(refused) != 1 {
		t.Fatal("a result of the first try was taken during the second")
	}
	events := f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRequeued, event.JobRefused,
		event.JobAssigned, event.JobClaimed, event.JobRefused)
	if d := f.data(events[7]); events[7].Actor != "w1" || d["given_fence"] != 1.0 || d["fence"] != 3.0 || d["operation"] != "finish" || d["worker"] != "w2" {
		t.Errorf("the refusal by %s says %v", events[7].Actor, d)
	}
	f.finish(now, true)
	if refused := f.tryFinish(job.Job{ID: job.NewID(), Worker: "w1", Fence: 1}, true); len(refused) != 1 {
		t.Error("a result of a job that does not exist was taken")
	}
}

func TestAResultThatCannotBeTakenGoesBackAlone(t *testing.T) {
	t.Parallel()
	twice := []evidence.Artifact{{Name: "x"}, {Name: "x"}}
	for name, spoil := range map[string]func(*dispatch.Result){
		"details no object":  func(r *dispatch.Result) { r.Details = json.RawMessage(`[1]`) },
		"details broken":     func(r *dispatch.Result) { r.Details = json.RawMessage(`{"a":`) },
		"artifact twice":     func(r *dispatch.Result) { r.Artifacts = twice },
		"artifact elsewhere": func(r *dispatch.Result) { r.Artifacts = []evidence.Artifact{{Name: "../x"}} },
		"forged event":       func(r *dispatch.Result) { r.Happenings = []dispatch.Happening{{N: 1, Type: event.JobCompleted}} },
		"not counted":        func(r *dispatch.Result) { r.Happenings = []dispatch.Happening{{Type: event.JobStarted}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			ids := f.submit(task("bad"), task("good"))
			f.schedule()
			jobs := f.lease("w", 2)
			bad := resultOf(jobs[0], true)
			spoil(&bad)
			refused, err := f.Finish(context.Background(), "w", []dispatch.Result{bad, resultOf(jobs[1], true)})
			f.must(err)
			if len(refused) != 1 || refused[0].Held != bad.Held || !strings.HasPrefix(refused[0].Reason, "invalid: ") {
				t.Fatalf("refused %v", refused)
			}
			f.stands(ids["good"], job.Completed, job.OutcomeOK)
			back := f.stands(ids["bad"], job.Queued, "")
			if back.Losses != 1 || back.Failures != 0 || back.Fence != jobs[0].Fence+1 {
				t.Errorf("it went back with %d losses, %d failures, number %d", back.Losses, back.Failures, back.Fence)
			}
			f.told(ids["bad"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRefused, event.JobRequeued)
		})
	}
}

func TestCompleteWithoutANumberNeedsARunningLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx, me := context.Background(), policy.LocalCaller()
	ids := f.submit(task("a"), task("b"), task("c"))
	a, err := f.Claim(ctx, me, ids["a"], "w")
	f.must(err)
	b, err := f.Claim(ctx, me, ids["b"], "w")
	f.must(err)

	_, err = f.Complete(ctx, me, a.ID, "thief", nil, true, nil)
	f.refused(err, fault.Conflict, "not_the_holder")
	wrong := a.Fence + 1
	_, err = f.Complete(ctx, me, a.ID, "w", &wrong, true, nil)
	f.refused(err, fault.Conflict, "stale_fence")
	_, err = f.Complete(ctx, me, a.ID, "", nil, true, json.RawMessage(`"text"`))
	f.refused(err, fault.Invalid, "invalid")
	_, err = f.Complete(ctx, me, ids["c"], "", nil, true, nil)
	f.refused(err, fault.Conflict, "wrong_state")
	_, err = f.Complete(ctx, me, ids[""], "", nil, true, nil)
	f.refused(err, fault.Conflict, "is_root")

	done, err := f.Complete(ctx, me, a.ID, "", nil, true, json.RawMessage(`{"note":"done"}`))
	f.must(err)
	if done.State != job.Completed || string(done.Details) != `{"note":"done"}` {
		t.Errorf("completed as %s with %s", done.State, done.Details)
	}
	if diff := cmp.Diff(done, f.job(a.ID)); diff != "" {
		t.Errorf("what was answered is not what is stored:\n%s", diff)
	}
	f.told(a.ID, event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRefused, event.JobRefused, event.JobCompleted)

	f.clock.pass(30*time.Second + time.Microsecond)
	_, err = f.Complete(ctx, me, b.ID, "w", nil, true, nil)
	f.refused(err, fault.Conflict, "lease_expired")
	_, err = f.Complete(ctx, me, b.ID, "w", &b.Fence, false, nil)
	f.must(err)
	if got := f.stands(b.ID, job.Queued, ""); got.Failures != 1 {
		t.Errorf("failing counts %d failures", got.Failures)
	}
}
