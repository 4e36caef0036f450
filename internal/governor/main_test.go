package governor_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/governor/governortest"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
	"github.com/aurea-dev/aurea/internal/store/sqlite/sqlitetest"
)

// server is the PostgreSQL of this package's tests; nil where there is none.
var server *pgtest.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// A story is told one step after the other, over a real database.
	// -rapid.checks still overrides this.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	flag.Parse()
	reason := pgtest.Missing()
	if reason != "" && os.Getenv("CI") == "true" {
		fmt.Fprintln(os.Stderr, "left out:", reason)
		return 1
	}
	if reason == "" {
		var err error
		if server, err = pgtest.Start(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if server != nil {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// onBoth runs a test over a database of each kind.
func onBoth(t *testing.T, test func(t *testing.T, db store.Store)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, openSQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		needPostgres(t)
		test(t, openPostgres(t))
	})
}

func needPostgres(t *testing.T) {
	t.Helper()
	if server == nil {
		t.Skip(pgtest.Missing()) // under CI=true the whole package has failed before this
	}
}

// openPostgres makes a database until the end of a test or of a story.
func openPostgres(t sqlitetest.T) store.Store {
	t.Helper()
	ctx := context.Background()
	address, err := server.Fresh(ctx)
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
	return openPostgresAt(t, address)
}

func openPostgresAt(t sqlitetest.T, address string) store.Store {
	t.Helper()
	db, err := postgres.Open(context.Background(), address, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("open the database: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openSQLite(t *testing.T) store.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "aurea.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// testingT is what a testing.T and a rapid.T have in common.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// stageHost is a worker in memory, for tests that change some of what it does.
type stageHost struct{ *dispatchtest.Boxes }

// stage is a governor over a real keeper and a real database, with a worker in
// memory, under a clock that tests turn.
type stage struct {
	testingT
	*governor.Governor
	db    store.Store
	blobs blob.Store
	local *blob.Local
	keys  *governor.KeyFile
	keep  *keeper.Keeper
	boxes *dispatchtest.Boxes
	log   *governortest.Book
	host  dispatch.Host // in place of boxes

	mu      sync.Mutex
	now     time.Time
	stopped string
	denied  map[string]bool // codes that were wanted, and came
}

// place is where the keys and blobs of a stage are.
type place struct{ dir string }

func newStage(t *testing.T, db store.Store) *stage {
	t.Helper()
	s := stageAt(t, db, place{t.TempDir()})
	t.Cleanup(s.close)
	return s
}

// close lets go of what a stage has open.
func (s *stage) close() { _ = s.local.Close() }

func stageAt(t testingT, db store.Store, at place) *stage {
	t.Helper()
	blobs, err := blob.OpenLocal(filepath.Join(at.dir, "blobs"))
	if err != nil {
		t.Fatalf("open blobs: %v", err)
	}
	keys, err := governor.OpenKeyFile(filepath.Join(at.dir, "manifest.key"), nil)
	if err != nil {
		t.Fatalf("open keys: %v", err)
	}
	s := &stage{testingT: t, db: db, blobs: blobs, local: blobs, keys: keys, boxes: &dispatchtest.Boxes{}, denied: map[string]bool{}, now: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)}
	s.restart()
	return s
}

// restart makes keeper and governor anew, as after kill -9: what was not stored
// is forgotten, the sandboxes live on.
func (s *stage) restart() {
	s.Helper()
	s.log = &governortest.Book{}
	s.keep = keeper.New(keeper.Config{Store: s.db, Blobs: s.blobs, Now: s.clock, Workers: s.workers, Alone: true, Stops: s.stops})
	keep := s.keep
	s.boxes.Tell = func(r dispatch.TellRequest) {
		if err := keep.Tell(context.Background(), "w", r); err != nil {
			s.Errorf("tell: %v", err)
		}
	}
	s.Governor = governor.New(governor.Config{
		Store: s.db, Sandboxes: s.keep, Blobs: s.blobs, Keys: s.keys, Now: s.clock, Logger: slog.New(slog.NewJSONHandler(s.log, nil)), Alone: true,
		Stopped: func(context.Context, store.Tx, governor.Subject) (string, bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.stopped, s.stopped != "", nil
		},
	})
	if err := s.Publish(context.Background()); err != nil {
		s.Fatalf("publish the key: %v", err)
	}
}

func (s *stage) workers() []keeper.Worker {
	var host dispatch.Host = s.boxes
	if s.host != nil {
		host = s.host
	}
	return []keeper.Worker{{ID: "w", Drivers: []string{"memory"}, Host: host}}
}

func (s *stage) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stage) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *stage) engage(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = reason
}

// stops is what the switch says to sandboxes.
func (s *stage) stops(sandbox.Subject) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped == "" {
		return nil
	}
	return fault.New(fault.Unavailable, "the switch: %s", s.stopped).WithCode("KILL_SWITCH")
}

// frozen reports whether the sandbox of a worker stands still at its host.
func (s *stage) frozen(w manifest.Worker) bool {
	for _, x := range s.boxes.Standings() {
		if x.ID == w.Sandbox {
			return x.Paused == live.Frozen
		}
	}
	return false
}

// as is a caller of that name who sees only what is theirs.
func as(owner string) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Viewer, ID: owner})
}

// me is the one whom most tests are about.
func me() context.Context { return as("o") }

func (s *stage) contract(change func(c *manifest.Contract)) {
	s.Helper()
	c := manifest.Default()
	c.Cooldown = 0
	change(&c)
	if _, err := s.PutContract(policy.With(context.Background(), policy.LocalCaller()), c); err != nil {
		s.Fatalf("put a contract: %v", err)
	}
}

func (s *stage) issue(parent string) manifest.Manifest {
	s.Helper()
	m, err := s.Issue(me(), governor.Asked{ParentID: parent})
	if err != nil {
		s.Fatalf("issue: %v", err)
	}
	return m
}

func (s *stage) start(parent string) manifest.Worker {
	s.Helper()
	w, err := s.Register(me(), s.issue(parent))
	if err != nil {
		s.Fatalf("register: %v", err)
	}
	return w
}

// alive is how many sandboxes the worker has.
func (s *stage) alive() int { return len(s.boxes.Standings()) }

func (s *stage) worker(id string) manifest.Worker {
	s.Helper()
	w, err := s.Worker(me(), id)
	if err != nil {
		s.Fatalf("get %s: %v", id, err)
	}
	return w
}

// sandbox is that of a worker.
func (s *stage) sandbox(w manifest.Worker) live.Sandbox {
	s.Helper()
	x, err := s.keep.Sandbox(me(), w.Sandbox)
	if err != nil {
		s.Fatalf("get the sandbox of %s: %v", w.ID(), err)
	}
	return x
}

func (s *stage) wantCode(what string, err error, code string) {
	s.Helper()
	if fault.CodeOf(err) != code {
		s.Errorf("%s: got %v (code %s), want %s", what, err, fault.CodeOf(err), code)
	}
	if strings.HasPrefix(code, "deny") || strings.HasPrefix(code, "reject") {
		if !fault.Is(err, fault.Denied) {
			s.Errorf("%s: %v is of kind %s", what, err, fault.KindOf(err))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.denied[fault.CodeOf(err)] = true
	}
}
