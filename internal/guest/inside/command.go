package inside

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// command is one command of a worker's, or one transfer of files, which has
// the same streams. The engine's mu guards it.
type command struct {
	e        *Engine
	id       string
	transfer bool
	tty      bool
	stdin    bool

	streams   [2]*stream
	input     *input
	birth     *birth   // while it is being started
	doomed    bool     // it is killed when it has a process
	process   *process // nil before the start, for ever if there was none
	exit      *wire.Exit
	hurries   bool // all of it is told together
	aborted   bool
	stop      func() // wakes what stands open, so that it sees that; nil without
	forgotten bool
}

func newCommand(e *Engine, id string) *command {
	return &command{
		e:       e,
		id:      id,
		streams: [2]*stream{{}, {}},
		input:   &input{e: e},
	}
}

// run starts the command and tells ch. It is the command's goroutine: it
// returns when the command could not be started, or all of it has begun.
func (c *command) run(ch *channel, open wire.Open) {
	c.start(ch, open)
	c.e.sayNow()
	if c.process != nil && c.process.tidy != nil {
		c.process.tidy()
	}
}

func (c *command) start(ch *channel, open wire.Open) {
	e := c.e
	p, exit, err := e.system.start(c, open)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		delete(e.commands, c.id)
		ch.outcome = &wire.Opened{Outcome: outcome(err)}
		return
	}
	ch.outcome = &wire.Opened{TTY: c.tty, Stdin: c.stdin}
	if exit != nil { // there was nothing to start
		c.end(*exit)
		c.complain(exit.Code, open.Args[0])
		for _, s := range c.streams {
			s.closed = true
		}
		return
	}
	c.process = p
	if c.doomed {
		_ = e.system.signal(p, int(syscall.SIGKILL), true) // else its tree is gone
	}
	if !c.brief(p) {
		p.serve(c)
	}
}

// The exit codes of programs that cannot be started, as shells have them.
const (
	notRun   = 126
	notFound = 127
)

// complain says what a shell would say of a program that cannot be started. The
// engine's mu is held.
func (c *command) complain(code int, program string) {
	const longest = 256
	program = program[:min(len(program), longest)]
	var words string
	switch code {
	case notFound:
		words = "aurea: " + program + ": there is no such program"
	case notRun:
		words = "aurea: " + program + ": it cannot be run"
	default:
		return
	}
	to, end := c.streams[1], "\n"
	if c.tty {
		to, end = c.streams[0], "\r\n"
	}
	to.held = append(to.held, words+end...)
}

// brief reports whether the command was over in a moment: then its start, its
// words and its end are told in one breath. The engine's mu is held, and is not
// in between.
func (c *command) brief(p *process) bool {
	if p.brief == nil {
		return false
	}
	c.hurries = true
	c.e.mu.Unlock()
	over := p.brief()
	c.e.mu.Lock()
	c.hurries = false
	return over
}

// failed reports whether the command, a transfer, came to nothing. The engine's
// mu is held.
func (c *command) failed() bool { return c.exit != nil && c.exit.Status != wire.StatusOK }

// end records how the command ended. The engine's mu is held.
func (c *command) end(exit wire.Exit) {
	exit.Ended = time.Now()
	c.exit = &exit
	c.input.stop()
}

// finished is called when the command's process has ended and p is known.
func (c *command) finished(exit wire.Exit) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.end(exit)
	if !c.hurries {
		c.e.notify()
	}
}

// move is the goroutine of a transfer.
func (c *command) move(ch *channel, open wire.Open, beside *command) {
	out := &sink{e: c.e, c: c, s: c.streams[0]}
	var result wire.Outcome
	switch open.Kind {
	case wire.KindPut, wire.KindPutFor:
		result = outcome(c.e.system.put(open.Path, c.input))
	case wire.KindLock, wire.KindLockFor:
		result = outcome(c.e.system.lock(open.Path, c.input))
	case wire.KindGet:
		result = outcome(c.e.system.get(open.Path, out))
	case wire.KindGetAfter:
		err := c.await(ch, beside)
		if err == nil {
			err = c.e.system.get(open.Path, out)
		}
		result = outcome(err)
	default:
		result = fileOutcome(c.e.system.file(task{
			open: open, in: c.input, stopped: c.isAborted,
			out: [2]io.Writer{out, &sink{e: c.e, c: c, s: c.streams[1]}},
		}))
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	ch.outcome = &wire.Opened{}
	c.finish(result)
}

func (c *command) isAborted() bool {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.aborted
}

// finish is the end of what is no process. The engine's mu is held.
func (c *command) finish(result wire.Outcome) {
	exit := wire.Exit{Outcome: result}
	if result.Status != wire.StatusOK {
		exit.Code = 1
	}
	c.input.leave()
	c.end(exit)
	for _, s := range c.streams {
		s.closed = true
	}
	c.e.notify()
}

// await waits for the end of another command, or that of this transfer.
func (c *command) await(ch *channel, other *command) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for other.exit == nil {
		if c.aborted {
			return errAborted
		}
		c.e.changed.Wait()
	}
	ch.outcome = &wire.Opened{}
	return nil
}

// abort ends a transfer at its next step. The engine's mu is held.
func (c *command) abort() {
	c.aborted = true
	c.input.stop()
	if c.stop != nil {
		c.stop()
	}
	c.e.changed.Broadcast()
}

// signal sends a signal. The engine's mu is held.
func (c *command) signal(signal int, tree bool) wire.Outcome {
	switch {
	case signal < 1 || signal > 64:
		return wire.Outcome{Status: wire.StatusInvalid, Message: "there is no such signal"}
	case c.transfer:
		c.abort()
		return wire.Outcome{}
	case c.process == nil:
		c.signalUnborn(signal)
		return wire.Outcome{}
	}
	return outcome(c.e.system.signal(c.process, signal, tree))
}

// resize sets the terminal's size. The engine's mu is held.
func (c *command) resize(cols, rows uint16) wire.Outcome {
	if !c.tty {
		return wire.Outcome{Status: wire.StatusConflict, Message: "the exec has no terminal"}
	}
	if c.process == nil || c.exit != nil {
		return wire.Outcome{} // it has no use for a size any more
	}
	return outcome(c.process.resize(cols, rows))
}

// outcome puts an error into the words of the protocol.
func outcome(err error) wire.Outcome {
	status := wire.StatusInternal
	var refused *refusal
	switch {
	case err == nil:
		return wire.Outcome{}
	case errors.As(err, &refused):
		status = refused.status
	case errors.Is(err, fs.ErrNotExist):
		status = wire.StatusNotFound
	case errors.Is(err, fs.ErrPermission):
		status = wire.StatusDenied
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		status = wire.StatusExhausted // the sandbox is full, and nothing broke
	case errors.Is(err, errAborted), errors.Is(err, io.ErrUnexpectedEOF):
		status = wire.StatusConflict
	}
	return wire.Outcome{Status: status, Message: err.Error()}
}

// refusal is an error that is the request's own fault.
type refusal struct {
	status wire.Status
	reason string
}

func (r *refusal) Error() string { return r.reason }

func invalid(reason string) error { return &refusal{status: wire.StatusInvalid, reason: reason} }
