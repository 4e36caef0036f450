package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
	"github.com/aurea-dev/aurea/internal/store/storetest"
)

func TestMain(m *testing.M) {
	victim := flag.String("victim", "", "append to this database until killed, for TestKilledWriter")
	flag.Parse()
	if *victim != "" {
		appendForEver(*victim)
	}
	if underRace {
		// The property tests use the store from one goroutine and cannot race;
		// the detector makes the database thirty times slower.
		if err := flag.Set("rapid.checks", "5"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

func TestContract(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := openFile(t, empty).Close(); err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile(empty) // to migrate once, not for each test
	if err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, func(t *testing.T) storetest.Database {
		t.Helper()
		path := filepath.Join(t.TempDir(), "aurea.db")
		if err := os.WriteFile(path, schema, 0o600); err != nil {
			t.Fatal(err)
		}
		return func() store.Store { return openFile(t, path) }
	})
}

func appendEvent(ctx context.Context, s store.Store) (seq int64, err error) {
	err = s.Update(ctx, func(tx store.Tx) error {
		var e event.Event
		err := tx.Events().Append(ctx, &e)
		seq = e.Seq
		return err
	})
	return seq, err
}

// appendForEver prints the number of each event once it is acknowledged. It
// ends when nobody reads any more.
func appendForEver(path string) {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, slog.New(slog.DiscardHandler))
	for err == nil {
		var seq int64
		if seq, err = appendEvent(ctx, s); err == nil {
			_, err = fmt.Println(seq)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKilledWriter kills a process that writes, and finds all that it had
// acknowledged.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	for round := range int64(3) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-victim="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acknowledged int64
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				t.Fatal(err)
			}
			if acknowledged%20 == 13+round {
				break
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		s := openFile(t, path)
		var list []event.Event
		err = s.View(t.Context(), func(tx store.Tx) (err error) {
			list, err = tx.Events().List(t.Context(), event.Filter{}, 1e6)
			return err
		})
		if err != nil || acknowledged == 0 || int64(len(list)) < acknowledged {
			t.Errorf("%d events were acknowledged and %d are there, error %v", acknowledged, len(list), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a name? with #odd%20 signs&more=1")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	if _, err := appendEvent(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Errorf("got files %v, want the database, its log and its index", entries)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%q has mode %v, want 0600", e.Name(), info.Mode())
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	if err := openFile(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO schema_version (version_id, is_applied) VALUES (999, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	if !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "schema_too_new" || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "999") || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v, want one line that names the file and the version", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	junk := filepath.Join(folder, "junk")
	if err := os.WriteFile(junk, []byte(strings.Repeat("this is no database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, junk, filepath.Join(folder, "missing", "db")} {
		s, err := sqlite.Open(t.Context(), path, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Errorf("%s was opened", path)
			_ = s.Close()
		} else if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("got error %q, want one line that names the file", err)
		}
	}
}

// A statement that failed fails the whole transaction, also when its function
// looks away.
func TestFailedStatementIsNotForgotten(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), open(t, filepath.Join(t.TempDir(), "db"))
	var kept store.Tx
	err := s.View(ctx, func(tx store.Tx) error {
		kept = tx
		_ = tx.Events().Append(ctx, &event.Event{})
		return nil
	})
	if err == nil {
		t.Error("a view that tried to write returned no error")
	}
	if _, err := kept.Events().Last(ctx); err == nil {
		t.Error("a transaction was used after its end")
	}
	err = s.Update(ctx, func(tx store.Tx) error { kept = tx; return nil })
	if err != nil {
		t.Error(err)
	}
	if err := kept.Events().Append(ctx, &event.Event{}); err == nil {
		t.Error("a transaction was used after its end")
	}
}

func TestNoEventsNoWakeUp(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), open(t, filepath.Join(t.TempDir(), "db"))
	woken := s.Watch(ctx)
	failure := errors.New("failure")
	for _, fn := range []func(tx store.Tx) error{
		func(tx store.Tx) error { return tx.Jobs().Add(ctx, task()) },
		func(tx store.Tx) error { return errors.Join(tx.Events().Append(ctx, &event.Event{}), failure) },
	} {
		if err := s.Update(ctx, fn); err != nil && !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	select {
	case <-woken:
		t.Error("a watcher was woken and there is nothing to read")
	default:
	}
}

// TestOpenAndCloseUnderLoad closes stores while they are used: what was
// acknowledged stays, the rest is told that the store is closed.
func TestOpenAndCloseUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	var mu sync.Mutex
	acknowledged := 0
	for range 10 {
		s := openFile(t, path)
		var wg sync.WaitGroup
		started := make(chan struct{}, 8)
		for range cap(started) {
			wg.Go(func() {
				for first := true; ; first = false {
					_, err := appendEvent(t.Context(), s)
					if first {
						started <- struct{}{}
					}
					if err == nil {
						mu.Lock()
						acknowledged++
						mu.Unlock()
						err = s.View(t.Context(), func(tx store.Tx) error { _, err := tx.Events().Last(t.Context()); return err })
					}
					if err != nil {
						if !fault.Is(err, fault.Unavailable) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		wg.Go(func() {
			for range s.Watch(t.Context()) { //nolint:revive // until the store closes
			}
		})
		for range cap(started) {
			<-started
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	}
	s := open(t, path)
	var list []event.Event
	err := s.View(t.Context(), func(tx store.Tx) (err error) {
		list, err = tx.Events().List(t.Context(), event.Filter{}, 1e6)
		return err
	})
	if err != nil || len(list) != acknowledged {
		t.Errorf("%d events were acknowledged and %d are there, error %v", acknowledged, len(list), err)
	}
}
