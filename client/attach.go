package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// AttachOptions are what an Attachment begins with.
type AttachOptions struct {
	Stdout, Stderr io.Writer // where output goes; nil is nowhere
	From           Offsets   // how much output was seen before
	Fed            int64     // how many bytes of input were written before
	// Connection is told nil when a connection stands, and why when it is lost,
	// before it is opened again. It must not wait.
	Connection func(lost error)
}

// Attachment is joined to an exec: it copies the output, and what is written to
// it goes to the exec's standard input. A lost connection is opened again, and
// no byte is lost or doubled in either direction. It ends with the exec, with
// the context that it was made with, or with an InputError; the exec goes on
// after the latter two.
type Attachment struct {
	c             *Client
	sandbox, exec string
	opts          AttachOptions
	done          chan struct{} // closed when result and err are there
	result        Exec
	err           error
	wake          chan struct{} // there may be something to send

	mu       sync.Mutex
	room     *sync.Cond // buf has become shorter, or nobody reads it any more
	buf      []byte     // input that the exec has not taken, from opts.Fed on
	sent     int        // how much of buf is under way on this connection
	inflight int        // in how many messages
	last     bool       // the input ends behind buf
	lastSent bool
	cols     int
	rows     int
	sizeSent bool
	refused  error // the exec wants no more input; output goes on
	over     bool
}

// Bounds of input that is under way.
const (
	maxWaiting  = 256 << 10 // bytes that a Write hands over without waiting
	maxPiece    = 32 << 10
	maxInflight = 4 // messages, which is what a server takes without answering
)

// rhythm is how often a quiet connection is asked whether it is there.
const rhythm = 15 * time.Second

// Attach joins to an exec whose standard input was kept open.
func (c *Client) Attach(ctx context.Context, sandbox, exec string, o AttachOptions) *Attachment {
	a := &Attachment{c: c, sandbox: sandbox, exec: exec, opts: o, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	a.room = sync.NewCond(&a.mu)
	go func() {
		defer close(a.done)
		a.result, a.err = a.run(ctx)
		a.mu.Lock()
		a.over = true
		a.mu.Unlock()
		a.room.Broadcast()
	}()
	return a
}

// InputError is why an exec cannot be given the rest of its input. The exec has
// a part of it and may wait for more for ever: whoever fed it may want to kill it.
type InputError struct {
	Exec string
	Err  error
}

func (e *InputError) Error() string {
	return fmt.Sprintf("exec %s did not get all of its input: %s", e.Exec, e.Err)
}

// Unwrap returns the cause, which is a Problem where the server refused.
func (e *InputError) Unwrap() error { return e.Err }

// Wait returns the exec when it has ended and all of its output was copied.
func (a *Attachment) Wait() (Exec, error) {
	<-a.done
	return a.result, a.err
}

var errInputOver = errors.New("the exec takes no more input")

// Write hands over input. It waits while much of it is under way.
func (a *Attachment) Write(p []byte) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n < len(p) {
		for len(a.buf) >= maxWaiting && !a.over && a.refused == nil {
			a.room.Wait()
		}
		switch {
		case a.refused != nil:
			return n, a.refused
		case a.over || a.last:
			return n, errInputOver
		}
		k := min(len(p)-n, maxWaiting-len(a.buf))
		a.buf = append(a.buf, p[n:n+k]...)
		n += k
		a.rouse()
	}
	return n, nil
}

// CloseInput ends the input behind what was written.
func (a *Attachment) CloseInput() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = true
	a.rouse()
}

// Resize sets the size of the exec's terminal.
func (a *Attachment) Resize(cols, rows int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cols, a.rows, a.sizeSent = cols, rows, false
	a.rouse()
}

func (a *Attachment) rouse() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run opens connections until the exec has ended.
func (a *Attachment) run(ctx context.Context) (Exec, error) {
	for failures := 0; ; {
		before := a.progress()
		over, err := a.once(ctx)
		switch {
		case over:
			return a.c.WaitExec(ctx, a.sandbox, a.exec)
		case ctx.Err() != nil:
			return Exec{}, context.Cause(ctx)
		case !passing(err):
			return Exec{}, err
		}
		a.tell(err)
		if failures++; a.progress() != before {
			failures = 1
		}
		if err := pause(ctx, backoff(failures)); err != nil {
			return Exec{}, err
		}
	}
}

func (a *Attachment) tell(lost error) {
	if a.opts.Connection != nil {
		a.opts.Connection(lost)
	}
}

// progress changes with each byte that was carried.
func (a *Attachment) progress() [3]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return [3]int64{a.opts.From.Stdout, a.opts.From.Stderr, a.opts.Fed}
}

// once carries bytes over one connection; over says that the exec has ended and
// all of its output was copied.
func (a *Attachment) once(ctx context.Context) (over bool, err error) {
	conn, err := a.c.dial(ctx, a.request())
	if err != nil {
		return false, err
	}
	a.tell(nil)
	hangUp := context.AfterFunc(ctx, conn.close)
	defer hangUp()
	quiet := time.AfterFunc(silence, conn.close)
	defer quiet.Stop()
	ended := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() { a.send(conn, ended) })
	defer sender.Wait()
	defer conn.close() // a send that is stuck ends too
	defer close(ended)
	for {
		kind, data, err := conn.read()
		if err != nil {
			return false, a.lost(err)
		}
		quiet.Reset(silence)
		if kind == binaryMessage {
			err = a.output(data)
		} else {
			over, err = a.word(data)
		}
		if over || err != nil {
			return over, err
		}
	}
}

func (a *Attachment) request() request {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent, a.inflight, a.lastSent, a.sizeSent = 0, 0, false, a.cols == 0
	number := func(n int64) []string { return []string{strconv.FormatInt(n, 10)} }
	r := get(sandboxes(a.sandbox, "execs", a.exec, "attach")...)
	r.query = url.Values{"stdout_offset": number(a.opts.From.Stdout), "stderr_offset": number(a.opts.From.Stderr), "stdin_offset": number(a.opts.Fed)}
	return r
}

// lost says whether coming back helps: not where the server said why it does
// not want us.
func (a *Attachment) lost(err error) error {
	var closed *socketClosed
	if errors.As(err, &closed) && closed.code >= 4400 && closed.code < 4600 {
		status := closed.code - 4000
		if status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
			return &Problem{Status: status, Code: closed.reason, Title: http.StatusText(status), Detail: fmt.Sprintf("cannot attach to exec %s: %s", a.exec, closed.reason)}
		}
	}
	if errors.Is(err, errBadSocket) {
		return err
	}
	return &Unreachable{Server: a.c.Server(), Err: err}
}

// output writes a piece of output: a byte that names the stream, eight with its
// offset, and the bytes.
func (a *Attachment) output(message []byte) error {
	const head = 9
	if len(message) < head || message[0] != 1 && message[0] != 2 {
		return errBadSocket
	}
	stream, w := Stdout, a.opts.Stdout
	if message[0] == 2 {
		stream, w = Stderr, a.opts.Stderr
	}
	offset := int64(binary.BigEndian.Uint64(message[1:head])) //nolint:gosec // one that is negative is refused as missing or written
	a.mu.Lock()
	from := a.opts.From
	a.mu.Unlock()
	err := from.write(w, stream, offset, message[head:])
	a.mu.Lock()
	a.opts.From = from
	a.mu.Unlock()
	return err
}

// word is what a server says beside output.
type word struct {
	Type   string `json:"type"`
	Of     string `json:"of"`
	Offset int64  `json:"offset"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Error  string `json:"error"`
}

func (a *Attachment) word(data []byte) (over bool, err error) {
	var w word
	if err := json.Unmarshal(data, &w); err != nil {
		return false, errBadSocket
	}
	switch {
	case w.Type == "end":
		return true, nil
	case w.Type == "input":
		return false, a.taken(w.Offset)
	case w.Type == "error" && w.Of == "input":
		return false, a.notTaken(w)
	}
	return false, nil
}

// taken lets go of input that the exec has taken.
func (a *Attachment) taken(offset int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := offset - a.opts.Fed
	if n < 0 || n > int64(a.sent) {
		return errBadSocket
	}
	a.buf, a.opts.Fed = append([]byte(nil), a.buf[n:]...), offset
	a.sent -= int(n)
	a.inflight = max(a.inflight-1, 0)
	a.room.Broadcast()
	a.rouse()
	return nil
}

// notTaken gives up the connection where saying it again can help: a sandbox
// that is paused takes it when it goes on. A command that closed its input goes
// on without, as behind a pipe. Else there is no way to give it the rest.
func (a *Attachment) notTaken(w word) error {
	p := &Problem{Status: w.Status, Code: w.Code, Title: http.StatusText(w.Status), Detail: w.Error}
	switch {
	case passing(p) || p.Code == "paused":
		return &Unreachable{Server: a.c.Server(), Err: p}
	case !unwanted(p):
		return &InputError{Exec: a.exec, Err: p}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused, a.buf, a.sent = p, nil, 0
	a.room.Broadcast()
	return nil
}

// unwanted reports whether input was refused by the command itself, which has
// closed its end or is gone.
func unwanted(p *Problem) bool {
	switch p.Code {
	case "conflict", "input_closed", "exec_ended", "sandbox_ended":
		return true
	}
	return false
}

// send sends what there is to say until the connection is over.
func (a *Attachment) send(conn *websocket, ended <-chan struct{}) {
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	for {
		for kind, data := a.next(); data != nil; kind, data = a.next() {
			if conn.write(kind, data) != nil {
				return // the reader sees it too
			}
		}
		select {
		case <-ended:
			return
		case <-a.wake:
		case <-tick.C:
			if conn.write(textMessage, []byte(`{"type":"ping"}`)) != nil {
				return
			}
		}
	}
}

// next is the next thing to send; nil is that there is none now.
func (a *Attachment) next() (kind byte, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.sizeSent {
		a.sizeSent = true
		return textMessage, fmt.Appendf(nil, `{"type":"resize","cols":%d,"rows":%d}`, a.cols, a.rows)
	}
	if a.inflight >= maxInflight || a.refused != nil {
		return 0, nil
	}
	if waiting := len(a.buf) - a.sent; waiting > 0 {
		piece := a.buf[a.sent : a.sent+min(waiting, maxPiece)]
		a.sent += len(piece)
		a.inflight++
		return binaryMessage, append([]byte(nil), piece...)
	}
	if a.last && !a.lastSent {
		a.lastSent = true
		a.inflight++
		return textMessage, []byte(`{"type":"close_stdin"}`)
	}
	return 0, nil
}
