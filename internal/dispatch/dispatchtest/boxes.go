package dispatchtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Boxes is a worker's end that keeps sandboxes in memory, as plainly as can be,
// and does nothing else. It executes nothing: an exec of "echo" prints its
// arguments, "cat" prints its input, "exit" ends with the code that it is given,
// and everything else waits until it is killed.
type Boxes struct {
	Idle
	// Tell is called with each end, one at a time; nil is nobody.
	Tell func(dispatch.TellRequest)
	// Dial connects to a port of any sandbox; nil is that nobody listens.
	Dial func(ctx context.Context, port uint16) (net.Conn, error)

	mu    sync.Mutex
	boxes map[string]*memoryBox
}

var _ dispatch.Receiver = (*Boxes)(nil)

type memoryBox struct {
	order   live.Order
	made    live.Made
	paused  bool
	execs   map[string]*memoryExec
	files   map[string][]byte // tars, by where they were put
	single  map[string]memoryFile
	watches []*memoryWatch
}

type memoryExec struct {
	command live.Command
	out     [2][]byte
	taken   int64
	closed  bool
	size    live.Size
	signals []int
	result  *live.ExecResult
	awaited bool          // who started it hears of its end by the answer
	changed chan struct{} // closed and replaced when something happened
}

// Cancel knows no lease.
func (b *Boxes) Cancel(context.Context, dispatch.Cancel) error { return nil }

// Standings are the sandboxes that are there, as a registration names them.
func (b *Boxes) Standings() []live.Standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []live.Standing
	for id, box := range b.boxes {
		s := live.Standing{ID: id}
		if box.paused {
			s.Paused = live.Frozen
		}
		for exec, e := range box.execs {
			if e.result == nil {
				s.Execs = append(s.Execs, exec)
			}
		}
		all = append(all, s)
	}
	return all
}

func (b *Boxes) box(id string) (*memoryBox, error) {
	if box := b.boxes[id]; box != nil {
		return box, nil
	}
	return nil, noSandbox(id)
}

func (b *Boxes) exec(box, id string) (*memoryExec, error) {
	of, err := b.box(box)
	if err != nil {
		return nil, err
	}
	if e := of.execs[id]; e != nil {
		return e, nil
	}
	return nil, fault.New(fault.NotFound, "the sandbox has no exec %s", id).WithCode(dispatch.CodeNoExec)
}

// OpenSandbox makes a sandbox.
func (b *Boxes) OpenSandbox(_ context.Context, o live.Order) (live.Made, error) {
	if err := dispatch.CheckSandboxOrder(o); err != nil {
		return live.Made{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boxes == nil {
		b.boxes = map[string]*memoryBox{}
	}
	if b.boxes[o.ID] == nil {
		b.boxes[o.ID] = &memoryBox{order: o, execs: map[string]*memoryExec{}, files: map[string][]byte{}, single: map[string]memoryFile{}, made: live.Made{
			Driver: "memory", Isolation: "none", Image: cmp.Or(o.Spec.Image, "host"), Enforced: o.Spec.Limits, Started: time.Now().UTC().Truncate(time.Millisecond),
		}}
	}
	return b.boxes[o.ID].made, nil
}

// EndSandbox destroys one.
func (b *Boxes) EndSandbox(_ context.Context, c live.Closing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	box := b.boxes[c.ID]
	if box == nil {
		return nil
	}
	for _, e := range box.execs {
		b.endExec(e, sandbox.Killed, "the end of the sandbox", -1)
	}
	for _, w := range box.watches {
		_ = w.Close()
	}
	delete(b.boxes, c.ID)
	b.tell(dispatch.TellRequest{Sandboxes: []live.Ended{{ID: c.ID, Outcome: c.Outcome, Reason: c.Reason, At: time.Now().UTC()}}})
	return nil
}

func (b *Boxes) tell(r dispatch.TellRequest) {
	if b.Tell != nil {
		b.Tell(r)
	}
}

// PauseSandbox freezes one.
func (b *Boxes) PauseSandbox(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	box, err := b.box(id)
	if err == nil {
		box.paused = true
	}
	return err
}

// ResumeSandbox lets one go on.
func (b *Boxes) ResumeSandbox(_ context.Context, id string) (live.Made, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	box, err := b.box(id)
	if err != nil {
		return live.Made{}, err
	}
	box.paused = false
	return box.made, nil
}

// AdjustSandbox gives one other limits.
func (b *Boxes) AdjustSandbox(_ context.Context, id string, l sandbox.Limits) (live.Made, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	box, err := b.box(id)
	if err != nil {
		return live.Made{}, err
	}
	box.made.Enforced = l
	return box.made, nil
}

// SandboxStats measures one.
func (b *Boxes) SandboxStats(_ context.Context, id string) (live.Stats, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	box, err := b.box(id)
	if err != nil {
		return live.Stats{}, err
	}
	return live.Stats{Usage: sandbox.Usage{CPU: 5, PeakMemory: -1, Processes: 1}, Execs: len(box.execs)}, nil
}

// StartExec starts a command.
func (b *Boxes) StartExec(_ context.Context, c live.Command) error {
	_, err := b.startExec(c, false)
	return err
}

// RunExec starts a command, and brings the end of one along that ends at once.
func (b *Boxes) RunExec(_ context.Context, c live.Command, within time.Duration) (*live.ExecEnded, error) {
	if err := dispatch.CheckRunExec(c, within); err != nil {
		return nil, err
	}
	return b.startExec(c, true)
}

func (b *Boxes) startExec(c live.Command, awaited bool) (*live.ExecEnded, error) {
	if err := dispatch.CheckExecOrder(c); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	box, err := b.box(c.Sandbox)
	if err != nil {
		return nil, err
	}
	e := box.execs[c.ID]
	if e == nil {
		e = &memoryExec{command: c, changed: make(chan struct{}), awaited: awaited}
		box.execs[c.ID] = e
		b.begin(e)
		e.awaited = false
	}
	if !awaited || e.result == nil {
		return nil, nil //nolint:nilnil // as the contract has it
	}
	return e.told(), nil
}

// begin does what a command does.
func (b *Boxes) begin(e *memoryExec) {
	c := e.command
	switch c.Command[0] {
	case "echo":
		e.say(sandbox.Stdout, []byte(strings.Join(c.Command[1:], " ")+"\n"))
		b.endExec(e, sandbox.OK, "", 0)
	case "exit":
		code, _ := strconv.Atoi(strings.Join(c.Command[1:], ""))
		b.endExec(e, sandbox.Failed, "", code)
	case "cat":
		b.take(e, c.Stdin, !c.Open)
	}
}

func (e *memoryExec) say(s sandbox.Stream, data []byte) {
	e.out[s-sandbox.Stdout] = append(e.out[s-sandbox.Stdout], data...)
	e.wake()
}

func (e *memoryExec) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// take gives an exec input.
func (b *Boxes) take(e *memoryExec, data []byte, last bool) {
	e.taken += int64(len(data))
	e.say(sandbox.Stdout, data)
	if last {
		e.closed = true
		b.endExec(e, sandbox.OK, "", 0)
	}
}

func (b *Boxes) endExec(e *memoryExec, v sandbox.Verdict, cause string, code int) {
	if e.result != nil {
		return
	}
	now := time.Now().UTC()
	e.result = &live.ExecResult{
		Verdict: v, Cause: cause, ExitCode: code, Stdout: outputOf(e.out[0]), Stderr: outputOf(e.out[1]), Started: now, Ended: now,
	}
	e.wake()
	if !e.awaited { // else it is told by the answer; the real one tells it once more
		b.tell(dispatch.TellRequest{Execs: []live.ExecEnded{*e.told()}})
	}
}

// told is its end.
func (e *memoryExec) told() *live.ExecEnded {
	told := &live.ExecEnded{ID: e.command.ID, Sandbox: e.command.Sandbox, Result: *e.result, Inline: map[string][]byte{}}
	for _, data := range e.out {
		if len(data) > 0 {
			told.Inline[outputOf(data).SHA256] = data
		}
	}
	return told
}

func outputOf(data []byte) run.Output {
	sum := sha256.Sum256(data)
	return run.Output{Kept: int64(len(data)), Seen: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// FollowExec hands on what an exec prints.
func (b *Boxes) FollowExec(ctx context.Context, f live.Follow, piece func(dispatch.Chunk) error) error {
	at := [2]int64{f.From.Stdout, f.From.Stderr}
	for {
		b.mu.Lock()
		e, err := b.exec(f.Sandbox, f.Exec)
		if err != nil {
			b.mu.Unlock()
			return err
		}
		var next []dispatch.Chunk
		for i, data := range e.out {
			if rest := data[min(at[i], int64(len(data))):]; len(rest) > 0 {
				next = append(next, dispatch.Chunk{Stream: sandbox.Stdout + sandbox.Stream(i), Offset: at[i], Data: rest[:min(len(rest), dispatch.MaxChunk)]}) //nolint:gosec // 0 or 1
			}
		}
		ended, changed := e.result != nil, e.changed
		b.mu.Unlock()
		for _, c := range next {
			if err := piece(c); err != nil {
				return err
			}
			at[c.Stream-sandbox.Stdout] += int64(len(c.Data))
		}
		if len(next) > 0 {
			continue
		}
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// FeedExec gives an exec input.
func (b *Boxes) FeedExec(_ context.Context, in live.Input) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, err := b.exec(in.Sandbox, in.Exec)
	if err != nil {
		return err
	}
	if in.Offset == -1 {
		in.Offset = e.taken
	}
	switch fresh := in.Offset + int64(len(in.Data)) - e.taken; {
	case in.Offset > e.taken:
		return fault.New(fault.Conflict, "%d bytes were taken", e.taken).WithCode(dispatch.CodeInputGap)
	case e.closed:
		return fault.New(fault.Conflict, "the input is closed").WithCode("input_closed")
	case fresh > 0:
		b.take(e, in.Data[int64(len(in.Data))-fresh:], in.Close)
	case in.Close:
		b.take(e, nil, true)
	}
	return nil
}

// ResizeExec notes the size.
func (b *Boxes) ResizeExec(_ context.Context, s live.Size) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, err := b.exec(s.Sandbox, s.Exec)
	if err == nil {
		e.size = s
	}
	return err
}

// SignalExec notes the signal; a kill ends the exec.
func (b *Boxes) SignalExec(_ context.Context, s live.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, err := b.exec(s.Sandbox, s.Exec)
	if err != nil {
		return err
	}
	e.signals = append(e.signals, s.Signal)
	if s.Kill != "" || s.Signal == 9 {
		b.endExec(e, sandbox.Killed, s.Kill, -1)
	}
	return nil
}

// PutFiles keeps a tar as it came.
func (b *Boxes) PutFiles(_ context.Context, id, dir string, tar io.Reader) error {
	data, err := io.ReadAll(tar)
	if err != nil {
		return fault.New(fault.Unavailable, "read the files: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	box, err := b.box(id)
	if err == nil {
		box.files[dir] = data
	}
	return err
}

// GetFiles gives back what was put.
func (b *Boxes) GetFiles(_ context.Context, id, path string, w io.Writer) error {
	b.mu.Lock()
	box, err := b.box(id)
	if err != nil {
		b.mu.Unlock()
		return err
	}
	data, there := box.files[path]
	b.mu.Unlock()
	if !there {
		return fault.New(fault.NotFound, "there is nothing at %s", path)
	}
	_, err = io.Copy(w, bytes.NewReader(data))
	return err
}
