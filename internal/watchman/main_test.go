package watchman_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
	"github.com/aurea-dev/aurea/internal/trigger"
	"github.com/aurea-dev/aurea/internal/watchman"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// server is the PostgreSQL of this package's tests; nil where there is none.
var server *pgtest.Server

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
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
		if server == nil {
			t.Skip(pgtest.Missing()) // under CI=true the whole package has failed before this
		}
		address, err := server.Fresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(t, openPostgres(t, address))
	})
}

func openPostgres(t *testing.T, address string) store.Store {
	t.Helper()
	db, err := postgres.Open(t.Context(), address, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
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

// host is a worker in memory, whose sandboxes use what a test says.
type host struct {
	*dispatchtest.Boxes
	mu      sync.Mutex
	usage   map[string]sandbox.Usage
	signals []int
	disk    int64
	deaf    bool // it freezes nothing
}

func (h *host) SandboxStats(_ context.Context, id string) (live.Stats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u, known := h.usage[id]
	if !known {
		return live.Stats{}, fault.New(fault.Unavailable, "nobody knows")
	}
	return live.Stats{Usage: u, Disk: h.disk}, nil
}

func (h *host) PauseSandbox(ctx context.Context, id string) error {
	if h.deaf {
		return fault.New(fault.Unavailable, "it does not listen")
	}
	return h.Boxes.PauseSandbox(ctx, id)
}

func (h *host) SignalExec(ctx context.Context, s live.Signal) error {
	h.mu.Lock()
	h.signals = append(h.signals, s.Signal)
	h.mu.Unlock()
	return h.Boxes.SignalExec(ctx, s)
}

func (*host) SnapshotSandbox(context.Context, live.SnapshotOrder) (live.SnapshotMade, error) {
	return live.SnapshotMade{SHA256: strings.Repeat("a", 64), Bytes: 1}, nil
}

// stage is a watchman over a real governor, keeper and database, with a worker
// in memory, under a clock that tests turn.
type stage struct {
	*testing.T
	*watchman.Watchman
	gov    *governor.Governor
	keep   *keeper.Keeper
	db     store.Store
	blobs  blob.Store
	keys   *governor.KeyFile
	host   *host
	hooks  webhook.Terms
	shared bool   // with another manager
	id     string // among those that share
	away   bool   // the worker is connected to the other one

	mu       sync.Mutex
	clock    time.Time
	stopped  bool // by a kill switch
	outcomes []string
}

func newStage(t *testing.T, db store.Store) *stage {
	t.Helper()
	dir := t.TempDir()
	blobs, err := blob.OpenLocal(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	keys, err := governor.OpenKeyFile(filepath.Join(dir, "manifest.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{
		T: t, db: db, blobs: blobs, keys: keys, host: &host{Boxes: &dispatchtest.Boxes{}, usage: map[string]sandbox.Usage{}},
		clock: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), hooks: webhook.Terms{Secret: []byte("a secret of some length"), Private: true},
	}
	s.restart()
	c := manifest.Default()
	c.Cooldown, c.Expiration = 0, 0
	if _, err := s.gov.PutContract(boss(), c); err != nil {
		t.Fatal(err)
	}
	return s
}

// restart makes everything of the manager anew, as after kill -9.
func (s *stage) restart() {
	s.Helper()
	s.keep = keeper.New(keeper.Config{Store: s.db, Blobs: s.blobs, Now: s.time, Alone: !s.shared, ID: s.id, Stops: s.stops, Workers: func() []keeper.Worker {
		if s.away {
			return nil
		}
		return []keeper.Worker{{ID: "w", Drivers: []string{"memory"}, Host: s.host}}
	}})
	keep := s.keep
	s.host.Tell = func(r dispatch.TellRequest) {
		if err := keep.Tell(context.Background(), "w", r); err != nil {
			s.Errorf("tell: %v", err)
		}
	}
	s.gov = governor.New(governor.Config{Store: s.db, Sandboxes: s.keep, Blobs: s.blobs, Keys: s.keys, Now: s.time, Alone: true})
	if err := s.gov.Publish(context.Background()); err != nil {
		s.Fatal(err)
	}
	s.Watchman = watchman.New(watchman.Config{Store: s.db, Fleet: s.gov, Sandboxes: s.keep, Hooks: s.hooks, Now: s.time, Observe: func(k trigger.Kind, o trigger.Outcome) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outcomes = append(s.outcomes, string(k)+" "+string(o))
	}})
}

func (s *stage) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// stops is what a kill switch says to sandboxes.
func (s *stage) stops(sandbox.Subject) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fault.New(fault.Unavailable, "the kill switch is engaged").WithCode("KILL_SWITCH")
	}
	return nil
}

func (s *stage) engage(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = on
}

func (s *stage) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// boss is who may do everything, as is a caller who sees only what is theirs.
func boss() context.Context { return policy.With(context.Background(), policy.LocalCaller()) }

func as(owner string) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Viewer, ID: owner})
}

// system is how the watchman looks.
func system() context.Context { return policy.With(context.Background(), policy.System()) }

// look lets time pass and looks, once a second, until all is done.
func (s *stage) look(seconds int) {
	s.Helper()
	for range seconds {
		s.pass(time.Second)
		if err := s.Look(system()); err != nil {
			s.Fatal(err)
		}
		s.Settle()
	}
}

// burn lets a worker use processors and memory for some looks.
func (s *stage) burn(w manifest.Worker, cpus float64, megabytes int64, seconds int) {
	s.Helper()
	for range seconds {
		s.host.mu.Lock()
		u := s.host.usage[w.Sandbox]
		u.CPU += time.Duration(cpus * float64(time.Second))
		u.Memory = megabytes << 20
		s.host.usage[w.Sandbox] = u
		s.host.mu.Unlock()
		s.look(1)
	}
}

func (s *stage) start() manifest.Worker {
	s.Helper()
	m, err := s.gov.Issue(as("o"), governor.Asked{})
	if err == nil {
		var w manifest.Worker
		if w, err = s.gov.Register(as("o"), m); err == nil {
			return w
		}
	}
	s.Fatal(err)
	return manifest.Worker{}
}

func (s *stage) exec(w manifest.Worker, command ...string) live.Exec {
	s.Helper()
	e, _, err := s.keep.StartExec(as("o"), live.Command{Sandbox: w.Sandbox, Command: command}, run.Asked{})
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// rule makes a trigger that fires at once, unless it is changed.
func (s *stage) rule(kind trigger.Kind, threshold float64, change func(t *trigger.Trigger)) trigger.Trigger {
	s.Helper()
	t := trigger.Trigger{Kind: kind, Threshold: threshold, Severity: manifest.High, Enabled: true, Plan: trigger.DefaultPlan()}
	t.Plan.Strategy = trigger.Forceful
	change(&t)
	t, err := s.AddTrigger(boss(), t)
	if err != nil {
		s.Fatal(err)
	}
	return t
}

func (s *stage) worker(w manifest.Worker) manifest.Worker {
	s.Helper()
	x, err := s.gov.Worker(as("o"), w.ID())
	if err != nil {
		s.Fatal(err)
	}
	return x
}

// frozen reports whether the sandbox of a worker stands still at its host.
func (s *stage) frozen(w manifest.Worker) bool {
	for _, x := range s.host.Standings() {
		if x.ID == w.Sandbox {
			return x.Paused == live.Frozen
		}
	}
	return false
}

// want holds what triggers did against outcomes, oldest first; "" is what is
// under way.
func (s *stage) want(outcomes ...trigger.Outcome) []trigger.Firing {
	s.Helper()
	list, err := s.Firings(boss(), store.FiringFilter{})
	if err != nil {
		s.Fatal(err)
	}
	var got []trigger.Outcome
	for i := len(list) - 1; i >= 0; i-- {
		got = append(got, list[i].Outcome)
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", outcomes) {
		s.Fatalf("the outcomes are %q, want %q; the last is %+v", got, outcomes, list)
	}
	return list
}

// audited are the actions of the audit about a target, by the part that did it.
func (s *stage) audited(source string) (actions string) {
	s.Helper()
	err := s.db.View(context.Background(), func(tx store.Tx) error {
		list, err := tx.Audit().List(context.Background(), audit.Filter{}, 1000)
		for i := range list {
			if list[i].Source == source {
				actions += list[i].Action + " "
			}
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return actions
}
