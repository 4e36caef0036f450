package wire

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// hostFile answers the calls about single files.
func (m *commanded) hostFile(w http.ResponseWriter, r *http.Request) bool {
	rc := m.rc
	switch r.URL.Path {
	case "/file/stat":
		answer(w, r, maxCommand, fileCall.check, func(ctx context.Context, c fileCall) (sandbox.FileInfo, error) {
			return rc.Files(c.ID).Stat(ctx, c.Path)
		})
	case "/file/list":
		answer(w, r, maxCommand, fileCall.check, func(ctx context.Context, c fileCall) (l listing, err error) {
			l.Found, l.More, err = rc.Files(c.ID).List(ctx, c.Path, c.Depth, c.Most)
			return l, err
		})
	case "/file/mkdir":
		obey(w, r, maxCommand, fileCall.check, func(ctx context.Context, c fileCall) error { return rc.Files(c.ID).Mkdir(ctx, c.Path, c.Mode) })
	case "/file/move":
		obey(w, r, maxCommand, fileCall.checkBoth, func(ctx context.Context, c fileCall) error { return rc.Files(c.ID).Move(ctx, c.Path, c.To) })
	case "/file/copy":
		obey(w, r, maxCommand, fileCall.checkBoth, func(ctx context.Context, c fileCall) error { return rc.Files(c.ID).Copy(ctx, c.Path, c.To) })
	case "/file/remove":
		obey(w, r, maxCommand, fileCall.check, func(ctx context.Context, c fileCall) error {
			return rc.Files(c.ID).Remove(ctx, c.Path, c.Recursive)
		})
	case "/file/read":
		m.readFile(w, r)
	case "/file/write":
		uploaded(w, r, fileCall.check, func(ctx context.Context, c fileCall, body io.Reader) (sandbox.FileInfo, error) {
			return rc.Files(c.ID).WriteFile(ctx, c.Path, c.Mode, body)
		})
	case "/file/watch":
		m.watchFile(w, r)
	default:
		return false
	}
	return true
}

func (m *commanded) readFile(w http.ResponseWriter, r *http.Request) {
	c, err := readAbout(r, maxCommand, fileCall.check)
	if err != nil {
		writeProblem(w, err)
		return
	}
	out := newFramer(w)
	info, err := m.rc.Files(c.ID).ReadFile(r.Context(), c.Path, c.Offset, c.Length, out)
	var body []byte
	if err == nil {
		body, err = encode(info)
	}
	if err != nil {
		out.problem(err)
		return
	}
	out.begin()
	_, _ = w.Write(append(appendHead(nil, frameResult, len(body)), body...)) // a manager that is gone asks again
}

// watchFile is the worker's end of Watch.
func (m *commanded) watchFile(w http.ResponseWriter, r *http.Request) {
	c, err := readAbout(r, maxCommand, fileCall.check)
	var watch sandbox.Watch
	if err == nil {
		watch, err = m.rc.Files(c.ID).Watch(r.Context(), c.Path, c.Recursive)
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer watch.Close() //nolint:errcheck // nobody is left to be told
	out := changeLines{w: w, flush: http.NewResponseController(w).Flush}
	w.Header().Set("Content-Type", linesType)
	w.WriteHeader(http.StatusOK)
	for err = out.flush(); err == nil; {
		var change sandbox.Change
		if change, err = watch.Next(r.Context()); err == nil {
			err = out.write(changeLine{Change: &change})
		}
	}
	switch {
	case r.Context().Err() != nil: // nobody listens
	case errors.Is(err, io.EOF):
		_ = out.write(changeLine{End: true})
	default:
		p := problemOf(err)
		p.Detail = printable(p.Detail) // which bounds it too
		_ = out.write(changeLine{Problem: &p})
	}
}

// changeLines writes what a watch tells, line by line.
type changeLines struct {
	w     io.Writer
	flush func() error
}

func (l changeLines) write(v changeLine) error {
	line, err := encode(v)
	if err != nil {
		return err
	}
	if len(line) >= maxChangeLine {
		return fault.New(fault.TooLarge, "a change can have at most %d bytes", maxChangeLine)
	}
	if _, err := l.w.Write(line); err != nil {
		return fault.New(fault.Unavailable, "send a change: %w", err)
	}
	return l.flush()
}
