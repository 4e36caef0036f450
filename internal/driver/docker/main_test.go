package docker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/driver/docker"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
)

// What the tests work with; empty where there is no engine.
var (
	engineHost string
	guestPath  string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("AUREA_TEST_ATTACKER") != "" {
		return attack()
	}
	if dockertest.Missing() == "" {
		stop, err := begin()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer stop()
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// begin builds the guest and starts an engine.
func begin() (stop func(), err error) {
	dir, err := os.MkdirTemp("", "aurea-bin")
	if err != nil {
		return nil, err
	}
	if err := drivertest.Build(dir, "cmd/aurea-guest"); err != nil {
		return nil, err
	}
	e, err := dockertest.Start(context.Background())
	if err != nil {
		return nil, err
	}
	engineHost, guestPath = e.Host, filepath.Join(dir, "aurea-guest")
	return func() {
		if err := e.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		_ = os.RemoveAll(dir)
	}, nil
}

// needEngine leaves the test out where no engine can be, but not in CI.
func needEngine(t testing.TB) {
	t.Helper()
	if engineHost != "" {
		return
	}
	drivertest.LeaveOut(t, dockertest.Missing())
}

func config(t testing.TB, folder string) docker.Config {
	t.Helper()
	return docker.Config{
		StateDir: folder, Host: engineHost, Guest: guestPath, Image: dockertest.Image,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// open opens a driver on the folder.
func open(t testing.TB, folder string) *docker.Driver {
	t.Helper()
	needEngine(t)
	d, err := docker.New(context.Background(), config(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// opened opens a driver for the test alone, and looks afterwards whether
// anything is left of it on the host.
func opened(t testing.TB) *docker.Driver {
	t.Helper()
	d := open(t, drivertest.StateDir(t))
	t.Cleanup(func() {
		left, err := d.List(context.Background())
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}
