package dispatchtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func digest(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

func happeningsRide(t *testing.T, s *stage) {
	session, l := s.start(t)
	one, two := happened(l.Held, 1, `{"k":1}`), happened(l.Held, 2, `{"k":2}`)
	s.report(t, session, one)
	r := result(l)
	r.Happenings = []dispatch.Happening{*one.Event, *two.Event}
	for range 2 {
		if refused := s.finish(t, session, r); len(refused) != 0 {
			t.Fatalf("refused: %v", refused)
		}
	}
	wantEvents(t, s.c.Events(l.JobID), one, two)
}

func accepted(t *testing.T, s *stage) {
	session, l := s.start(t)
	want := result(l)
	if refused := s.finish(t, session, want); len(refused) != 0 {
		t.Fatalf("refused: %v", refused)
	}
	got := s.c.Accepted(l.JobID)
	if len(got) != 1 || got[0].Held != l.Held || got[0].Success != want.Success || !sameJSON(got[0].Details, want.Details) {
		t.Errorf("accepted %+v, want %+v", got, want)
	}
	if !s.gone(t, session, l.Held) {
		t.Error("the lease lives on after its result")
	}
}

func finishTwice(t *testing.T, s *stage) {
	session, l := s.start(t)
	for range 3 {
		if refused := s.finish(t, session, result(l)); len(refused) != 0 {
			t.Fatalf("refused: %v", refused)
		}
	}
	if refused := s.finish(t, session, result(l), result(l)); len(refused) != 0 {
		t.Fatalf("twice in one call was refused: %v", refused)
	}
	if n := len(s.c.Accepted(l.JobID)); n != 1 {
		t.Errorf("%d results were accepted", n)
	}
}

func finishAfterRestart(t *testing.T, s *stage) {
	session, l := s.start(t)
	s.finish(t, session, result(l))
	s.c.Restart()
	r := registration("w", "1")
	r.Holding = []dispatch.Held{l.Held} // the answer was lost, so it still holds it
	session = s.register(t, r).Session
	if refused := s.finish(t, session, result(l)); len(refused) != 0 {
		t.Errorf("refused: %v", refused)
	}
	if n := len(s.c.Accepted(l.JobID)); n != 1 {
		t.Errorf("%d results were accepted", n)
	}
}

func staleFinish(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	ls := s.lease(t, session, s.submit(), s.submit())
	stale, good := ls[0], ls[1]
	s.c.Expire(stale.JobID)
	again := s.lease(t, session, stale.JobID)[0]
	if refused := s.finish(t, session, result(stale), result(good)); !slices.Equal(refused, []dispatch.Held{stale.Held}) {
		t.Errorf("refused %v, want only %v", refused, stale.Held)
	}
	if len(s.c.Accepted(good.JobID)) != 1 || len(s.c.Accepted(stale.JobID)) != 0 {
		t.Error("the wrong result was accepted")
	}
	if s.c.Refused(stale.JobID) == 0 {
		t.Error("the refusal was not audited")
	}
	if refused := s.finish(t, session, result(again)); len(refused) != 0 {
		t.Errorf("the current lease suffered from the stale one: %v", refused)
	}
}

func blobs(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	for _, data := range []string{"", "x", strings.Repeat("0123456789abcdef", 200_000)} {
		for range 2 {
			if err := s.m.PutBlob(t.Context(), session, digest(data), int64(len(data)), strings.NewReader(data)); err != nil {
				t.Errorf("put %d bytes: %v", len(data), err)
			}
		}
	}
}

func blobsMustMatch(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	data := strings.Repeat("right", 1000)
	for name, put := range map[string]struct {
		digest string
		size   int64
		data   string
		kind   fault.Kind
	}{
		"other bytes":  {digest(data), int64(len(data)), strings.Repeat("wrong", 1000), fault.Invalid},
		"fewer bytes":  {digest(data), int64(len(data)), data[:10], fault.Invalid},
		"no bytes":     {digest(data), 0, "", fault.Invalid},
		"no digest":    {"", 1, "x", fault.Invalid},
		"a path":       {"../" + digest(data)[3:], 1, "x", fault.Invalid},
		"upper case":   {strings.ToUpper(digest(data)), int64(len(data)), data, fault.Invalid},
		"far too much": {digest(data), dispatch.MaxBlobBytes + 1, "x", fault.TooLarge},
	} {
		if err := s.m.PutBlob(t.Context(), session, put.digest, put.size, strings.NewReader(put.data)); !fault.Is(err, put.kind) {
			t.Errorf("%s: got %v, want a fault of kind %s", name, err, put.kind)
		}
	}
	if err := s.m.PutBlob(t.Context(), session, digest(data), int64(len(data)), strings.NewReader(data)); err != nil {
		t.Errorf("the right bytes, after the wrong ones: %v", err)
	}
}

func blobThenFinish(t *testing.T, s *stage) {
	session, l := s.start(t)
	large, small := strings.Repeat("large", dispatch.MaxInline), "small"
	if err := s.m.PutBlob(t.Context(), session, digest(large), int64(len(large)), strings.NewReader(large)); err != nil {
		t.Fatal(err)
	}
	r := result(l)
	r.Artifacts = []evidence.Artifact{
		{Name: evidence.StdoutLog, SHA256: digest(large), Bytes: int64(len(large))},
		{Name: "artifacts/small.txt", SHA256: digest(small), Bytes: int64(len(small))},
	}
	r.Inline = map[string][]byte{digest(small): []byte(small)}
	if refused := s.finish(t, session, r); len(refused) != 0 || len(s.c.Accepted(l.JobID)) != 1 {
		t.Errorf("not accepted; refused: %v", refused)
	}
}

// collect returns a receiver that passes on what it is told.
func collect() (Canceller, <-chan dispatch.Cancel) {
	got := make(chan dispatch.Cancel, 16)
	return receiver(func(_ context.Context, c dispatch.Cancel) error {
		got <- c
		return nil
	}), got
}

func cancelComes(t *testing.T, s *stage) {
	session, l := s.start(t)
	rc, got := collect()
	s.attend(t, session, rc)
	eventually(t, "the stream is open", func() bool { return s.c.Attending("w") })
	s.c.Cancel(l.JobID)
	if c := soon(t, "the cancel", got); c.Held != l.Held {
		t.Errorf("cancelled %v, want %v", c.Held, l.Held)
	}
}

func cancelsAreParallel(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	const n = 5
	ids := make([]string, n)
	for i := range ids {
		ids[i] = s.submit()
	}
	s.lease(t, session, ids...)
	// Nobody answers before all have been asked.
	var mu sync.Mutex
	asked, all := 0, make(chan struct{})
	s.attend(t, session, receiver(func(ctx context.Context, _ dispatch.Cancel) error {
		mu.Lock()
		if asked++; asked == n {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-ctx.Done():
		}
		return nil
	}))
	eventually(t, "the stream is open", func() bool { return s.c.Attending("w") })
	var told sync.WaitGroup
	for _, id := range ids {
		told.Go(func() { s.c.Cancel(id) })
	}
	soon(t, "all cancels at once", all)
	told.Wait()
}

func streamReplaced(t *testing.T, s *stage) {
	session, l := s.start(t)
	old, none := collect()
	_, ended := s.attend(t, session, old)
	eventually(t, "the first stream is open", func() bool { return s.c.Attending("w") })
	rc, got := collect()
	s.attend(t, session, rc)
	soon(t, "the end of the replaced stream", ended)
	eventually(t, "the second stream is open", func() bool { return s.c.Attending("w") })
	s.c.Cancel(l.JobID)
	if c := soon(t, "the cancel", got); c.Held != l.Held {
		t.Errorf("cancelled %v, want %v", c.Held, l.Held)
	}
	if len(none) != 0 {
		t.Error("the replaced stream was told too")
	}
}

func attendEndsWithCtx(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	rc, _ := collect()
	hangUp, ended := s.attend(t, session, rc)
	eventually(t, "the stream is open", func() bool { return s.c.Attending("w") })
	hangUp()
	soon(t, "the end of the stream", ended)
	eventually(t, "the manager knows", func() bool { return !s.c.Attending("w") })
}

func attendEndsWithManager(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	rc, _ := collect()
	_, ended := s.attend(t, session, rc)
	eventually(t, "the stream is open", func() bool { return s.c.Attending("w") })
	s.c.Restart()
	soon(t, "the end of the stream", ended)
	wantUnknownSession(t, "attend again", s.m.Attend(t.Context(), session, rc))
}

func leaveGivesBack(t *testing.T, s *stage) {
	session, l := s.start(t)
	if err := s.m.Leave(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	wantUnknownSession(t, "leave again", s.m.Leave(t.Context(), session))
	other := s.register(t, registration("other", "1")).Session
	if again := s.lease(t, other, l.JobID)[0]; again.Fence <= l.Fence {
		t.Errorf("the fence went from %d to %d", l.Fence, again.Fence)
	}
}

func outOfBounds(t *testing.T, s *stage) {
	session, l := s.start(t)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"held": func() error {
			_, err := s.m.Extend(ctx, dispatch.ExtendRequest{Session: session, Held: slices.Repeat([]dispatch.Held{l.Held}, dispatch.MaxHeld+1)})
			return err
		},
		"items": func() error {
			_, err := s.m.Report(ctx, dispatch.ReportRequest{Session: session, Items: slices.Repeat([]dispatch.ReportItem{said(l.Held, 1, 0, "")}, dispatch.MaxReports+1)})
			return err
		},
		"items[0].output.data": func() error {
			item := said(l.Held, sandbox.Stdout, 0, strings.Repeat("x", dispatch.MaxChunk+1))
			_, err := s.m.Report(ctx, dispatch.ReportRequest{Session: session, Items: []dispatch.ReportItem{item}})
			return err
		},
		"results": func() error {
			_, err := s.m.Finish(ctx, dispatch.FinishRequest{Session: session, Results: slices.Repeat([]dispatch.Result{result(l)}, dispatch.MaxFinishes+1)})
			return err
		},
		"results[0].artifacts": func() error {
			r := result(l)
			r.Artifacts = slices.Repeat([]evidence.Artifact{{Name: "a", SHA256: digest("")}}, dispatch.MaxArtifacts+1)
			_, err := s.m.Finish(ctx, dispatch.FinishRequest{Session: session, Results: []dispatch.Result{r}})
			return err
		},
		"results[0].inline": func() error {
			r := result(l)
			large := bytes.Repeat([]byte("x"), dispatch.MaxInline+1)
			r.Inline = map[string][]byte{digest(string(large)): large}
			_, err := s.m.Finish(ctx, dispatch.FinishRequest{Session: session, Results: []dispatch.Result{r}})
			return err
		},
		"wait_ns": func() error {
			_, err := s.m.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: 1, Wait: 2 * dispatch.MaxWait})
			return err
		},
		"max": func() error {
			_, err := s.m.Lease(ctx, dispatch.LeaseRequest{Session: session, Max: dispatch.MaxLeases + 1})
			return err
		},
		"worker_id": func() error {
			_, err := s.m.Register(ctx, registration("", "1"))
			return err
		},
	} {
		var f *fault.Error
		if err := call(); !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != name {
			t.Errorf("%s: got %v (%T), want a fault of kind invalid that names it", name, err, err)
		}
	}
	if len(s.c.Accepted(l.JobID)) != 0 || s.gone(t, session, l.Held) {
		t.Error("what was refused had an effect")
	}
}

func manyStreams(t *testing.T, s *stage) {
	session := s.register(t, registration("w", "1")).Session
	rc, _ := collect()
	var all sync.WaitGroup
	for range 50 {
		ctx, cancel := context.WithCancelCause(t.Context())
		opened := make(chan struct{})
		all.Go(func() {
			close(opened)
			_ = s.m.Attend(ctx, session, rc) // ended by a rival or by us: either is right
		})
		all.Go(func() {
			<-opened
			cancel(errors.New("closed by the test"))
		})
	}
	all.Wait()
	eventually(t, "no stream is open", func() bool { return !s.c.Attending("w") })
	l := s.lease(t, session, s.submit())[0]
	last, got := collect()
	s.attend(t, session, last)
	eventually(t, "a stream opens after all that", func() bool { return s.c.Attending("w") })
	s.c.Cancel(l.JobID)
	soon(t, "the cancel", got)
}
