package manager

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// pulled is a worker that notes what it is told of the kill switch.
type pulled struct {
	deaf
	mu     sync.Mutex
	states []killswitch.State
	done   killswitch.Done
	news   chan struct{} // one token: it was told something
}

func (p *pulled) Switch(_ context.Context, s killswitch.State) (killswitch.Done, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = append(p.states, s)
	select {
	case p.news <- struct{}{}:
	default:
	}
	return p.done, nil
}

func (p *pulled) last() killswitch.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.states) == 0 {
		return killswitch.State{Seq: -1}
	}
	return p.states[len(p.states)-1]
}

func register(t *testing.T, m *Manager, id string, tripped ...killswitch.Switch) dispatch.Welcome {
	t.Helper()
	w, err := m.Register(t.Context(), dispatch.Registration{Wire: dispatch.Version, WorkerID: id, Identity: id, Incarnation: id, Slots: 1, Tripped: tripped})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// stopper connects a worker that has a kill switch, until the test ends.
func stopper(t *testing.T, m *Manager, id string) (*pulled, dispatch.Welcome) {
	t.Helper()
	p, w := &pulled{done: killswitch.Done{Killed: 2}, news: make(chan struct{}, 1)}, register(t, m, id)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Attend(ctx, w.Session, p)
	}()
	t.Cleanup(func() { cancel(errStopped); <-ended })
	for !m.sessions.attending(id) && t.Context().Err() == nil {
		runtime.Gosched()
	}
	return p, w
}

func TestTheKillSwitchStopsEverythingAndStays(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	m := open(t, folder)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, w := stopper(t, m, "w1")
	out := control{t, m}.Submit(json.RawMessage(`{"action":"exec","command":["true"]}`))
	leases, err := m.Lease(t.Context(), dispatch.LeaseRequest{Session: w.Session, Max: 1, Wait: time.Minute})
	if err != nil || len(leases) != 1 {
		t.Fatalf("lease: %v, %v", leases, err)
	}
	elsewhere := control{t, m}.Submit(json.RawMessage(`{"action":"exec","command":["true"]}`))
	if _, err := m.Claim(local(), elsewhere, "nobody"); err != nil {
		t.Fatal(err)
	}
	waits := control{t, m}.Submit(json.RawMessage(`{"action":"exec","command":["true"]}`))
	report, err := m.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Kill, Scope: killswitch.All, Reason: "fire"})
	if err != nil || report.Unpersisted != "" || len(report.Workers) != 1 || report.Workers[0].Done.Killed != 2 {
		t.Fatalf("engaged %+v, %v", report, err)
	}
	if got := p.last(); got.Seq != 1 || len(got.Engaged) != 1 || got.Engaged[0].Reason != "fire" {
		t.Errorf("the worker was told %+v", got)
	}
	// What no worker answers for has ended; what one does, ends by its word.
	if j := (control{t, m}).job(elsewhere); j.State != job.Failed || j.Outcome != job.OutcomeKilled {
		t.Errorf("a job of somebody else is %s, %s", j.State, j.Outcome)
	}
	_, err = m.Finish(t.Context(), dispatch.FinishRequest{Session: w.Session, Results: []dispatch.Result{{Held: leases[0].Held, Details: json.RawMessage(`{}`)}}})
	if j := (control{t, m}).job(out); err != nil || j.State != job.Failed || j.Outcome != job.OutcomeKilled {
		t.Errorf("the job that ran is %s, %s: %v", j.State, j.Outcome, err)
	}
	refusesAll(t, m, w.Session)

	m.Stop()
	again := open(t, folder)
	if err := again.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, w = stopper(t, again, "w1")
	if len(w.Switches.Engaged) != 1 {
		t.Errorf("a worker that comes back is told %+v", w.Switches)
	}
	refusesAll(t, again, w.Session)
	if j := (control{t, again}).job(waits); j.State.Ended() {
		t.Errorf("a job that waited is %s", j.State)
	}
	if _, err := again.ReleaseSwitch(local(), killswitch.Freeze, "", "why"); fault.CodeOf(err) != "not_engaged" {
		t.Errorf("unfreeze: %v", err)
	}
	if _, err := again.ReleaseSwitch(local(), killswitch.Kill, "", " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("re-arm without a reason: %v", err)
	}
	if _, err := again.ReleaseSwitch(local(), killswitch.Kill, "", "it is out"); err != nil {
		t.Fatal(err)
	}
	leases, err = again.Lease(t.Context(), dispatch.LeaseRequest{Session: w.Session, Max: 1, Wait: time.Minute})
	if err != nil || len(leases) != 1 || leases[0].JobID != waits {
		t.Errorf("after it was re-armed: %v, %v", leases, err)
	}
	recorded(t, again)
}

// refusesAll demands that nothing new begins.
func refusesAll(t *testing.T, m *Manager, session string) {
	t.Helper()
	_, prd := m.SubmitPRD(local(), job.PRD{Title: "x", Tasks: []job.Task{{Payload: json.RawMessage(`{"action":"exec","command":["true"]}`)}}}, "", "")
	_, one := m.Execute(local(), run.Request{Language: "python", Code: "1"}, run.Asked{})
	_, several := m.SubmitRuns(local(), []run.Request{{Language: "python", Code: "1"}}, run.Asked{})
	_, _, box := m.CreateSandbox(local(), live.Request{})
	for what, err := range map[string]error{"a plan": prd, "a run": one, "runs": several, "a sandbox": box} {
		if fault.CodeOf(err) != killswitch.Code || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	leases, err := m.Lease(t.Context(), dispatch.LeaseRequest{Session: session, Max: 9})
	if err != nil || len(leases) != 0 {
		t.Errorf("leases: %v, %v", leases, err)
	}
}

// recorded demands an event and a record of the audit for each act.
func recorded(t *testing.T, m *Manager) {
	t.Helper()
	events, err := m.Events(local(), event.Filter{Types: []event.Type{event.SwitchEngaged, event.SwitchReleased}}, 9)
	if err != nil || len(events) != 2 {
		t.Errorf("events: %v, %v", events, err)
	}
	var records []audit.Record
	err = m.Store.View(t.Context(), func(tx store.Tx) (err error) {
		records, err = tx.Audit().List(t.Context(), audit.Filter{Categories: []audit.Category{audit.KillSwitch}}, 9)
		return err
	})
	if err != nil || len(records) != 2 || records[0].Message != "fire" || records[1].Message != "it is out" || records[1].Severity != audit.Critical {
		t.Errorf("audit: %+v, %v", records, err)
	}
}

// TestTwoDirectorsReleaseASwitchOnce: both may be told that it is released, and the
// record says once by whom.
func TestTwoDirectorsReleaseASwitchOnce(t *testing.T) {
	t.Parallel()
	m := started(t)
	for range 5 {
		if _, err := m.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Kill, Scope: killswitch.All, Reason: "fire"}); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if _, err := m.ReleaseSwitch(local(), killswitch.Kill, "", "it is out"); err != nil && fault.CodeOf(err) != "not_engaged" {
					t.Errorf("release: %v", err)
				}
			})
		}
		group.Wait()
	}
	events, err := m.Events(local(), event.Filter{Types: []event.Type{event.SwitchReleased}}, 99)
	if err != nil || len(events) != 5 {
		t.Errorf("%d releases are told: %v", len(events), err)
	}
}

func TestTheKillSwitchOfAProject(t *testing.T) {
	t.Parallel()
	m := started(t)
	_, w := stopper(t, m, "w1")
	submit := func(project int64) (string, error) {
		s, err := m.SubmitPRD(local(), job.PRD{Title: "x", ProjectID: project, Tasks: []job.Task{{Payload: json.RawMessage(`{"action":"exec","command":["true"]}`)}}}, "", "")
		if err != nil {
			return "", err
		}
		return s.JobIDs[0], nil
	}
	for range 70 { // more than one answer holds, and all before the other's
		if _, err := submit(7); err != nil {
			t.Fatal(err)
		}
	}
	theirs, err := submit(8)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Freeze, Scope: killswitch.Project, Project: 7, Reason: "wait"}); err != nil {
		t.Fatal(err)
	}
	if _, err := submit(7); fault.CodeOf(err) != killswitch.Code {
		t.Errorf("a plan of the project: %v", err)
	}
	leases, err := m.Lease(t.Context(), dispatch.LeaseRequest{Session: w.Session, Max: 5, Wait: time.Minute})
	if err != nil || len(leases) != 1 || leases[0].JobID != theirs {
		t.Errorf("leases: %+v, %v", leases, err)
	}
	if _, err := m.ReleaseSwitch(local(), killswitch.Freeze, "", "go on"); err != nil {
		t.Fatal(err)
	}
	if leases, err = m.Lease(t.Context(), dispatch.LeaseRequest{Session: w.Session, Max: 5, Wait: time.Minute}); err != nil || len(leases) != 5 {
		t.Errorf("after it: %d leases, %v", len(leases), err)
	}
}

// absent is a database that can be away.
type absent struct {
	store.Store
	away atomic.Bool
}

var errAway = fault.New(fault.Unavailable, "the database is away")

func (a *absent) Update(ctx context.Context, fn func(store.Tx) error) error {
	if a.away.Load() {
		return errAway
	}
	return a.Store.Update(ctx, fn)
}

func (a *absent) View(ctx context.Context, fn func(store.Tx) error) error {
	if a.away.Load() {
		return errAway
	}
	return a.Store.View(ctx, fn)
}

func TestTheKillSwitchNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	db := &absent{Store: m.Store}
	m.Store = db // its other parts keep the one that works
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, _ := stopper(t, m, "w1")
	db.away.Store(true)
	report, err := m.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Kill, Scope: killswitch.All, Reason: "fire"})
	if err != nil || report.Unpersisted == "" || report.Workers[0].Done.Killed != 2 {
		t.Fatalf("engaged %+v, %v", report, err)
	}
	if got := p.last(); len(got.Engaged) != 1 {
		t.Errorf("the worker was told %+v", got)
	}
	if _, _, err := m.CreateSandbox(local(), live.Request{}); fault.CodeOf(err) != killswitch.Code {
		t.Errorf("a sandbox: %v", err)
	}
	if _, err := m.ReleaseSwitch(local(), killswitch.Kill, "", "no"); !errors.Is(err, errAway) {
		t.Errorf("a release that cannot be written down: %v", err)
	}
	db.away.Store(false)
	for written := 0; written == 0 && t.Context().Err() == nil; runtime.Gosched() {
		_, history, err := m.Switches(local())
		if err != nil {
			t.Fatal(err)
		}
		written = len(history)
	}
}

// What was tripped at a machine holds for all, once.
func TestATripAtAWorkerIsEngagedForAll(t *testing.T) {
	t.Parallel()
	m := started(t)
	p, _ := stopper(t, m, "w1")
	trip := killswitch.Switch{ID: "t1", Level: killswitch.Kill, Scope: killswitch.All, Reason: "by hand", By: "root", Worker: "w2"}
	if w := register(t, m, "w2", trip); len(w.Switches.Engaged) != 1 {
		t.Errorf("welcomed with %+v", w.Switches)
	}
	for len(p.last().Engaged) == 0 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	if _, err := m.ReleaseSwitch(local(), killswitch.Kill, "t1", "looked"); err != nil {
		t.Fatal(err)
	}
	if w := register(t, m, "w2", trip); len(w.Switches.Engaged) != 0 {
		t.Errorf("one that was released is engaged again: %+v", w.Switches)
	}
}

// Two managers over one database follow one switch: what is engaged or released
// at the one holds at the other within its poll, and its workers are told.
func TestManagersFollowOneSwitch(t *testing.T) {
	t.Parallel()
	address, err := startServer(t).Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one, two := share(t, address), share(t, address)
	near, _ := stopper(t, one, "near")
	far, _ := stopper(t, two, "far")
	comes := func(p *pulled, engaged int) {
		t.Helper()
		for len(p.last().Engaged) != engaged {
			<-p.news
		}
	}
	asks := func(m *Manager) error {
		_, _, err := m.CreateSandbox(local(), live.Request{})
		return err
	}
	for _, at := range []*Manager{one, two} {
		report, err := at.EngageSwitch(local(), killswitch.Switch{Level: killswitch.Kill, Scope: killswitch.All, Reason: "fire"})
		if err != nil || report.Unpersisted != "" {
			t.Fatalf("engaged %+v, %v", report, err)
		}
		comes(near, 1)
		comes(far, 1)
		for _, m := range []*Manager{one, two} {
			if err := asks(m); fault.CodeOf(err) != killswitch.Code {
				t.Errorf("a sandbox under the switch: %v", err)
			}
		}
		other := one
		if at == one {
			other = two
		}
		if _, err := other.ReleaseSwitch(local(), killswitch.Kill, "", "it is out"); err != nil {
			t.Fatal(err)
		}
		comes(near, 0)
		comes(far, 0)
		for _, m := range []*Manager{one, two} {
			if err := asks(m); fault.CodeOf(err) == killswitch.Code {
				t.Errorf("a sandbox after it was released: %v", err)
			}
		}
	}
	if s, history, err := one.Switches(local()); err != nil || len(s.Engaged) != 0 || len(history) != 2 {
		t.Errorf("at the end %+v, %d in the history, %v", s, len(history), err)
	}
}
