package wire

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxAnswer bounds what a worker says to a call about a sandbox.
const maxAnswer = 64 << 10

// about is the body of a command about one sandbox, or one snapshot.
type about struct {
	ID string `json:"id"`
}

// adjusting is the body of the command that changes limits.
type adjusting struct {
	ID     string         `json:"id"`
	Limits sandbox.Limits `json:"limits"`
}

// place is a path in a sandbox.
type place struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

func (p place) check() error {
	if err := dispatch.CheckSandboxID("id", p.ID); err != nil {
		return err
	}
	return dispatch.CheckSandboxPath("path", p.Path)
}

// ask posts a command about sandboxes and reads the answer. How long it takes is
// the caller's to bound: a dead worker is noticed by the stream.
func ask[In, Ans any](ctx context.Context, s *stream, name string, in In, check func(In) error, sound func(Ans) error) (Ans, error) {
	return askBy(ctx, s.post, name, in, check, sound, maxAnswer)
}

// askBy is ask by another way to post, or where the answer may be longer.
func askBy[In, Ans any](ctx context.Context, post posting, name string, in In, check func(In) error, sound func(Ans) error, most int64) (Ans, error) {
	var ans, none Ans
	if err := check(in); err != nil {
		return none, err
	}
	body, err := encode(in)
	if err != nil {
		return none, err
	}
	if len(body) > dispatch.MaxOrderBytes {
		return none, tooLarge()
	}
	resp, err := post(ctx, name, body)
	if err != nil {
		return none, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return none, readProblem(resp)
	}
	if err := readAnswer(resp.Body, most, &ans); err != nil {
		return none, err
	}
	if err := sound(ans); err != nil {
		return none, fault.New(fault.Unavailable, "%s: the worker's answer is out of bounds: %w", name, err)
	}
	return ans, nil
}

// posting posts a command.
type posting func(ctx context.Context, name string, body []byte) (*http.Response, error)

// fine takes any answer.
func fine(nothing) error { return nil }

func checkAbout(a about) error { return dispatch.CheckSandboxID("id", a.ID) }

func checkSnapshot(a about) error { return dispatch.CheckSnapshotID("id", a.ID) }

func checkAdjusting(a adjusting) error { return dispatch.CheckAdjust(a.ID, a.Limits) }

// OpenSandbox has the worker make a sandbox.
func (s *stream) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	post := s.quick
	if o.Restore != "" {
		post = s.post // one that is set back must not be twice
	}
	return askBy(ctx, post, "sandbox/open", o, dispatch.CheckSandboxOrder, dispatch.CheckMade, maxAnswer)
}

// EndSandbox has it destroy one.
func (s *stream) EndSandbox(ctx context.Context, c live.Closing) error {
	_, err := ask(ctx, s, "sandbox/end", c, dispatch.CheckClosing, fine)
	return err
}

// PauseSandbox has it freeze one.
func (s *stream) PauseSandbox(ctx context.Context, id string) error {
	_, err := ask(ctx, s, "sandbox/pause", about{ID: id}, checkAbout, fine)
	return err
}

// ResumeSandbox has it let one go on.
func (s *stream) ResumeSandbox(ctx context.Context, id string) (live.Made, error) {
	return ask(ctx, s, "sandbox/resume", about{ID: id}, checkAbout, dispatch.CheckMade)
}

// AdjustSandbox gives one other limits.
func (s *stream) AdjustSandbox(ctx context.Context, id string, l sandbox.Limits) (live.Made, error) {
	return ask(ctx, s, "sandbox/adjust", adjusting{ID: id, Limits: l}, checkAdjusting, dispatch.CheckMade)
}

// SnapshotSandbox has it take a snapshot.
func (s *stream) SnapshotSandbox(ctx context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
	return ask(ctx, s, "sandbox/snapshot", o, dispatch.CheckSnapshotOrder, dispatch.CheckSnapshotMade)
}

// DropSnapshot has it remove one.
func (s *stream) DropSnapshot(ctx context.Context, id string) error {
	_, err := ask(ctx, s, "snapshot/drop", about{ID: id}, checkSnapshot, fine)
	return err
}

// SandboxStats measures one.
func (s *stream) SandboxStats(ctx context.Context, id string) (live.Stats, error) {
	return ask(ctx, s, "sandbox/stats", about{ID: id}, checkAbout, dispatch.CheckStats)
}

// StartExec has the worker start a command.
func (s *stream) StartExec(ctx context.Context, c live.Command) error {
	_, err := askBy(ctx, s.quick, "exec/start", c, dispatch.CheckExecOrder, fine, maxAnswer)
	return err
}

// maxRan bounds the answer that brings the end of a command along: two streams
// that ride, in base64.
const maxRan = maxAnswer + 2*2*dispatch.MaxInline

// running is the body of the command that runs one for a while.
type running struct {
	Command live.Command  `json:"command"`
	Within  time.Duration `json:"within_ns"`
}

func (x running) check() error { return dispatch.CheckRunExec(x.Command, x.Within) }

// ran is the answer to it.
type ran struct {
	Ended *live.ExecEnded `json:"ended,omitempty"`
}

func (x ran) check() error { return dispatch.CheckExecEnded(x.Ended) }

// RunExec has the worker start a command, and waits a while for its end.
func (s *stream) RunExec(ctx context.Context, c live.Command, within time.Duration) (*live.ExecEnded, error) {
	x, err := askBy(ctx, s.quick, "exec/run", running{c, within}, running.check, ran.check, maxRan)
	return x.Ended, err
}

// FeedExec writes to a command's input.
func (s *stream) FeedExec(ctx context.Context, in live.Input) error {
	_, err := ask(ctx, s, "exec/feed", in, dispatch.CheckInput, fine)
	return err
}

// ResizeExec sets the size of a command's terminal.
func (s *stream) ResizeExec(ctx context.Context, size live.Size) error {
	_, err := ask(ctx, s, "exec/resize", size, dispatch.CheckTerminalSize, fine)
	return err
}

// SignalExec sends a command a signal.
func (s *stream) SignalExec(ctx context.Context, sig live.Signal) error {
	_, err := ask(ctx, s, "exec/signal", sig, dispatch.CheckSignal, fine)
	return err
}

// FollowExec carries what a command prints.
func (s *stream) FollowExec(ctx context.Context, f live.Follow, piece func(dispatch.Chunk) error) error {
	if err := dispatch.CheckFollow(f); err != nil {
		return err
	}
	from, hangUp, err := s.postFramed(ctx, "exec/follow", f, f.From)
	if err != nil {
		return err
	}
	defer hangUp()
	for {
		kind, err := from.frame(framePiece, frameEnd)
		if err != nil {
			return cutOff(ctx, "exec/follow", err)
		}
		if kind == frameEnd {
			return nil
		}
		c, err := from.piece()
		if err == nil {
			err = piece(*c)
		}
		if err != nil {
			return err
		}
	}
}

// GetFiles carries a tar stream out of a sandbox.
func (s *stream) GetFiles(ctx context.Context, id, path string, w io.Writer) error {
	at := place{ID: id, Path: path}
	if err := at.check(); err != nil {
		return err
	}
	from, hangUp, err := s.postFramed(ctx, "files/get", at, sandbox.Offsets{})
	if err != nil {
		return err
	}
	defer hangUp()
	for {
		kind, err := from.frame(frameData, frameEnd)
		if err != nil {
			return cutOff(ctx, "files/get", err)
		}
		if kind == frameEnd {
			return nil
		}
		if _, err := w.Write(from.buf); err != nil {
			return err
		}
	}
}

// postFramed posts a command whose answer comes in frames.
func (s *stream) postFramed(ctx context.Context, name string, in any, from sandbox.Offsets) (*frames, func(), error) {
	body, err := encode(in)
	if err != nil {
		return nil, nil, err
	}
	resp, err := s.post(ctx, name, body)
	if err != nil {
		return nil, nil, err
	}
	hangUp := func() { _ = resp.Body.Close() }
	if err := framed(resp); err != nil {
		hangUp()
		return nil, nil, err
	}
	return newFrames(bufio.NewReader(resp.Body), from), hangUp, nil
}

// framed demands that an answer comes in frames.
func framed(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	if kind := resp.Header.Get("Content-Type"); kind != framesType {
		return fault.New(fault.Unavailable, "the worker answers with %q", printable(kind))
	}
	return nil
}

// cutOff words the end of an answer that came too early.
func cutOff(ctx context.Context, name string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fault.New(fault.Unavailable, "%s: given up: %w", name, cause)
	}
	if f := (*fault.Error)(nil); asFault(err, &f) {
		return f
	}
	return fault.New(fault.Unavailable, "%s: the worker cannot be reached: %w", name, err)
}

// PutFiles carries a tar stream into a sandbox. A read of tar that is under way
// when it returns may end after it.
func (s *stream) PutFiles(ctx context.Context, id, dir string, tar io.Reader) error {
	_, err := upload(ctx, s, "files/put", place{ID: id, Path: dir}, place.check, tar, fine)
	return err
}
