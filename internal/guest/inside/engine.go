package inside

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// Bounds of what the guest keeps.
const (
	maxCommands = 1024    // that run, or whose end no worker has acknowledged
	maxEnded    = 64      // acknowledged ends that can still be asked for
	maxPartial  = 64      // Open messages that are half received
	maxReplies  = 1 << 20 // bytes of answers that no worker reads
)

// Engine is the guest. Make it with New and let it Run.
type Engine struct {
	in     io.Reader
	out    io.Writer
	system system
	// wake tells the writer that there may be something to say.
	wake chan struct{}

	saying sync.Mutex // held by who speaks; before mu
	words  []byte     // of who speaks

	mu sync.Mutex
	// changed is signalled when room, input or an end has come.
	changed  *sync.Cond
	welcome  *wire.Nonce // to be said first
	hushed   bool        // channels say nothing
	replies  []byte      // whole frames, to be said next
	channels []*channel  // of this session, in the order in which they speak
	partial  map[uint32][]byte
	commands map[string]*command
	ended    []*command // acknowledged, oldest first
	relays   int
	watches  int
}

// system is what the engine needs of the machine: real in a sandbox, its own
// in tests.
type system interface {
	// start starts the command and returns what goes with it, or how it ended
	// if there was nothing to start.
	start(c *command, open wire.Open) (*process, *wire.Exit, error)
	// signal sends a signal to the command's process, or to all of its tree.
	signal(p *process, signal int, tree bool) error
	// put, lock and get move files.
	put(dir string, from io.Reader) error
	lock(dir string, from io.Reader) error
	get(path string, to io.Writer) error
	// file does what a request about single files asks for.
	file(t task) error
	// dial connects to a port.
	dial(port uint16) (*os.File, error)
	// watch begins to watch files.
	watch(path string, recursive bool) (watcher, error)
}

// watcher is what tells of changes to files.
type watcher interface {
	// run writes changes until stop is called, or something fails.
	run(to io.Writer) error
	stop()
}

// channel is a worker's view of one command or transfer.
type channel struct {
	id      uint32
	command *command
	outcome *wire.Opened // nil until known
	said    bool         // the outcome was said
	sent    [2]int64     // offsets up to which output was sent
	taken   [2]int64     // offsets up to which the worker has taken it
	endSent [2]bool
	exited  bool // the end was said
}

// New returns an Engine that listens on in and speaks on out. All of its
// commands together have at most so many processes; 0 is any number.
func New(in io.Reader, out io.Writer, processes int64) (*Engine, error) {
	e := newEngine(in, out)
	trees, err := newGroups(processes)
	if err != nil {
		return nil, err
	}
	l, err := newLinux(e, trees)
	if err != nil {
		return nil, err
	}
	l.lean = canVfork
	e.system = l
	time.AfterFunc(quietAfter, func() { _ = l.quieten() }) // one that stays costs time and nothing else
	return e, standard(syscall.SIGCHLD)
}

func newEngine(in io.Reader, out io.Writer) *Engine {
	e := &Engine{
		in:       in,
		out:      out,
		wake:     make(chan struct{}, 1),
		partial:  map[uint32][]byte{},
		commands: map[string]*command{},
	}
	e.changed = sync.NewCond(&e.mu)
	return e
}

// Run serves workers until in or out fails, which in a sandbox is never.
func (e *Engine) Run() error {
	failed := make(chan error, 2)
	done := make(chan struct{})
	go func() { failed <- e.listen() }()
	go func() { failed <- e.speak(done) }()
	err := <-failed
	close(done)
	return err
}

// notify wakes the writer.
func (e *Engine) notify() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// listen takes a worker's frames. It does nothing that could block. Who has
// something to say to a frame wakes the writer: to wake it for nothing would
// cost each command as much as several system calls.
func (e *Engine) listen() error {
	r := wire.NewReader(bufio.NewReaderSize(e.in, 64<<10), wire.MaxRequest).AnyVersion()
	for {
		h, payload, err := r.Next()
		if err != nil {
			return fmt.Errorf("read from the worker: %w", err)
		}
		if err := e.receive(h, payload); err != nil {
			return err
		}
	}
}

func (e *Engine) receive(h wire.Header, payload []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.Version != wire.Version {
		// A worker of another release. It hears which version this is; what
		// else it says could mean anything.
		if h.Type == wire.TypeHello {
			_ = e.hello(payload) // without a nonce there is nothing to answer
		}
		return nil
	}
	switch h.Type {
	case wire.TypeHello:
		return e.hello(payload)
	case wire.TypeOpen:
		return e.receiveOpen(h, payload)
	case wire.TypeInput:
		return e.receiveInput(h.Channel, payload)
	case wire.TypePing, wire.TypeHush, wire.TypeCloseInput, wire.TypeResize, wire.TypeSignal:
		control, err := wire.DecodeControl(payload)
		if err != nil {
			return err
		}
		e.receiveControl(h, control)
		return nil
	case wire.TypeAck:
		ack, err := wire.DecodeAck(payload)
		if err != nil {
			return err
		}
		if ch := e.channel(h.Channel); ch != nil {
			e.acknowledge(ch, [2]int64{ack.Stdout, ack.Stderr})
		}
		return nil
	case wire.TypeKnows:
		knows, err := wire.DecodeKnows(payload)
		if err != nil {
			return err
		}
		outcome := wire.Outcome{}
		if !knows.Kind.Known() {
			outcome.Status = wire.StatusNotFound
		}
		e.reply(h.Channel, knows.Tag, outcome)
		return nil
	case wire.TypeForget:
		if ch := e.channel(h.Channel); ch != nil {
			e.forget(ch)
		}
		return nil
	default:
		// A frame of a newer worker: it will hear nothing and draw its
		// conclusions.
		return nil
	}
}

// hello begins a session: what was said to the worker before does not count.
func (e *Engine) hello(payload []byte) error {
	nonce, err := wire.DecodeNonce(payload)
	if err != nil {
		return err
	}
	for _, ch := range e.channels {
		// Who asked for an answer is gone, and its channel's number will be
		// given to something else.
		ch.command.input.marks = nil
		if ch.command.transfer {
			ch.command.abort()
		}
	}
	e.welcome = &nonce
	e.hushed = false
	e.replies = nil
	e.channels = nil
	clear(e.partial)
	e.changed.Broadcast()
	e.notify()
	return nil
}

func (e *Engine) channel(id uint32) *channel {
	for _, ch := range e.channels {
		if ch.id == id {
			return ch
		}
	}
	return nil
}

// receiveOpen collects the pieces of an Open message and acts on the whole.
func (e *Engine) receiveOpen(h wire.Header, payload []byte) error {
	message := append(e.partial[h.Channel], payload...)
	delete(e.partial, h.Channel)
	if len(message) > wire.MaxOpen || len(e.partial) >= maxPartial {
		return errors.New("the worker sends more than it may")
	}
	if h.Flags&wire.FlagMore != 0 {
		e.partial[h.Channel] = message
		return nil
	}
	open, err := wire.DecodeOpen(message)
	if err != nil {
		return err
	}
	ch := &channel{id: h.Channel}
	if outcome := e.open(ch, open); outcome != nil {
		ch.command = newCommand(e, "")
		ch.outcome = outcome
	}
	e.channels = append(e.channels, ch)
	if ch.outcome != nil {
		e.notify()
	}
	return nil
}

// open gives ch its command and returns nil, or what is wrong with the request.
func (e *Engine) open(ch *channel, open wire.Open) *wire.Opened {
	switch open.Kind {
	case wire.KindExec:
		return e.openExec(ch, open)
	case wire.KindAttach:
		return e.openAttach(ch, open)
	case wire.KindDial:
		return e.openRelay(ch, open)
	case wire.KindWatch:
		return e.openWatch(ch, open)
	case wire.KindPutFor, wire.KindLockFor, wire.KindGetAfter:
		beside := e.commands[open.ID]
		if beside == nil {
			return refused(wire.StatusNotFound, "no exec with this id is known")
		}
		e.openTransfer(ch, open, beside)
	default:
		e.openTransfer(ch, open, nil)
	}
	return nil
}

func (e *Engine) openExec(ch *channel, open wire.Open) *wire.Opened {
	if e.commands[open.ID] != nil {
		return refused(wire.StatusConflict, "an exec with this id was started before")
	}
	if len(open.Args) == 0 {
		return refused(wire.StatusInvalid, "the command is empty")
	}
	if len(e.commands)-len(e.ended) >= maxCommands {
		return refused(wire.StatusExhausted, "too many execs run in this sandbox")
	}
	c := newCommand(e, open.ID)
	c.tty = open.TTY
	c.stdin = open.Stdin
	ch.command = c
	e.commands[open.ID] = c
	go c.run(ch, open)
	return nil
}

func (e *Engine) openAttach(ch *channel, open wire.Open) *wire.Opened {
	c := e.commands[open.ID]
	if c == nil {
		return refused(wire.StatusNotFound, "no exec with this id is known")
	}
	from := [2]int64{open.Stdout, open.Stderr}
	for i, s := range c.streams {
		if from[i] < s.base {
			return refused(wire.StatusConflict, "the output before this offset was taken and is gone")
		}
		if from[i] > s.end() {
			return refused(wire.StatusInvalid, "the output has not come to this offset")
		}
	}
	ch.command = c
	ch.sent, ch.taken = from, from
	ch.outcome = &wire.Opened{TTY: c.tty, Stdin: c.stdin}
	return nil
}

// openTransfer begins to move files, for or after a command where there is one
// beside it.
func (e *Engine) openTransfer(ch *channel, open wire.Open, beside *command) {
	c := newCommand(e, "")
	c.transfer = true
	switch open.Kind {
	case wire.KindPut, wire.KindLock, wire.KindWrite, wire.KindPutFor, wire.KindLockFor:
		c.stdin = true
	default:
	}
	ch.command = c
	if beside == nil {
		ch.outcome = &wire.Opened{} // else it is said with what comes of it
	} else if c.stdin {
		beside.input.behind = c
	}
	go c.move(ch, open, beside)
}

func refused(status wire.Status, message string) *wire.Opened {
	return &wire.Opened{Outcome: wire.Outcome{Status: status, Message: message}}
}

// gone answers a request about something that was let go.
func gone() wire.Outcome {
	return wire.Outcome{Status: wire.StatusNotFound, Message: "the exec is long over"}
}

func (e *Engine) receiveInput(id uint32, payload []byte) error {
	in, err := wire.DecodeInput(payload)
	if err != nil {
		return err
	}
	over := gone()
	outcome := &over
	if ch := e.channel(id); ch != nil {
		outcome = ch.command.input.add(in, id)
	}
	if outcome != nil && in.Tag != 0 {
		e.reply(id, in.Tag, *outcome)
	}
	e.changed.Broadcast()
	return nil
}

func (e *Engine) receiveControl(h wire.Header, control wire.Control) {
	if h.Type == wire.TypeHush {
		e.hushed = control.Tree
	}
	if h.Type == wire.TypePing || h.Type == wire.TypeHush {
		e.reply(h.Channel, control.Tag, wire.Outcome{})
		return
	}
	ch := e.channel(h.Channel)
	if ch == nil {
		e.reply(h.Channel, control.Tag, gone())
		return
	}
	var outcome wire.Outcome
	switch h.Type {
	case wire.TypeCloseInput:
		ch.command.input.close()
		e.changed.Broadcast()
	case wire.TypeResize:
		outcome = ch.command.resize(control.Cols, control.Rows)
	default: // a signal
		outcome = ch.command.signal(int(control.Signal), control.Tree)
	}
	e.reply(h.Channel, control.Tag, outcome)
}

// reply says how a request ended. A worker that sends requests and reads no
// answers is not one of ours: what is too much is dropped.
func (e *Engine) reply(channel, tag uint32, outcome wire.Outcome) {
	if len(e.replies) > maxReplies {
		return
	}
	e.replies = wire.AppendFrame(e.replies, wire.TypeDone, 0, channel, wire.Done{Tag: tag, Outcome: outcome}.Append(nil))
	e.notify()
}

// acknowledge moves what the worker has taken, which makes room.
func (e *Engine) acknowledge(ch *channel, taken [2]int64) {
	for i, s := range ch.command.streams {
		// Never beyond what was sent: more is a mistake of the worker's.
		ch.taken[i] = min(max(ch.taken[i], taken[i]), ch.sent[i])
		s.taken = max(s.taken, ch.taken[i])
	}
	e.changed.Broadcast()
	e.notify() // there may be room for more
}

// forget hears that a worker has all there is to know of an ended command. The
// latest ones stay, because another reader may still ask for them, and because
// descendants may live on that a worker wants to signal.
func (e *Engine) forget(ch *channel) {
	c := ch.command
	if c.exit == nil || c.forgotten || e.commands[c.id] != c {
		return
	}
	c.forgotten = true
	e.ended = append(e.ended, c)
	if len(e.ended) <= maxEnded {
		return
	}
	oldest := e.ended[0]
	e.ended = slices.Clone(e.ended[1:])
	delete(e.commands, oldest.id)
	e.channels = slices.DeleteFunc(e.channels, func(ch *channel) bool { return ch.command == oldest })
}
