package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// The bounds that Options leaves open.
const (
	DefaultOutputCap        = 16 << 20
	DefaultProvisionTimeout = 5 * time.Minute
	DefaultStartTimeout     = time.Minute
	DefaultCleanupTimeout   = 30 * time.Second
)

// Options says how to open a sandbox. Zero bounds stand for the defaults.
type Options struct {
	Driver Driver
	Spec   Spec
	// Report writes the handle down before anything is made; without it a
	// restarted worker can only sweep the sandbox, not adopt it.
	Report func(Handle) error
	// Brake, where there is one, can stop the sandbox with others; Subject says
	// whose it is.
	Brake   *Brake
	Subject Subject
	// OutputCap is how many bytes of each stream of an exec are kept.
	OutputCap int64
	// ProvisionTimeout bounds Create, StartTimeout the start of an exec,
	// CleanupTimeout everything that ends or destroys.
	ProvisionTimeout, StartTimeout, CleanupTimeout time.Duration
	Logger                                         *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.OutputCap <= 0 {
		o.OutputCap = DefaultOutputCap
	}
	if o.ProvisionTimeout <= 0 {
		o.ProvisionTimeout = DefaultProvisionTimeout
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.CleanupTimeout <= 0 {
		o.CleanupTimeout = DefaultCleanupTimeout
	}
	if o.Report == nil {
		o.Report = func(Handle) error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Outcome is why a sandbox ended, in one word.
type Outcome string

// The outcomes. The first three end a sandbox COMPLETED, the others FAILED.
const (
	OutcomeDone      Outcome = "done"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeExpired   Outcome = "expired"
	OutcomeKilled    Outcome = "killed" // the kill switch, or a process that would not die
	OutcomeReaped    Outcome = "reaped"
	OutcomeLost      Outcome = "lost"
	OutcomeUncleaned Outcome = "uncleaned" // Destroy failed for as long as we tried
)

// Valid reports whether o is an outcome at all.
func (o Outcome) Valid() bool {
	switch o {
	case OutcomeDone, OutcomeCancelled, OutcomeExpired, OutcomeKilled, OutcomeReaped, OutcomeLost, OutcomeUncleaned:
		return true
	}
	return false
}

// State is the state in which this outcome ends a sandbox.
func (o Outcome) State() State {
	switch o {
	case OutcomeDone, OutcomeCancelled, OutcomeExpired:
		return StateCompleted
	case OutcomeKilled, OutcomeReaped, OutcomeLost, OutcomeUncleaned:
		return StateFailed
	}
	return StateFailed
}

// Status is where a sandbox stands, and once it has ended, why.
type Status struct {
	State   State   `json:"state"`
	Outcome Outcome `json:"outcome,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}

// Sandbox is one live sandbox above its driver. It is made by Open or Adopt and
// must be ended by Close or End, also after it has died. Its methods may be
// called from several goroutines.
type Sandbox struct {
	opts Options
	box  Box
	log  *slog.Logger

	// life is the sandbox's own context, stored because execs and the watcher
	// outlive every call: it ends only after the sandbox was destroyed.
	life  context.Context
	leave context.CancelCauseFunc
	tasks sync.WaitGroup // the watcher and one per running exec

	turn      chan struct{} // holds one token while somebody destroys
	over      chan struct{} // closed once the sandbox is no longer RUNNING
	condemned chan string   // why the sandbox must be destroyed by its watcher

	mu        sync.Mutex
	status    Status
	execs     map[*Exec]struct{}
	destroyed bool
	spent     string // says which limit has been used up
	paused    bool
	pausing   chan struct{} // closed and replaced when paused has changed
}

// Open makes a sandbox and returns it RUNNING. What the driver cannot enforce
// is refused before Create is called. When Open fails, whatever was begun has
// been destroyed, or the error says that it could not be.
func Open(ctx context.Context, opts Options) (*Sandbox, error) {
	opts = opts.withDefaults()
	if err := opts.Spec.Validate(); err != nil {
		return nil, err
	}
	if err := opts.Driver.Capabilities().Check(opts.Spec); err != nil {
		return nil, err
	}
	making, o, err := opts.Brake.begin(ctx, opts.Subject)
	if err != nil {
		return nil, err
	}
	p := provision{opts: opts}
	box, err := p.create(making)
	if err == nil {
		err = p.inspect(box)
	}
	if err == nil {
		return begun(ctx, start(ctx, opts, box), o)
	}
	if why := context.Cause(making); ctx.Err() == nil && fault.CodeOf(why) == CodeStopped {
		err = why
	}
	opts.Brake.end(o, nil)
	if undo := p.undo(ctx); undo != nil {
		return nil, errors.Join(err, undo)
	}
	return nil, err
}

// begun brings a sandbox that was just made to what holds for it by now.
func begun(ctx context.Context, s *Sandbox, o *opening) (*Sandbox, error) {
	switch stop := s.opts.Brake.end(o, s); {
	case stop.Kill:
		return nil, errors.Join(stopped(stop), s.End(ctx, OutcomeKilled, stop.Reason))
	case stop.Freeze:
		if err := s.halt(ctx); err != nil {
			return nil, errors.Join(err, s.End(ctx, OutcomeKilled, "it could not be frozen: "+stop.Reason))
		}
	}
	return s, nil
}

// Adopt takes over a live sandbox that an earlier process opened, by the handle
// that was reported then. A sandbox that is dead or gone is a fault of kind
// NotFound; its remains are destroyed by Driver.Destroy.
func Adopt(ctx context.Context, opts Options, h Handle) (*Sandbox, error) {
	opts = opts.withDefaults()
	bounded, cancel := context.WithTimeoutCause(ctx, opts.ProvisionTimeout, errProvision)
	defer cancel()
	box, err := opts.Driver.Recover(bounded, h)
	if err != nil {
		return nil, fmt.Errorf("adopt sandbox %s: %w", h.ID, err)
	}
	s := start(ctx, opts, box)
	opts.Brake.enter(s, opts.Subject)
	return s, nil
}

func start(ctx context.Context, opts Options, box Box) *Sandbox {
	life, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &Sandbox{
		opts: opts, box: box, log: opts.Logger.With("sandbox", box.Handle().ID),
		life: life, leave: leave,
		turn: make(chan struct{}, 1), over: make(chan struct{}), condemned: make(chan string, 1),
		status: Status{State: StateRunning}, execs: map[*Exec]struct{}{}, pausing: make(chan struct{}),
	}
	s.tasks.Add(1)
	go s.watch() //nolint:contextcheck // a sandbox outlives the call that opens it
	if limit := box.Enforced().CPUTime; limit > 0 {
		s.tasks.Add(1)
		go s.watchCPU(limit) //nolint:contextcheck // as above
	}
	return s
}

// ID is the sandbox's id.
func (s *Sandbox) ID() string { return s.box.Handle().ID }

// Handle is what names the sandbox across restarts.
func (s *Sandbox) Handle() Handle { return s.box.Handle() }

// Image is the name and the digest of what the sandbox stands on, as far as its
// driver knows them.
func (s *Sandbox) Image() (name, digest string) {
	if b, ok := s.box.(Imaged); ok {
		return b.Image()
	}
	return "", ""
}

// Enforced says which limits really hold.
func (s *Sandbox) Enforced() Limits { return s.box.Enforced() }

// Status is where the sandbox stands now.
func (s *Sandbox) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Done is closed when the sandbox has died or is being ended.
func (s *Sandbox) Done() <-chan struct{} { return s.over }

// Put unpacks a tar stream below dir, an absolute path in the sandbox.
func (s *Sandbox) Put(ctx context.Context, dir string, tar io.Reader) error {
	if err := s.demand("put files"); err != nil {
		return err
	}
	if err := s.box.Put(ctx, dir, tar); err != nil {
		return fmt.Errorf("put files below %s: %w", dir, err)
	}
	return nil
}

// Adjust gives the sandbox these limits in place of those that hold, and ends
// its being in the background. After an error it is of no use.
func (s *Sandbox) Adjust(ctx context.Context, l Limits) error {
	if err := s.demand("adjust limits"); err != nil {
		return err
	}
	if b, ok := s.box.(Adjustable); ok {
		if err := b.Adjust(ctx, l); err != nil {
			return fmt.Errorf("adjust limits: %w", err)
		}
		return l.Hold(s.box.Enforced())
	}
	if l != s.box.Enforced() {
		return fault.Field("limits", "the driver %s cannot change the limits of a sandbox", s.opts.Driver.Name()).WithCode("limit_unenforceable")
	}
	return nil
}

// Environ is the whole environment that a process would be started with, where
// the driver can say so.
func (s *Sandbox) Environ(spec ExecSpec) (env []string, known bool) {
	b, ok := s.box.(Environed)
	if !ok {
		return nil, false
	}
	return b.Environ(spec), true
}

// PutLocked is Put of what nothing that runs in the sandbox may change. A driver
// that cannot keep that is a fault of kind Invalid: nothing is downgraded.
func (s *Sandbox) PutLocked(ctx context.Context, dir string, tar io.Reader) error {
	if err := s.demand("put files"); err != nil {
		return err
	}
	b, ok := s.box.(Locker)
	if !ok {
		return fault.Field("readonly", "the driver %s cannot keep files from being changed; ask for a writable workspace", s.opts.Driver.Name()).WithCode("readonly_unsupported")
	}
	if err := b.PutLocked(ctx, dir, tar); err != nil {
		return fmt.Errorf("put files below %s: %w", dir, err)
	}
	return nil
}

// Get packs path, an absolute path in the sandbox, as a tar stream into w. What
// it yields is hostile: names, sizes, types and link targets.
func (s *Sandbox) Get(ctx context.Context, path string, w io.Writer) error {
	if err := s.demand("get files"); err != nil {
		return err
	}
	if err := s.box.Get(ctx, path, w); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// Usage reads what the sandbox has used so far. It can be asked of one that has
// died, as long as its remains are there.
func (s *Sandbox) Usage(ctx context.Context) (Usage, error) {
	if err := s.Status().State.Demand("read usage", StateRunning, StateCompleting, StateFailed); err != nil {
		return Usage{}, err
	}
	usage, err := s.box.Usage(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("read usage: %w", err)
	}
	return usage, nil
}

// Mortal is implemented by a Box that can say whether its sandbox has died,
// without asking it, and before Done tells of it.
type Mortal interface{ Dead() bool }

// Dead reports whether the sandbox has died, as far as is known: it may do so any
// moment.
func (s *Sandbox) Dead() bool {
	select {
	case <-s.Done():
		return true
	default:
	}
	m, ok := s.box.(Mortal)
	return ok && m.Dead()
}

func (s *Sandbox) demand(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.State.Demand(what, StateRunning)
}

// move is the only place where the status changes, and reports whether it did.
// A sandbox that is not in the state from stays as it is: somebody else was
// first, and what they said of its end is kept.
func (s *Sandbox) move(from State, next Status) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.State != from {
		return false
	}
	state, err := from.To(next.State)
	if err != nil {
		s.log.Error("move sandbox", "error", err)
		return false
	}
	if from == StateRunning {
		close(s.over)
	}
	next.State = state
	s.status = next
	return true
}
