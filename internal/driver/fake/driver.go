package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	driverName    = "fake"
	handleVersion = 1
	journalSuffix = ".journal"
)

// Options says how the driver works.
type Options struct {
	// StateDir is the folder that keeps sandboxes across processes; it is made
	// when missing. Without one they live in memory only. One driver at a time
	// may have it open.
	StateDir string
}

// Driver makes sandboxes that execute nothing. See the package.
type Driver struct {
	dir string

	mu     sync.Mutex
	closed bool
	boxes  map[string]*box
}

var _ sandbox.Driver = (*Driver)(nil)

// handleState is what a handle says beside the id.
type handleState struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// New opens the driver.
func New(opts Options) (*Driver, error) {
	if opts.StateDir != "" {
		if err := os.MkdirAll(opts.StateDir, 0o700); err != nil {
			return nil, fmt.Errorf("make the fake driver's state folder: %w", err)
		}
	}
	return &Driver{dir: opts.StateDir, boxes: map[string]*box{}}, nil
}

// Name is "fake".
func (d *Driver) Name() string { return driverName }

// Capabilities lists everything: what does not run cannot go beyond a limit, or
// out to a network.
func (d *Driver) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Isolation: "nothing is executed",
		Images:    []string{"*"},
		Networks: []sandbox.Network{
			sandbox.NetworkNone, sandbox.NetworkController, sandbox.NetworkAllowlist, sandbox.NetworkFull,
		},
		CPU: true, Memory: true, Processes: true, Disk: true, OpenFiles: true, CPUTime: true,
		TTY: true, Pause: true, Snapshot: d.dir != "", Recover: d.dir != "",
		Files: true, Ports: true,
	}
}

// Create makes a sandbox.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := d.Capabilities().Check(spec); err != nil {
		return nil, err
	}
	s, err := readScript(spec.Env)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	h, err := newHandle(spec)
	if err != nil {
		return nil, err
	}
	b := newBox(h, spec, s)
	history := []entry{{Spec: &b.spec}}
	var unfinished []*process
	if spec.Restore != "" {
		if b, unfinished, history, err = d.resurrect(spec, h); err != nil {
			return nil, err
		}
	}
	if err := d.add(b); err != nil {
		return nil, err
	}
	if err := d.make(ctx, b, history, report); err != nil {
		return nil, err
	}
	for _, p := range unfinished {
		if t, ok := p.newTask(); ok {
			go t.main()
		}
	}
	return b, nil
}

// make reports the handle and does the rest. What fails after the report stays
// half made, as it would with a real driver, until Destroy.
func (d *Driver) make(ctx context.Context, b *box, history []entry, report func(sandbox.Handle) error) error {
	if err := report(b.handle); err != nil {
		d.drop(b)
		return fmt.Errorf("report handle: %w", err)
	}
	if d.dir != "" {
		err := b.journal.create(d.journal(b.spec.ID))
		if errors.Is(err, fs.ErrExist) {
			d.drop(b)
			return errTaken(b.spec.ID)
		}
		if err != nil {
			return err
		}
		for _, e := range history {
			b.record(e)
		}
	}
	err := b.at(ctx, b.script, stepCreate)
	if err == nil {
		if len(history) == 1 {
			b.record(entry{Ready: true})
		}
		err = b.open()
	}
	if errors.Is(err, errDestroyed) && d.dir != "" {
		// The file may be younger than the Destroy that came in between.
		err = errors.Join(err, b.journal.close(), removeJournal(d.journal(b.spec.ID)))
	}
	if err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	return nil
}

// open makes the sandbox ready, unless it is gone already.
func (b *box) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = b.gone == nil
	return b.gone
}

func errTaken(id string) error {
	return fault.New(fault.Conflict, "the sandbox id %q is taken", id).WithCode("id_taken")
}

func newHandle(spec sandbox.Spec) (sandbox.Handle, error) {
	h := sandbox.Handle{Version: handleVersion, Driver: driverName, ID: spec.ID}
	if len(spec.Labels) > 0 {
		state, err := json.Marshal(handleState{Labels: spec.Labels})
		if err != nil {
			return h, fmt.Errorf("encode handle: %w", err)
		}
		h.State = state
	}
	return h, nil
}

// check refuses handles that are not ours. A handle names a file, so its id is
// looked at before it is used.
func check(h sandbox.Handle) error {
	if h.Driver != driverName || h.Version != handleVersion {
		return fault.New(fault.Invalid, "the handle is of driver %q version %d, not of %q version %d",
			h.Driver, h.Version, driverName, handleVersion)
	}
	return sandbox.Spec{ID: h.ID}.Validate()
}

func (d *Driver) journal(id string) string { return filepath.Join(d.dir, id+journalSuffix) }

func (d *Driver) add(b *box) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	if d.boxes[b.spec.ID] != nil {
		return errTaken(b.spec.ID)
	}
	d.boxes[b.spec.ID] = b
	return nil
}

func (d *Driver) drop(b *box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boxes[b.spec.ID] == b {
		delete(d.boxes, b.spec.ID)
	}
}

// Recover adopts a sandbox of this driver, or of an earlier one with the same
// state folder.
func (d *Driver) Recover(ctx context.Context, h sandbox.Handle) (sandbox.Box, error) {
	if err := check(h); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	b := d.boxes[h.ID]
	if b == nil && d.dir != "" {
		restored, err := restore(d.journal(h.ID), h)
		if err != nil {
			return nil, err
		}
		b = restored
		d.boxes[h.ID] = b
	}
	if b == nil || b.dormant() {
		return nil, fault.New(fault.NotFound, "the sandbox %s is dead or gone", h.ID)
	}
	return b, nil
}

// dormant reports whether the sandbox cannot be adopted.
func (b *box) dormant() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.ready || b.gone != nil
}

// List names every sandbox, also half-made and dead ones.
func (d *Driver) List(ctx context.Context) ([]sandbox.Handle, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found := map[string]sandbox.Handle{}
	if d.dir != "" {
		files, err := os.ReadDir(d.dir)
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", err)
		}
		for _, f := range files {
			id, ok := strings.CutSuffix(f.Name(), journalSuffix)
			h := sandbox.Handle{Version: handleVersion, Driver: driverName, ID: id}
			if ok && check(h) == nil {
				found[id] = h
			}
		}
	}
	d.mu.Lock()
	for id, b := range d.boxes {
		found[id] = b.handle
	}
	d.mu.Unlock()
	handles := make([]sandbox.Handle, 0, len(found))
	for _, h := range found {
		handles = append(handles, h)
	}
	slices.SortFunc(handles, func(a, b sandbox.Handle) int { return strings.Compare(a.ID, b.ID) })
	return handles, nil
}

// Destroy removes a sandbox.
func (d *Driver) Destroy(ctx context.Context, h sandbox.Handle) error {
	if err := check(h); err != nil {
		return err
	}
	d.mu.Lock()
	b, closed := d.boxes[h.ID], d.closed
	d.mu.Unlock()
	if closed {
		return errClosed
	}
	if b != nil {
		if b.hangs() {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if err := b.destroy(); err != nil {
			return err
		}
		d.drop(b)
	}
	if d.dir == "" {
		return nil
	}
	return removeJournal(d.journal(h.ID))
}

// hangs reports whether this call of Destroy is the one that hangs.
func (b *box) hangs() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	hang := b.script.hang == stepDestroy && !b.hungOnce
	b.hungOnce = true
	return hang
}

// Close stops everything that plays. With a state folder it goes on when a
// later driver recovers it.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var all []error
	for _, b := range d.boxes {
		if err := b.leave(); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
