package supervise

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Lock is a lock on a file, held until Unlock or the death of the process.
type Lock struct{ file *os.File }

// TakeLock takes the lock at path, or returns a Conflict that says which
// process holds it. what names the thing that is locked.
//
// Whoever can read a file can lock it, and so keep us from ever starting: it is
// readable by its owner alone, also where an earlier release made it.
func TakeLock(path, what string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of %s: %w", what, err)
	}
	if err := f.Chmod(0o600); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("close the lock of %s to others: %w", what, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.New(fault.Conflict, "%s is in use by %s; stop that one first, or choose another with --data", what, holder(f)).WithCode("in_use")
		}
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write the lock of %s: %w", what, err)
	}
	return &Lock{file: f}, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder reads who holds the lock. The holder writes a moment after it locks,
// so the number may not be there yet.
func holder(f *os.File) string {
	var text [32]byte
	n, _ := f.ReadAt(text[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || pid <= 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

// Unlock gives the lock back. The file stays: taking it away would let two
// processes hold locks on two files of one name.
func (l *Lock) Unlock() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("give back a lock: %w", err)
	}
	return nil
}
