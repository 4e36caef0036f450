package keeper

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a keeper over a real database, and a worker in memory.
type stage struct {
	*Keeper
	t     *testing.T
	boxes *dispatchtest.Boxes
	mu    sync.Mutex
	now   time.Time
	away  bool
	host  dispatch.Host // in place of boxes
}

func newStage(t *testing.T, change func(*Config)) *stage {
	t.Helper()
	folder := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(folder, "aurea.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenLocal(filepath.Join(folder, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Close()
		_ = blobs.Close()
	})
	s := &stage{t: t, boxes: &dispatchtest.Boxes{}, now: time.Now()}
	cfg := Config{Store: db, Blobs: blobs, Now: s.clock, Workers: s.workers, Terms: live.Terms{TTL: time.Hour, MaxTTL: 2 * time.Hour}, Alone: true}
	if change != nil {
		change(&cfg)
	}
	s.Keeper = New(cfg)
	s.boxes.Tell = func(r dispatch.TellRequest) {
		if err := s.Tell(context.Background(), "w", r); err != nil {
			t.Errorf("tell: %v", err)
		}
	}
	return s
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

func (s *stage) workers() []Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil
	}
	var host dispatch.Host = s.boxes
	if s.host != nil {
		host = s.host
	}
	return []Worker{{ID: "w", Drivers: []string{"memory"}, Host: host}}
}

func as(owner string) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Viewer, ID: owner})
}

func (s *stage) create(req live.Request) live.Sandbox {
	s.t.Helper()
	x, _, err := s.CreateSandbox(as("o"), req)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

func (s *stage) start(id string, command ...string) live.Exec {
	s.t.Helper()
	e, _, err := s.StartExec(as("o"), live.Command{Sandbox: id, Command: command, Open: true}, run.Asked{})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *stage) sandbox(id string) live.Sandbox {
	s.t.Helper()
	x, err := s.Sandbox(as("o"), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// story is what happened to something.
func (s *stage) story(id string) (types []event.Type) {
	s.t.Helper()
	err := s.Store.View(context.Background(), func(tx store.Tx) error {
		events, err := tx.Events().List(context.Background(), event.Filter{EntityIDs: []string{id}}, 100)
		for _, e := range events {
			types = append(types, e.Type)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return types
}
