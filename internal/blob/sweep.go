package blob

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Walk calls see for each blob, one folder after the other.
func (s *Local) Walk(ctx context.Context, see func(Info) error) error {
	for i, dir := range s.folders {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir.Name())
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		first := hex.EncodeToString([]byte{byte(i)})
		for _, e := range entries {
			digest := first + e.Name()
			if CheckDigest(digest) != nil {
				continue // nothing of ours
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("list blobs: %w", err)
			}
			if err := see(Info{Digest: digest, Bytes: info.Size(), Wanted: info.ModTime()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes a blob that nobody has wanted since.
func (s *Local) Remove(_ context.Context, digest string, since time.Time) (bool, error) {
	if err := CheckDigest(digest); err != nil {
		return false, err
	}
	// Whoever looks for it now finds it before and notes that it is wanted, or
	// does not find it: nobody is told of a blob that then goes.
	s.removing.Lock()
	defer s.removing.Unlock()
	dir, name := s.place(digest)
	var info unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && !time.Unix(info.Mtim.Unix()).Before(since.Add(-noteEvery)) {
		return false, nil
	}
	if err == nil {
		err = unix.Unlinkat(int(dir.Fd()), name, 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove blob: %w", err)
	}
	return true, nil
}
