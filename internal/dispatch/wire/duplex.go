package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// window is how many bytes of one direction may be under way. Who receives takes
// them off the connection at once, so that one that is slow holds up itself and
// nothing else that shares the connection: the windows of HTTP/2 would be shared
// by all.
const window = 512 << 10

var (
	errOverran  = fault.New(fault.Unavailable, "the other end sent more than it was allowed to")
	errHungUp   = fault.New(fault.Unavailable, "the connection was closed")
	errHalfShut = fault.New(fault.Conflict, "the connection is closed for writing")
)

// duplex is one end of a command whose bytes go both ways, as frames: data, the
// end of the data, and how much more may be sent. Read and Write may each be
// called by one goroutine at a time.
type duplex struct {
	wmu  sync.Mutex // held while a frame is sent
	send func(frame []byte) error

	readBy, writeBy deadline

	mu      sync.Mutex
	in      []byte // that came and was not read
	inEnd   error  // why no more comes; io.EOF is that all of it came
	owed    int    // that was read and not granted again
	credit  int    // that may be sent
	shut    bool   // no more is written
	broken  error  // why nothing can be sent
	result  []byte // what the other end said last
	changed chan struct{}
	ended   chan struct{} // closed when nothing more comes
}

func newDuplex(send func([]byte) error) *duplex {
	return &duplex{
		send: send, credit: window, changed: make(chan struct{}), ended: make(chan struct{}),
		readBy: deadline{over: make(chan struct{})}, writeBy: deadline{over: make(chan struct{})},
	}
}

// wake lets Read and Write look again.
//
// Preconditions: mu is held.
func (d *duplex) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// receive takes in what comes, until the end. It never waits for anybody but the
// other end.
func (d *duplex) receive(r io.Reader) {
	from := &frames{r: r}
	err := d.receiveAll(from)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inEnd == nil {
		d.inEnd = err
	}
	if d.broken == nil {
		d.broken = err
	}
	d.wake()
	close(d.ended)
}

func (d *duplex) receiveAll(from *frames) error {
	for {
		kind, err := from.frame(frameData, frameEnd, frameCredit, frameResult)
		if err != nil {
			return err
		}
		if done, err := d.take(kind, from.buf); done || err != nil {
			return err
		}
	}
}

// take takes one frame in, and reports whether it was the last.
func (d *duplex) take(kind byte, body []byte) (last bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.wake()
	switch kind {
	case frameData:
		if d.inEnd != nil || len(d.in)+d.owed+len(body) > window {
			return false, errOverran
		}
		d.in = append(d.in, body...)
	case frameEnd:
		d.inEnd = io.EOF
	case frameCredit:
		if len(body) != creditBytes {
			return false, fault.New(fault.Unavailable, "the other end sent half a number")
		}
		if d.credit += int(min(binary.BigEndian.Uint32(body), window+1)); d.credit > window {
			return false, fault.New(fault.Unavailable, "the other end grants what was not taken")
		}
	case frameResult:
		d.result = append([]byte{}, body...)
		if d.inEnd == nil {
			d.inEnd = io.EOF
		}
		return true, errHungUp
	}
	return false, nil
}

// Read implements io.Reader.
func (d *duplex) Read(p []byte) (int, error) {
	for {
		d.mu.Lock()
		n := copy(p, d.in)
		d.in = d.in[n:]
		d.owed += n
		grant := 0
		if d.owed >= window/2 && d.inEnd == nil {
			grant, d.owed = d.owed, 0
		}
		end, changed := d.inEnd, d.changed
		d.mu.Unlock()
		if grant > 0 {
			frame := appendHead(nil, frameCredit, creditBytes)
			_ = d.sendFrame(binary.BigEndian.AppendUint32(frame, uint32(grant))) //nolint:gosec // at most the window; one that is gone sends no more
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		if end != nil {
			return 0, end
		}
		select {
		case <-changed:
		case <-d.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// Write implements io.Writer.
func (d *duplex) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n, err := d.reserve(min(len(p)-sent, dispatch.MaxChunk))
		if err != nil {
			return sent, err
		}
		part := p[sent : sent+n]
		if err := d.sendFrame(append(appendHead(make([]byte, 0, frameHead+n), frameData, n), part...)); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// reserve waits until something may be sent, and says how much of it.
func (d *duplex) reserve(want int) (int, error) {
	for {
		d.mu.Lock()
		n := min(want, d.credit)
		var err error
		switch {
		case d.broken != nil:
			err = d.broken
		case d.shut:
			err = errHalfShut
		default:
			d.credit -= n
		}
		changed := d.changed
		d.mu.Unlock()
		if err != nil || n > 0 {
			return n, err
		}
		select {
		case <-changed:
		case <-d.writeBy.passed():
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (d *duplex) sendFrame(frame []byte) error {
	d.wmu.Lock()
	defer d.wmu.Unlock()
	if err := d.send(frame); err != nil {
		return fault.New(fault.Unavailable, "send: %w", err)
	}
	return nil
}

// CloseWrite says that no more is sent. It can be said again.
func (d *duplex) CloseWrite() error {
	d.mu.Lock()
	was, broken := d.shut, d.broken
	d.shut = true
	d.wake()
	d.mu.Unlock()
	if was || broken != nil {
		return broken
	}
	return d.sendFrame(appendHead(nil, frameEnd, 0))
}

// fail ends both directions.
func (d *duplex) fail(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	if d.broken == nil {
		d.broken = why
	}
	if d.inEnd == nil {
		d.inEnd = why
	}
	d.wake()
}

// said waits for the end of what the other end says, and returns its last word.
func (d *duplex) said(ctx context.Context) ([]byte, error) {
	select {
	case <-d.ended:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.result != nil {
		return d.result, nil
	}
	if d.broken != nil && !errors.Is(d.broken, io.EOF) {
		return nil, d.broken
	}
	return nil, errCutShort
}

// deadline is when waiting ends.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // closed when it has passed
}

// passed is closed once the time has come.
func (l *deadline) passed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// set sets the time; the zero time is never. Who waits already goes by the new
// one where that is sooner.
func (l *deadline) set(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && !l.timer.Stop() {
		<-l.over // it is about to be closed, or was
	}
	l.timer = nil
	select {
	case <-l.over:
		l.over = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	over := l.over
	if wait := time.Until(t); wait > 0 {
		l.timer = time.AfterFunc(wait, func() { close(over) })
		return
	}
	close(over)
}
