package probe_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/docker"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
	"github.com/aurea-dev/aurea/internal/probe"
)

// TestDockerStopsEverything is the same on a real engine.
func TestDockerStopsEverything(t *testing.T) {
	t.Parallel()
	if lack := dockertest.Missing(); lack != "" || binaries == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(lack)
		}
		t.Skip(lack)
	}
	e, err := dockertest.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	}()
	folder, err := os.MkdirTemp("", "pr")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	d, err := docker.New(context.Background(), docker.Config{
		StateDir: folder, Host: e.Host, Guest: filepath.Join(binaries, "aurea-guest"), Image: dockertest.Image,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := probe.Run(t.Context(), d, probe.Options{Folder: t.TempDir()})
	for _, a := range r.Attempts {
		t.Logf("%-32s %v %s", a.Name, a.Stopped, a.Detail)
	}
	if why := r.Degraded(); why != "" {
		t.Error(why)
	}
}
