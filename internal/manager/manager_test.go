package manager

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a manager over a real database, without starting it.
func open(t *testing.T, folder string) *Manager {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), filepath.Join(folder, "aurea.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenLocal(filepath.Join(folder, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	none := func(time.Duration) time.Duration { return 0 }
	q, err := queue.New(queue.Config{Store: db, Jitter: none})
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := OpenOutputFiles(filepath.Join(folder, "output"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Store: db, Queue: q, Blobs: blobs, Outputs: outputs, Logger: log, Alone: true, Patience: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Stop()
		_ = outputs.Close()
		_ = db.Close()
		_ = blobs.Close()
	})
	return m
}

func started(t *testing.T) *Manager {
	t.Helper()
	m := open(t, t.TempDir())
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func local() context.Context { return policy.With(context.Background(), policy.LocalCaller()) }

// control turns the manager under test as its users and its clock would.
type control struct {
	t *testing.T
	m *Manager
}

func (c control) Submit(payload json.RawMessage) string {
	s, err := c.m.SubmitPRD(local(), job.PRD{Title: "suite", Tasks: []job.Task{{Payload: payload}}}, "", "")
	if err != nil {
		c.t.Errorf("submit: %v", err)
		return ""
	}
	return s.JobIDs[0]
}

func (c control) Cancel(id string) {
	if _, err := c.m.Cancel(local(), id, "cancelled by its user"); err != nil {
		c.t.Errorf("cancel: %v", err)
	}
}

// Expire moves the deadline into the past; the leader does the rest.
func (c control) Expire(id string) {
	var fence int64
	err := c.m.Store.Update(c.t.Context(), func(tx store.Tx) error {
		j, err := tx.Jobs().Get(c.t.Context(), id)
		if err != nil {
			return err
		}
		fence, j.LeaseUntil = j.Fence, time.Now().Add(-time.Minute)
		return tx.Jobs().Put(c.t.Context(), &j)
	})
	if err != nil {
		c.t.Errorf("expire: %v", err)
	}
	for c.job(id).Fence == fence {
		time.Sleep(time.Millisecond) // until the leader has looked; bounded by the test's own deadline
	}
}

func (c control) Restart() {
	c.m.sessions.closeAll()
	c.m.sessions.mu.Lock()
	defer c.m.sessions.mu.Unlock()
	clear(c.m.sessions.byID)
	clear(c.m.sessions.byWorker)
}

func (c control) Attending(worker string) bool { return c.m.sessions.attending(worker) }

func (c control) job(id string) job.Job {
	j, err := c.m.Job(local(), id)
	if err != nil {
		c.t.Errorf("get job: %v", err)
	}
	return j
}

func (c control) Accepted(id string) []dispatch.Result {
	j := c.job(id)
	r, err := c.m.Evidence(local(), id, 0)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		c.t.Errorf("evidence: %v", err)
	}
	return []dispatch.Result{{Held: dispatch.Held{JobID: id, Fence: r.Fence}, Success: j.State == job.Completed, Details: j.Details, Record: r}}
}

func (c control) Events(id string) (hs []dispatch.Happening) {
	es, err := c.m.Events(local(), event.Filter{JobID: id, Types: []event.Type{event.ExecStarted, event.ExecEnded, event.JobStarted, event.SnapshotStored}}, 1000)
	if err != nil {
		c.t.Errorf("events: %v", err)
	}
	for i, e := range es {
		hs = append(hs, dispatch.Happening{N: int64(i + 1), Type: e.Type, At: e.At, Data: e.Data})
	}
	return hs
}

func (c control) Output(id string, s sandbox.Stream) []byte {
	p, err := c.m.outputs.read(c.t.Context(), dispatch.Held{JobID: id, Fence: c.job(id).Fence}, s, 0, maxLog)
	if err != nil {
		c.t.Errorf("output: %v", err)
	}
	return p
}

func (c control) Refused(id string) int {
	es, err := c.m.Events(local(), event.Filter{JobID: id, Types: []event.Type{event.JobRefused}}, 1000)
	if err != nil {
		c.t.Errorf("events: %v", err)
	}
	return len(es)
}

func TestTheManagerKeepsTheAgreement(t *testing.T) {
	t.Parallel()
	dispatchtest.Run(t, dispatchtest.Harness{New: func(t *testing.T) (dispatch.Manager, dispatchtest.Control) {
		m := started(t)
		return m, control{t, m}
	}})
}

func TestTheManagerKeepsTheAgreementOverTheWire(t *testing.T) {
	t.Parallel()
	dispatchtest.Run(t, dispatchtest.Harness{New: func(t *testing.T) (dispatch.Manager, dispatchtest.Control) {
		m := started(t)
		door := wire.Handler(m, slog.New(slog.DiscardHandler))
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			door.ServeHTTP(w, r.WithContext(policy.With(r.Context(), policy.LocalCaller())))
		}))
		c, err := wire.NewClient(srv.URL, "", wire.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { door.Close(); c.Close(); srv.Close() })
		return c, control{t, m}
	}})
}

func TestStartAndStopUnderStress(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range 20 {
				_ = m.Start(t.Context()) // one of them wins, the others are told so
				m.Stop()
			}
		})
	}
	group.Wait()
}

func TestWhatOneOwnerSubmittedAnotherDoesNotSee(t *testing.T) {
	t.Parallel()
	m := started(t)
	alice := policy.With(t.Context(), policy.Caller{Kind: policy.Bridge, ID: "alice"})
	bob := policy.With(t.Context(), policy.Caller{Kind: policy.Bridge, ID: "bob"})
	s, err := m.SubmitPRD(alice, job.PRD{Title: "hers", Tasks: []job.Task{{}}}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Job(alice, s.JobIDs[0]); err != nil {
		t.Fatalf("the owner does not see her job: %v", err)
	}
	for what, ask := range map[string]func() error{
		"job":       func() error { _, err := m.Job(bob, s.JobIDs[0]); return err },
		"cancel":    func() error { _, err := m.Cancel(bob, s.JobIDs[0], ""); return err },
		"artifacts": func() error { _, err := m.Artifacts(bob, s.JobIDs[0], 0); return err },
		"logs":      func() error { _, err := m.Logs(bob, s.JobIDs[0], sandbox.Stdout, 0); return err },
		"stream":    func() error { _, err := m.Stream(bob, s.JobIDs[0], "", "x", false); return err },
	} {
		if err := ask(); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: another owner got %v, want not found", what, err)
		}
	}
	if jobs, err := m.Jobs(bob, store.JobFilter{}); err != nil || len(jobs) != 0 {
		t.Errorf("another owner lists %d jobs, %v", len(jobs), err)
	}
	if es, err := m.Events(bob, event.Filter{}, 100); err != nil || len(es) != 0 {
		t.Errorf("another owner reads %d events, %v", len(es), err)
	}
	if _, err := m.Job(t.Context(), s.JobIDs[0]); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("nobody got %v, want unauthenticated", err)
	}
}

func TestKeysAreMadeOnceAndKnownByTheirHash(t *testing.T) {
	t.Parallel()
	m := started(t)
	secrets := map[policy.Kind]string{}
	show := func(k policy.Key, secret string) error { secrets[k.Kind] = secret; return nil }
	for range 2 {
		if err := m.MakeKeys(t.Context(), []policy.Kind{policy.Admin, policy.Worker}, show); err != nil {
			t.Fatal(err)
		}
	}
	for kind, secret := range secrets {
		for range 2 { // the second time from memory
			c, err := m.Authenticate(t.Context(), secret)
			if err != nil || c.Kind != kind {
				t.Errorf("the %s key stands for %v, %v", kind, c, err)
			}
		}
		if _, err := m.Authenticate(t.Context(), secret+"x"); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("a wrong key got %v", err)
		}
	}
	if len(secrets) != 2 {
		t.Errorf("%d secrets were shown", len(secrets))
	}
}
