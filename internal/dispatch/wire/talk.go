package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// talk posts a command whose bytes go both ways: a line that says what it is
// about, and then frames. ctx bounds the beginning; hangUp ends it.
func (s *stream) talk(ctx context.Context, name string, head any) (d *duplex, hangUp func(), err error) {
	line, err := encode(head) // ends its line
	if err != nil {
		return nil, nil, err
	}
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	pr, pw := io.Pipe()
	req, err := http.NewRequestWithContext(life, http.MethodPost, "http://worker/"+name, struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(line), pr), pr})
	if err != nil {
		cancel(nil)
		return nil, nil, fault.New(fault.Internal, "make the command: %w", err)
	}
	resp, err := s.cc.RoundTrip(req) //nolint:bodyclose // who hangs up closes it
	if err == nil {
		if err = framed(resp); err == nil && !stop() {
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = resp.Body.Close()
		}
	}
	if err != nil {
		err = cutOff(life, name, err)
		_ = pw.CloseWithError(errHungUp)
		cancel(nil)
		return nil, nil, err
	}
	d = newDuplex(func(frame []byte) error { _, err := pw.Write(frame); return err })
	go d.receive(bufio.NewReader(resp.Body))
	return d, func() {
		d.fail(errHungUp)
		cancel(errHungUp)
		_ = pw.CloseWithError(errHungUp)
		_ = resp.Body.Close()
		<-d.ended
	}, nil
}

// upload sends body along with a command and reads the answer, which may come
// before all of it was sent.
func upload[In, Ans any](ctx context.Context, s *stream, name string, in In, check func(In) error, body io.Reader, sound func(Ans) error) (Ans, error) {
	var ans, none Ans
	if err := check(in); err != nil {
		return none, err
	}
	d, hangUp, err := s.talk(ctx, name, in)
	if err != nil {
		return none, err
	}
	defer hangUp()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	given := &giving{r: body}
	defer given.over.Store(true)
	go func() {
		_, err := io.Copy(d, given)
		if err == nil {
			err = d.CloseWrite()
		}
		if wrong := given.wrong.Load(); wrong != nil {
			cancel(*wrong) // half of it must not be taken for all
		}
		_ = err // the answer says why
	}()
	said, err := d.said(ctx)
	if wrong := given.wrong.Load(); wrong != nil {
		return none, *wrong
	}
	if err != nil {
		return none, cutOff(ctx, name, err)
	}
	if err := json.Unmarshal(said, &ans); err != nil {
		return none, fault.New(fault.Unavailable, "%s: the worker's answer is not what a worker says: %w", name, err)
	}
	if err := sound(ans); err != nil {
		return none, fault.New(fault.Unavailable, "%s: the worker's answer is out of bounds: %w", name, err)
	}
	return ans, nil
}

// giving is what is sent of a reader. It remembers why the reader failed, and is
// not read on once the call is over.
type giving struct {
	r     io.Reader
	over  atomic.Bool
	wrong atomic.Pointer[error]
}

func (g *giving) Read(p []byte) (int, error) {
	if g.over.Load() {
		return 0, io.ErrClosedPipe
	}
	n, err := g.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		g.wrong.Store(&err)
	}
	return n, err
}

// listenTo is the worker's end of talk: it reads what the command is about and
// checks that. begin says yes to it; done must be called at the end.
func listenTo[In any](w http.ResponseWriter, r *http.Request, check func(In) error) (in In, begin func() *duplex, err error) {
	body, err := readHead(r.Body, &in)
	if err == nil {
		err = check(in)
	}
	if err != nil {
		return in, nil, err
	}
	return in, func() *duplex {
		flush := http.NewResponseController(w).Flush
		d := newDuplex(func(frame []byte) error {
			if _, err := w.Write(frame); err != nil {
				return err
			}
			return flush()
		})
		w.Header().Set("Content-Type", framesType)
		w.WriteHeader(http.StatusOK)
		_ = flush() // one that is gone shows in what is read
		go d.receive(body)
		return d
	}, nil
}

// uploaded does a command that bytes come along with.
func uploaded[In, Ans any](w http.ResponseWriter, r *http.Request, check func(In) error, do func(context.Context, In, io.Reader) (Ans, error)) {
	in, begin, err := listenTo(w, r, check)
	if err != nil {
		writeProblem(w, err)
		return
	}
	d := begin()
	ans, err := do(r.Context(), in, d)
	var body []byte
	if err == nil {
		body, err = encode(ans)
	}
	d.last(body, err)
	_ = r.Body.Close()
	<-d.ended
}

// last says the last word: an answer, or why there is none.
func (d *duplex) last(body []byte, err error) {
	kind := frameResult
	if err == nil && len(body) > dispatch.MaxResultBytes {
		err = tooLarge()
	}
	if err != nil {
		kind = frameProblem
		p := problemOf(err)
		p.Detail = printable(p.Detail) // which bounds it too
		if body, err = json.Marshal(p); err != nil || len(body) > maxProblem {
			return // an answer that just ends is one
		}
	}
	_ = d.sendFrame(append(appendHead(nil, kind, len(body)), body...)) // a manager that is gone asks again
	d.fail(errHungUp)
}
