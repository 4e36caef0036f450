package worker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	journalVersion = 1
	journalSuffix  = ".json"
	// maxJournal bounds what is read of one journal.
	maxJournal = 64 << 20
)

// entry is one line of a lease's journal: something that a later process has to
// know to go on. A line is written before what it announces is done (a sandbox,
// an exec, a piece of input), and after what it reports has happened.
type entry struct {
	// Version, Boot, Lease and Began stand in the first line.
	Version int             `json:"version,omitempty"`
	Boot    string          `json:"boot,omitempty"`
	Lease   *dispatch.Lease `json:"lease,omitempty"`
	Began   time.Time       `json:"began,omitzero"`

	Happened *dispatch.Happening `json:"happened,omitempty"`
	// Handle names the sandbox that is about to be made, Exec the command that
	// is about to be started in it.
	Handle *sandbox.Handle `json:"handle,omitempty"`
	Exec   *execEntry      `json:"exec,omitempty"`
	// Feeding and Fed count the bytes of standard input that are about to be
	// written, and those that were.
	Feeding int64 `json:"feeding,omitempty"`
	Fed     int64 `json:"fed,omitempty"`
	// Stood is for how long a switch has frozen it so far.
	Stood time.Duration `json:"stood_ns,omitempty"`
	// Record is what the evidence says so far. Ended says that the command has
	// ended, Performed that nothing more is wanted of the sandbox; Failure is
	// why the try failed, if it did.
	Record    *evidence.Record `json:"record,omitempty"`
	Ended     bool             `json:"ended,omitempty"`
	Performed bool             `json:"performed,omitempty"`
	Failure   string           `json:"failure,omitempty"`
	// Snapshot was stored, without what Skipped names.
	Snapshot *evidence.Snapshot `json:"snapshot,omitempty"`
	Skipped  []string           `json:"skipped,omitempty"`
	// Result is all that is left to be handed over.
	Result *dispatch.Result `json:"result,omitempty"`
}

type execEntry struct {
	ID      string    `json:"id"`
	Started time.Time `json:"started"`
}

// journal is the file in which a lease is written down. It outlives a process
// that is killed, not the machine: it is not synced, because no sandbox
// survives the machine either, and a line that was torn is left out. Without a
// path it keeps nothing.
type journal struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	early []byte // what came before there was a sandbox to go on with
	file  *os.File
}

// write adds a line. A journal that cannot be written is given up: half of it
// would lead a later process astray, and without it the job is done again.
func (j *journal) write(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.path == "" {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		line = append(line, '\n')
		if j.file == nil {
			j.early = append(j.early, line...)
			return
		}
		_, err = j.file.Write(line)
	}
	if err != nil {
		j.log.Error("could not write the lease down; a restart would do the job again", "error", err)
		j.remove()
	}
}

// begin opens the file and writes what there is. The caller makes nothing that
// could outlive it unless this succeeds.
func (j *journal) begin() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.path == "" || j.file != nil {
		return nil
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err == nil {
		j.file = f
		_, err = f.Write(j.early)
	}
	if err != nil {
		j.remove()
		return fmt.Errorf("write the lease down: %w", err)
	}
	j.early = nil
	return nil
}

// drop removes the journal: there is nothing more to go on with.
func (j *journal) drop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.remove()
}

// remove closes and removes the file.
//
// Preconditions: mu is held.
func (j *journal) remove() {
	if j.file != nil {
		j.file.Close()    //nolint:errcheck // it is removed
		os.Remove(j.path) //nolint:errcheck // what is left is looked at again at the next start
	}
	j.path, j.file, j.early = "", nil, nil
}

// past is what an earlier process wrote down of a lease.
type past struct {
	path     string
	boot     string
	lease    dispatch.Lease
	began    time.Time
	happened []dispatch.Happening

	handle    *sandbox.Handle
	exec      *execEntry
	feeding   int64
	fed       int64
	stood     time.Duration
	record    *evidence.Record
	ended     bool
	performed bool
	failure   string
	snapshot  *evidence.Snapshot
	skipped   []string // of the snapshot
	result    *dispatch.Result

	// What was found of it: the sandbox, and its exec once it was attached to.
	box     *sandbox.Sandbox
	process *sandbox.Exec
	unseen  bool // the command ended while no worker lived, and is not told of
}

// name is that of the journal and of the output of its lease.
func (p *past) name() string { return leaseName(p.lease.Held) }

func leaseName(h dispatch.Held) string { return fmt.Sprintf("%s-%d", h.JobID, h.Fence) }

var errDamaged = fault.New(fault.Invalid, "it is damaged, or of another version")

// readPast reads a journal. It returns how many bytes of whole lines there are;
// a torn last line is left out.
func readPast(r io.Reader) (p *past, whole int64, err error) {
	p = &past{}
	lines := bufio.NewReader(io.LimitReader(r, maxJournal))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read journal: %w", err)
		}
		var e entry
		if err := json.Unmarshal(bytes.TrimRight(line, "\n"), &e); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if whole == 0 && (e.Version != journalVersion || e.Lease == nil) {
			return nil, 0, errDamaged
		}
		p.add(e)
		whole += int64(len(line))
	}
	if whole == 0 || p.handle == nil || p.record == nil || !validJobID(p.lease.JobID) || p.lease.Fence < 0 {
		return nil, 0, errDamaged
	}
	return p, whole, nil
}

func (p *past) add(e entry) {
	if e.Lease != nil {
		p.boot, p.lease, p.began = e.Boot, *e.Lease, e.Began
	}
	if e.Happened != nil {
		p.happened = append(p.happened, *e.Happened)
	}
	if e.Handle != nil {
		p.handle = e.Handle
	}
	if e.Exec != nil {
		p.exec = e.Exec
	}
	if e.Record != nil {
		p.record = e.Record
	}
	if e.Snapshot != nil {
		p.snapshot, p.skipped = e.Snapshot, e.Skipped
	}
	if e.Result != nil {
		p.result = e.Result
	}
	p.feeding, p.fed, p.stood = max(p.feeding, e.Feeding), max(p.fed, e.Fed), max(p.stood, e.Stood)
	p.ended, p.performed = p.ended || e.Ended, p.performed || e.Performed
	if e.Failure != "" {
		p.failure = e.Failure
	}
}

// goOn makes the task's journal the one that was read.
func (p *past) goOn(j *journal) error {
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.path, j.file, j.early = p.path, f, nil
	return nil
}

// readPasts reads every journal that an earlier process left, and removes those
// that cannot be read: their jobs are done again.
func (b *base) readPasts(log *slog.Logger) ([]*past, error) {
	folder := filepath.Join(b.folder, "leases")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	var all []*past
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		p, err := openPast(path)
		if err == nil && p.name()+journalSuffix != e.Name() {
			err = errDamaged
		}
		if err == nil {
			all = append(all, p)
			continue
		}
		log.Warn("a lease of an earlier run cannot be read; its job is done again", "lease", strings.TrimSuffix(e.Name(), journalSuffix), "error", err)
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("sweep leases: %w", err)
		}
	}
	return all, nil
}

func openPast(path string) (*past, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // what was cut need not be on disk
	p, whole, err := readPast(f)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err != nil {
		return nil, err
	}
	p.path = path
	return p, nil
}

// bootID tells this run of the machine from others; where there is none, every
// run looks the same.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
