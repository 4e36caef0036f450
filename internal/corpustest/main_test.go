package corpustest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/image"
	"github.com/aurea-dev/aurea/internal/image/debiantest"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// binaries is the folder of the sentry and the guest that this run has built,
// or empty where no sandbox can be made.
var binaries string

// images has an image with every language that comes with Aurea.
var images *image.Store

// lack is why no sandbox can be made.
var lack string

func TestMain(m *testing.M) {
	if program := os.Getenv(bareVariable); program != "" {
		os.Exit(bareInit(program))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if lack = debiantest.Missing(); lack == "" {
		dir, err := os.MkdirTemp("", "aurea-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := drivertest.Build(dir, "cmd/aurea-sentry", "cmd/aurea-guest"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if images, err = debiantest.Store(context.Background(), debiantest.Languages); err != nil {
			fmt.Fprintln(os.Stderr, "make the image:", err)
			return 1
		}
		binaries = dir
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// needImage leaves the test out where no sandbox can be made, but not in CI.
func needImage(t *testing.T) {
	t.Helper()
	if binaries != "" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(lack)
	}
	t.Skip(lack + "; this run leaves its tests out")
}

// limits are those of the sandboxes of these tests.
func limits() sandbox.Limits {
	return sandbox.Limits{MilliCPU: 2000, Memory: 512 << 20, Processes: 128, Disk: 256 << 20, OpenFiles: 1024}
}

// stand is a worker in front of a manager that remembers.
type stand struct {
	*dispatchtest.Reference
	t        *testing.T
	runner   chan dispatch.Receiver // one: the worker's end
	finished chan string            // ids of jobs
	said     chan []language.Status // by the first registration
}

func (s *stand) Register(ctx context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	select {
	case s.said <- r.Languages:
	default:
	}
	return s.Reference.Register(ctx, r)
}

func (s *stand) Finish(ctx context.Context, r dispatch.FinishRequest) (dispatch.Refusals, error) {
	refused, err := s.Reference.Finish(ctx, r)
	if err == nil {
		for _, res := range r.Results {
			s.finished <- res.JobID
		}
	}
	return refused, err
}

func (s *stand) Attend(ctx context.Context, session string, rc dispatch.Receiver) error {
	select {
	case s.runner <- rc:
	default:
	}
	return s.Reference.Attend(ctx, session, rc)
}

// start starts a worker on a driver of its own.
func start(t *testing.T, change func(*worker.Config)) *stand {
	t.Helper()
	needImage(t)
	folder, err := os.MkdirTemp("", "corpus")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := gvisor.New(context.Background(), gvisor.Config{
		StateDir: filepath.Join(folder, "driver"), Sentry: filepath.Join(binaries, "aurea-sentry"), Guest: filepath.Join(binaries, "aurea-guest"),
		Images: images, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{
		Reference: dispatchtest.NewReference(), t: t,
		runner: make(chan dispatch.Receiver, 1), finished: make(chan string, 1000), said: make(chan []language.Status, 1),
	}
	c := worker.Config{
		Manager: s, Drivers: map[string]sandbox.Driver{"gvisor": d}, Driver: "gvisor", Survey: worker.Survey,
		DefaultImage: images.DefaultName, Base: filepath.Join(folder, "base"), WorkerID: "w", Version: "test",
		Limits: limits(), Slots: 4, NoSnapshot: true, Logger: log,
	}
	if change != nil {
		change(&c)
	}
	w, err := worker.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop(errors.New("the test is over"))
		if err := <-done; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
		left, err := d.List(context.Background())
		if err != nil || len(left) > 0 {
			t.Errorf("%d sandboxes are left, %v", len(left), err)
		}
		if err := errors.Join(d.Close(), os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	})
	return s
}
