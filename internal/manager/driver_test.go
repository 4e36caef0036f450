package manager

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// deaf takes no commands.
type deaf struct{ dispatchtest.Idle }

func (deaf) Cancel(context.Context, dispatch.Cancel) error { return nil }

// attend connects a worker with a driver until the test ends.
func attend(t *testing.T, m *Manager, id string, d dispatch.DriverSummary) dispatch.Welcome {
	t.Helper()
	welcome, err := m.Register(t.Context(), dispatch.Registration{
		Wire: dispatch.Version, WorkerID: id, Identity: id, Incarnation: id, Slots: 1, Drivers: []dispatch.DriverSummary{d},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Attend(ctx, welcome.Session, deaf{})
	}()
	t.Cleanup(func() { cancel(errStopped); <-ended })
	for !m.sessions.attending(id) && t.Context().Err() == nil {
		runtime.Gosched()
	}
	return welcome
}

func TestADriverThatIsAskedForIsServedOrRefused(t *testing.T) {
	t.Parallel()
	m := started(t)
	submit := func(driver string) (string, error) {
		s, err := m.SubmitPRD(local(), job.PRD{Title: "x", Tasks: []job.Task{{
			Payload: json.RawMessage(`{"action":"exec","command":["true"],"driver":"` + driver + `"}`),
		}}}, "", "")
		if err != nil {
			return "", err
		}
		return s.JobIDs[0], nil
	}
	refused := func(driver, reason string) {
		t.Helper()
		_, err := submit(driver)
		if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != "driver_unavailable" || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", driver, err)
		}
	}
	refused("strong", "no connected worker")
	attend(t, m, "weak", dispatch.DriverSummary{Name: "strong", Degraded: "a hole was found"})
	refused("strong", "a hole was found")
	attend(t, m, "plain", dispatch.DriverSummary{Name: "other"})
	refused("strong", "a hole was found")
	refused("unheard", "they have other")
	if _, err := submit("No Driver"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a name that is none: %v", err)
	}
	if jobs, err := m.Jobs(local(), store.JobFilter{}); err != nil || len(jobs) > 0 {
		t.Errorf("%d jobs were stored, %v", len(jobs), err)
	}

	sound := attend(t, m, "sound", dispatch.DriverSummary{Name: "strong"})
	id, err := submit("strong")
	if err != nil {
		t.Fatal(err)
	}
	other := attend(t, m, "plain", dispatch.DriverSummary{Name: "other"})
	got, err := m.Lease(t.Context(), dispatch.LeaseRequest{Session: other.Session, Max: 4, Wait: 1})
	if err != nil || len(got) > 0 {
		t.Errorf("a worker without the driver was given %v, %v", got, err)
	}
	got, err = m.Lease(t.Context(), dispatch.LeaseRequest{Session: sound.Session, Max: 4, Wait: dispatch.MaxWait})
	if err != nil || len(got) != 1 || got[0].JobID != id {
		t.Errorf("the worker with the driver was given %v, %v", got, err)
	}
}

// Leases that ran out while no manager was there are not taken away before
// their workers had time to come back.
func TestWhoBeginsToLeadHasPatience(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	m.Patience = 30 * time.Second
	now := time.Now()
	m.Now = func() time.Time { return now }
	l := &leader{m: m, holder: "me"}
	if err := l.campaign(t.Context(), true); err != nil || !l.leads {
		t.Fatal(l.leads, err)
	}
	c := control{t, m}
	id := c.Submit(json.RawMessage(`{}`))
	welcome := attend(t, m, "w", dispatch.DriverSummary{Name: "fake"})
	got, err := m.Lease(t.Context(), dispatch.LeaseRequest{Session: welcome.Session, Max: 1, Wait: 1})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	err = m.Store.Update(t.Context(), func(tx store.Tx) error {
		j := c.job(id)
		j.LeaseUntil = now.Add(-time.Hour)
		return tx.Jobs().Put(t.Context(), &j)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		passed time.Duration
		state  job.State
	}{{0, job.InProgress}, {29 * time.Second, job.InProgress}, {time.Second, job.Queued}} {
		now = now.Add(step.passed)
		if err := l.campaign(t.Context(), false); err != nil { // a renewal begins nothing
			t.Fatal(err)
		}
		l.reap(t.Context())
		if s := c.job(id).State; s != step.state {
			t.Errorf("%s later the job is %s", step.passed, s)
		}
	}
}
