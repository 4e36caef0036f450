package gvisor_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

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
	if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("", "aurea-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		for _, name := range []string{"aurea-sentry", "aurea-guest"} {
			build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, "github.com/aurea-dev/aurea/cmd/"+name)
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build %s: %v\n%s", name, err, out)
				return 1
			}
		}
		binaries = dir
		if images, err = gvisortest.Make(dir, filepath.Join(dir, "aurea-guest")); err != nil {
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
	const reason = "making gVisor sandboxes needs root; this run leaves their tests out"
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
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
	config.Sentry = filepath.Join(binaries, "aurea-sentry")
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

// stateDir makes a folder. At the end nothing on the host may name it.
func stateDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := traces(t, dir); len(left) > 0 {
			t.Errorf("left on the host: %q", left)
		}
		if owner, err := os.ReadFile(filepath.Join(dir, "owner")); err == nil {
			if left := groupsOf(string(owner)); len(left) > 0 {
				t.Errorf("control groups are left: %q", left)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// traces returns the processes and mounts that name a folder.
func traces(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cmdlines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, string(line))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			found = append(found, line)
		}
	}
	return found
}

// makeBox makes a sandbox. Its id is given to it.
func makeBox(t testing.TB, d *gvisor.Driver, spec sandbox.Spec) sandbox.Box {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	spec.ID = id
	b, err := d.Create(context.Background(), spec, func(sandbox.Handle) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func destroy(t testing.TB, d *gvisor.Driver, b sandbox.Box) {
	t.Helper()
	if err := d.Destroy(context.Background(), b.Handle()); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// box makes a sandbox that is destroyed at the end of the test.
func box(t testing.TB, d *gvisor.Driver) sandbox.Box {
	t.Helper()
	b := makeBox(t, d, sandbox.Spec{})
	t.Cleanup(func() { destroy(t, d, b) })
	return b
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
