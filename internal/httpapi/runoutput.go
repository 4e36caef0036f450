package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

type runOutputInput struct {
	RunPath
	Stream       string `query:"stream" enum:"stdout,stderr" doc:"Which stream; stdout where it is left out, and both of a stream of events."`
	Offset       int64  `query:"offset" minimum:"0" doc:"How many bytes of that stream to leave out."`
	StderrOffset int64  `query:"stderr_offset" minimum:"0" doc:"With both streams: how many bytes of stderr to leave out."`
	Follow       bool   `query:"follow" doc:"Go on until the run has ended. A stream of events always does."`
	LastEventID  string `header:"Last-Event-ID" maxLength:"64" doc:"Where a stream of events goes on: the id of the last event that was read."`
}

func (in *runOutputInput) one() sandbox.Stream {
	if in.Stream == "stderr" {
		return sandbox.Stderr
	}
	return sandbox.Stdout
}

func (a *API) registerRunOutput() {
	register(a, route{
		method: http.MethodGet, path: "/runs/{id}/output", action: policy.Read, id: "getRunOutput", tag: "runs", answers: []string{"text/plain", "text/event-stream"},
		summary: "Read the output of a run",
		detail: "The exact bytes of one stream from an offset on: X-Next-Offset says where to go on, X-Output-Ended whether anything more can come, X-Attempt which try printed them. " +
			"With follow the answer is whole only where it ends as HTTP says: a connection that is cut has more to come, or was of a try that is begun again. " +
			"With Accept: text/event-stream both streams as they come, as events stdout and stderr whose data is {\"offset\", \"data\"} (and \"encoding\": \"base64\" where the bytes are no text); " +
			"the id of each says what lies behind it, so that Last-Event-ID goes on there. restart says that the run is begun again and the offsets count from 0; end is the last.",
	}, a.runOutput)
}

func (a *API) runOutput(ctx context.Context, in *runOutputInput) (*huma.StreamResponse, error) {
	if strings.Contains(in.r.Header.Get("Accept"), "text/event-stream") {
		return a.runEvents(ctx, in)
	}
	arrived := a.cfg.Manager.Arrived()
	p, err := a.cfg.Manager.RunOutput(ctx, in.ID, in.one(), in.Offset)
	if err != nil {
		return nil, err
	}
	leave := func() {}
	if in.Follow {
		if leave, err = a.streams.enter(ctx); err != nil {
			return nil, err
		}
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		h := in.w.Header()
		logHeaders(h)
		h.Set("X-Attempt", strconv.Itoa(p.Attempt))
		if !in.Follow {
			h.Set("X-Next-Offset", strconv.FormatInt(p.Next, 10))
			h.Set("X-Output-Ended", strconv.FormatBool(p.Ended))
		}
		if err := a.copyOutput(ctx, in, p, arrived); err != nil && ctx.Err() == nil {
			// What is not the end must not look like it: who follows would
			// take the part for the whole.
			panic(fmt.Errorf("%w: %w", http.ErrAbortHandler, err)) //nolint:forbidigo // net/http's own way to cut a connection
		}
	}}, nil
}

var (
	errCutShort = errors.New("the run goes on, and this answer does not")
	errAnew     = errors.New("the run is begun again, and what was sent is of an earlier try")
)

// copyOutput sends one piece, or all that comes; nil is that all was sent.
func (a *API) copyOutput(ctx context.Context, in *runOutputInput, p run.Piece, arrived <-chan struct{}) error {
	out := newSlowWriter(in.w)
	defer out.done()
	watch, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamEnds)
	events := a.cfg.Manager.WatchEvents(watch)
	for {
		if _, err := out.Write(p.Data); err != nil || !in.Follow {
			return err
		}
		if err := out.flush(); err != nil || p.Ended {
			return err
		}
		if len(p.Data) == 0 && !a.outputWaits(ctx, arrived, events, nil) {
			return errCutShort
		}
		arrived = a.cfg.Manager.Arrived()
		err := a.streams.read(ctx, func() error {
			next, err := a.cfg.Manager.RunOutput(ctx, in.ID, in.one(), p.Next)
			if err == nil && next.Attempt != p.Attempt && p.Attempt != 0 && p.Next != 0 {
				return errAnew
			}
			p = next
			return err
		})
		if err != nil {
			return err
		}
	}
}

// outputWaits waits for more; false is that none will be sent.
func (a *API) outputWaits(ctx context.Context, arrived, events <-chan struct{}, tick <-chan time.Time) bool {
	select {
	case <-arrived:
	case _, more := <-events:
		return more
	case <-tick:
	case <-a.endings:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// outputStream sends both streams of a run, or one, as events.
type outputStream struct {
	api     *API
	in      *runOutputInput
	out     *eventWriter
	streams []sandbox.Stream
	next    map[sandbox.Stream]int64
	attempt int
}

func (a *API) runEvents(ctx context.Context, in *runOutputInput) (*huma.StreamResponse, error) {
	s := &outputStream{api: a, in: in, streams: []sandbox.Stream{sandbox.Stdout, sandbox.Stderr}}
	s.next = map[sandbox.Stream]int64{sandbox.Stdout: in.Offset, sandbox.Stderr: in.StderrOffset}
	if in.Stream != "" {
		s.streams = []sandbox.Stream{in.one()}
		s.next = map[sandbox.Stream]int64{in.one(): in.Offset}
	}
	if in.LastEventID != "" {
		if err := s.resume(in.LastEventID); err != nil {
			return nil, err
		}
	}
	if _, err := a.cfg.Manager.Run(ctx, in.ID); err != nil {
		return nil, err
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		s.out = &eventWriter{out: newSlowWriter(in.w)}
		defer s.out.out.done()
		if err := s.follow(ctx); err != nil && ctx.Err() == nil {
			guard.NoteError(ctx, err)
		}
	}}, nil
}

// resume goes on behind the event whose id this is.
func (s *outputStream) resume(id string) error {
	var part [3]int64
	words := strings.Split(id, "-")
	ok := len(words) == 2 || len(words) == len(part)
	for i := 0; ok && i < len(words); i++ {
		n, err := strconv.ParseInt(words[i], 10, 64)
		part[i], ok = n, err == nil && n >= 0
	}
	if !ok {
		return fault.Field("header.Last-Event-ID", "is not an id of ours, such as 120-0-1")
	}
	s.next[sandbox.Stdout], s.next[sandbox.Stderr], s.attempt = part[0], part[1], int(part[2])
	return nil
}

// id says how much of stdout and of stderr was sent, and of which try: the
// offsets of one mean nothing for another.
func (s *outputStream) id() string {
	return fmt.Sprintf("%d-%d-%d", s.next[sandbox.Stdout], s.next[sandbox.Stderr], s.attempt)
}

func (s *outputStream) follow(ctx context.Context) error {
	h := s.out.out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s.out.out.WriteHeader(http.StatusOK)
	fmt.Fprintf(&s.out.buf, ": keepalive\nretry: 1000\nid: %s\n\n", s.id())
	if err := s.out.flush(); err != nil || s.in.r.Method == http.MethodHead {
		return err
	}
	watch, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamEnds)
	events := s.api.cfg.Manager.WatchEvents(watch)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		arrived := s.api.cfg.Manager.Arrived()
		sent, ended, err := s.pass(ctx)
		if err != nil {
			return err
		}
		if ended {
			return s.end(ctx)
		}
		if sent {
			continue
		}
		if !s.api.outputWaits(ctx, arrived, events, tick.C) {
			return nil
		}
		if err := s.out.comment(); err != nil {
			return err
		}
	}
}

// pass sends what there is of each stream, and says whether all is sent that
// will ever come.
func (s *outputStream) pass(ctx context.Context) (sent, ended bool, err error) {
	ended = true
	for _, stream := range s.streams {
		var p run.Piece
		err := s.api.streams.read(ctx, func() (err error) {
			p, err = s.api.cfg.Manager.RunOutput(ctx, s.in.ID, stream, s.next[stream])
			return err
		})
		if err != nil {
			return sent, false, err
		}
		if s.attempt != 0 && p.Attempt != s.attempt {
			clear(s.next)
			s.attempt = p.Attempt
			return true, false, s.send("restart", map[string]any{"attempt": p.Attempt})
		}
		s.attempt = p.Attempt
		data := p.Data
		if !p.Ended {
			data = whole(data)
		}
		ended = ended && p.Ended
		if len(data) == 0 {
			continue
		}
		sent = true
		offset := s.next[stream]
		s.next[stream] += int64(len(data))
		if err := s.piece(stream, offset, data); err != nil {
			return sent, false, err
		}
	}
	return sent, ended, nil
}

// whole leaves a character that is cut at the end to the next piece.
func whole(data []byte) []byte {
	for back := 1; back <= min(utf8.UTFMax-1, len(data)); back++ {
		if c := data[len(data)-back]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-back:]) {
				return data[:len(data)-back]
			}
			break
		}
	}
	return data
}

func (s *outputStream) piece(stream sandbox.Stream, offset int64, data []byte) error {
	text, encoded := shown(data)
	facts := map[string]any{"offset": offset, "data": text}
	if encoded {
		facts["encoding"] = "base64"
	}
	name := "stdout"
	if stream == sandbox.Stderr {
		name = "stderr"
	}
	return s.send(name, facts)
}

func (s *outputStream) send(name string, facts map[string]any) error {
	data, err := json.Marshal(facts) // has no line breaks: they are escaped
	if err != nil {
		return err
	}
	s.out.buf.WriteString("id: " + s.id() + "\nevent: " + name + "\ndata: ")
	s.out.buf.Write(data)
	s.out.buf.WriteString("\n\n")
	return s.out.flush()
}

// end tells what the run came to.
func (s *outputStream) end(ctx context.Context) error {
	x, err := s.api.cfg.Manager.Run(ctx, s.in.ID)
	if err != nil {
		return err
	}
	facts := map[string]any{"status": x.State, "verdict": orNull(string(x.Verdict)), "exit_code": nil, "reason": orNull(x.Reason)}
	if x.Result != nil {
		facts["exit_code"] = exitCode(x.Result)
	}
	return s.send("end", facts)
}
