package fake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var (
	errClosed    = fault.New(fault.Unavailable, "the fake driver was closed").WithCode("driver_closed")
	errDestroyed = fault.New(fault.NotFound, "the sandbox was destroyed")
	errDead      = fault.New(fault.Conflict, "the sandbox is dead").WithCode("sandbox_dead")
)

// box is one sandbox.
type box struct {
	handle  sandbox.Handle
	spec    sandbox.Spec
	script  script
	tree    *tree
	journal journal       // of no file without a state folder
	dead    chan struct{} // closed at death, destruction, or when the driver is closed
	running sync.WaitGroup

	mu       sync.Mutex
	ready    bool  // Create has succeeded
	gone     error // why calls fail, once they do
	procs    map[string]*process
	live     int64
	peak     int64
	cpu      time.Duration
	resumed  chan struct{} // while paused
	halted   chan struct{} // closed while paused
	hungOnce bool
	ports    map[uint16]int // how many listen there
	relays   int
}

var (
	_ sandbox.Box    = (*box)(nil)
	_ sandbox.Imaged = (*box)(nil)
)

func newBox(h sandbox.Handle, spec sandbox.Spec, s script) *box {
	return &box{
		handle: h, spec: spec, script: s, tree: newTree(spec.Limits.Disk),
		dead: make(chan struct{}), halted: make(chan struct{}), procs: map[string]*process{},
	}
}

// Handle is what Create reported.
func (b *box) Handle() sandbox.Handle { return b.handle }

// Enforced is what was asked for: nothing runs that could go beyond it.
func (b *box) Enforced() sandbox.Limits { return b.spec.Limits }

// Done is closed when the sandbox has died or was destroyed.
func (b *box) Done() <-chan struct{} { return b.dead }

// record appends to the journal. A line that cannot be written costs the
// sandbox its next life, not this one.
func (b *box) record(e entry) {
	_ = b.journal.append(e) //nolint:errcheck // said above
}

// alive returns why the sandbox takes no calls, if it does not.
func (b *box) alive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone
}

// at plays a step of a call: it hangs or crashes when the script says so.
func (b *box) at(ctx context.Context, s script, step string) error {
	if err := b.alive(); err != nil {
		return err
	}
	if step != stepOther && step != stepCreate {
		if err := b.awake(); err != nil {
			return err
		}
	}
	if s.crash == step {
		b.crash()
		return fault.New(fault.Unavailable, "the sandbox died during %s, as it was told to", step).WithCode("sandbox_dead")
	}
	if s.hang == step {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.dead:
			return b.alive()
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Exec starts a process.
func (b *box) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	s, err := readScript(b.spec.Env, spec.Env)
	if err != nil {
		return nil, err
	}
	crash := s.crash == stepExec
	if crash {
		s.crash, s.hang = "", stepRun
	}
	if err := b.at(ctx, s, stepExec); err != nil {
		return nil, err
	}
	p := newProcess(b, spec, s, time.Now())
	if err := b.add(p); err != nil {
		return nil, err
	}
	t, ok := p.newTask()
	if !ok {
		b.drop(p)
		if err := b.alive(); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.Exhausted, "the sandbox may have no more processes").WithCode("process_limit")
	}
	b.record(entry{Exec: &execEntry{Spec: spec, Started: p.started}})
	go t.main()
	if crash {
		b.crash()
	}
	return p.view(sandbox.Offsets{}), nil
}

func (b *box) add(p *process) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone != nil {
		return b.gone
	}
	if b.procs[p.spec.ID] != nil {
		return fault.New(fault.Conflict, "the id %q is taken by another process", p.spec.ID).WithCode("id_taken")
	}
	b.procs[p.spec.ID] = p
	return nil
}

func (b *box) drop(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.procs, p.spec.ID)
}

// enter counts a task in, if there is room for it.
func (b *box) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone != nil || b.spec.Limits.Processes > 0 && b.live >= b.spec.Limits.Processes {
		return false
	}
	b.live++
	b.running.Add(1)
	return true
}

// discount counts a task out.
func (b *box) discount() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live--
}

// Attach finds a process by its id.
func (b *box) Attach(_ context.Context, id string, from sandbox.Offsets) (sandbox.Process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone != nil {
		return nil, b.gone
	}
	if b.resumed != nil {
		return nil, errPaused
	}
	p := b.procs[id]
	if p == nil {
		return nil, fault.New(fault.NotFound, "the sandbox has no process %q", id)
	}
	return p.view(from), nil
}

// Put unpacks a tar stream below dir.
func (b *box) Put(ctx context.Context, dir string, tar io.Reader) error {
	if err := b.at(ctx, b.script, stepPut); err != nil {
		return err
	}
	if !b.journal.kept() {
		return b.tree.unpack(dir, tar)
	}
	var copied bytes.Buffer
	err := b.tree.unpack(dir, io.TeeReader(tar, &copied))
	b.record(entry{Put: &putEntry{Dir: dir, Tar: copied.Bytes()}})
	return err
}

// PutLocked is Put: what is scripted changes no file that it was not told to.
func (b *box) PutLocked(ctx context.Context, dir string, tar io.Reader) error {
	return b.Put(ctx, dir, tar)
}

// Get packs path as a tar stream.
func (b *box) Get(ctx context.Context, path string, w io.Writer) error {
	if err := b.at(ctx, b.script, stepGet); err != nil {
		return err
	}
	return b.tree.pack(path, w)
}

// Image is the name that was asked for, with a digest of the name: there is
// nothing else of it.
func (b *box) Image() (name, digest string) {
	return b.spec.Image, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(b.spec.Image)))
}

// Usage reads what the sandbox was told to need.
func (b *box) Usage(ctx context.Context) (sandbox.Usage, error) {
	if err := b.at(ctx, script{}, stepOther); err != nil && !errors.Is(err, errDead) {
		return sandbox.Usage{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return sandbox.Usage{CPU: b.cpu, PeakMemory: b.peak, Processes: b.live}, nil
}

// used notes the processor time that a process was told to use.
func (b *box) used(cpu time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cpu += cpu
}

// needed notes the memory that a process was told to need.
func (b *box) needed(memory int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if limit := b.spec.Limits.Memory; limit > 0 {
		memory = min(memory, limit)
	}
	b.peak = max(b.peak, memory)
}

// die makes calls fail from now on, and returns the processes to be ended.
func (b *box) die(why error) []*process {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone == nil {
		close(b.dead)
	}
	if b.gone == nil || errors.Is(why, errDestroyed) {
		b.gone = why
	}
	procs := make([]*process, 0, len(b.procs))
	for _, p := range b.procs {
		procs = append(procs, p)
	}
	return procs
}

// starve is the sandbox's end by its memory limit: all that runs in it ends by
// that. Like crash, it does not wait for tasks.
func (b *box) starve() {
	for _, p := range b.die(errDead) {
		p.end(sandbox.Exit{Code: -1, Signal: sigKill, OOM: true}, true)
	}
	b.record(entry{Dead: true})
}

// crash is the sandbox's sudden death. It does not wait for tasks: one of them
// may be the caller.
func (b *box) crash() {
	for _, p := range b.die(errDead) {
		p.end(sandbox.Exit{Code: -1, Lost: true}, true)
	}
	b.record(entry{Dead: true})
}

// destroy ends everything in the sandbox and waits for it.
func (b *box) destroy() error {
	for _, p := range b.die(errDestroyed) {
		p.end(sandbox.Exit{Code: -1, Signal: sigKill}, true)
	}
	return b.rest()
}

// leave stops everything without an end, for the next life of the driver.
func (b *box) leave() error {
	for _, p := range b.die(errClosed) {
		p.leave()
	}
	return b.rest()
}

func (b *box) rest() error {
	b.running.Wait()
	return b.journal.close()
}
