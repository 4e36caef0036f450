package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/config"
)

// A worker or a bench that is here before the manager leaves a folder that the
// manager's user can enter.
func TestDataFolderCanBeEntered(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Data: filepath.Join(t.TempDir(), "data")}
	state := filepath.Join(cfg.Data, "sandbox", "driver", "x")
	if err := makeState(cfg, state); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{cfg.Data: 0o711, state: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	elsewhere := &config.Config{Data: filepath.Join(t.TempDir(), "unused")}
	if err := makeState(elsewhere, filepath.Join(t.TempDir(), "state")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(elsewhere.Data); err == nil {
		t.Error("a data folder that is not used was made")
	}
}
