package queue_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
)

// say is an item that reports one happening.
func say(j job.Job, n int64, kind event.Type) dispatch.ReportItem {
	return dispatch.ReportItem{Held: heldOf(j), Event: &dispatch.Happening{N: n, Type: kind}}
}

func (f *fixture) report(worker string, items ...dispatch.ReportItem) []dispatch.Refusal {
	f.Helper()
	refused, err := f.Report(context.Background(), worker, items)
	f.must(err)
	return refused
}

func TestReportStoresEachHappeningOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	j := f.begin("w", ids["a"])
	first := []dispatch.ReportItem{say(j, 1, event.JobStarted), say(j, 2, event.SandboxCreated)}
	for range 2 { // the answer was lost
		if refused := f.report("w", first...); len(refused) != 0 {
			t.Fatalf("refused: %v", refused)
		}
	}
	f.clock.pass(5 * time.Second)
	r := resultOf(j, true)
	for n, kind := range []event.Type{event.JobStarted, event.SandboxCreated, event.ExecStarted, event.ExecEnded} {
		r.Happenings = append(r.Happenings, *say(j, int64(n+1), kind).Event)
	}
	_, err := f.Finish(context.Background(), "w", []dispatch.Result{r})
	f.must(err)
	f.told(j.ID, event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobStarted, event.SandboxCreated,
		event.ExecStarted, event.ExecEnded, event.JobCompleted)
	if refused := f.report("w", first...); len(refused) != 0 {
		t.Errorf("what was taken before the end was refused after it: %v", refused)
	}
}

func TestReportKeepsTheWorkersTimeWithinTheLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	j := f.begin("w", ids["a"])
	start := f.clock.Now()
	f.clock.pass(10 * time.Second)
	for i, at := range []time.Time{{}, start.Add(4 * time.Second), start.Add(time.Hour)} {
		item := say(j, int64(i+1), event.ExecStarted)
		item.Event.At = at
		f.report("w", item)
	}
	events := f.events(j.ID)[3:]
	for i, want := range []time.Time{start, start.Add(4 * time.Second), start.Add(10 * time.Second)} {
		if !events[i].At.Equal(want) {
			t.Errorf("event %d is of %s, want %s", i, events[i].At, want)
		}
	}
}

func TestReportRefusesWhatIsNotTheWorkersToSay(t *testing.T) {
	t.Parallel()
	deep := json.RawMessage(strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100))
	for name, h := range map[string]dispatch.Happening{
		"the queue's":   {N: 1, Type: event.JobCompleted},
		"another noun":  {N: 1, Type: event.KeyCreated},
		"no verb":       {N: 1, Type: "sandbox."},
		"strange":       {N: 1, Type: "exec.\x00"},
		"long":          {N: 1, Type: event.Type("exec." + strings.Repeat("a", 100))},
		"not counted":   {N: 0, Type: event.JobStarted},
		"data a string": {N: 1, Type: event.JobStarted, Data: json.RawMessage(`"x"`)},
		"data broken":   {N: 1, Type: event.JobStarted, Data: json.RawMessage(`{`)},
		"data deep":     {N: 1, Type: event.JobStarted, Data: deep},
		"data large":    {N: 1, Type: event.JobStarted, Data: json.RawMessage(`{"a":"` + strings.Repeat("x", 65<<10) + `"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			ids := f.submit(task("a"), task("b"))
			f.schedule()
			jobs := f.lease("w", 2)
			refused := f.report("w", dispatch.ReportItem{Held: heldOf(jobs[0]), Event: &h}, say(jobs[0], 2, event.JobStarted), say(jobs[1], 1, event.JobStarted))
			if len(refused) != 1 || refused[0].Held != heldOf(jobs[0]) {
				t.Fatalf("refused %v", refused)
			}
			f.stands(ids["a"], job.Queued, "")
			f.told(ids["a"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRefused, event.JobRequeued)
			f.told(ids["b"], event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobStarted)
		})
	}
}

func TestReportUnderALostLeaseIsRefusedOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	j := f.begin("w", ids["a"])
	f.must(f.Release(context.Background(), "w", nil, "worker_left"))
	output := dispatch.ReportItem{Held: heldOf(j), Output: &dispatch.Chunk{Data: []byte("x")}}
	refused := f.report("w", output, say(j, 1, event.JobStarted), say(j, 2, event.ExecStarted))
	if len(refused) != 1 || refused[0].Held != heldOf(j) {
		t.Fatalf("refused %v", refused)
	}
	f.told(j.ID, event.JobCreated, event.JobAssigned, event.JobClaimed, event.JobRequeued, event.JobRefused)
	if refused := f.report("w", say(job.Job{ID: job.NewID()}, 1, event.JobStarted)); len(refused) != 1 {
		t.Error("a report of a job that does not exist was taken")
	}
}

func TestReportTakesNoNoteOfOutput(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := f.submit(task("a"))
	j := f.begin("w", ids["a"])
	if refused := f.report("w", dispatch.ReportItem{Held: heldOf(j), Output: &dispatch.Chunk{Data: []byte("x")}}); len(refused) != 0 {
		t.Fatalf("refused: %v", refused)
	}
	f.told(j.ID, event.JobCreated, event.JobAssigned, event.JobClaimed)
}
