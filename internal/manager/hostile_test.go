package manager

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func connect(t *testing.T, m *Manager, worker string) (session string) {
	t.Helper()
	w, err := m.Register(t.Context(), dispatch.Registration{
		Wire: dispatch.Version, WorkerID: worker, Identity: "of " + worker, Incarnation: "1", Role: job.DefaultRole, Slots: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.Session
}

// TestWorkerSpeaksForNoOther is the story of a worker that was taken over. It
// has a good key and can read names and fencing numbers of others; their jobs
// are safe from it all the same.
func TestWorkerSpeaksForNoOther(t *testing.T) {
	t.Parallel()
	m := started(t)
	victim := connect(t, m, "victim")
	id := control{t, m}.Submit(json.RawMessage(`{}`))
	leases, err := m.Lease(t.Context(), dispatch.LeaseRequest{Session: victim, Max: 1, Wait: time.Minute})
	if err != nil || len(leases) != 1 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	held := leases[0].Held
	_, err = m.Report(t.Context(), dispatch.ReportRequest{Session: victim, Items: []dispatch.ReportItem{
		{Held: held, Output: &dispatch.Chunk{Stream: sandbox.Stdout, Data: []byte("live")}},
	}})
	if err != nil {
		t.Fatal(err)
	}

	evil := connect(t, m, "evil")
	no, err := m.Finish(t.Context(), dispatch.FinishRequest{Session: evil, Results: []dispatch.Result{
		{Held: held, Success: true, Details: json.RawMessage(`{}`), Artifacts: []evidence.Artifact{}},
	}})
	if err != nil || len(no.Refused) != 1 {
		t.Errorf("the result of another is refused with %v, %v", no, err)
	}
	if got := (control{t, m}).Output(id, sandbox.Stdout); string(got) != "live" {
		t.Errorf("the output of another is now %q", got)
	}

	key := policy.With(t.Context(), policy.Caller{Kind: policy.Worker, ID: "worker-key"})
	for what, ask := range map[string]func() error{
		"complete, nameless": func() error { _, err := m.Complete(key, id, "", nil, true, json.RawMessage(`{}`)); return err },
		"complete": func() error {
			_, err := m.Complete(key, id, "victim", &held.Fence, true, json.RawMessage(`{}`))
			return err
		},
		"submit": func() error {
			_, err := m.SubmitWork(key, id, "victim", &held.Fence, json.RawMessage(`{}`))
			return err
		},
		"heartbeat": func() error { _, err := m.Heartbeat(key, id, "victim", &held.Fence); return err },
		"stream":    func() error { _, err := m.Stream(key, id, "victim", "forged", false); return err },
	} {
		if err := ask(); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s gives %v", what, err)
		}
	}
	other := control{t, m}.Submit(json.RawMessage(`{}`))
	if _, err := m.Claim(key, other, "victim"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a claim under the name of another gives %v", err)
	}

	// A worker that really speaks plain HTTP does as before.
	if _, err := m.Claim(key, other, "plain"); err != nil {
		t.Fatal(err)
	}
	if j, err := m.Complete(key, other, "", nil, true, json.RawMessage(`{}`)); err != nil || j.State != job.Completed {
		t.Errorf("the plain worker's job is %s, %v", j.State, err)
	}
	no, err = m.Finish(t.Context(), dispatch.FinishRequest{Session: victim, Results: []dispatch.Result{
		{Held: held, Success: true, Details: json.RawMessage(`{}`), Artifacts: []evidence.Artifact{}},
	}})
	if err != nil || len(no.Refused) != 0 || (control{t, m}).job(id).State != job.Completed {
		t.Errorf("the holder's own result: %v, %v", no, err)
	}
}
