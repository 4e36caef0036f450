package probe_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/gvisortest"
)

// binaries is the folder of the sentry and the guest that this run has built,
// or empty where no sandbox can be made.
var binaries string

// images is a small image with the guest that this run has built.
var images gvisortest.Images

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() == 0 {
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
		if images, err = gvisortest.Make(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binaries = dir
	}
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// open opens a gvisor driver for the test, or leaves the test out where that
// cannot be; not in CI.
func open(t *testing.T) *gvisor.Driver {
	t.Helper()
	if binaries == "" {
		const reason = "making gVisor sandboxes needs root; this run leaves their tests out"
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	folder, err := os.MkdirTemp("", "pr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	d, err := gvisor.New(context.Background(), gvisor.Config{
		StateDir: folder, Sentry: filepath.Join(binaries, "aurea-sentry"), Guest: filepath.Join(binaries, "aurea-guest"), Images: images,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}
