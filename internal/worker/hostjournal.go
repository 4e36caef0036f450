package worker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// keptVersion is that of the journals of kept sandboxes and their execs.
const keptVersion = 1

// boxName is the journal of a sandbox in its folder; those of its execs end with
// journalSuffix, and their first line says whose they are.
const boxName = "sandbox.box"

// boxEntry is one line of the journal of a kept sandbox. As with a lease, a line
// is written before what it announces is done.
type boxEntry struct {
	// Version, Boot and Order stand in the first line, and what room it takes.
	Version int         `json:"version,omitempty"`
	Boot    string      `json:"boot,omitempty"`
	Order   *live.Order `json:"order,omitempty"`
	Memory  int64       `json:"memory,omitempty"`
	// Handle names the sandbox that is about to be made, Made says that it can be
	// used. Boot is said again where it was made again.
	Handle  *sandbox.Handle `json:"handle,omitempty"`
	Made    *live.Made      `json:"made,omitempty"`
	Paused  *live.Paused    `json:"paused,omitempty"`
	Folder  string          `json:"folder,omitempty"`   // of the checkpoint that it is paused in
	Spent   time.Duration   `json:"spent_ns,omitempty"` // processor time before that
	Closing *live.Closing   `json:"closing,omitempty"`
	// Over is its end, until that was told.
	Over *live.Ended `json:"over,omitempty"`
}

// execLine is one line of the journal of an exec.
type execLine struct {
	Version int           `json:"version,omitempty"`
	Order   *live.Command `json:"order,omitempty"` // without its input
	Began   time.Time     `json:"began,omitzero"`
	Started bool          `json:"started,omitempty"`
	// Ended is its end, until that was told.
	Ended *live.ExecResult `json:"ended,omitempty"`
}

// errGivenAway: somebody else is written down there by now.
var errGivenAway = errors.New("nothing more was to be written down of it")

// ledger is a file of lines that outlives a process that is killed, not the
// machine.
type ledger struct {
	path  string
	log   *slog.Logger
	sheet bool // its first line begins with a blank, see sheets

	mu    sync.Mutex
	file  *os.File
	given bool // there is nothing more to know of it, and others may have its file
}

// add appends a line. Who announces something gives up when it cannot be written
// down.
func (l *ledger) add(e any) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write down: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given {
		return errGivenAway
	}
	line = append(line, '\n')
	if l.file == nil {
		l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if l.sheet {
			line = append([]byte{blank}, line...)
		}
	}
	if err == nil {
		err = l.write(line)
	}
	if err != nil {
		return fmt.Errorf("write down: %w", err)
	}
	return nil
}

// write writes a line, or nothing of it: with half a line before it, the next one
// could not be read. mu is held.
func (l *ledger) write(line []byte) error {
	n, err := l.file.Write(line)
	if err == nil || n == 0 {
		return err
	}
	end, at := l.file.Seek(0, io.SeekEnd)
	if at != nil {
		return errors.Join(err, at)
	}
	return errors.Join(err, l.file.Truncate(end-int64(n)))
}

// note appends a line that says what has happened. Without it a later process
// knows less, and no more can be done about it.
func (l *ledger) note(e any) {
	if err := l.add(e); err != nil {
		l.log.Error("could not write down what happened to a sandbox", "error", err)
	}
}

// rest closes the file. It is opened again when there is more to write.
func (l *ledger) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close() //nolint:errcheck // what was written is with the kernel
		l.file = nil
	}
}

// clear cuts the file, or removes it: there is nothing more to know.
func (l *ledger) clear() {
	if l.give() && cut(l.path) != nil {
		os.Remove(l.path) //nolint:errcheck // what is left is looked at again at the next start
	}
}

// giveTo gives the file to those that come after: there is nothing more to know.
func (l *ledger) giveTo(s *sheets) {
	if l.give() {
		s.give(l.path)
	}
}

// give closes the file for good, and reports whether it was this that did.
func (l *ledger) give() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given {
		return false
	}
	l.given = true
	if l.file != nil {
		l.file.Close() //nolint:errcheck // what was written is with the kernel
		l.file = nil
	}
	return true
}

// readLedger reads the lines of a ledger, and cuts off one that was torn.
func readLedger[E any](path string, take func(E)) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // what was cut need not be on disk
	whole, err := readLines(f, take)
	if err != nil {
		return err
	}
	return f.Truncate(whole)
}

// readLines reads whole lines, and returns how many bytes those have.
func readLines[E any](r io.Reader, take func(E)) (whole int64, err error) {
	lines := bufio.NewReader(io.LimitReader(r, maxJournal))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read journal: %w", err)
		}
		var e E
		if err := json.Unmarshal(bytes.TrimRight(line, "\n"), &e); err != nil {
			return 0, fmt.Errorf("%w: %w", errDamaged, err)
		}
		take(e)
		whole += int64(len(line))
	}
}

// keepIn has a sandbox and its execs written down in a folder.
func (k *kept) keepIn(folder string) {
	k.ledger.path, k.ledger.log, k.ledger.sheet = filepath.Join(folder, boxName), k.log, true
	k.sheets.folder = folder
}

// boxFolder is the folder of a kept sandbox.
func (b *base) boxFolder(id string) string { return filepath.Join(b.folder, "boxes", id) }
