package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/wake"
)

// maxLive bounds what is kept of one stream while its job runs.
const maxLive = 64 << 20

// Outputs keeps the live output of running jobs, so that it can be followed,
// also across a restart of the manager, and at any manager that shares it. It
// is a view: what counts in the end is what the result carries.
type Outputs interface {
	// Take keeps a piece of a stream at its offset. Bytes that were taken before
	// come again as they were; a piece behind a gap may be left out.
	Take(ctx context.Context, jobID string, fence int64, stream int, offset int64, data []byte) error
	// Read returns what there is of a stream from an offset on, at most limit.
	Read(ctx context.Context, jobID string, fence int64, stream int, offset int64, limit int) ([]byte, error)
	// Leases lists the leases of which there is output, where somebody must say
	// which of them have ended.
	Leases(see func(jobID string, fence int64))
	// Drop says that a lease has ended, and its output may go.
	Drop(ctx context.Context, jobID string, fence int64)
	// Watch returns wake-ups after output that another manager took.
	Watch(ctx context.Context) <-chan struct{}
}

// outputs is Outputs as the manager uses them.
type outputs struct {
	Outputs
	arrived wake.Signal
}

func (o *outputs) take(ctx context.Context, h dispatch.Held, c *dispatch.Chunk) error {
	if len(c.Data) == 0 || c.Offset < 0 || c.Offset+int64(len(c.Data)) > maxLive {
		return nil
	}
	return o.Take(ctx, h.JobID, h.Fence, int(c.Stream), c.Offset, c.Data)
}

// leases lists the leases of which there is output.
func (o *outputs) leases() (list []dispatch.Held) {
	o.Leases(func(jobID string, fence int64) { list = append(list, dispatch.Held{JobID: jobID, Fence: fence}) })
	return list
}

func (o *outputs) read(ctx context.Context, h dispatch.Held, s sandbox.Stream, offset int64, limit int) ([]byte, error) {
	return o.Read(ctx, h.JobID, h.Fence, int(s), offset, limit)
}

// OutputFiles keeps live output as files, for one manager.
type OutputFiles struct {
	root *os.Root

	mu   sync.Mutex
	kept map[string]bool // the names that exist: most jobs are too short to have any
}

var _ Outputs = (*OutputFiles)(nil)

// OpenOutputFiles opens the folder, and makes it if need be.
func OpenOutputFiles(folder string) (*OutputFiles, error) {
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
	o := &OutputFiles{root: root, kept: make(map[string]bool, len(entries))}
	for _, e := range entries {
		o.kept[e.Name()] = true
	}
	return o, nil
}

// Close closes the folder.
func (o *OutputFiles) Close() error { return o.root.Close() }

// liveName names the file of one stream under one lease. Job ids are ours by
// the time that they come here, and os.Root holds the rest.
func liveName(jobID string, fence int64, stream int) string {
	return jobID + "." + strconv.FormatInt(fence, 10) + "." + strconv.Itoa(stream)
}

// Take implements Outputs. A gap, which only a lost disk could make, is left to
// the result to fill.
func (o *OutputFiles) Take(_ context.Context, jobID string, fence int64, stream int, offset int64, data []byte) error {
	name := liveName(jobID, fence, stream)
	o.mu.Lock()
	o.kept[name] = true
	o.mu.Unlock()
	f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open live output: %w", err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || offset > size {
		return err
	}
	if _, err := f.WriteAt(data, offset); err != nil {
		return fmt.Errorf("write live output: %w", err)
	}
	return nil
}

// Read implements Outputs.
func (o *OutputFiles) Read(_ context.Context, jobID string, fence int64, stream int, offset int64, limit int) ([]byte, error) {
	f, err := o.root.Open(liveName(jobID, fence, stream))
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

// Leases implements Outputs.
func (o *OutputFiles) Leases(see func(jobID string, fence int64)) {
	o.mu.Lock()
	names := slices.Collect(maps.Keys(o.kept))
	o.mu.Unlock()
	seen := map[string]bool{}
	for _, name := range names {
		lease, _, _ := cutLast(name)
		jobID, number, ok := cutLast(lease)
		fence, err := strconv.ParseInt(number, 10, 64)
		if ok && err == nil && !seen[lease] { // else nothing of ours
			seen[lease] = true
			see(jobID, fence)
		}
	}
}

// cutLast cuts a name at its last dot.
func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// Drop implements Outputs.
func (o *OutputFiles) Drop(_ context.Context, jobID string, fence int64) {
	for _, s := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		name := liveName(jobID, fence, int(s))
		o.mu.Lock()
		kept := o.kept[name]
		delete(o.kept, name)
		o.mu.Unlock()
		if kept {
			_ = o.root.Remove(name) // what is left takes room and does no harm
		}
	}
}

// Watch implements Outputs: no other manager takes any.
func (o *OutputFiles) Watch(context.Context) <-chan struct{} { return nil }
