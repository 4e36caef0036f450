package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/session"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

// server is the PostgreSQL of this package's tests; nil where there is none.
var server *pgtest.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		switch reason := pgtest.Missing(); {
		case reason == "":
			var err error
			if server, err = pgtest.Start(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		case os.Getenv("CI") == "true":
			fmt.Fprintln(os.Stderr, reason)
			return 1
		default:
			fmt.Fprintln(os.Stderr, "PostgreSQL is left out:", reason)
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
	}())
}

// worker is a worker in memory that can refuse to end sandboxes.
type worker struct {
	*dispatchtest.Boxes
	mu     sync.Mutex
	opened int
	stuck  map[string]bool // sandboxes that do not end
}

func (w *worker) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	w.mu.Lock()
	w.opened++
	w.mu.Unlock()
	return w.Boxes.OpenSandbox(ctx, o)
}

func (w *worker) EndSandbox(ctx context.Context, c live.Closing) error {
	w.mu.Lock()
	stuck := w.stuck[c.ID]
	w.mu.Unlock()
	if stuck {
		return errors.New("it hangs")
	}
	return w.Boxes.EndSandbox(ctx, c)
}

func (w *worker) SnapshotSandbox(context.Context, live.SnapshotOrder) (live.SnapshotMade, error) {
	return live.SnapshotMade{}, fault.New(fault.Invalid, "this driver has no checkpoints").WithCode("pause_unsupported")
}

type stage struct {
	*session.Lifecycle
	t      *testing.T
	db     store.Store
	worker *worker
	keeper *keeper.Keeper

	mu    sync.Mutex
	now   time.Time
	plans []job.PRD
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

func sqliteStore(t *testing.T) store.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "aurea.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func postgresStore(t *testing.T) store.Store {
	t.Helper()
	if server == nil {
		t.Skip("there is no PostgreSQL here; with CI=true that is a failure")
	}
	address, err := server.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(t.Context(), address, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func newStage(t *testing.T, db store.Store) *stage {
	t.Helper()
	blobs, err := blob.OpenLocal(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, db: db, worker: &worker{Boxes: &dispatchtest.Boxes{}, stuck: map[string]bool{}}, now: time.Now()}
	s.keeper = keeper.New(keeper.Config{
		Store: db, Blobs: blobs, Alone: true,
		Workers: func() []keeper.Worker {
			return []keeper.Worker{{ID: "w", Drivers: []string{"memory"}, Host: s.worker}}
		},
	})
	s.worker.Tell = func(r dispatch.TellRequest) {
		if err := s.keeper.Tell(context.Background(), "w", r); err != nil {
			t.Errorf("tell: %v", err)
		}
	}
	if err := s.keeper.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.keeper.Stop()
		_ = db.Close()
		_ = blobs.Close()
	})
	s.Lifecycle = s.life()
	return s
}

// life is another life of what looks after sessions.
func (s *stage) life() *session.Lifecycle {
	return session.New(session.Config{Store: s.db, Sandboxes: s.keeper, Now: s.clock, Submit: func(_ context.Context, prd job.PRD) (job.Submission, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.plans = append(s.plans, prd)
		return job.Submission{RootID: job.NewID(), JobIDs: []string{job.NewID()}}, nil
	}})
}

func as(owner string) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Viewer, ID: owner})
}

func (s *stage) start(id string) live.Session {
	s.t.Helper()
	x, _, err := s.StartSession(as("o"), live.SessionRequest{ID: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

func (s *stage) state(id string) live.SessionState {
	s.t.Helper()
	x, err := s.Session(as("o"), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return x.State
}

func (s *stage) open() int { return len(s.worker.Standings()) }

// TestConcurrentStartsMakeOne starts the same session from 32 goroutines, on
// both stores.
func TestConcurrentStartsMakeOne(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) store.Store{"sqlite": sqliteStore, "postgres": postgresStore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, open(t))
			const starts = 32
			var group sync.WaitGroup
			boxes, made := make([]string, starts), make([]bool, starts)
			for i := range starts {
				group.Go(func() {
					x, first, err := s.StartSession(as("o"), live.SessionRequest{ID: "same"})
					if err != nil || x.State != live.SessionActive {
						t.Errorf("start %d: %s, %v", i, x.State, err)
					}
					boxes[i], made[i] = x.Sandbox, first
				})
			}
			group.Wait()
			firsts := 0
			for i := range starts {
				if boxes[i] != boxes[0] || boxes[i] == "" {
					t.Errorf("start %d got the sandbox %q, the first %q", i, boxes[i], boxes[0])
				}
				if made[i] {
					firsts++
				}
			}
			if firsts != 1 || s.worker.opened != 1 || s.open() != 1 {
				t.Errorf("%d made it, %d sandboxes were made, %d are there", firsts, s.worker.opened, s.open())
			}
		})
	}
}

// TestStates moves sessions through every state and holds what each refuses.
func TestStates(t *testing.T) {
	t.Parallel()
	s := newStage(t, sqliteStore(t))
	ctx := as("o")
	const prompt = "please say hello"
	ways := map[live.SessionState]func(id string){
		live.SessionActive:    func(string) {},
		live.SessionPaused:    func(id string) { _, _ = s.PauseSession(ctx, id) },
		live.SessionCompleted: func(id string) { _, _ = s.StopSession(ctx, id) },
		live.SessionFailed:    func(id string) { _, _ = s.FailSession(ctx, id, "for a reason") },
		live.SessionExpired: func(id string) {
			s.pass(31 * time.Minute)
			if err := s.SweepSessions(ctx); err != nil {
				t.Error(err)
			}
		},
	}
	calls := map[string]func(id string) error{
		"start":    func(id string) error { _, _, err := s.StartSession(ctx, live.SessionRequest{ID: id}); return err },
		"continue": func(id string) error { _, err := s.ContinueSession(ctx, id, prompt); return err },
		"exec": func(id string) error {
			_, err := s.ExecSession(ctx, id, live.Command{Command: []string{"echo", "x"}})
			return err
		},
		"pause":  func(id string) error { _, err := s.PauseSession(ctx, id); return err },
		"resume": func(id string) error { _, err := s.ResumeSession(ctx, id); return err },
		"stop":   func(id string) error { _, err := s.StopSession(ctx, id); return err },
	}
	const ended, expired, fine, paused = "session_ended", "session_expired", "", "paused"
	want := map[live.SessionState]map[string]string{
		live.SessionActive:    {"start": fine, "continue": fine, "exec": fine, "pause": fine, "resume": fine, "stop": fine},
		live.SessionPaused:    {"start": fine, "continue": fine, "exec": paused, "pause": fine, "resume": fine, "stop": fine},
		live.SessionCompleted: {"start": ended, "continue": ended, "exec": ended, "pause": ended, "resume": ended, "stop": fine},
		live.SessionFailed:    {"start": ended, "continue": ended, "exec": ended, "pause": ended, "resume": ended, "stop": fine},
		live.SessionExpired:   {"start": expired, "continue": expired, "exec": expired, "pause": expired, "resume": expired, "stop": fine},
	}
	n := 0
	for state, way := range ways {
		for name, call := range calls {
			n++
			id := fmt.Sprint("s", n)
			s.start(id)
			way(id)
			if got := s.state(id); got != state {
				t.Fatalf("it is %s, want %s", got, state)
			}
			err := call(id)
			code := ""
			if err != nil {
				code = fault.CodeOf(err)
			}
			if code != want[state][name] {
				t.Errorf("%s of one that is %s: %v, want %q", name, state, err, want[state][name])
			}
			if code == expired && !fault.Is(err, fault.Gone) {
				t.Errorf("%v is not gone", err)
			}
			if _, err := s.StopSession(ctx, id); err != nil {
				t.Error(err)
			}
		}
	}
	for name, call := range calls {
		if name == "start" {
			continue
		}
		if err := call("unknown"); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s of an unknown one: %v", name, err)
		}
	}
	if s.open() != 0 {
		t.Errorf("%d sandboxes are left", s.open())
	}
}

func TestSandboxOfASession(t *testing.T) {
	t.Parallel()
	s := newStage(t, sqliteStore(t))
	first := s.start("s")
	if again := s.start("s"); again.Sandbox != first.Sandbox {
		t.Errorf("a second start made %s beside %s", again.Sandbox, first.Sandbox)
	}
	e, err := s.ExecSession(as("o"), "s", live.Command{Command: []string{"echo", "Hello from sandbox"}})
	if err != nil || e.Sandbox != first.Sandbox {
		t.Fatalf("exec in %s: %v", e.Sandbox, err)
	}
	if e, err = s.keeper.WaitExec(as("o"), e.ID); err != nil || e.Result.ExitCode != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	if _, err := s.keeper.EndSandbox(as("o"), first.Sandbox, "behind its back"); err != nil {
		t.Fatal(err)
	}
	if again := s.start("s"); again.Sandbox == first.Sandbox || again.State != live.SessionActive {
		t.Errorf("after its sandbox was gone: %+v", again)
	}
	if _, err := s.Session(as("another"), "s"); !fault.Is(err, fault.NotFound) {
		t.Errorf("another sees it: %v", err)
	}
	theirs, made, err := s.StartSession(as("another"), live.SessionRequest{ID: "s"})
	if err != nil || !made || theirs.Sandbox == first.Sandbox {
		t.Errorf("another's own: %+v, %v", theirs, err)
	}
	next := s.life() // a restart forgets nothing
	if got, err := next.Session(as("o"), "s"); err != nil || got.State != live.SessionActive || got.Sandbox == "" {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	for _, id := range []string{"a/b", "a b", "..", string(make([]byte, 200))} {
		if _, _, err := s.StartSession(as("o"), live.SessionRequest{ID: id}); !fault.Is(err, fault.Invalid) {
			t.Errorf("the id %q: %v", id, err)
		}
	}
}

func TestPromptsBecomeJobs(t *testing.T) {
	t.Parallel()
	s := newStage(t, sqliteStore(t))
	x, _, err := s.StartSession(as("o"), live.SessionRequest{Prompt: "make me a small app"})
	if err != nil || x.Job == "" || x.Prompt != "make me a small app" {
		t.Fatalf("%+v, %v", x, err)
	}
	if y, err := s.ContinueSession(as("o"), x.ID, "and now a large one"); err != nil || y.Job == x.Job {
		t.Fatalf("%+v, %v", y, err)
	}
	if len(s.plans) != 2 || s.plans[1].Tasks[0].SessionID != x.ID || string(s.plans[1].Tasks[0].Payload) != `{"prompt":"and now a large one"}` {
		t.Errorf("plans %+v", s.plans)
	}
	if _, err := s.ContinueSession(as("o"), x.ID, "short"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a short prompt: %v", err)
	}
}

func TestTimeIsOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, sqliteStore(t))
	s.start("idle")
	s.start("paused")
	if _, err := s.PauseSession(as("o"), "paused"); err != nil {
		t.Fatal(err)
	}
	s.pass(29 * time.Minute)
	s.start("young")
	sweep := func() {
		t.Helper()
		if err := s.SweepSessions(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if s.state("idle") != live.SessionActive {
		t.Error("it expired early")
	}
	s.pass(2 * time.Minute)
	sweep()
	for id, want := range map[string]live.SessionState{"idle": live.SessionExpired, "paused": live.SessionExpired, "young": live.SessionActive} {
		if got := s.state(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	if s.open() != 1 {
		t.Errorf("%d sandboxes are there", s.open())
	}
}

// TestShutdown ends all sessions though one of them cannot be reached.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s := newStage(t, sqliteStore(t))
	for i := range 5 {
		s.start(fmt.Sprint("s", i))
	}
	if err := s.Shutdown(as("o"), session.Pause); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if got := s.state(fmt.Sprint("s", i)); got != live.SessionPaused {
			t.Errorf("s%d is %s", i, got)
		}
	}
	x := s.start("s0")
	s.worker.stuck[x.Sandbox] = true
	if err := s.Shutdown(as("o"), session.End); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if got := s.state(fmt.Sprint("s", i)); got != live.SessionCompleted {
			t.Errorf("s%d is %s", i, got)
		}
	}
	if s.open() != 1 { // the one that hangs
		t.Errorf("%d sandboxes are there", s.open())
	}
}

func TestDiagram(t *testing.T) {
	t.Parallel()
	for _, from := range live.SessionStates() {
		for _, to := range live.SessionStates() {
			got, err := from.To(to)
			if (err == nil) == from.Ended() && err == nil {
				t.Errorf("%s, which has ended, becomes %s", from, got)
			}
		}
	}
	if live.SessionDiagram() == "" {
		t.Error("no diagram")
	}
}
