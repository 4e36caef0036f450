// Package dispatchtest holds managers to the contract of dispatch.Manager:
// one suite for the manager in process and for the same manager through the
// wire. Each subtest is one sentence of the contract.
//
// It also has Reference, a small honest manager in memory, on which the suite
// itself is tried, and which serves the tests of whatever talks to a manager.
package dispatchtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// patience is when a test gives up on something that should have happened. It
// measures nothing.
const patience = 30 * time.Second

// Harness makes managers to test.
type Harness struct {
	// New returns a manager without jobs or workers, and the control over it.
	// Both must work until the test ends.
	New func(t *testing.T) (dispatch.Manager, Control)
}

// Run holds the harness's managers to the contract.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for name, story := range map[string]func(*testing.T, *stage){
		// Order.
		"an unknown session is told apart":                     unknownSession,
		"a version that is not spoken is refused":              unknownVersion,
		"a live worker's id is taken":                          idTaken,
		"an id is free after its worker left":                  idFree,
		"a new incarnation gives the old one's leases back":    newIncarnation,
		"the same incarnation keeps its leases over a restart": keepsLeases,
		"a new incarnation keeps the leases that it names":     takesOver,
		"what a new incarnation lost goes back":                loses,
		"leases that are gone are named at registration":       goneAtRegistration,
		// Lease.
		"no work is no leases":                             noWork,
		"a lease carries its job":                          leaseCarriesJob,
		"at most max leases come":                          atMostMax,
		"a lease that waits wakes when work arrives":       wakes,
		"a lease returns early when ctx ends":              leaseEndsEarly,
		"every job is accepted once under many workers":    everyJobOnce,
		"an expired lease comes again with a higher fence": expiredComesAgain,
		// Extend.
		"extend renews and names what is gone": extend,
		// Report.
		"events that were taken are dropped":               eventsOnce,
		"output that was taken is dropped":                 outputOnce,
		"a stale report is refused alone and audited":      staleReport,
		"another worker's report is refused":               strangersReport,
		"a report after the finish is refused":             reportAfterFinish,
		"a report on a cancelled job is refused":           cancelledIsRefused,
		"events of a lease follow over a lost session":     reportAfterRestart,
		"happenings ride along and count with the reports": happeningsRide,
		// Finish.
		"a result is accepted":                    accepted,
		"a result said again is a success":        finishTwice,
		"a result said again after a restart too": finishAfterRestart,
		"a stale result is refused alone":         staleFinish,
		// Blobs.
		"blobs are stored under their digest":     blobs,
		"bytes that do not match are refused":     blobsMustMatch,
		"what was put can be named in the finish": blobThenFinish,
		// Commands.
		"a cancel comes through the stream":          cancelComes,
		"cancels do not wait for each other":         cancelsAreParallel,
		"a new stream replaces the old":              streamReplaced,
		"the stream ends with ctx":                   attendEndsWithCtx,
		"the stream ends with the manager":           attendEndsWithManager,
		"leaving gives leases back":                  leaveGivesBack,
		"what is out of bounds is refused by name":   outOfBounds,
		"streams that open and close leave no trace": manyStreams,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, c := h.New(t)
			story(t, &stage{m: m, c: c})
		})
	}
}

// stage is one manager and what a story needs to play on it.
type stage struct {
	m dispatch.Manager
	c Control

	mu sync.Mutex
	n  int
}

// payload makes work that every manager takes, different each time.
func (s *stage) payload() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return json.RawMessage(fmt.Sprintf(`{"action":"exec","command":["echo","%d"]}`, s.n))
}

func (s *stage) submit() string { return s.c.Submit(s.payload()) }

func registration(worker, incarnation string) dispatch.Registration {
	return dispatch.Registration{
		Wire: dispatch.Version, WorkerID: worker, Identity: "identity-of-" + worker, Incarnation: incarnation, Role: "Employee",
		Drivers: []dispatch.DriverSummary{{Name: "fake", Capabilities: sandbox.Capabilities{Isolation: "none", Images: []string{"*"}}}},
		Slots:   4, Version: "test",
	}
}

func (s *stage) register(t *testing.T, r dispatch.Registration) dispatch.Welcome {
	t.Helper()
	w, err := s.m.Register(t.Context(), r)
	if err != nil {
		t.Fatalf("register %s: %v", r.WorkerID, err)
	}
	if w.Session == "" || w.LeaseTerm <= 0 || w.ExtendEvery <= 0 || w.ExtendEvery >= w.LeaseTerm {
		t.Fatalf("the welcome is of no use: %+v", w)
	}
	return w
}

// lease takes the named jobs, and no others.
func (s *stage) lease(t *testing.T, session string, jobs ...string) []dispatch.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("patience ran out"))
	defer cancel()
	var got []dispatch.Lease
	for len(got) < len(jobs) {
		ls, err := s.m.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: len(jobs) - len(got), Wait: 5 * time.Second})
		if err != nil {
			t.Fatalf("lease: %v", err)
		}
		if ctx.Err() != nil {
			t.Fatalf("leased %d of %d jobs and no more came", len(got), len(jobs))
		}
		got = append(got, ls...)
	}
	for _, l := range got {
		if !slices.Contains(jobs, l.JobID) {
			t.Fatalf("leased %s, which is none of %v", l.JobID, jobs)
		}
	}
	return got
}

func (s *stage) start(t *testing.T) (session string, l dispatch.Lease) {
	t.Helper()
	session = s.register(t, registration("w", "1")).Session
	return session, s.lease(t, session, s.submit())[0]
}

func (s *stage) report(t *testing.T, session string, items ...dispatch.ReportItem) []dispatch.Held {
	t.Helper()
	r, err := s.m.Report(t.Context(), dispatch.ReportRequest{Session: session, Items: items})
	if err != nil {
		t.Fatalf("report: %v", err)
	}
	return names(r)
}

func (s *stage) finish(t *testing.T, session string, results ...dispatch.Result) []dispatch.Held {
	t.Helper()
	r, err := s.m.Finish(t.Context(), dispatch.FinishRequest{Session: session, Results: results})
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return names(r)
}

func names(r dispatch.Refusals) []dispatch.Held {
	var hs []dispatch.Held
	for _, x := range r.Refused {
		if !slices.Contains(hs, x.Held) {
			hs = append(hs, x.Held)
		}
	}
	return hs
}

func happened(l dispatch.Held, n int64, data string) dispatch.ReportItem {
	return dispatch.ReportItem{Held: l, Event: &dispatch.Happening{
		N: n, Type: "exec.started", At: time.Unix(1_700_000_000+n, 0).UTC(), Data: json.RawMessage(data),
	}}
}

func said(l dispatch.Held, s sandbox.Stream, offset int64, data string) dispatch.ReportItem {
	return dispatch.ReportItem{Held: l, Output: &dispatch.Chunk{Stream: s, Offset: offset, Data: []byte(data)}}
}

func result(l dispatch.Lease) dispatch.Result {
	at := time.Unix(1_700_000_000, 0).UTC()
	return dispatch.Result{
		Held: l.Held, Success: true, Details: json.RawMessage(`{"exit_code":0}`),
		Record: evidence.Record{
			JobID: l.JobID, Attempt: l.Attempt, Fence: l.Fence, Worker: "w", Driver: "fake", Isolation: "none",
			Network: sandbox.NetworkNone, Verdict: sandbox.OK, Started: at, Ended: at.Add(time.Second),
		},
	}
}

// gone reports whether Extend names the lease as gone.
func (s *stage) gone(t *testing.T, session string, h dispatch.Held) bool {
	t.Helper()
	a, err := s.m.Extend(t.Context(), dispatch.ExtendRequest{Session: session, Held: []dispatch.Held{h}})
	if err != nil {
		t.Fatalf("extend: %v", err)
	}
	return slices.Contains(a.Gone, h)
}

func wantUnknownSession(t *testing.T, what string, err error) {
	t.Helper()
	if !fault.Is(err, fault.Unauthenticated) || fault.CodeOf(err) != "unknown_session" {
		t.Errorf("%s: got %v, want a fault of kind unauthenticated with code unknown_session", what, err)
	}
}

// eventually waits until ok, which something else makes true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("gave up waiting until %s", what)
		}
	}
}

// soon receives what should come.
func soon[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	var v T
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("gave up waiting for %s", what)
	}
	return v
}

// receiver is a worker's end of a stream that a story looks at.
func receiver(do func(context.Context, dispatch.Cancel) error) Canceller { return Cancels(do) }

// attend opens a stream for the rest of the test, and returns how to close it
// and what Attend returned.
func (s *stage) attend(t *testing.T, session string, rc dispatch.Receiver) (hangUp func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	done, all := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(all)
		done <- s.m.Attend(ctx, session, rc)
	}()
	hangUp = func() { cancel(errors.New("the worker hung up")) }
	t.Cleanup(func() {
		hangUp()
		<-all
	})
	return hangUp, done
}
