package manager

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxLive bounds what is kept of one stream while its job runs.
const maxLive = 64 << 20

// outputs keeps the live output of running jobs as files, so that it can be
// followed, also across a restart of the manager. It is a view: what counts
// in the end is what the result carries, which goes to the blobs.
type outputs struct {
	root    *os.Root
	arrived signal

	mu   sync.Mutex
	kept map[string]bool // the names that exist: most jobs are too short to have any
}

func openOutputs(folder string) (*outputs, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make output folder: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open output folder: %w", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read output folder: %w", err), root.Close())
	}
	o := &outputs{root: root, kept: make(map[string]bool, len(entries))}
	for _, e := range entries {
		o.kept[e.Name()] = true
	}
	return o, nil
}

func (o *outputs) Close() error { return o.root.Close() }

// liveName names the file of one stream under one lease. Job ids are ours by
// the time that they come here, and os.Root holds the rest.
func liveName(h dispatch.Held, s sandbox.Stream) string {
	return h.JobID + "." + strconv.FormatInt(h.Fence, 10) + "." + strconv.Itoa(int(s))
}

// take writes a chunk at its offset. Bytes that were taken before are written
// again as they were; a gap, which only a lost disk could make, is left to the
// result to fill.
func (o *outputs) take(h dispatch.Held, c *dispatch.Chunk) error {
	if len(c.Data) == 0 || c.Offset < 0 || c.Offset+int64(len(c.Data)) > maxLive {
		return nil
	}
	name := liveName(h, c.Stream)
	o.mu.Lock()
	o.kept[name] = true
	o.mu.Unlock()
	f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open live output: %w", err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || c.Offset > size {
		return err
	}
	if _, err := f.WriteAt(c.Data, c.Offset); err != nil {
		return fmt.Errorf("write live output: %w", err)
	}
	return nil
}

// read returns what there is of a stream from an offset on, at most limit.
func (o *outputs) read(h dispatch.Held, s sandbox.Stream, offset int64, limit int) ([]byte, error) {
	f, err := o.root.Open(liveName(h, s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open live output: %w", err)
	}
	defer func() { _ = f.Close() }()
	p := make([]byte, limit)
	n, err := f.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read live output: %w", err)
	}
	return p[:n], nil
}

// drop forgets the live output of a lease that has ended.
func (o *outputs) drop(h dispatch.Held) {
	for _, s := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		name := liveName(h, s)
		o.mu.Lock()
		kept := o.kept[name]
		delete(o.kept, name)
		o.mu.Unlock()
		if kept {
			_ = o.root.Remove(name) // what is left takes room and does no harm
		}
	}
}
