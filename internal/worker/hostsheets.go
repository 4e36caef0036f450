package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// sheets are the files that a kept sandbox's execs are written down in. One that
// nothing need be known from any more is cut and used again: to make a file and to
// remove it costs a brief command more than all that is written to it, above all
// where the file system has just removed many.
//
// What is left of it is the blank that each begins with: a file that was cut to
// nothing ext4 writes to the disk when it is closed again. JSON minds no blanks, so
// the release before can read it too.
type sheets struct {
	folder string

	mu    sync.Mutex
	last  int
	blank []string
}

// blank is what each begins with.
const blank = ' '

// maxBlank is how many empty ones are kept.
const maxBlank = 64

// sheetPrefix is what their names begin with; a number follows.
const sheetPrefix = "exec-"

// laid notes that the first one lies there.
func (s *sheets) laid() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.blank = 1, []string{filepath.Join(s.folder, firstSheet)}
}

// take returns the path of one that is empty or does not exist.
func (s *sheets) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.blank); n > 0 {
		path := s.blank[n-1]
		s.blank = s.blank[:n-1]
		return path
	}
	s.last++
	return filepath.Join(s.folder, fmt.Sprint(sheetPrefix, s.last, journalSuffix))
}

// give gives one back. Nobody writes to it any more.
func (s *sheets) give(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.blank) < maxBlank && cut(path) == nil {
		s.blank = append(s.blank, path)
		return
	}
	os.Remove(path) //nolint:errcheck // what is left is looked at again at the next start
}

// sheetNumber is the number in a name, or 0 without. No other gets that of an
// earlier process.
func sheetNumber(name string) int {
	number, ours := strings.CutPrefix(strings.TrimSuffix(name, journalSuffix), sheetPrefix)
	n, err := strconv.Atoi(number)
	if !ours || err != nil {
		return 0
	}
	return max(n, 0)
}
