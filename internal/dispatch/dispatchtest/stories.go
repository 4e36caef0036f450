package dispatchtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func unknownSession(t *testing.T, s *stage) {
	s.register(t, registration("w", "1"))
	const no = "never-given"
	held := dispatch.Held{JobID: "j", Fence: 1}
	ctx := t.Context()
	_, err := s.m.Lease(ctx, dispatch.LeaseRequest{Session: no, Max: 1, Wait: dispatch.MaxWait})
	wantUnknownSession(t, "lease", err)
	_, err = s.m.Extend(ctx, dispatch.ExtendRequest{Session: no, Held: []dispatch.Held{held}})
	wantUnknownSession(t, "extend", err)
	_, err = s.m.Report(ctx, dispatch.ReportRequest{Session: no, Items: []dispatch.ReportItem{said(held, sandbox.Stdout, 0, "x")}})
	wantUnknownSession(t, "report", err)
	_, err = s.m.Finish(ctx, dispatch.FinishRequest{Session: no, Results: []dispatch.Result{result(dispatch.Lease{Held: held, Attempt: 1})}})
	wantUnknownSession(t, "finish", err)
	wantUnknownSession(t, "put a blob", s.m.PutBlob(ctx, no, digest("x"), 1, strings.NewReader("x")))
	wantUnknownSession(t, "attend", s.m.Attend(ctx, no, receiver(nil)))
	wantUnknownSession(t, "leave", s.m.Leave(ctx, no))
}

func unknownVersion(t *testing.T, s *stage) {
	r := registration("w", "1")
	r.Wire = dispatch.Version + 1
	if _, err := s.m.Register(t.Context(), r); fault.CodeOf(err) != "wire_version" {
		t.Errorf("got %v, want the code wire_version", err)
	}
}

func idTaken(t *testing.T, s *stage) {
	first := s.register(t, registration("w", "1")).Session
	s.attend(t, first, receiver(nil))
	eventually(t, "the first worker's stream is open", func() bool { return s.c.Attending("w") })
	second := registration("w", "2")
	second.Identity = "somebody else"
	if _, err := s.m.Register(t.Context(), second); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "worker_id_taken" {
		t.Errorf("got %v, want a conflict with code worker_id_taken", err)
	}
	if _, err := s.m.Extend(t.Context(), dispatch.ExtendRequest{Session: first}); err != nil {
		t.Errorf("the first worker's session was harmed: %v", err)
	}
}

func idFree(t *testing.T, s *stage) {
	first := s.register(t, registration("w", "1")).Session
	s.attend(t, first, receiver(nil))
	eventually(t, "the first worker's stream is open", func() bool { return s.c.Attending("w") })
	if err := s.m.Leave(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second := registration("w", "2")
	second.Identity = "somebody else"
	s.register(t, second)
}

func newIncarnation(t *testing.T, s *stage) {
	old, l := s.start(t)
	session := s.register(t, registration("w", "2")).Session
	_, err := s.m.Extend(t.Context(), dispatch.ExtendRequest{Session: old})
	wantUnknownSession(t, "a call of the old incarnation", err)
	again := s.lease(t, session, l.JobID)[0]
	if again.Fence <= l.Fence {
		t.Errorf("the fence went from %d to %d", l.Fence, again.Fence)
	}
	if refused := s.finish(t, session, result(l)); !slices.Contains(refused, l.Held) {
		t.Error("a result under the old incarnation's lease was accepted")
	}
}

func keepsLeases(t *testing.T, s *stage) {
	session, l := s.start(t)
	s.c.Restart()
	_, err := s.m.Extend(t.Context(), dispatch.ExtendRequest{Session: session, Held: []dispatch.Held{l.Held}})
	wantUnknownSession(t, "a call after the restart", err)
	r := registration("w", "1")
	r.Holding = []dispatch.Held{l.Held}
	w := s.register(t, r)
	if len(w.Gone) != 0 {
		t.Fatalf("the lease was called gone: %v", w.Gone)
	}
	if s.gone(t, w.Session, l.Held) {
		t.Error("the lease is gone")
	}
	if refused := s.finish(t, w.Session, result(l)); len(refused) != 0 || len(s.c.Accepted(l.JobID)) != 1 {
		t.Errorf("the result was not accepted; refused: %v", refused)
	}
}

func takesOver(t *testing.T, s *stage) {
	old := s.register(t, registration("w", "1")).Session
	ls := s.lease(t, old, s.submit(), s.submit())
	kept, other := ls[0], ls[1]
	s.report(t, old, happened(kept.Held, 1, `{"k":1}`))
	r := registration("w", "2")
	r.Holding = []dispatch.Held{kept.Held}
	w := s.register(t, r)
	if len(w.Gone) != 0 {
		t.Fatalf("the lease was called gone: %v", w.Gone)
	}
	if again := s.lease(t, w.Session, other.JobID)[0]; again.Fence <= other.Fence {
		t.Errorf("the fence of the other went from %d to %d", other.Fence, again.Fence)
	}
	one, two := happened(kept.Held, 1, `{"k":1}`), happened(kept.Held, 2, `{"k":2}`)
	if refused := s.report(t, w.Session, one, two); len(refused) != 0 {
		t.Errorf("a report was refused: %v", refused)
	}
	wantEvents(t, s.c.Events(kept.JobID), one, two)
	if refused := s.finish(t, w.Session, result(kept)); len(refused) != 0 || len(s.c.Accepted(kept.JobID)) != 1 {
		t.Errorf("the result was not accepted; refused: %v", refused)
	}
}

func loses(t *testing.T, s *stage) {
	_, l := s.start(t)
	r := registration("w", "2")
	r.Holding = []dispatch.Held{l.Held} // even if it says both
	r.Lost = []dispatch.Lost{{Held: l.Held, Sandbox: "box", Reason: "it is gone"}, {Held: dispatch.Held{JobID: "nobody's", Fence: 7}}}
	w := s.register(t, r)
	if !slices.Equal(w.Gone, []dispatch.Held{l.Held}) {
		t.Errorf("gone: %v, want %v", w.Gone, l.Held)
	}
	again := s.lease(t, w.Session, l.JobID)[0]
	if again.Fence <= l.Fence {
		t.Errorf("the fence went from %d to %d", l.Fence, again.Fence)
	}
	if refused := s.finish(t, w.Session, result(l)); !slices.Contains(refused, l.Held) {
		t.Error("a result under the lost lease was accepted")
	}
}

func goneAtRegistration(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	ls := s.lease(t, session, s.submit(), s.submit())
	s.c.Restart()
	s.c.Expire(ls[0].JobID)
	r := registration("w", "1")
	r.Holding = []dispatch.Held{ls[0].Held, ls[1].Held}
	if w := s.register(t, r); !slices.Equal(w.Gone, []dispatch.Held{ls[0].Held}) {
		t.Errorf("gone: %v, want only %v", w.Gone, ls[0].Held)
	}
}

func noWork(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	ls, err := s.m.Lease(t.Context(), dispatch.LeaseRequest{Session: session, Max: 4})
	if err != nil || len(ls) != 0 {
		t.Errorf("got %v, %v", ls, err)
	}
}

func leaseCarriesJob(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	payload := s.payload()
	id := s.c.Submit(payload)
	l := s.lease(t, session, id)[0]
	if l.Fence < 1 || l.Attempt != 1 || l.RootID == "" || l.Timeout <= 0 || !l.Until.After(time.Now()) {
		t.Errorf("the lease is incomplete: %+v", l)
	}
	if !sameJSON(l.Payload, payload) {
		t.Errorf("payload %s, want %s", l.Payload, payload)
	}
}

func atMostMax(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	seen := map[string]bool{}
	for range 5 {
		s.submit()
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("patience ran out"))
	defer cancel()
	for len(seen) < 5 && ctx.Err() == nil {
		ls, err := s.m.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: 2, Wait: 5 * time.Second})
		if err != nil || len(ls) > 2 {
			t.Fatalf("asked for 2, got %d, %v", len(ls), err)
		}
		for _, l := range ls {
			if seen[l.JobID] {
				t.Errorf("%s was leased twice", l.JobID)
			}
			seen[l.JobID] = true
		}
	}
	if len(seen) != 5 {
		t.Errorf("leased %d of 5", len(seen))
	}
}

func wakes(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	// Patience is shorter than the wait: a lease that sleeps through is caught.
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("patience ran out"))
	defer cancel()
	for range 10 {
		got := make(chan []dispatch.Lease, 1)
		go func() {
			ls, _ := s.m.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: 1, Wait: dispatch.MaxWait})
			got <- ls
		}()
		// A call and its answer give the lease the time to begin its wait. If it
		// has not, the round proves less and is not wrong.
		s.gone(t, session, dispatch.Held{JobID: "none", Fence: 1})
		id := s.submit()
		if ls := soon(t, "the lease", got); len(ls) != 1 || ls[0].JobID != id {
			t.Fatalf("got %v, want a lease of %s", ls, id)
		}
	}
}

func leaseEndsEarly(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan int, 1)
	go func() {
		ls, _ := s.m.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: 1, Wait: dispatch.MaxWait})
		got <- len(ls)
	}()
	s.gone(t, session, dispatch.Held{JobID: "none", Fence: 1}) // as above
	cancel(errors.New("the worker drains"))
	if n := soon(t, "the end of the lease", got); n != 0 {
		t.Errorf("got %d leases", n)
	}
	if _, err := s.m.Extend(t.Context(), dispatch.ExtendRequest{Session: session}); err != nil {
		t.Errorf("the session did not live on: %v", err)
	}
}

func everyJobOnce(t *testing.T, s *stage) {
	const jobs, workers = 64, 4
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = s.submit()
	}
	var left sync.WaitGroup
	left.Add(jobs)
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	for i := range workers {
		session := s.register(t, registration(fmt.Sprintf("w%d", i), "1")).Session
		all.Go(func() {
			for ctx.Err() == nil {
				ls, err := s.m.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: 3, Wait: 5 * time.Second})
				if err != nil && ctx.Err() == nil {
					t.Errorf("lease: %v", err)
					return
				}
				for _, l := range ls {
					r, err := s.m.Finish(ctx, dispatch.FinishRequest{Session: session, Results: []dispatch.Result{result(l)}})
					if err != nil || len(r.Refused) != 0 {
						t.Errorf("finish %s: %v, refused %v", l.JobID, err, r.Refused)
					}
					left.Done()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		left.Wait()
		close(done)
	}()
	soon(t, "the end of all jobs", done)
	cancel(errors.New("all done"))
	all.Wait()
	for _, id := range ids {
		if n := len(s.c.Accepted(id)); n != 1 {
			t.Errorf("%s has %d accepted results", id, n)
		}
	}
}

func expiredComesAgain(t *testing.T, s *stage) {
	session, l := s.start(t)
	s.c.Expire(l.JobID)
	again := s.lease(t, session, l.JobID)[0]
	if again.Fence <= l.Fence || again.Attempt != l.Attempt+1 {
		t.Errorf("first %+v, then %+v", l, again)
	}
	if !s.gone(t, session, l.Held) || s.gone(t, session, again.Held) {
		t.Error("the old lease should be gone and the new one not")
	}
}

func extend(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	ls := s.lease(t, session, s.submit(), s.submit())
	s.c.Expire(ls[0].JobID)
	a, err := s.m.Extend(t.Context(), dispatch.ExtendRequest{Session: session, Held: []dispatch.Held{ls[0].Held, ls[1].Held}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Gone, []dispatch.Held{ls[0].Held}) || !a.Until.After(time.Now()) {
		t.Errorf("got %+v", a)
	}
}

func eventsOnce(t *testing.T, s *stage) {
	session, l := s.start(t)
	one, two, three := happened(l.Held, 1, `{"k":1}`), happened(l.Held, 2, `{"k":"<&>\u00e4"}`), happened(l.Held, 3, ``)
	for _, batch := range [][]dispatch.ReportItem{{one, two}, {one, two}, {two, three}, {one, two, three}} {
		if refused := s.report(t, session, batch...); len(refused) != 0 {
			t.Fatalf("refused: %v", refused)
		}
	}
	wantEvents(t, s.c.Events(l.JobID), one, two, three)
}

func wantEvents(t *testing.T, got []dispatch.Happening, want ...dispatch.ReportItem) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d events are stored, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		if got[i].Type != w.Event.Type || got[i].At.IsZero() || !sameJSON(got[i].Data, w.Event.Data) {
			t.Errorf("event %d: got %+v, want %+v", i, got[i], *w.Event)
		}
	}
}

// sameJSON compares values, and takes no value for null.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if len(a) > 0 && json.Unmarshal(a, &x) != nil || len(b) > 0 && json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

func outputOnce(t *testing.T, s *stage) {
	session, l := s.start(t)
	a, b := said(l.Held, sandbox.Stdout, 0, "hello "), said(l.Held, sandbox.Stdout, 6, "\x00\xffworld")
	e := said(l.Held, sandbox.Stderr, 0, "oops")
	for _, batch := range [][]dispatch.ReportItem{{a}, {a, e, b}, {b}, {a, b, e}} {
		if refused := s.report(t, session, batch...); len(refused) != 0 {
			t.Fatalf("refused: %v", refused)
		}
	}
	if got := string(s.c.Output(l.JobID, sandbox.Stdout)); got != "hello \x00\xffworld" {
		t.Errorf("stdout is %q", got)
	}
	if got := string(s.c.Output(l.JobID, sandbox.Stderr)); got != "oops" {
		t.Errorf("stderr is %q", got)
	}
}

func staleReport(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	ls := s.lease(t, session, s.submit(), s.submit())
	stale, good := ls[0], ls[1]
	s.c.Expire(stale.JobID)
	kept := happened(good.Held, 1, `{"k":1}`)
	refused := s.report(t, session, happened(stale.Held, 1, `{"k":1}`), kept)
	if !slices.Equal(refused, []dispatch.Held{stale.Held}) {
		t.Errorf("refused %v, want only %v", refused, stale.Held)
	}
	wantEvents(t, s.c.Events(good.JobID), kept)
	wantEvents(t, s.c.Events(stale.JobID))
	if s.c.Refused(stale.JobID) == 0 {
		t.Error("the refusal was not audited")
	}
	again := s.lease(t, session, stale.JobID)[0]
	older := again.Held
	older.Fence--
	if refused := s.report(t, session, happened(older, 1, `{}`)); !slices.Equal(refused, []dispatch.Held{older}) {
		t.Errorf("an older number was not refused: %v", refused)
	}
}

func strangersReport(t *testing.T, s *stage) {
	_, l := s.start(t)
	other := s.register(t, registration("other", "1")).Session
	if refused := s.report(t, other, happened(l.Held, 1, `{}`)); !slices.Equal(refused, []dispatch.Held{l.Held}) {
		t.Errorf("refused %v", refused)
	}
	if refused := s.finish(t, other, result(l)); !slices.Equal(refused, []dispatch.Held{l.Held}) {
		t.Errorf("refused %v", refused)
	}
	if len(s.c.Accepted(l.JobID)) != 0 {
		t.Error("a stranger's result was accepted")
	}
}

func reportAfterFinish(t *testing.T, s *stage) {
	session, l := s.start(t)
	s.finish(t, session, result(l))
	if refused := s.report(t, session, happened(l.Held, 1, `{}`)); !slices.Equal(refused, []dispatch.Held{l.Held}) {
		t.Errorf("refused %v", refused)
	}
}

func cancelledIsRefused(t *testing.T, s *stage) {
	session, l := s.start(t)
	s.c.Cancel(l.JobID)
	if !s.gone(t, session, l.Held) {
		t.Error("the lease of a cancelled job is not gone")
	}
	if refused := s.report(t, session, happened(l.Held, 1, `{}`)); !slices.Equal(refused, []dispatch.Held{l.Held}) {
		t.Errorf("report: refused %v", refused)
	}
	if refused := s.finish(t, session, result(l)); !slices.Equal(refused, []dispatch.Held{l.Held}) {
		t.Errorf("finish: refused %v", refused)
	}
	if len(s.c.Accepted(l.JobID)) != 0 {
		t.Error("the result was accepted")
	}
}

func reportAfterRestart(t *testing.T, s *stage) {
	session, l := s.start(t)
	one, two := happened(l.Held, 1, `{"k":1}`), happened(l.Held, 2, `{"k":2}`)
	s.report(t, session, one)
	s.c.Restart()
	r := registration("w", "1")
	r.Holding = []dispatch.Held{l.Held}
	session = s.register(t, r).Session
	if refused := s.report(t, session, one, two); len(refused) != 0 {
		t.Fatalf("refused: %v", refused)
	}
	wantEvents(t, s.c.Events(l.JobID), one, two)
}
