package fake

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Snapshotter = (*box)(nil)

// saved is a snapshot: what was asked of the sandbox up to then, to be played
// again.
type saved struct {
	Generation int64           `json:"generation"`
	Image      string          `json:"image"`
	Limits     sandbox.Limits  `json:"limits"`
	Entries    json.RawMessage `json:"entries"`
	SHA256     string          `json:"sha256"` // of Entries
}

const snapshotFile = "snapshot.json"

// Snapshot writes down what was asked of the sandbox. Whoever goes on from it
// plays it again, and time that has passed counts as slept.
func (b *box) Snapshot(ctx context.Context, folder string, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
	if err := b.at(ctx, script{}, stepOther); err != nil {
		return sandbox.Snapshot{}, err
	}
	if !b.journal.kept() {
		return sandbox.Snapshot{}, fault.New(fault.Invalid, "a fake sandbox without a state folder keeps no journal").WithCode("snapshot_unsupported")
	}
	if err := os.Mkdir(folder, 0o700); errors.Is(err, fs.ErrExist) {
		return sandbox.Snapshot{}, fault.New(fault.Conflict, "the folder of the snapshot exists")
	} else if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("make the snapshot's folder: %w", err)
	}
	made, err := b.save(folder, o.Generation)
	if err == nil && o.Aside {
		err = b.Pause(ctx)
	}
	if err != nil {
		return sandbox.Snapshot{}, errors.Join(err, os.RemoveAll(folder))
	}
	return made, nil
}

func (b *box) save(folder string, generation int64) (sandbox.Snapshot, error) {
	made := sandbox.Snapshot{Generation: generation, Offsets: b.taken()}
	entries, err := b.journal.entries()
	if err != nil {
		return made, err
	}
	s := saved{Generation: generation, Image: b.spec.Image, Limits: b.spec.Limits}
	if s.Entries, err = json.Marshal(entries); err != nil {
		return made, fmt.Errorf("encode the snapshot: %w", err)
	}
	s.SHA256 = fmt.Sprintf("%x", sha256.Sum256(s.Entries))
	body, err := json.Marshal(s)
	if err != nil {
		return made, fmt.Errorf("encode the snapshot: %w", err)
	}
	made.Bytes = int64(len(body))
	if err := os.WriteFile(filepath.Join(folder, snapshotFile), body, 0o600); err != nil {
		return made, fmt.Errorf("write the snapshot: %w", err)
	}
	return made, nil
}

// taken is how far the readers of each process have come.
func (b *box) taken() map[string]sandbox.Offsets {
	b.mu.Lock()
	defer b.mu.Unlock()
	offsets := map[string]sandbox.Offsets{}
	for id, p := range b.procs {
		p.mu.Lock()
		offsets[id] = sandbox.Offsets{Stdout: p.read[sandbox.Stdout], Stderr: p.read[sandbox.Stderr]}
		p.mu.Unlock()
	}
	return offsets
}

// entries reads what was written down so far, but for pauses.
func (j *journal) entries() ([]entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil, errClosed
	}
	f, err := os.Open(j.file.Name())
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	defer func() { _ = f.Close() }()
	all, _, err := readJournal(f)
	if err != nil {
		return nil, err
	}
	var kept []entry
	for _, e := range all {
		if !e.Paused && !e.Resumed {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// readSnapshot reads a snapshot that fits the spec, as the journal of a sandbox
// of that spec.
func readSnapshot(spec sandbox.Spec) ([]entry, error) {
	broken := func(err error) error {
		return fault.Field("restore", "the snapshot cannot be used: %w", err).WithCode(sandbox.CodeSnapshotBroken)
	}
	body, err := os.ReadFile(filepath.Join(spec.Restore, snapshotFile))
	if err != nil {
		return nil, broken(err)
	}
	var s saved
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, broken(err)
	}
	if s.SHA256 != fmt.Sprintf("%x", sha256.Sum256(s.Entries)) {
		return nil, broken(errors.New("it was changed"))
	}
	if spec.Generation != 0 && spec.Generation != s.Generation || spec.Image != s.Image || spec.Limits.Disk != s.Limits.Disk {
		return nil, fault.Field("restore", "the snapshot is of generation %d, or of another image or disk", s.Generation).WithCode(sandbox.CodeSnapshotMismatch)
	}
	var entries []entry
	if err := json.Unmarshal(s.Entries, &entries); err != nil {
		return nil, broken(err)
	}
	if len(entries) < 2 || entries[0].Spec == nil {
		return nil, broken(errors.New("it is empty"))
	}
	entries[0].Spec = &spec
	return entries, nil
}

// resurrect makes a sandbox that goes on from a snapshot.
func (d *Driver) resurrect(spec sandbox.Spec, h sandbox.Handle) (*box, []*process, []entry, error) {
	entries, err := readSnapshot(spec)
	if err != nil {
		return nil, nil, nil, err
	}
	b, unfinished, err := replay(h, entries)
	if err != nil {
		return nil, nil, nil, err
	}
	b.ready = false
	return b, unfinished, entries, nil
}
