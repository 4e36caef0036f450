package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/config"
)

// Whoever pulls images before the first start must not lock the manager out.
func TestImagesLeaveTheManagerAWay(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	store, err := Images(&config.Config{Data: data, SandboxBase: filepath.Join(data, "sandbox"), HostLimit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := store.List(); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	for path, mode := range map[string]os.FileMode{data: 0o711, filepath.Join(data, "sandbox"): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if store.DefaultName() != "host" {
		t.Errorf("the default is %q", store.DefaultName())
	}
}
