package attacktest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/docker"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/gvisortest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// binaries is the folder of what this run has built, or empty where no sandbox
// can be made.
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
		if err := drivertest.Build(dir, "cmd/aurea-sentry", "cmd/aurea-guest", "attacks/static"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if images, err = gvisortest.Make(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binaries = dir
	}
	return m.Run()
}

// factory opens a driver with its state in a folder, or says why it cannot be
// had here.
type factory struct {
	name string
	open func(t *testing.T, folder string) (d sandbox.Driver, lack string)
}

// factories lists the local drivers. All pass the same attacks.
func factories() []factory {
	return []factory{
		{"gvisor", func(t *testing.T, folder string) (sandbox.Driver, string) {
			t.Helper()
			if binaries == "" {
				return nil, "making gVisor sandboxes needs root"
			}
			d, err := gvisor.New(context.Background(), gvisor.Config{
				StateDir: folder, Sentry: filepath.Join(binaries, "aurea-sentry"), Guest: filepath.Join(binaries, "aurea-guest"), Images: images,
				Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return d, ""
		}},
		{"docker", func(t *testing.T, folder string) (sandbox.Driver, string) {
			t.Helper()
			if lack := dockertest.Missing(); lack != "" || binaries == "" {
				return nil, "no Docker Engine can be started here: " + lack
			}
			e, err := dockertest.Start(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := e.Stop(); err != nil {
					t.Error(err)
				}
			})
			d, err := docker.New(context.Background(), docker.Config{
				StateDir: folder, Host: e.Host, Guest: filepath.Join(binaries, "aurea-guest"), Image: dockertest.Image,
				Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return d, ""
		}},
	}
}
