package gvisor_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/gvisortest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// binaries is the folder of the sentry and the guest that this run has built,
// or empty where they cannot be used.
var binaries string

// images is the image that this run has made.
var images gvisortest.Images

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if folder := os.Getenv("AUREA_TEST_VICTIM"); folder != "" {
		return victim(folder)
	}
	if groups, ok := os.LookupEnv("AUREA_TEST_BECOME"); ok {
		return become(groups)
	}
	if dir := os.Getenv("AUREA_TEST_BINARIES"); dir != "" { // of who is root
		binaries, images = dir, gvisortest.Images{Root: filepath.Join(dir, "root.erofs")}
	} else if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("", "aurea-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // for the user of TestRootless
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := drivertest.Build(dir, "cmd/aurea-sentry", "cmd/aurea-guest"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binaries = dir
		if images, err = gvisortest.Make(dir); err != nil {
			fmt.Fprintln(os.Stderr, "make the image:", err)
			return 1
		}
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

// needRoot leaves the test out where no sandbox can be made, but not in CI.
func needRoot(t testing.TB) {
	t.Helper()
	if binaries != "" {
		return
	}
	drivertest.LeaveOut(t, "making gVisor sandboxes needs root; this run leaves their tests out")
}

// open opens a driver on the folder.
func open(t testing.TB, folder string) *gvisor.Driver {
	t.Helper()
	return openWith(t, gvisor.Config{StateDir: folder})
}

// openWith opens a driver with this run's binaries.
func openWith(t testing.TB, config gvisor.Config) *gvisor.Driver {
	t.Helper()
	needRoot(t)
	if config.Sentry == "" {
		config.Sentry = filepath.Join(binaries, "aurea-sentry")
	}
	if config.Guest == "" {
		config.Guest = filepath.Join(binaries, "aurea-guest")
	}
	if config.Images == nil {
		config.Images = images
	}
	config.Logger = logger(t)
	d, err := gvisor.New(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stateDir makes a folder. At the end no control group may be left of it either.
func stateDir(t testing.TB) string {
	t.Helper()
	dir := drivertest.StateDir(t)
	t.Cleanup(func() {
		if owner, err := os.ReadFile(filepath.Join(dir, "owner")); err == nil {
			if left := groupsOf(string(owner)); len(left) > 0 {
				t.Errorf("control groups are left: %q", left)
			}
		}
	})
	return dir
}

// box makes a sandbox that is destroyed at the end of the test.
func box(t testing.TB, d *gvisor.Driver) sandbox.Box {
	t.Helper()
	return drivertest.Kept(t, d, sandbox.Spec{})
}

// groupsOf returns the control groups that belong to an owner.
func groupsOf(owner string) []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, owner) {
			found = append(found, path)
		}
		return nil
	})
	return found
}
