package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPause is how long a process waits before it looks at a lock again. The
// kernel's own wait cannot be ended by a context.
const lockPause = 20 * time.Millisecond

// lock is a lock between processes, and between goroutines of one. It ends
// with the process that holds it.
type lock struct{ file *os.File }

// takeLock waits for the lock of a file, alone or together with others.
func takeLock(ctx context.Context, path string, alone bool) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
		case err == nil:
			return &lock{f}, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for the image store: %w", context.Cause(ctx)), f.Close())
		}
	}
}

func (l *lock) release() { _ = l.file.Close() }

// heldByNobody reports whether nobody holds the lock of an open file. Then it
// is the caller's.
func heldByNobody(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
