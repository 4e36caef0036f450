package wire

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

// maxInputBody bounds the body of a command with input: it travels as base64.
const maxInputBody = 2*dispatch.MaxInput + maxCommand

func asFault(err error, to **fault.Error) bool { return errors.As(err, to) }

// host answers the calls about sandboxes, and reports whether this was one.
func (m *commanded) host(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	rc := m.rc
	switch r.URL.Path {
	case "/sandbox/open":
		answer(w, r, dispatch.MaxOrderBytes, dispatch.CheckSandboxOrder, rc.OpenSandbox)
	case "/sandbox/end":
		obey(w, r, maxCommand, dispatch.CheckClosing, rc.EndSandbox)
	case "/sandbox/pause":
		obey(w, r, maxCommand, checkAbout, func(ctx context.Context, a about) error { return rc.PauseSandbox(ctx, a.ID) })
	case "/sandbox/resume":
		answer(w, r, maxCommand, checkAbout, func(ctx context.Context, a about) (live.Made, error) { return rc.ResumeSandbox(ctx, a.ID) })
	case "/sandbox/adjust":
		answer(w, r, maxCommand, checkAdjusting, func(ctx context.Context, a adjusting) (live.Made, error) {
			return rc.AdjustSandbox(ctx, a.ID, a.Limits)
		})
	case "/sandbox/snapshot":
		answer(w, r, maxCommand, dispatch.CheckSnapshotOrder, rc.SnapshotSandbox)
	case "/snapshot/drop":
		obey(w, r, maxCommand, checkSnapshot, func(ctx context.Context, a about) error { return rc.DropSnapshot(ctx, a.ID) })
	case "/sandbox/stats":
		answer(w, r, maxCommand, checkAbout, func(ctx context.Context, a about) (live.Stats, error) { return rc.SandboxStats(ctx, a.ID) })
	default:
		return m.hostExec(w, r) || m.hostFiles(w, r)
	}
	return true
}

// hostExec answers the calls about commands in sandboxes.
func (m *commanded) hostExec(w http.ResponseWriter, r *http.Request) bool {
	rc := m.rc
	switch r.URL.Path {
	case "/exec/start":
		obey(w, r, dispatch.MaxOrderBytes, dispatch.CheckExecOrder, rc.StartExec)
	case "/exec/run":
		answer(w, r, dispatch.MaxOrderBytes, running.check, func(ctx context.Context, x running) (a ran, err error) {
			a.Ended, err = rc.RunExec(ctx, x.Command, x.Within)
			return a, err
		})
	case "/exec/feed":
		obey(w, r, maxInputBody, dispatch.CheckInput, rc.FeedExec)
	case "/exec/resize":
		obey(w, r, maxCommand, dispatch.CheckTerminalSize, rc.ResizeExec)
	case "/exec/signal":
		obey(w, r, maxCommand, dispatch.CheckSignal, rc.SignalExec)
	case "/exec/follow":
		f, err := readAbout(r, maxCommand, dispatch.CheckFollow)
		if err != nil {
			writeProblem(w, err)
			return true
		}
		out := newFramer(w)
		out.end(rc.FollowExec(r.Context(), f, out.piece))
	default:
		return false
	}
	return true
}

// hostFiles answers the calls about files in sandboxes.
func (m *commanded) hostFiles(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/files/get":
		at, err := readAbout(r, maxCommand, place.check)
		if err != nil {
			writeProblem(w, err)
			return true
		}
		out := newFramer(w)
		out.end(m.rc.GetFiles(r.Context(), at.ID, at.Path, out))
	case "/files/put":
		uploaded(w, r, place.check, func(ctx context.Context, at place, body io.Reader) (nothing, error) {
			return nothing{}, m.rc.PutFiles(ctx, at.ID, at.Path, body)
		})
	case "/dial":
		m.dial(w, r)
	default:
		return m.hostFile(w, r)
	}
	return true
}

// readAbout reads what a command is about.
func readAbout[In any](r *http.Request, most int64, check func(In) error) (In, error) {
	var in In
	body, err := readCommand(r, most)
	if err == nil {
		err = unmarshal(body, &in)
	}
	if err == nil {
		err = check(in)
	}
	return in, err
}

// answer does a command that takes and gives JSON.
func answer[In, Ans any](w http.ResponseWriter, r *http.Request, most int64, check func(In) error, do func(context.Context, In) (Ans, error)) {
	in, err := readAbout(r, most, check)
	var ans Ans
	if err == nil {
		ans, err = do(r.Context(), in)
	}
	reply(w, ans, err)
}

// obey does a command that gives nothing back.
func obey[In any](w http.ResponseWriter, r *http.Request, most int64, check func(In) error, do func(context.Context, In) error) {
	answer(w, r, most, check, func(ctx context.Context, in In) (nothing, error) { return nothing{}, do(ctx, in) })
}

// reply writes an answer, or why there is none.
func reply(w http.ResponseWriter, ans any, err error) {
	var body []byte
	if err == nil {
		body, err = encode(ans)
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(body) // a manager that is gone asks again
}

func newFramer(w http.ResponseWriter) *framer {
	return &framer{w: w, flush: http.NewResponseController(w).Flush}
}

// Write sends bytes of a file.
func (f *framer) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		part := p[sent:min(len(p), sent+dispatch.MaxChunk)]
		f.begin()
		f.buf = append(appendHead(f.buf[:0], frameData, len(part)), part...)
		if _, err := f.w.Write(f.buf); err != nil {
			return sent, fault.New(fault.Unavailable, "send files: %w", err)
		}
		sent += len(part)
	}
	return sent, nil
}

// end ends the answer: all of it was sent, or something went wrong.
func (f *framer) end(err error) {
	if err != nil {
		f.problem(err)
		return
	}
	f.begin()
	_, _ = f.w.Write(appendHead(f.buf[:0], frameEnd, 0)) // a manager that is gone asks again
}

var _ io.Writer = (*framer)(nil)
