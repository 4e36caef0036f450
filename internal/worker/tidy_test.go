package worker

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestForgetWhatWasKeptLongEnough(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b, err := openBase(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	now := time.Now()
	age := func(path string, d time.Duration) {
		t.Helper()
		if err := os.Chtimes(path, now.Add(-d), now.Add(-d)); err != nil {
			t.Fatal(err)
		}
	}
	for name, d := range map[string]time.Duration{"old": 9 * time.Hour, "held": 9 * time.Hour, "new": time.Hour, doomed + "half": 0} {
		dir, err := b.newWorkspace(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		age(dir, d)
	}
	if err := os.MkdirAll(filepath.Join(b.snapshots(), "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	age(filepath.Join(b.snapshots(), "folder"), 9*time.Hour)
	for name, d := range map[string]time.Duration{"a.tar": 9 * time.Hour, "b.tar": time.Hour} {
		path := filepath.Join(b.snapshots(), name)
		if err := os.WriteFile(path, nil, 0o400); err != nil {
			t.Fatal(err)
		}
		age(path, d)
	}
	names := func(folder string) (list []string) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	if n, err := b.forget(now, 0, 0, nil); n != 1 || err != nil { // what was on its way out goes all the same
		t.Fatal(n, err)
	}
	if n, err := b.forget(now, 5*time.Hour, 5*time.Hour, map[string]bool{"held": true}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if got := names(filepath.Join(folder, "workspaces")); !slices.Equal(got, []string{"held", "new"}) {
		t.Errorf("workspaces %v", got)
	}
	if got := names(b.snapshots()); !slices.Equal(got, []string{"b.tar", "folder"}) {
		t.Errorf("snapshots %v", got)
	}
}
