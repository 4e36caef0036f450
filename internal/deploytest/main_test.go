//go:build !race

package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
)

func TestDeploy(t *testing.T) {
	root := moduleRoot(t)
	demand(t, dockertest.Missing())
	demand(t, missing(filepath.Join(root, "dist", "aurea"), "run `make release`"))
	engine, err := dockertest.StartNetworked(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("compose", func(t *testing.T) { testCompose(t, root, engine) })
	t.Run("package", func(t *testing.T) { testPackage(t, root, engine) })
}

// demand skips the test when something is missing on a developer's machine, and
// fails it where everything has to be.
func demand(t *testing.T, missing string) {
	t.Helper()
	if missing == "" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

func missing(path, remedy string) string {
	if _, err := os.Stat(path); err != nil {
		return path + " is not there; " + remedy
	}
	return ""
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// copyOf copies what the images and the compose file are made of, so that what
// containers write lands beside no source.
func copyOf(t *testing.T, root string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{"Dockerfile", ".dockerignore", "deploy", "dist"} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(root, name), to).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v: %s", name, err, out)
		}
	}
	return to
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
