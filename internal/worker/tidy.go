package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tidyEvery is how often the worker looks for what it has kept long enough.
const tidyEvery = time.Hour

// tidy removes old workspaces and snapshots until the run ends.
func (r *run) tidy() {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		held := map[string]bool{}
		for _, h := range r.tasks.held() {
			held[h.JobID] = true
		}
		n, err := r.base.forget(time.Now(), r.KeepWorkspaces, r.KeepSnapshots, held)
		if err != nil {
			r.log.Error("could not remove what was kept long enough", "error", err)
		}
		if n > 0 {
			r.log.Info("removed what was kept long enough", "entries", n)
		}
		select {
		case <-tick.C:
		case <-r.life.Done():
			return
		}
	}
}

// doomed begins the names of workspaces that are on their way out.
const doomed = ".old-"

// forget removes workspaces, but for those of the jobs that are held, and
// snapshots that did not change for so long, and says how many.
func (b *base) forget(now time.Time, workspaces, snapshots time.Duration, held map[string]bool) (n int, err error) {
	old := func(folder string, keep time.Duration, remove func(name string, before time.Time) (bool, error)) {
		entries, readErr := os.ReadDir(folder)
		if errors.Is(readErr, fs.ErrNotExist) {
			return
		}
		err = errors.Join(err, readErr)
		for _, e := range entries {
			if keep <= 0 && !strings.HasPrefix(e.Name(), doomed) {
				continue
			}
			done, removeErr := remove(e.Name(), now.Add(-keep))
			err = errors.Join(err, removeErr)
			if done {
				n++
			}
		}
	}
	old(filepath.Join(b.folder, "workspaces"), workspaces, func(name string, before time.Time) (bool, error) {
		if held[name] {
			return false, nil
		}
		return b.forgetWorkspace(name, before)
	})
	old(b.snapshots(), snapshots, func(name string, before time.Time) (bool, error) {
		info, err := os.Lstat(filepath.Join(b.snapshots(), name))
		if err != nil || !info.Mode().IsRegular() || !info.ModTime().Before(before) {
			return false, nil //nolint:nilerr // what has gone needs no removing
		}
		return true, os.Remove(filepath.Join(b.snapshots(), name))
	})
	return n, err
}

// forgetWorkspace takes a workspace away at once, so that a new try of its job
// never finds half of it, and then removes it.
func (b *base) forgetWorkspace(name string, before time.Time) (bool, error) {
	from := b.workspace(name)
	to := from
	if !strings.HasPrefix(name, doomed) {
		b.mu.Lock()
		defer b.mu.Unlock()
		info, err := os.Lstat(from)
		if err != nil || !info.IsDir() || !info.ModTime().Before(before) {
			return false, nil //nolint:nilerr // what has gone needs no removing
		}
		to = b.workspace(doomed + name)
		if err := os.Rename(from, to); err != nil {
			return false, fmt.Errorf("take away a workspace: %w", err)
		}
	}
	if err := os.RemoveAll(to); err != nil {
		return false, fmt.Errorf("remove a workspace: %w", err)
	}
	return true, nil
}
