package fake

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	sigKill = 9
	// maxInput is how much input waits to be read before Write blocks.
	maxInput = 1 << 20
)

// process is one process of a sandbox. Its tasks are goroutines: the first is
// the program itself, the others are what it put in the background.
type process struct {
	box     *box
	spec    sandbox.ExecSpec
	script  script
	started time.Time
	// recovered says that the process began in an earlier life of the driver;
	// past holds its end when it also ended there.
	recovered bool
	past      *exitEntry

	done chan struct{} // closed at the end
	left chan struct{} // closed when the driver was closed before the end

	mu          sync.Mutex
	wake        chan struct{} // made by who waits, closed by who changes something
	tasks       []*task
	reaped      bool // whoever comes now is stopped at once
	segments    []segment
	sizes       [3]int64 // by stream
	read        [3]int64 // how far a reader has come, by stream
	steps       int
	input       []byte
	inputClosed bool
	cols, rows  uint16
	ended       bool
	exit        sandbox.Exit
}

func newProcess(b *box, spec sandbox.ExecSpec, s script, started time.Time) *process {
	return &process{
		box: b, spec: spec, script: s, started: started,
		done: make(chan struct{}), left: make(chan struct{}),
		inputClosed: !spec.Stdin, cols: spec.Cols, rows: spec.Rows,
	}
}

// changed returns a channel that is closed at the next change.
//
// Preconditions: mu is held.
func (p *process) changed() <-chan struct{} {
	if p.wake == nil {
		p.wake = make(chan struct{})
	}
	return p.wake
}

// tell wakes everybody who waits for a change.
//
// Preconditions: mu is held.
func (p *process) tell() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// emit adds output. What comes after the end is dropped.
func (p *process) emit(s segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spec.TTY {
		s.stream = sandbox.Stdout
	}
	if s.rule == asGiven {
		s.length = int64(len(s.data))
	}
	if p.past != nil { // it said no more than this before it ended
		s.length = min(s.length, p.past.size(s.stream)-p.sizes[s.stream])
	}
	if p.ended || s.length <= 0 {
		return
	}
	s.offset = p.sizes[s.stream]
	p.sizes[s.stream] += s.length
	p.segments = append(p.segments, s)
	p.tell()
}

// finish writes the exit; the first one stays.
func (p *process) finish(exit sandbox.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	select {
	case <-p.left:
		return // the end belongs to the next life of the driver
	default:
	}
	if exit.Ended.IsZero() {
		exit.Ended = time.Now()
	}
	p.ended, p.exit = true, exit
	p.box.record(entry{Exit: &exitEntry{
		ID: p.spec.ID, Exit: exit, Steps: p.steps, Stdout: p.sizes[sandbox.Stdout], Stderr: p.sizes[sandbox.Stderr],
	}})
	close(p.done)
	p.tell()
}

// end finishes the process and stops its tasks, or only its first one.
func (p *process) end(exit sandbox.Exit, tree bool) {
	p.mu.Lock()
	p.reaped = p.reaped || tree
	for i, t := range p.tasks {
		if i == 0 || tree {
			t.stop()
		}
	}
	p.mu.Unlock()
	p.finish(exit)
}

// leave stops the tasks without an end: the driver is being closed.
func (p *process) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		close(p.left)
	}
	p.reaped = true
	for _, t := range p.tasks {
		t.stop()
	}
	p.tell()
}

// view is the sandbox.Process of one caller.
type view struct {
	*process
	reader reader
}

func (p *process) view(from sandbox.Offsets) *view {
	return &view{process: p, reader: reader{at: [3]int64{sandbox.Stdout: from.Stdout, sandbox.Stderr: from.Stderr}}}
}

var _ sandbox.Process = (*view)(nil)

// ID is the id that the caller gave.
func (p *process) ID() string { return p.spec.ID }

// Next returns the next frame of output, or io.EOF after the end.
func (v *view) Next(ctx context.Context) (sandbox.Frame, error) {
	for {
		v.mu.Lock()
		f, ok := v.reader.frame(v.segments)
		if ok {
			v.read[f.Stream] = max(v.read[f.Stream], f.Offset+int64(len(f.Data)))
		}
		if ok || v.ended {
			v.mu.Unlock()
			if !ok {
				return sandbox.Frame{}, io.EOF
			}
			return f, nil
		}
		changed := v.changed()
		v.mu.Unlock()
		select {
		case <-changed:
		case <-v.left:
			return sandbox.Frame{}, errClosed
		case <-ctx.Done():
			return sandbox.Frame{}, context.Cause(ctx)
		}
	}
}

// Write adds to the input, and waits while much of it is unread.
func (p *process) Write(ctx context.Context, data []byte) error {
	for {
		if err := p.box.awake(); err != nil {
			return err
		}
		p.mu.Lock()
		if p.ended || p.inputClosed {
			p.mu.Unlock()
			return fault.New(fault.Conflict, "process %s takes no input: it has ended, or its input is closed", p.spec.ID)
		}
		if len(p.input) < maxInput {
			p.input = append(p.input, data...)
			p.box.record(entry{Input: &inputEntry{ID: p.spec.ID, Data: data}})
			p.tell()
			p.mu.Unlock()
			return nil
		}
		changed := p.changed()
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.left:
			return errClosed
		case <-p.box.halt():
			return errPaused
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// CloseInput ends the input.
func (p *process) CloseInput(context.Context) error {
	if err := p.box.awake(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inputClosed {
		return nil
	}
	p.inputClosed = true
	p.box.record(entry{Input: &inputEntry{ID: p.spec.ID, Close: true}})
	p.tell()
	return nil
}

// Resize remembers the terminal's size.
func (p *process) Resize(_ context.Context, cols, rows uint16) error {
	if !p.spec.TTY {
		return fault.New(fault.Conflict, "process %s has no terminal", p.spec.ID)
	}
	if err := p.box.awake(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cols, p.rows = cols, rows
	return nil
}

// Signal ends the process when the signal is one that does.
func (p *process) Signal(_ context.Context, signal int, tree bool) error {
	if err := p.box.awake(); err != nil {
		return err
	}
	return p.signal(signal, tree)
}

func (p *process) signal(signal int, tree bool) error {
	if signal < 0 || signal > 64 {
		return fault.Field("signal", "%d is not a signal", signal)
	}
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended && (signal != sigKill || !tree) {
		return fault.New(fault.Conflict, "process %s has ended", p.spec.ID)
	}
	switch signal {
	case 0, 17, 18, 19, 20, 21, 22, 23, 28: // these do not end anything, or are not played
		return nil
	}
	p.end(sandbox.Exit{Code: -1, Signal: signal}, tree)
	return nil
}

// Wait returns the exit.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.done: // an end that is known is told even to a ctx that has ended
		return p.exit, nil
	default:
	}
	select {
	case <-p.done:
		return p.exit, nil
	case <-p.left:
		return sandbox.Exit{}, errClosed
	case <-ctx.Done():
		return sandbox.Exit{}, context.Cause(ctx)
	}
}
