package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/gvisortest"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// binaries is the folder of the sentry and the guest that this run has built,
// or empty where no sandbox can be made.
var binaries string

var images gvisortest.Images

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("", "aurea-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		err = drivertest.Build(dir, "cmd/aurea-sentry", "cmd/aurea-guest")
		if err == nil {
			images, err = gvisortest.Make(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
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

// stand is a worker with a pool of real sandboxes.
type stand struct {
	t      testing.TB
	runner dispatch.Receiver
	driver *gvisor.Driver
}

func limits() sandbox.Limits {
	return sandbox.Limits{MilliCPU: 2000, Memory: 256 << 20, Processes: 128, Disk: 128 << 20, OpenFiles: 1024}
}

func start(t testing.TB, pool map[string]int) *stand {
	t.Helper()
	if binaries == "" {
		const reason = "making gVisor sandboxes needs root; this run leaves their tests out"
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	folder, err := os.MkdirTemp("", "pool")
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
	ref := dispatchtest.NewReference()
	w, err := worker.New(worker.Config{
		Manager: ref, Drivers: map[string]sandbox.Driver{"gvisor": d}, Driver: "gvisor", Base: filepath.Join(folder, "base"), WorkerID: "w",
		Version: "test", Limits: limits(), Slots: 4, NoSnapshot: true, Pool: pool, Image: "host", Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s := &stand{t: t, driver: d}
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
	s.eventually("the worker holds its stream", func() bool { s.runner = ref.Receiver("w"); return s.runner != nil })
	return s
}

// eventually waits until ok, which something else makes true. Its bound is no
// measure.
func (s *stand) eventually(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			s.t.Fatalf("gave up waiting until %s", what)
		}
	}
}

// class is what the pool says of a language.
func (s *stand) class(language string) dispatch.PoolClass {
	s.t.Helper()
	state, err := s.runner.Pool(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, k := range state.Classes {
		if k.Language == language {
			return k
		}
	}
	return dispatch.PoolClass{}
}

func (s *stand) waits(language string, n int) {
	s.t.Helper()
	s.eventually("sandboxes wait", func() bool { return s.class(language).Waiting >= n })
}

// shown is what a run came to.
type shown struct {
	run.Result
	stdout, stderr string
}

func (s *stand) run(o run.Order) shown {
	s.t.Helper()
	var got shown
	var err error
	if o.ID == "" {
		id, err := sandbox.NewID()
		if err != nil {
			s.t.Fatal(err)
		}
		o.ID = id
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	got.Result, err = s.runner.Run(context.Background(), o, func(c dispatch.Chunk) error {
		if c.Stream == sandbox.Stderr {
			got.stderr += string(c.Data)
		} else {
			got.stdout += string(c.Data)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}
