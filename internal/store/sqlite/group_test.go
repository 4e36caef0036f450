package sqlite

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// start opens a store whose writer the test can reach.
func start(t *testing.T) (*Store, *writer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	s := newStore(slog.New(slog.DiscardHandler))
	w, err := s.connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	go w.run(context.WithoutCancel(t.Context()))
	return s, w, path
}

// together runs the functions in one group: the first holds the writer until
// the others wait behind it, in their order. It returns their errors. The
// caller stands in a synctest bubble.
func together(ctx context.Context, s *Store, fns ...func(store.Tx) error) []error {
	errs := make([]error, len(fns))
	release := make(chan struct{})
	for i, fn := range fns {
		go func() {
			held := i > 0
			errs[i] = s.Update(ctx, func(tx store.Tx) error {
				if !held {
					held = true
					<-release
				}
				return fn(tx)
			})
		}()
		synctest.Wait()
	}
	close(release)
	synctest.Wait()
	return errs
}

// addJob returns a function that adds a job with a payload of some size.
func addJob(ctx context.Context, id string, size int, runs *int) func(store.Tx) error {
	return func(tx store.Tx) error {
		*runs++
		return tx.Jobs().Add(ctx, &job.Job{
			ID: id, RootID: "r", State: job.Queued,
			Payload: json.RawMessage(`"` + strings.Repeat("x", size) + `"`),
		})
	}
}

func wantJob(t *testing.T, s *Store, id string, want bool) {
	t.Helper()
	err := s.View(t.Context(), func(tx store.Tx) error {
		_, err := tx.Jobs().Get(t.Context(), id)
		return err
	})
	if want && err != nil || !want && !fault.Is(err, fault.NotFound) {
		t.Errorf("job %s: got error %v, want it there: %v", id, err, want)
	}
}

// commits counts the commits in the write-ahead log: the frames that carry the
// size of the database after them.
func commits(t *testing.T, path string) (n int) {
	t.Helper()
	const header, frameHeader = 32, 24
	b, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	page := int(binary.BigEndian.Uint32(b[8:]))
	for at := header; at+frameHeader+page <= len(b); at += frameHeader + page {
		if binary.BigEndian.Uint32(b[at+4:]) != 0 {
			n++
		}
	}
	return n
}

func TestWaitingUpdatesShareOneCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, path := start(t)
		before, runs := commits(t, path), 0
		var fns []func(store.Tx) error
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			fns = append(fns, addJob(t.Context(), id, 10, &runs))
		}
		failure := errors.New("failure")
		fns[2] = func(tx store.Tx) error {
			return errors.Join(addJob(t.Context(), "c", 10, &runs)(tx), failure)
		}
		errs := together(t.Context(), s, fns...)
		for i, err := range errs {
			if (i == 2) != errors.Is(err, failure) || i != 2 && err != nil {
				t.Errorf("update %d: got error %v", i, err)
			}
			wantJob(t, s, string(rune('a'+i)), i != 2)
		}
		if got := commits(t, path) - before; got != 1 {
			t.Errorf("got %d commits, want 1", got)
		}
		// The failure took back what the two before it had written, so they ran
		// again, and it with them.
		if runs != len(fns)+3 {
			t.Errorf("the functions ran %d times, want %d", runs, len(fns)+3)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A refusal that wrote nothing leaves nothing to take back: nobody runs twice.
func TestRefusalWithoutWritesRunsNobodyAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, _, path := start(t)
		before, runs := commits(t, path), 0
		refused := func(tx store.Tx) error {
			runs++
			_, err := tx.Jobs().Get(ctx, "nobody")
			return err
		}
		errs := together(ctx, s, refused, addJob(ctx, "a", 10, &runs), refused, addJob(ctx, "b", 10, &runs))
		for i, err := range errs {
			if refuses := i%2 == 0; refuses != fault.Is(err, fault.NotFound) || !refuses && err != nil {
				t.Errorf("update %d: got error %v", i, err)
			}
		}
		wantJob(t, s, "a", true)
		wantJob(t, s, "b", true)
		if got := commits(t, path) - before; got != 1 || runs != len(errs) {
			t.Errorf("got %d commits and %d runs, want 1 and %d", got, runs, len(errs))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// One that panics after it wrote takes nothing of the others with it.
func TestPanicInAGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, _, _ := start(t)
		var (
			runs     int
			errs     [3]error
			panicked [3]bool
		)
		release := make(chan struct{})
		for i, id := range []string{"a", "panics", "b"} {
			go func() {
				defer func() { panicked[i] = recover() != nil }()
				first := id == "a"
				errs[i] = s.Update(ctx, func(tx store.Tx) error {
					if first {
						first = false
						<-release
					}
					err := addJob(ctx, id, 10, &runs)(tx)
					if id == "panics" {
						panic(id)
					}
					return err
				})
			}()
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		if panicked != [3]bool{1: true} || errors.Join(errs[:]...) != nil {
			t.Errorf("panicked: %v, errors: %v", panicked, errs)
		}
		wantJob(t, s, "a", true)
		wantJob(t, s, "panics", false)
		wantJob(t, s, "b", true)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A group is full at some point, so that the first is answered at last.
func TestGroupIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, path := start(t)
		before, runs := commits(t, path), 0
		fns := make([]func(store.Tx) error, maxGroup+2)
		for i := range fns {
			fns[i] = addJob(t.Context(), job.NewID(), 10, &runs)
		}
		for _, err := range together(t.Context(), s, fns...) {
			if err != nil {
				t.Error(err)
			}
		}
		if got := commits(t, path) - before; got != 2 {
			t.Errorf("got %d commits, want 2", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A full disk makes SQLite give up the whole transaction, not one savepoint:
// those that shared it are run again and only the one fails.
func TestBrokenGroupIsRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, w, _ := start(t)
		var runs [4]int
		limit := func(tx store.Tx) error {
			if err := w.conn.do(ctx, "PRAGMA max_page_count = 200"); err != nil {
				return err
			}
			return addJob(ctx, "a", 10, &runs[0])(tx)
		}
		failure := errors.New("failure")
		fails := func(store.Tx) error { runs[1]++; return failure }
		big := func(tx store.Tx) error {
			runs[2]++
			return tx.Records().Add(ctx, evidence.Record{JobID: "big", Cause: strings.Repeat("x", 4<<20)}, nil, nil)
		}
		errs := together(ctx, s, limit, fails, big, addJob(ctx, "d", 10, &runs[3]))
		if errs[0] != nil || !errors.Is(errs[1], failure) || errs[3] != nil {
			t.Errorf("got errors %v, want one of the big record only", errs)
		}
		if errs[2] == nil || !strings.Contains(errs[2].Error(), "full") {
			t.Errorf("got error %v, want that the database is full", errs[2])
		}
		if want := [4]int{2, 2, 1, 1}; runs != want {
			t.Errorf("the functions ran %v times, want %v", runs, want)
		}
		wantJob(t, s, "a", true)
		wantJob(t, s, "d", true)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestFailedCommitFailsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, w, _ := start(t)
		woken := s.Watch(ctx)
		runs := 0
		orphan := func(store.Tx) error { // is found only at the commit
			return errors.Join(
				w.conn.do(ctx, "CREATE TABLE orphan (of TEXT REFERENCES job (id) DEFERRABLE INITIALLY DEFERRED)"),
				w.conn.do(ctx, "INSERT INTO orphan (of) VALUES ('nobody')"))
		}
		errs := together(ctx, s, addJob(ctx, "a", 10, &runs), orphan,
			func(tx store.Tx) error { return tx.Events().Append(ctx, &event.Event{}) }, addJob(ctx, "b", 10, &runs))
		for i, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "commit") {
				t.Errorf("update %d: got error %v, want the commit's", i, err)
			}
		}
		wantJob(t, s, "a", false)
		select {
		case <-woken:
			t.Error("a watcher was woken by a commit that failed")
		default:
		}
		if err := s.Update(ctx, addJob(ctx, "c", 10, &runs)); err != nil {
			t.Errorf("the store did not recover: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An Update that waits leaves with its context; one that runs is not
// interrupted.
func TestContextOfAnUpdate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := start(t)
		running, endRunning := context.WithCancelCause(t.Context())
		waiting, endWaiting := context.WithCancelCause(t.Context())
		runs, release := 0, make(chan struct{})
		var first, second error
		go func() {
			first = s.Update(running, func(tx store.Tx) error {
				<-release
				return addJob(running, "a", 10, &runs)(tx)
			})
		}()
		synctest.Wait()
		left := make(chan struct{})
		go func() {
			defer close(left)
			second = s.Update(waiting, addJob(waiting, "b", 10, &runs))
		}()
		synctest.Wait()
		endWaiting(nil)
		<-left // although the first still runs
		endRunning(nil)
		close(release)
		synctest.Wait()
		if first != nil || !errors.Is(second, context.Canceled) || runs != 1 {
			t.Errorf("got errors %v and %v after %d runs", first, second, runs)
		}
		wantJob(t, s, "a", true)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
