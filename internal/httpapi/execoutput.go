package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

type execOutputInput struct {
	ExecPath
	Stream       string `query:"stream" enum:"stdout,stderr" doc:"Which stream; stdout where it is left out, and both of a stream of events."`
	Offset       int64  `query:"offset" minimum:"0" doc:"How many bytes of that stream to leave out."`
	StderrOffset int64  `query:"stderr_offset" minimum:"0" doc:"With both streams: how many bytes of stderr to leave out."`
	Follow       bool   `query:"follow" doc:"Go on until the exec has ended. A stream of events always does."`
	LastEventID  string `header:"Last-Event-ID" maxLength:"64" doc:"Where a stream of events goes on: the offsets of stdout and stderr."`
}

func (in *execOutputInput) one() sandbox.Stream {
	if in.Stream == "stderr" {
		return sandbox.Stderr
	}
	return sandbox.Stdout
}

func (a *API) registerExecOutput() {
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}/execs/{exec}/output", action: policy.Read, own: true, id: "getExecOutput", tag: "execs", answers: []string{"application/octet-stream", sse},
		summary: "Read the output of an exec",
		detail: "The exact bytes of one stream from an offset on: what there is, or with follow until the exec has ended. X-Next-Offset says where to go on, X-Output-Ended whether anything more can come. " +
			"With Accept: text/event-stream both streams as they come, as events stdout and stderr whose data is {\"offset\", \"data\"} (and \"encoding\": \"base64\" where the bytes are no text); " +
			"the id of each names the offsets behind it, so that Last-Event-ID goes on there; end is the last. Output stays when the sandbox is gone.",
	}, a.execOutput)
	a.registerAttach()
}

func (a *API) execOutput(ctx context.Context, in *execOutputInput) (*huma.StreamResponse, error) {
	e, err := a.exec(ctx, &in.ExecPath)
	if err != nil {
		return nil, err
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	if strings.Contains(in.r.Header.Get("Accept"), sse) {
		s, err := newExecStream(in)
		if err != nil {
			leave()
			return nil, err
		}
		return &huma.StreamResponse{Body: func(huma.Context) {
			defer leave()
			defer s.out.out.done()
			if err := s.follow(ctx, a); err != nil && ctx.Err() == nil {
				guard.NoteError(ctx, err)
			}
		}}, nil
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		if err := a.copyExec(ctx, in, &e); err != nil && ctx.Err() == nil {
			guard.NoteError(ctx, err)
		}
	}}, nil
}

// glance is how long one who does not follow waits for what a worker has.
const glance = 250 * time.Millisecond

var errGlanced = errors.New("that is what there is")

// copyExec sends the bytes of one stream.
func (a *API) copyExec(ctx context.Context, in *execOutputInput, e *live.Exec) error {
	from := sandbox.Offsets{Stdout: in.Offset}
	if in.one() == sandbox.Stderr {
		from = sandbox.Offsets{Stderr: in.Offset}
	}
	if !in.Follow && e.State != live.Done {
		return a.glanceExec(ctx, in, from)
	}
	follow, cancel := a.untilEnding(ctx)
	defer cancel()
	out := &lateWriter{slow: newSlowWriter(in.w), begin: func(h http.Header) {
		h.Set("Content-Type", "application/octet-stream")
		h.Set("X-Accel-Buffering", "no")
		if e.State == live.Done {
			o := e.Result.Stdout
			if in.one() == sandbox.Stderr {
				o = e.Result.Stderr
			}
			h.Set("X-Next-Offset", strconv.FormatInt(max(o.Kept, in.Offset), 10))
			h.Set("X-Output-Ended", "true")
		}
	}}
	defer out.slow.done()
	if e.State != live.Done { // a reader knows that it is heard
		out.start()
		if err := out.slow.flush(); err != nil {
			return err
		}
	}
	err := a.cfg.Keeper.FollowExec(follow, in.Exec, from, in.one(), func(p live.Piece) error {
		if _, err := out.Write(p.Data); err != nil {
			return err
		}
		return out.slow.flush()
	})
	switch {
	case err == nil:
		out.start()
	case !out.begun:
		a.refuse(in.w, in.r, err)
	case ctx.Err() == nil:
		guard.NoteError(ctx, err)
		panic(http.ErrAbortHandler) //nolint:forbidigo // the only way to say that the stream is cut short
	}
	return nil
}

// glanceExec sends what there is of the stream of an exec that runs.
func (a *API) glanceExec(ctx context.Context, in *execOutputInput, from sandbox.Offsets) error {
	const most = 1 << 20
	bounded, cancel := context.WithTimeoutCause(ctx, glance, errGlanced)
	defer cancel()
	var data []byte
	err := a.cfg.Keeper.FollowExec(bounded, in.Exec, from, in.one(), func(p live.Piece) error {
		if data = append(data, p.Data...); len(data) >= most {
			return errGlanced
		}
		return nil
	})
	if err != nil && !errors.Is(err, errGlanced) {
		a.refuse(in.w, in.r, err)
		return nil
	}
	h := in.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Next-Offset", strconv.FormatInt(in.Offset+int64(len(data)), 10))
	h.Set("X-Output-Ended", strconv.FormatBool(err == nil))
	_, err = in.w.Write(data)
	return err
}

// execStream sends the output of an exec as events.
type execStream struct {
	in   *execOutputInput
	out  *eventWriter
	only sandbox.Stream
	mu   sync.Mutex // of out: it is kept alive meanwhile
	next map[sandbox.Stream]int64
	held map[sandbox.Stream][]byte // the beginning of a character
}

func newExecStream(in *execOutputInput) (*execStream, error) {
	s := &execStream{in: in, out: &eventWriter{out: newSlowWriter(in.w)}, held: map[sandbox.Stream][]byte{}}
	s.next = map[sandbox.Stream]int64{sandbox.Stdout: in.Offset, sandbox.Stderr: in.StderrOffset}
	if in.Stream != "" {
		s.only = in.one()
		s.next = map[sandbox.Stream]int64{s.only: in.Offset}
	}
	if in.LastEventID != "" {
		stdout, stderr, err := parseOffsets(in.LastEventID)
		if err != nil {
			return nil, err
		}
		s.next[sandbox.Stdout], s.next[sandbox.Stderr] = stdout, stderr
	}
	return s, nil
}

// parseOffsets reads the id of an event of output.
func parseOffsets(id string) (stdout, stderr int64, err error) {
	first, second, ok := strings.Cut(id, "-")
	stdout, err = strconv.ParseInt(first, 10, 64)
	stderr, err2 := strconv.ParseInt(second, 10, 64)
	if !ok || err != nil || err2 != nil || stdout < 0 || stderr < 0 {
		return 0, 0, fault.Field("header.Last-Event-ID", "is not an id of ours, such as 120-0")
	}
	return stdout, stderr, nil
}

func (s *execStream) id() string {
	return strconv.FormatInt(s.next[sandbox.Stdout], 10) + "-" + strconv.FormatInt(s.next[sandbox.Stderr], 10)
}

func (s *execStream) follow(ctx context.Context, a *API) error {
	h := s.out.out.Header()
	h.Set("Content-Type", sse)
	h.Set("X-Accel-Buffering", "no")
	s.out.out.WriteHeader(http.StatusOK)
	fmt.Fprintf(&s.out.buf, ": keepalive\nretry: 1000\nid: %s\n\n", s.id())
	if err := s.out.flush(); err != nil || s.in.r.Method == http.MethodHead {
		return err
	}
	ctx, cancel := a.untilEnding(ctx)
	defer cancel()
	idle := make(chan struct{})
	defer func() { <-idle }()
	defer cancel()
	go func() {
		defer close(idle)
		s.keepAlive(ctx)
	}()
	from := sandbox.Offsets{Stdout: s.next[sandbox.Stdout], Stderr: s.next[sandbox.Stderr]}
	if err := a.cfg.Keeper.FollowExec(ctx, s.in.Exec, from, s.only, s.take); err != nil {
		return err
	}
	for _, stream := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
		if rest := s.held[stream]; len(rest) > 0 { // no character after all
			if err := s.piece(stream, rest); err != nil {
				return err
			}
		}
	}
	e, err := a.cfg.Keeper.Exec(ctx, s.in.Exec)
	if err != nil {
		return err
	}
	b := execBody(&e)
	return s.send("end", map[string]any{"state": b.State, "verdict": b.Verdict, "exit_code": b.ExitCode, "cause": b.Cause})
}

func (s *execStream) keepAlive(ctx context.Context) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		err := s.out.comment()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take sends a piece, but for a character that is cut at its end.
func (s *execStream) take(p live.Piece) error {
	data := append(s.held[p.Stream], p.Data...)
	ready := whole(data)
	s.held[p.Stream] = append([]byte(nil), data[len(ready):]...)
	if len(ready) == 0 {
		return nil
	}
	return s.piece(p.Stream, ready)
}

func (s *execStream) piece(stream sandbox.Stream, data []byte) error {
	text, encoded := shown(data)
	facts := map[string]any{"offset": s.next[stream], "data": text}
	if encoded {
		facts["encoding"] = "base64"
	}
	s.next[stream] += int64(len(data))
	name := "stdout"
	if stream == sandbox.Stderr {
		name = "stderr"
	}
	return s.send(name, facts)
}

func (s *execStream) send(name string, facts any) error {
	data, err := json.Marshal(facts) // has no line breaks: they are escaped
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		s.out.buf.WriteString("id: " + s.id() + "\n")
	}
	s.out.buf.WriteString("event: " + oneLine(name) + "\ndata: ")
	s.out.buf.Write(data)
	s.out.buf.WriteString("\n\n")
	return s.out.flush()
}

// checkAbsolute refuses what is no absolute path in a sandbox.
func checkAbsolute(p string) error {
	if !path.IsAbs(p) || strings.ContainsRune(p, 0) {
		return fault.Field("query.path", "must be an absolute path in the sandbox").WithCode("bad_path")
	}
	return nil
}
