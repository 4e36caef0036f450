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
