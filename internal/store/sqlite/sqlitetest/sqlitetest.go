// Package sqlitetest makes databases for tests that need many: each is a copy
// of one that was migrated once, in a folder that costs no disk where the
// machine has one. What the disk keeps is the store's matter, and tested there.
package sqlitetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

// T is what a testing.T and a rapid.T have in common.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(fn func())
}

// Folder returns a folder for a test that costs no disk, if there can be one.
func Folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "aurea-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}

// Mould is what new databases are copies of.
type Mould struct {
	dir   string
	empty []byte
}

// NewMould makes an empty database once.
func NewMould(t *testing.T) *Mould {
	t.Helper()
	m := &Mould{dir: Folder(t)}
	path := filepath.Join(m.dir, "empty.db")
	db, err := sqlite.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("make an empty store: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatalf("close the empty store: %v", err)
	}
	if m.empty, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return m
}

// Open makes a database in a folder of its own, until the end of a test or of
// one story of a property.
func (m *Mould) Open(t T) (db *sqlite.Store, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(m.dir, "story")
	if err != nil {
		t.Fatalf("make a folder: %v", err)
	}
	path := filepath.Join(dir, "aurea.db")
	if err := os.WriteFile(path, m.empty, 0o600); err != nil {
		t.Fatalf("copy the empty store: %v", err)
	}
	db, err = sqlite.Open(context.Background(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, dir
}
