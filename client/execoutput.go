package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"
)

// Offsets say how much of each stream was seen.
type Offsets struct{ Stdout, Stderr int64 }

// at returns the offset of a stream.
func (o *Offsets) at(stream string) *int64 {
	if stream == Stderr {
		return &o.Stderr
	}
	return &o.Stdout
}

// FollowExec copies the output of an exec from offsets on as it comes, until it
// has ended, and returns it then. After a lost connection it goes on where it
// was: every byte is written once. A stream whose writer is nil is left out.
func (c *Client) FollowExec(ctx context.Context, sandbox, id string, from Offsets, stdout, stderr io.Writer) (Exec, error) {
	f := execFollower{c: c, path: sandboxes(sandbox, "execs", id, "output"), next: from, to: map[string]io.Writer{}}
	for stream, w := range map[string]io.Writer{Stdout: stdout, Stderr: stderr} {
		if w != nil {
			f.to[stream] = w
		}
	}
	for failures := 0; ; {
		before := f.next
		over, err := f.once(ctx)
		switch {
		case over:
			return c.WaitExec(ctx, sandbox, id)
		case ctx.Err() != nil:
			return Exec{}, context.Cause(ctx)
		case !passing(err):
			return Exec{}, err
		}
		if failures++; f.next != before {
			failures = 1
		}
		if err := pause(ctx, backoff(failures)); err != nil {
			return Exec{}, err
		}
	}
}

// execFollower knows how far the output of an exec was copied.
type execFollower struct {
	c    *Client
	path []string
	next Offsets
	to   map[string]io.Writer
}

func (f *execFollower) request() request {
	r := get(f.path...)
	r.accept = "text/event-stream"
	number := func(n int64) []string { return []string{strconv.FormatInt(n, 10)} }
	r.query = url.Values{"offset": number(f.next.Stdout), "stderr_offset": number(f.next.Stderr)}
	if len(f.to) == 1 {
		for stream := range f.to {
			r.query = url.Values{"stream": {stream}, "offset": number(*f.next.at(stream))}
		}
	}
	return r
}

// once reads one connection; over says that the exec has ended and all of its
// output was copied.
func (f *execFollower) once(ctx context.Context) (over bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := f.c.stream(ctx, f.request())
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	for frames := newFrameReader(lively{body, quiet}); ; {
		m, err := frames.next()
		if errors.Is(err, errFrameTooLarge) {
			return false, err
		}
		if err != nil {
			return false, &Unreachable{Server: f.c.Server(), Err: err} // the end of it was not told
		}
		switch m.event {
		case "end":
			return true, nil
		case Stdout, Stderr:
			if err := f.take(m.event, []byte(m.data)); err != nil {
				return false, err
			}
		}
	}
}

func (f *execFollower) take(stream string, raw []byte) error {
	var piece struct {
		Offset   int64  `json:"offset"`
		Data     string `json:"data"`
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(raw, &piece); err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	data := []byte(piece.Data)
	if piece.Encoding == "base64" {
		var coded struct {
			Data []byte `json:"data"`
		}
		if err := json.Unmarshal(raw, &coded); err != nil {
			return fmt.Errorf("read output: %w", err)
		}
		data = coded.Data
	}
	return f.next.write(f.to[stream], stream, piece.Offset, data)
}

// write writes what of a piece was not written before.
func (o *Offsets) write(w io.Writer, stream string, offset int64, data []byte) error {
	at := o.at(stream)
	skip := *at - offset
	switch {
	case skip < 0:
		return fmt.Errorf("%s from byte %d to %d is missing in what the server sent", stream, *at, offset)
	case skip >= int64(len(data)):
		return nil
	}
	data = data[skip:]
	*at += int64(len(data))
	if w == nil {
		return nil
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// ExecOutput copies what there is of a stream of an exec from an offset on. It
// returns the offset behind it, and whether nothing more can come.
func (c *Client) ExecOutput(ctx context.Context, sandbox, id, stream string, offset int64, w io.Writer) (next int64, ended bool, err error) {
	r := get(sandboxes(sandbox, "execs", id, "output")...)
	r.accept = "application/octet-stream"
	r.query = url.Values{"stream": {stream}, "offset": {strconv.FormatInt(offset, 10)}}
	res, err := c.send(ctx, r)
	if err != nil {
		return offset, false, err
	}
	defer func() { _ = res.Body.Close() }()
	from := source{r: res.Body}
	n, err := io.Copy(w, &from)
	switch {
	case err == nil:
		return offset + n, res.Header.Get("X-Output-Ended") == "true", nil
	case ctx.Err() != nil:
		return offset + n, false, context.Cause(ctx)
	case from.err != nil:
		return offset + n, false, &Unreachable{Server: c.Server(), Err: err}
	}
	return offset + n, false, fmt.Errorf("write output: %w", err)
}

// source tells a broken source from a broken sink.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
