package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Build builds programs of ours, given by their packages, into a folder, each
// under the last part of its package's path. They are static, as in a release.
func Build(dir string, packages ...string) error {
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir}
	for _, p := range packages {
		args = append(args, "github.com/aurea-dev/aurea/"+p)
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") //nolint:forbidigo // the compiler's, not a sandbox's
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(packages, ", "), err, out)
	}
	return nil
}

// Create makes a sandbox and gives it its id.
func Create(t testing.TB, d sandbox.Driver, spec sandbox.Spec) sandbox.Box {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	spec.ID = id
	b, err := d.Create(context.Background(), spec, noReport)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Destroy destroys a sandbox, and fails the test where that fails.
func Destroy(t testing.TB, d sandbox.Driver, b sandbox.Box) {
	t.Helper()
	if err := d.Destroy(context.Background(), b.Handle()); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// Kept makes a sandbox that is destroyed at the end of the test.
func Kept(t testing.TB, d sandbox.Driver, spec sandbox.Spec) sandbox.Box {
	t.Helper()
	b := Create(t, d, spec)
	t.Cleanup(func() { Destroy(t, d, b) })
	return b
}

// StateDir makes a folder for a driver. At the end nothing on the host may name
// it.
func StateDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dr") // short: there are sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := Traces(t, dir); len(left) > 0 {
			t.Errorf("left on the host: %q", left)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// LeaveOut leaves the test out for a reason; in CI nothing is left out.
func LeaveOut(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" { //nolint:forbidigo // of the tests, not of a sandbox
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// Traces returns the processes and mounts of the host that name a folder.
func Traces(t testing.TB, dir string) []string {
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
