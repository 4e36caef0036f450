package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxFrame bounds the data of a Frame that Next returns.
const maxFrame = 64 << 10

// Process is a command in a sandbox, or a transfer of files, which has the
// same shape. It implements sandbox.Process.
type Process struct {
	client  *Client
	channel uint32
	id      string
	move    bool          // a transfer
	window  int64         // how much of a stream may come ahead of what was taken
	opened  chan struct{} // closed when outcome is set
	outcome wire.Opened
	exited  chan struct{} // closed when exit is set
	ready   chan struct{} // has one when there may be something for Next
	writing chan struct{} // held by who writes input

	mu       sync.Mutex
	isOpen   bool
	streams  [2]inbox
	arrivals uint64
	exit     *sandbox.Exit
	result   wire.Outcome // of a transfer
	forgot   bool
	// pending is the answer that an interrupted Write did not wait for.
	pending <-chan wire.Outcome
}

var _ sandbox.Process = (*Process)(nil)

// inbox is what has come of one stream and was not taken yet.
type inbox struct {
	data  []byte
	begin int64  // offset of data's first byte; what was before it is with the caller
	acked int64  // offset up to which the guest was told that the caller has it
	since uint64 // arrival number of data's first byte
	ended bool
}

func (b *inbox) end() int64 { return b.begin + int64(len(b.data)) }

func newProcess(c *Client, channel uint32, open wire.Open) *Process {
	// What stands open outlives a pause, and may stand still.
	standing := open.Kind == wire.KindDial || open.Kind == wire.KindWatch
	p := &Process{
		client:  c,
		channel: channel,
		id:      open.ID,
		move:    !standing && open.Kind != wire.KindExec && open.Kind != wire.KindAttach,
		window:  wire.Window,
		opened:  make(chan struct{}),
		exited:  make(chan struct{}),
		ready:   make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
	}
	if standing {
		p.window = wire.SmallWindow
	}
	for i, from := range []int64{open.Stdout, open.Stderr} {
		p.streams[i] = inbox{begin: from, acked: from}
	}
	return p
}

// ID implements sandbox.Process.
func (p *Process) ID() string { return p.id }

// receive takes a frame of this channel. The reader calls it, so it never
// waits.
func (p *Process) receive(h wire.Header, payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.Type == wire.TypeOpened {
		return p.receiveOpened(payload)
	}
	if !p.isOpen {
		return fmt.Errorf("%w: channel %d is not open yet", wire.ErrMalformed, h.Channel)
	}
	defer p.wake()
	if h.Type == wire.TypeOutput {
		return p.receiveOutput(h, payload)
	}
	return p.receiveExit(payload)
}

func (p *Process) wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

func (p *Process) receiveOpened(payload []byte) error {
	opened, err := wire.DecodeOpened(payload)
	if err != nil {
		return err
	}
	if p.isOpen {
		return fmt.Errorf("%w: channel %d was opened twice", wire.ErrMalformed, p.channel)
	}
	p.isOpen = true
	p.outcome = opened
	close(p.opened)
	return nil
}

func (p *Process) receiveOutput(h wire.Header, payload []byte) error {
	out, err := wire.DecodeOutput(payload)
	if err != nil {
		return err
	}
	b := &p.streams[out.Stream-1]
	switch {
	case b.ended:
		return fmt.Errorf("%w: output behind the end of its stream", wire.ErrMalformed)
	case out.Offset != b.end():
		return fmt.Errorf("%w: output at %d, expected at %d", wire.ErrMalformed, out.Offset, b.end())
	case out.Offset+int64(len(out.Data)) > b.acked+p.window:
		return fmt.Errorf("%w: output beyond the window", wire.ErrMalformed)
	}
	p.arrivals++
	if len(b.data) == 0 {
		b.since = p.arrivals
	}
	b.data = append(b.data, out.Data...)
	b.ended = h.Flags&wire.FlagEnd != 0
	return nil
}

func (p *Process) receiveExit(payload []byte) error {
	exit, err := wire.DecodeExit(payload)
	if err != nil {
		return err
	}
	if p.exit != nil {
		return fmt.Errorf("%w: channel %d ended twice", wire.ErrMalformed, p.channel)
	}
	ended, now := exit.Ended, time.Now()
	if ended.Before(p.client.since) || ended.After(now) {
		ended = now // a guest that knows no time
	}
	p.result = exit.Outcome
	p.exit = &sandbox.Exit{Code: exit.Code, Signal: exit.Signal, Ended: ended}
	// A part of the sandbox may have died for its memory a moment before the
	// rest of it will: whatever this took with it has ended by that.
	if (exit.Code != 0 || exit.Signal != 0) && p.client.ranOut != nil {
		p.exit.OOM = p.client.ranOut()
	}
	close(p.exited)
	return nil
}

// Next implements sandbox.Process. Coming back for more says that the frames
// before are safe with the caller.
func (p *Process) Next(ctx context.Context) (sandbox.Frame, error) {
	frame, err := p.pull(ctx)
	if errors.Is(err, io.EOF) {
		p.forget(ctx)
	}
	return frame, err
}

// pull is Next of what the guest forgets by itself.
func (p *Process) pull(ctx context.Context) (sandbox.Frame, error) {
	for {
		frame, ack, state := p.take()
		if ack != nil {
			p.acknowledge(ctx, *ack)
		}
		switch state {
		case taken:
			return frame, nil
		case finished:
			return sandbox.Frame{}, io.EOF
		case more:
		}
		select {
		case <-p.ready:
		case <-p.client.done:
			return p.last()
		case <-p.halt():
			return sandbox.Frame{}, errPaused
		case <-ctx.Done():
			return sandbox.Frame{}, errWaiting(ctx)
		}
	}
}

// progress is what take found.
type progress int

const (
	more     progress = iota // nothing yet
	taken                    // a frame
	finished                 // both streams have ended
)

// take takes the oldest piece of what has come, and says what is to be
// acknowledged.
func (p *Process) take() (sandbox.Frame, *wire.Ack, progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ack *wire.Ack
	for i := range p.streams {
		if b := &p.streams[i]; b.begin-b.acked >= p.window/4 {
			ack = &wire.Ack{Stdout: p.streams[0].begin, Stderr: p.streams[1].begin}
		}
	}
	if i := p.oldest(); i >= 0 {
		return p.cut(i), ack, taken
	}
	if p.streams[0].ended && p.streams[1].ended {
		return sandbox.Frame{}, ack, finished
	}
	return sandbox.Frame{}, ack, more
}

// acknowledge tells the guest what the caller has, which lets it send more. If
// that fails, the next call tries again.
func (p *Process) acknowledge(ctx context.Context, ack wire.Ack) {
	// First, because the guest may answer before send returns.
	before := p.setAcked([2]int64{ack.Stdout, ack.Stderr})
	if err := p.client.send(ctx, wire.TypeAck, 0, p.channel, ack.Append(nil)); err != nil {
		p.setAcked(before)
	}
}

func (p *Process) setAcked(to [2]int64) (before [2]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.streams {
		before[i], p.streams[i].acked = p.streams[i].acked, to[i]
	}
	return before
}

// oldest returns the stream whose bytes came first, or -1.
func (p *Process) oldest() int {
	found := -1
	for i := range p.streams {
		if len(p.streams[i].data) == 0 {
			continue
		}
		if found < 0 || p.streams[i].since < p.streams[found].since {
			found = i
		}
	}
	return found
}

func (p *Process) cut(i int) sandbox.Frame {
	b := &p.streams[i]
	frame := sandbox.Frame{Stream: sandbox.Stream(i + 1), Offset: b.begin}
	n := min(len(b.data), maxFrame)
	if n == len(b.data) {
		frame.Data, b.data = b.data, nil
	} else {
		frame.Data = append([]byte(nil), b.data[:n]...)
		b.data = b.data[n:]
		b.since = p.arrivals
	}
	b.begin += int64(n)
	return frame
}

// last is Next when the session is over: first what has come, then the end.
func (p *Process) last() (sandbox.Frame, error) {
	frame, _, state := p.take()
	if state == taken {
		return frame, nil
	}
	if why := p.client.ended(); state != finished && !why.lost {
		return sandbox.Frame{}, why.err
	}
	return sandbox.Frame{}, io.EOF
}

// forget tells the guest, once, that all output and the end have arrived. It
// only spares the guest's memory, so it need not succeed.
func (p *Process) forget(ctx context.Context) {
	p.mu.Lock()
	over := p.exit != nil && !p.forgot
	p.forgot = p.forgot || over
	p.mu.Unlock()
	if !over {
		return
	}
	_ = p.client.send(ctx, wire.TypeForget, 0, p.channel, nil)
	p.client.unregister(p)
}

// Wait implements sandbox.Process.
func (p *Process) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.exited:
		return *p.exit, nil
	default:
	}
	select {
	case <-p.exited:
		return *p.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, errWaiting(ctx)
	case <-p.client.done:
		return p.lost()
	case <-p.halt():
		return sandbox.Exit{}, errPaused
	}
}

// lost is the end of a command whose sandbox has gone: the same each time.
func (p *Process) lost() (sandbox.Exit, error) {
	why := p.client.ended()
	if !why.lost {
		return sandbox.Exit{}, why.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		p.exit = &sandbox.Exit{Code: -1, Lost: !why.oom, OOM: why.oom, Ended: time.Now()}
		close(p.exited)
	}
	return *p.exit, nil
}

// Resize implements sandbox.Process.
func (p *Process) Resize(ctx context.Context, cols, rows uint16) error {
	if !p.outcome.TTY {
		return fault.New(fault.Conflict, "the exec has no terminal to resize")
	}
	return p.client.ask(ctx, wire.TypeResize, p.channel, wire.Control{Cols: cols, Rows: rows})
}

// Signal implements sandbox.Process.
func (p *Process) Signal(ctx context.Context, signal int, tree bool) error {
	if signal < 1 || signal > 64 {
		return fault.Field("signal", "there is no signal %d", signal)
	}
	err := p.client.ask(ctx, wire.TypeSignal, p.channel, wire.Control{Signal: uint8(signal), Tree: tree})
	if fault.Is(err, fault.NotFound) && p.client.Err() == nil {
		return nil // so long over that the guest has forgotten it
	}
	return err
}

// CloseInput implements sandbox.Process.
func (p *Process) CloseInput(ctx context.Context) error {
	err := p.client.ask(ctx, wire.TypeCloseInput, p.channel, wire.Control{})
	if fault.Is(err, fault.NotFound) && p.client.Err() == nil {
		return nil
	}
	return err
}

// Write implements sandbox.Process. It returns when the process's pipe has
// taken everything. After an error, how much of b was taken is not known.
func (p *Process) Write(ctx context.Context, b []byte) error {
	select {
	case p.writing <- struct{}{}:
	case <-p.client.done:
		return p.client.ended().err
	case <-p.client.halt():
		return errPaused
	case <-ctx.Done():
		return errWaiting(ctx)
	}
	defer func() { <-p.writing }()
	for len(b) > 0 {
		if p.pending != nil {
			if err := p.settle(ctx); err != nil {
				return err
			}
		}
		n := min(len(b), writeBatch)
		if err := p.writeBatch(ctx, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Feed implements sandbox.Feeder. The last of b is not waited for: whether it was
// taken shows in what the process does.
func (p *Process) Feed(ctx context.Context, b []byte) error {
	if n := len(b) - writeBatch; n > 0 {
		if err := p.Write(ctx, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return p.client.sendAll(ctx, inputFrames(p.channel, b))
}

// writeBatch is how much input is under way at once: half of what a guest
// keeps for a process that does not read.
const writeBatch = 64 * wire.MaxInput

// writeBatch sends a batch and waits until all of it was taken.
func (p *Process) writeBatch(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		in := wire.Input{Data: b[:min(len(b), wire.MaxInput)]}
		b = b[len(in.Data):]
		if len(b) == 0 {
			tag, answer, err := p.client.expect()
			if err != nil {
				return err
			}
			in.Tag = tag
			p.pending = answer
		}
		if err := p.client.send(ctx, wire.TypeInput, 0, p.channel, in.Append(nil)); err != nil {
			p.pending = nil
			return err
		}
	}
	return p.settle(ctx)
}

// settle waits for the answer to the batch under way.
func (p *Process) settle(ctx context.Context) error {
	select {
	case outcome := <-p.pending:
		p.pending = nil
		return asFault(outcome)
	case <-p.client.done:
		return p.client.ended().err
	case <-p.client.halt():
		return errPaused
	case <-ctx.Done():
		return errWaiting(ctx)
	}
}
