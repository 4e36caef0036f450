package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// base is the worker's folder, locked.
type base struct {
	folder   string
	identity string
	boot     string // this run of the machine
	lock     *os.File
	binders  *binders

	mu sync.Mutex // held while a workspace is made, or taken away for good
}

// openBase makes what is missing, takes the lock, and removes what earlier
// processes left behind that nobody will ask for. A second worker on the same
// folder is a fault of kind Conflict.
func openBase(folder string) (*base, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("find the worker's folder: %w", err)
	}
	b := &base{folder: folder}
	for _, sub := range []string{"", "workspaces", "spool", "leases", "boxes", "checkpoints"} {
		if err := os.MkdirAll(filepath.Join(folder, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make the worker's folder: %w", err)
		}
	}
	if err := b.takeLock(); err != nil {
		return nil, err
	}
	if b.identity, err = identify(filepath.Join(folder, "worker.json")); err == nil {
		b.boot, err = bootID()
	}
	if err != nil {
		b.close()
		return nil, err
	}
	b.binders = newBinders(filepath.Join(folder, "binders"))
	return b, nil
}

func (b *base) takeLock() error {
	f, err := os.OpenFile(filepath.Join(b.folder, "worker.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the worker's lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := io.ReadAll(io.LimitReader(f, 20))
		f.Close() //nolint:errcheck // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fault.New(fault.Conflict, "another worker (process %s) uses %s; stop it, or give this one another SANDBOX_BASE",
				strings.TrimSpace(string(pid)), b.folder).WithCode("base_taken")
		}
		return fmt.Errorf("lock the worker's folder: %w", err)
	}
	b.lock = f
	// The number only helps people; the lock is what counts.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return nil
}

func (b *base) close() {
	if b.binders != nil {
		b.binders.close()
	}
	b.lock.Close() //nolint:errcheck // closing gives the lock up
}

func (b *base) snapshots() string             { return filepath.Join(b.folder, "snapshots") }
func (b *base) workspace(jobID string) string { return filepath.Join(b.folder, "workspaces", jobID) }
func (b *base) spool(name string) string      { return filepath.Join(b.folder, "spool", name) }
func (b *base) lease(h dispatch.Held) string {
	return filepath.Join(b.folder, "leases", leaseName(h)+journalSuffix)
}
func (b *base) removeWorkspace(id string) error { return os.RemoveAll(b.workspace(id)) }

// newWorkspace makes an empty workspace for a try. Every try starts clean.
func (b *base) newWorkspace(jobID string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	dir := b.workspace(jobID)
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if err = os.RemoveAll(dir); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if err != nil {
		return "", fmt.Errorf("make workspace: %w", err)
	}
	return dir, nil
}

// sweepSpool removes output that a dead process kept, but for that of the leases
// that are kept.
func (b *base) sweepSpool(keep map[string]bool) error {
	entries, err := os.ReadDir(filepath.Join(b.folder, "spool"))
	if err != nil {
		return fmt.Errorf("read spool: %w", err)
	}
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())); keep[name] {
			continue
		}
		if err := os.RemoveAll(b.spool(e.Name())); err != nil {
			return fmt.Errorf("sweep spool: %w", err)
		}
	}
	return nil
}

// identify reads who this worker is, or decides it once.
func identify(path string) (string, error) {
	var who struct {
		Version  int    `json:"version"`
		Identity string `json:"identity"`
	}
	data, err := os.ReadFile(path)
	if err == nil {
		if json.Unmarshal(data, &who) != nil || who.Identity == "" {
			return "", fault.New(fault.Invalid, "%s is damaged; remove it to start as a new worker", path)
		}
		return who.Identity, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the worker's identity: %w", err)
	}
	who.Version, who.Identity = 1, uuid.NewString()
	if data, err = json.Marshal(who); err == nil {
		err = writeAside(path, append(data, '\n'))
	}
	if err != nil {
		return "", fmt.Errorf("write the worker's identity: %w", err)
	}
	return who.Identity, nil
}

// writeAside writes a file whole or not at all.
func writeAside(path string, data []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
