package machinesapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/keeper"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machinesapi"
	"github.com/aurea-dev/aurea/internal/machinist"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worker is a worker in memory whose sandboxes can be made to wait, to fail, and
// to be counted.
type worker struct {
	*dispatchtest.Boxes
	mu      sync.Mutex
	orders  []live.Order
	tars    []string
	hold    chan struct{} // a sandbox is not made before it is closed
	refuse  error
	room    int    // sandboxes that it takes at once; 0 is any number
	lacks   string // an image
	shut    string // a path that its user may not write
	snapped int
}

func (w *worker) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	w.mu.Lock()
	hold, refuse := w.hold, w.refuse
	w.orders = append(w.orders, o)
	w.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return live.Made{}, context.Cause(ctx)
		}
	}
	switch {
	case refuse != nil:
		return live.Made{}, refuse
	case w.room > 0 && len(w.Standings()) >= w.room:
		return live.Made{}, fault.New(fault.Exhausted, "the worker has no room").WithCode("no_room")
	case w.lacks != "" && w.lacks == o.Spec.Image:
		return live.Made{}, fault.New(fault.NotFound, "there is no image %q here", o.Spec.Image).WithCode("image_not_found")
	}
	return w.Boxes.OpenSandbox(ctx, o)
}

func (w *worker) SnapshotSandbox(context.Context, live.SnapshotOrder) (live.SnapshotMade, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snapped++
	return live.SnapshotMade{}, fault.New(fault.Invalid, "this driver has no checkpoints").WithCode("pause_unsupported")
}

func (w *worker) PutFiles(ctx context.Context, id, dir string, tar io.Reader) error {
	text, err := io.ReadAll(tar)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.tars = append(w.tars, dir+" "+string(text))
	w.mu.Unlock()
	if w.shut != "" && strings.Contains(string(text), w.shut) {
		return fault.New(fault.Denied, "openat %s: permission denied", w.shut)
	}
	return w.Boxes.PutFiles(ctx, id, dir, strings.NewReader(string(text)))
}

func (w *worker) made() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.orders)
}

// stage is the door over a real machinist, a real keeper and a real database.
type stage struct {
	t      *testing.T
	db     store.Store
	worker *worker
	keeper *keeper.Keeper
	smith  *machinist.Machinist
	door   http.Handler
}

func newStage(t *testing.T) *stage {
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
	s := &stage{t: t, db: db, worker: &worker{Boxes: &dispatchtest.Boxes{}}}
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
	s.live()
	t.Cleanup(func() {
		s.smith.Stop()
		s.keeper.Stop()
		_ = db.Close()
		_ = blobs.Close()
	})
	return s
}

// live starts another life of the machinist and of the door.
func (s *stage) live() {
	s.t.Helper()
	s.smith = machinist.New(machinist.Config{Store: s.db, Sandboxes: s.keeper, Execs: s.keeper, Alone: true})
	if err := s.smith.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.door = machinesapi.New(machinesapi.Config{Machinist: s.smith, Caller: func(r *http.Request) (policy.Caller, error) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		kind, id, _ := strings.Cut(token, ":")
		if id == "" {
			return policy.Caller{}, fault.New(fault.Unauthenticated, "the key is not known")
		}
		return policy.Caller{Kind: policy.Kind(kind), ID: id}, nil
	}})
}

type answer struct {
	t      *testing.T
	status int
	body   string
}

// ask sends a request as somebody; headers come as pairs.
func (s *stage) ask(who, method, path, body string, headers ...string) answer {
	s.t.Helper()
	r := httptest.NewRequest(method, "/v1"+path, strings.NewReader(body))
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.door.ServeHTTP(w, r)
	return answer{s.t, w.Code, w.Body.String()}
}

// admin asks as the local administrator.
func (s *stage) admin(method, path, body string, headers ...string) answer {
	s.t.Helper()
	return s.ask("admin:a", method, path, body, headers...)
}

func (a answer) into(status int, v any) {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("answers %d, want %d: %s", a.status, status, a.body)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
}

// refused demands an error in the shape of this door.
func (a answer) refused(status int) string {
	a.t.Helper()
	var e map[string]string
	a.into(status, &e)
	if len(e) != 1 || e["error"] == "" {
		a.t.Fatalf("not an error of this shape: %s", a.body)
	}
	return e["error"]
}

const machines = "/apps/mobvibe-sandboxes/machines"

// create makes a machine.
func (s *stage) create(body string) machinesapi.Machine {
	s.t.Helper()
	var m machinesapi.Machine
	s.admin("POST", machines, body).into(200, &m)
	return m
}

func (s *stage) state(id string) string {
	s.t.Helper()
	a := s.admin("GET", machines+"/"+id, "")
	if a.status == 404 {
		return "none"
	}
	var m machinesapi.Machine
	a.into(200, &m)
	return string(m.State)
}

// open counts the sandboxes that are there.
func (s *stage) open() int { return len(s.worker.Standings()) }

func local(t *testing.T) context.Context {
	t.Helper()
	return policy.With(t.Context(), policy.LocalCaller())
}
