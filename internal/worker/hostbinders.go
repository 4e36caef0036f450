package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// binders are folders for kept sandboxes, with the files that each needs first,
// made ahead: with a folder and two files to be made, a sandbox that waits would be
// handed out a millisecond later. One whose sandbox is gone is emptied and used
// again, for the same reason as a sheet.
type binders struct {
	folder string

	making sync.Mutex // held while they are made; before mu

	mu     sync.Mutex
	last   int
	blank  []string
	due    bool // more will be made
	closed bool
}

const (
	// readyBinders is how many are made ahead, maxBinders how many are kept.
	readyBinders = 8
	maxBinders   = 16
	// binderPause is how long after one was taken another is made: who took it
	// has something to do just then.
	binderPause = 100 * time.Millisecond
	// firstSheet is the sheet that lies in each.
	firstSheet = sheetPrefix + "1" + journalSuffix
)

// newBinders makes the first ones. Those of an earlier process are removed. Without
// any, as on a disk that is full, a sandbox makes its own.
func newBinders(folder string) *binders {
	s := &binders{folder: folder}
	err := os.RemoveAll(folder)
	if err == nil {
		err = os.Mkdir(folder, 0o700)
	}
	if err == nil {
		_ = s.fill()
	}
	return s
}

// fill makes as many as are missing.
func (s *binders) fill() error {
	s.making.Lock()
	defer s.making.Unlock()
	for {
		path := s.missing()
		if path == "" {
			return nil
		}
		if err := makeBinder(path); err != nil {
			return errors.Join(err, os.RemoveAll(path))
		}
		s.mu.Lock()
		s.blank = append(s.blank, path)
		s.mu.Unlock()
	}
}

// missing is where one is to be made, or "".
func (s *binders) missing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = false
	if s.closed || len(s.blank) >= readyBinders {
		return ""
	}
	return s.next()
}

// next is a path that nobody has had. mu is held.
func (s *binders) next() string {
	s.last++
	return filepath.Join(s.folder, strconv.Itoa(s.last))
}

func makeBinder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("make an empty folder: %w", err)
	}
	for _, name := range []string{boxName, firstSheet} {
		if err := os.WriteFile(filepath.Join(path, name), []byte{blank}, 0o600); err != nil {
			return fmt.Errorf("make an empty folder: %w", err)
		}
	}
	return nil
}

// close ends the making of more.
func (s *binders) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.making.Lock() // until the last one is made
	defer s.making.Unlock()
}

// take puts an empty one in a place where nothing is, and reports whether it has
// its files.
func (s *binders) take(place string) (filed bool, err error) {
	if _, err := os.Lstat(place); err == nil {
		return false, fmt.Errorf("%s: %w", filepath.Base(place), fs.ErrExist)
	}
	if path := s.pop(); path != "" {
		if os.Rename(path, place) == nil {
			return true, nil
		}
		os.RemoveAll(path) //nolint:errcheck // the next start tries again
	}
	return false, os.Mkdir(place, 0o700)
}

// pop takes one out, and has another made. It is "" without one.
func (s *binders) pop() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.due && !s.closed {
		s.due = true
		time.AfterFunc(binderPause, func() { _ = s.fill() }) // without them a sandbox makes its own
	}
	n := len(s.blank)
	if n == 0 {
		return ""
	}
	path := s.blank[n-1]
	s.blank = s.blank[:n-1]
	return path
}

// give gives one back. Nobody writes to anything in it any more.
func (s *binders) give(place string) error {
	path := s.room()
	if path == "" || empty(place) != nil || os.Rename(place, path) != nil {
		return os.RemoveAll(place)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blank = append(s.blank, path)
	return nil
}

// room is where one can be put, or "" if there are enough.
func (s *binders) room() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.blank) >= maxBinders {
		return ""
	}
	return s.next()
}

// empty removes all from a folder but the files that the next one needs first, and
// cuts those.
func empty(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	needed := 0
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if (e.Name() == boxName || e.Name() == firstSheet) && cut(path) == nil {
			needed++
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if needed != 2 {
		return errDamaged
	}
	return nil
}

// cut leaves of a file the blank that it begins with. It is an error if it begins
// otherwise.
func cut(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it need not be on disk
	var first [1]byte
	if _, err := f.ReadAt(first[:], 0); err != nil || first[0] != blank {
		return errDamaged
	}
	return f.Truncate(1)
}
