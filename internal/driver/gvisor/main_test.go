package gvisor_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// binaries is the folder of the sentry and the guest that this run has built,
// or empty where they cannot be used.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
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
	needRoot(t)
	d, err := gvisor.New(context.Background(), gvisor.Config{
		StateDir: folder,
		Sentry:   filepath.Join(binaries, "aurea-sentry"),
		Guest:    filepath.Join(binaries, "aurea-guest"),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stateDir makes a folder that must be empty of sandboxes at the end.
func stateDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
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
