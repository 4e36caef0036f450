package app

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/service/supervise"
)

// onceStart is what a server for one use is started with.
func onceStart(t *testing.T, data string) cli.Start {
	t.Helper()
	cfg, err := config.Load(config.Sources{Role: config.Up, Environ: []string{"AUREA_DRIVER=fake", "AUREA_DATA=" + data}})
	if err != nil {
		t.Fatal(err)
	}
	return cli.Start{Config: cfg, Stdout: t.Output(), Stderr: t.Output()}
}

// left lists what is in the folder of such servers besides their locks.
func left(t *testing.T, data string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(data, "once"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestOnceServesForOneUseAndLeavesNothing(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	// What somebody who was killed has left is taken over, and goes too.
	if err := os.MkdirAll(filepath.Join(data, "once", "07", "manager"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "once", "07", "manager", "aurea.db"), []byte("not a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("seen enough")
	var outer, inner string
	err := Once(t.Context(), onceStart(t, data), func(ctx context.Context, server string) error {
		outer = server
		// Another at the same time has a folder of its own.
		return Once(ctx, onceStart(t, data), func(ctx context.Context, server string) error {
			inner = server
			if got := left(t, data); len(got) != 2 {
				t.Errorf("there are %q", got)
			}
			var health struct {
				Available bool `json:"sandbox_available"`
			}
			ask := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			if !answers(ctx, ask, server+"/health", &health) || !health.Available {
				t.Error("no sandboxes are to be had")
			}
			return enough
		})
	})
	if !errors.Is(err, enough) || outer == "" || outer == inner {
		t.Errorf("got %v from %s and %s", err, outer, inner)
	}
	if got := left(t, data); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

func TestOnceEndsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Once(ctx, onceStart(t, data), func(ctx context.Context, _ string) error {
		cancel(interrupted)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, interrupted) {
		t.Errorf("during the use: %v", err)
	}
	if err := Once(ctx, onceStart(t, data), nil); !errors.Is(err, interrupted) {
		t.Errorf("before the start: %v", err)
	}
	if got := left(t, data); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

// The children of one that was killed have their folder to themselves until
// they have ended.
func TestOnceLeavesALivingFolderAlone(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	worker := filepath.Join(data, "once", "00", "sandbox")
	if err := os.MkdirAll(worker, 0o711); err != nil {
		t.Fatal(err)
	}
	lock, err := supervise.TakeLock(filepath.Join(worker, "worker.lock"), "the test's")
	if err != nil {
		t.Fatal(err)
	}
	take := func() string {
		s, err := takeSlot(filepath.Join(data, "once"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.giveBack() }()
		return filepath.Base(s.folder)
	}
	if got := take(); got != "01" {
		t.Errorf("while it lives: %s", got)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := take(); got != "00" {
		t.Errorf("when it has ended: %s", got)
	}
	if got := left(t, data); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}
