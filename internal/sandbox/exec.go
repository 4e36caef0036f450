package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds on a driver that does not keep its side of the contract.
const (
	killTries = 3
	killWait  = 3 * time.Second  // for a kill to take effect, each try
	deathWait = 5 * time.Second  // for the exits of a sandbox that died
	drainWait = 10 * time.Second // without any progress of the output
	// attachWait is for the end of a process whose time ran out while nobody
	// was attached.
	attachWait = time.Second
	sigKill    = 9
)

var (
	errStart  = fault.New(fault.Unavailable, "the process was not started in time").WithCode("start_timeout")
	errKill   = fault.New(fault.Unavailable, "the process did not end when it was killed").WithCode("kill_timeout")
	errDrain  = fault.New(fault.Unavailable, "the output did not end with the process").WithCode("drain_timeout")
	errUnseen = fault.New(fault.Unavailable, "the sandbox died and nobody saw the end").WithCode("exit_unseen")
)

// ExecOptions says how an exec is watched over.
type ExecOptions struct {
	// Timeout is how long the process may run once it was started; zero is for
	// ever.
	Timeout time.Duration
	// Sink takes the output that is kept; without one it is only counted.
	Sink Sink
	// OutputCap is how many bytes of each stream are kept; zero is the
	// sandbox's.
	OutputCap int64
	// Ready, where it is set, is what the process says on its stdout when it is
	// ready to be given its work. It is no part of the output. The other options
	// are given with Begin then: until that, the process waits and is not timed.
	Ready []byte
}

// Resume says where the output of an exec stood when an earlier worker left it.
type Resume struct {
	// From counts the bytes of each stream that the earlier worker has seen.
	From Offsets
	// Stdout and Stderr yield what it kept; nil stands for nothing.
	Stdout, Stderr io.Reader
	// Started is when the exec started; its timeout counts from there.
	Started time.Time
}

// Output says what an earlier worker kept of an exec whose end it did not see:
// there may have been more.
func (r Resume) Output() (stdout, stderr Output, err error) {
	out, errs := newTally(0), newTally(0)
	if err := errors.Join(out.resume(r.From.Stdout, r.Stdout), errs.resume(r.From.Stderr, r.Stderr)); err != nil {
		return Output{}, Output{}, err
	}
	out.truncated, errs.truncated = true, true
	return out.output(), errs.output(), nil
}

// Result is how an exec ended.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Cause says more where the verdict leaves it open: killed by whom, which
	// limit, what was lost.
	Cause   string    `json:"cause,omitempty"`
	Exit    Exit      `json:"exit"`
	Started time.Time `json:"started_at"`
	Ended   time.Time `json:"ended_at"`
	Stdout  Output    `json:"stdout"`
	Stderr  Output    `json:"stderr"`
}

// Exec is one process in a sandbox, watched until its end whether or not
// anybody waits for it.
type Exec struct {
	sandbox *Sandbox
	proc    Process
	sink    Sink
	started time.Time
	frames  atomic.Int64  // how many frames came, to see whether output goes on
	stop    chan struct{} // closed by the first decision to kill
	done    chan struct{} // closed when result and err are set
	over    chan struct{} // closed when the end was seen

	// Of a process that waits for its work; mark is empty for all others.
	mark  []byte
	ready chan struct{} // closed when it has said the mark
	begun chan struct{} // closed by Begin

	// Owned by the pump until it has ended, then by run.
	stdout, stderr tally
	pumpErr        error

	result Result
	err    error

	mu      sync.Mutex
	sealed  bool // the end was seen: decisions come too late
	left    bool // it goes on elsewhere
	verdict Verdict
	cause   string
	begins  bool          // Begin was called
	timeout time.Duration // that Begin gave
}

// Exec starts a process. An empty spec.ID gets a new one. ctx and the start
// timeout bound the start; the process goes on when ctx ends.
func (s *Sandbox) Exec(ctx context.Context, spec ExecSpec, opts ExecOptions) (*Exec, error) {
	if spec.ID == "" {
		id, err := NewID()
		if err != nil {
			return nil, err
		}
		spec.ID = id
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.TTY && !s.opts.Driver.Capabilities().TTY {
		return nil, fault.Field("tty", "this driver cannot give a terminal").WithCode("tty_unsupported")
	}
	if err := s.demand("start a process"); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, startTime(s.opts.StartTimeout, opts.Timeout), errStart)
	defer cancel()
	e := s.newExec(opts, time.Now())
	proc, err := s.box.Exec(bounded, spec)
	if err != nil {
		return nil, s.startFailed(ctx, bounded, spec.ID, err)
	}
	if err := e.begin(ctx, proc, opts.Timeout); err != nil {
		return nil, err
	}
	return e, nil
}

// startTime is how long a start may take. What is in a sandbox can keep a program
// from ever being one, so a process that has less time than others is given up
// sooner; but a machine that is only slow is given its time, and what it started
// ends by its own timeout.
func startTime(most, timeout time.Duration) time.Duration {
	const slow = 10 * time.Second
	if timeout > 0 {
		return min(most, max(timeout, slow))
	}
	return most
}

// Attach watches over an exec that an earlier worker started in this sandbox.
// Unknown ids are a fault of kind NotFound.
func (s *Sandbox) Attach(ctx context.Context, id string, opts ExecOptions, from Resume) (*Exec, error) {
	if err := s.demand("attach to a process"); err != nil {
		return nil, err
	}
	now := time.Now()
	if from.Started.IsZero() || from.Started.After(now) {
		from.Started = now
	}
	e := s.newExec(opts, from.Started)
	err := errors.Join(e.stdout.resume(from.From.Stdout, from.Stdout), e.stderr.resume(from.From.Stderr, from.Stderr))
	if err != nil {
		return nil, fmt.Errorf("attach to process %s: %w", id, err)
	}
	proc, err := s.box.Attach(ctx, id, from.From)
	if err != nil {
		return nil, fmt.Errorf("attach to process %s: %w", id, err)
	}
	timeout := opts.Timeout
	if timeout > 0 {
		// One that ended in time while nobody looked has not run out of it, so
		// its end gets a moment to arrive.
		timeout = max(timeout-now.Sub(from.Started), attachWait)
	}
	if err := e.begin(ctx, proc, timeout); err != nil {
		return nil, err
	}
	return e, nil
}

func (s *Sandbox) newExec(opts ExecOptions, started time.Time) *Exec {
	limit := cmp.Or(opts.OutputCap, s.opts.OutputCap)
	return &Exec{
		sandbox: s, sink: opts.Sink, started: started,
		stop: make(chan struct{}), done: make(chan struct{}), over: make(chan struct{}),
		mark: opts.Ready, ready: make(chan struct{}), begun: make(chan struct{}),
		stdout: newTally(limit), stderr: newTally(limit),
	}
}

// startFailed words the error of a start. One that was cut short may have
// started the process all the same, so it is looked for and killed.
func (s *Sandbox) startFailed(ctx, bounded context.Context, id string, err error) error {
	if bounded.Err() != nil {
		s.killStray(ctx, id)
	}
	if ctx.Err() == nil && errors.Is(context.Cause(bounded), errStart) {
		return fmt.Errorf("start process %s: %w", id, errStart)
	}
	return fmt.Errorf("start process %s: %w", id, err)
}

func (s *Sandbox) killStray(ctx context.Context, id string) {
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), killWait, errKill)
	defer cancel()
	proc, err := s.box.Attach(bounded, id, Offsets{})
	if err == nil {
		err = proc.Signal(bounded, sigKill, true)
	}
	if err == nil {
		forgetStray(bounded, proc)
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		s.condemn("a process whose start was cut short may be running: " + err.Error())
	}
}

// forgetStray hears a process that was killed to its end, so that the sandbox can
// forget it.
func forgetStray(ctx context.Context, proc Process) {
	for {
		if _, err := proc.Next(ctx); err != nil {
			break
		}
	}
	_, _ = proc.Wait(ctx) // nobody asks how it ended
}

// begin hands the process to its watcher, unless the sandbox began to end
// meanwhile; then the end takes the process with it.
func (e *Exec) begin(ctx context.Context, proc Process, timeout time.Duration) error {
	s := e.sandbox
	e.proc = proc
	s.mu.Lock()
	err := s.status.State.Demand("start a process", StateRunning)
	if err == nil {
		if s.spent != "" {
			e.decide(Limit, s.spent)
		}
		s.execs[e] = struct{}{}
		s.tasks.Add(1)
	}
	s.mu.Unlock()
	if err != nil {
		s.killStray(ctx, proc.ID())
		return err
	}
	go e.run(timeout) //nolint:contextcheck // a process outlives the call that starts it
	return nil
}

// ID is the id of the exec, unique in its sandbox.
func (e *Exec) ID() string { return e.proc.ID() }

// Started is when the exec was asked for.
func (e *Exec) Started() time.Time { return e.started }

// Done is closed when the exec has ended and its result is known.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Write sends bytes to the process's standard input.
func (e *Exec) Write(ctx context.Context, p []byte) error { return e.proc.Write(ctx, p) }

// CloseInput ends the process's standard input.
func (e *Exec) CloseInput(ctx context.Context) error { return e.proc.CloseInput(ctx) }

// Feed sends all of the process's standard input and ends it. It may return
// before the process has taken all of it.
func (e *Exec) Feed(ctx context.Context, p []byte) error {
	if f, ok := e.proc.(Feeder); ok {
		return f.Feed(ctx, p)
	}
	if len(p) > 0 {
		if err := e.proc.Write(ctx, p); err != nil {
			return err
		}
	}
	return e.proc.CloseInput(ctx)
}

// Resize sets the size of the process's terminal.
func (e *Exec) Resize(ctx context.Context, cols, rows uint16) error {
	return e.proc.Resize(ctx, cols, rows)
}

// Signal sends a signal to the process, and to all of its descendants when tree
// is set. An end by such a signal has verdict Signal; to stop an exec on
// somebody's request use Kill.
func (e *Exec) Signal(ctx context.Context, signal int, tree bool) error {
	return e.proc.Signal(ctx, signal, tree)
}

// Kill ends the process and all of its descendants, and returns when they have
// ended or ctx has. by says on whose request. An exec that has ended stays as
// it is.
func (e *Exec) Kill(ctx context.Context, by string) error {
	e.decide(Killed, by)
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for process %s to die: %w", e.ID(), context.Cause(ctx))
	}
}

// Wait returns the result once the exec has ended. It may be called many times
// and from several goroutines. An error beside a result says that output was
// not kept as it should have been.
func (e *Exec) Wait(ctx context.Context) (Result, error) {
	select {
	case <-e.done: // an end that is known is told even to a ctx that has ended
		return e.result, e.err
	default:
	}
	select {
	case <-e.done:
		return e.result, e.err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("wait for process %s: %w", e.ID(), context.Cause(ctx))
	}
}

// seal says that the end was seen: what is decided from now on comes too late.
func (e *Exec) seal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = true
	close(e.over)
}

// decide asks for the exec's death. The first decision is kept; one that comes
// after the end changes nothing.
func (e *Exec) decide(v Verdict, cause string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed || e.verdict != "" {
		return
	}
	e.verdict, e.cause = v, cause
	close(e.stop)
}
