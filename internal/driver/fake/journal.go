package fake

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// entry is one line of a sandbox's journal: one thing that was asked of it, or
// the end of a process. Exactly one field is set.
type entry struct {
	Spec  *sandbox.Spec `json:"spec,omitempty"`
	Ready bool          `json:"ready,omitempty"`
	Dead  bool          `json:"dead,omitempty"`
	Put   *putEntry     `json:"put,omitempty"`
	File  *fileEntry    `json:"file,omitempty"`
	Exec  *execEntry    `json:"exec,omitempty"`
	Input *inputEntry   `json:"input,omitempty"`
	Exit  *exitEntry    `json:"exit,omitempty"`
	// Paused and Resumed are pauses of the whole sandbox.
	Paused  bool `json:"paused,omitempty"`
	Resumed bool `json:"resumed,omitempty"`
}

type putEntry struct {
	Dir string `json:"dir"`
	Tar []byte `json:"tar"`
}

type execEntry struct {
	Spec    sandbox.ExecSpec `json:"spec"`
	Started time.Time        `json:"started"`
}

type inputEntry struct {
	ID    string `json:"id"`
	Data  []byte `json:"data,omitempty"`
	Close bool   `json:"close,omitempty"`
}

// exitEntry is how a process ended, and how far it had come.
type exitEntry struct {
	ID     string       `json:"id"`
	Exit   sandbox.Exit `json:"exit"`
	Steps  int          `json:"steps"`
	Stdout int64        `json:"stdout"`
	Stderr int64        `json:"stderr"`
}

func (e *exitEntry) size(s sandbox.Stream) int64 {
	if s == sandbox.Stderr {
		return e.Stderr
	}
	return e.Stdout
}

// journal is the open journal of one sandbox. Without a file it keeps nothing.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

// create begins the file, which must not exist.
func (j *journal) create(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("create journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.file = f
	return nil
}

// kept reports whether there is a file.
func (j *journal) kept() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file != nil
}

// append writes one line in one call, so that a killed process leaves at most
// one torn line, the last. It is not synced: a fake need not outlive the power.
func (j *journal) append(e entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode journal entry: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// close closes the file; what comes later is not kept.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	if err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// openJournal reads a journal and opens its file to go on. A torn last line is
// cut.
func openJournal(name string) (*os.File, []entry, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	entries, whole, err := readJournal(f)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, entries, nil
}

// readJournal reads the whole lines, and says how many bytes they take.
func readJournal(r io.Reader) (entries []entry, whole int64, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, whole, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read journal: %w", err)
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, 0, fmt.Errorf("decode journal line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
		whole += int64(len(line))
	}
}

func removeJournal(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove journal: %w", err)
	}
	return nil
}
