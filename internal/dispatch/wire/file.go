package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	// maxListAnswer bounds a listing: names travel twice, and may need escaping.
	maxListAnswer = 64 << 20
	// maxChangeLine bounds one line of what a watch tells.
	maxChangeLine = 64 << 10
)

// fileCall is the body of a command about a file.
type fileCall struct {
	ID        string `json:"id"`
	Path      string `json:"path"`
	To        string `json:"to,omitempty"`
	Depth     int    `json:"depth,omitempty"`
	Most      int    `json:"most,omitempty"`
	Offset    int64  `json:"offset,omitempty"`
	Length    int64  `json:"length,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
}

func (c fileCall) check() error {
	if err := (place{ID: c.ID, Path: c.Path}).check(); err != nil {
		return err
	}
	if c.Offset < 0 {
		return fault.Field("offset", "must not be negative")
	}
	return sandbox.CheckMode(c.Mode)
}

// checkBoth is check of a call about two paths.
func (c fileCall) checkBoth() error {
	if err := c.check(); err != nil {
		return err
	}
	return dispatch.CheckSandboxPath("to", c.To)
}

// listing is the answer to List.
type listing struct {
	Found []sandbox.FileInfo `json:"found"`
	More  bool               `json:"more,omitempty"`
}

func (l listing) check() error {
	if len(l.Found) > sandbox.MaxListed {
		return fault.Field("found", "has %d entries; at most %d were agreed on", len(l.Found), sandbox.MaxListed)
	}
	for _, f := range l.Found {
		if err := dispatch.CheckFileInfo(f); err != nil {
			return err
		}
	}
	return nil
}

// Files returns the files of a sandbox.
func (s *stream) Files(id string) sandbox.Filer { return &files{stream: s, id: id} }

// files are the files of one sandbox, from afar.
type files struct {
	stream *stream
	id     string
}

var _ sandbox.Filer = (*files)(nil)

// Stat implements sandbox.Filer.
func (f *files) Stat(ctx context.Context, path string) (sandbox.FileInfo, error) {
	return ask(ctx, f.stream, "file/stat", fileCall{ID: f.id, Path: path}, fileCall.check, dispatch.CheckFileInfo)
}

// List implements sandbox.Filer.
func (f *files) List(ctx context.Context, path string, depth, most int) ([]sandbox.FileInfo, bool, error) {
	in := fileCall{ID: f.id, Path: path, Depth: depth, Most: most}
	l, err := askBy(ctx, f.stream.post, "file/list", in, fileCall.check, listing.check, maxListAnswer)
	return l.Found, l.More, err
}

// ReadFile implements sandbox.Filer.
func (f *files) ReadFile(ctx context.Context, path string, offset, length int64, w io.Writer) (sandbox.FileInfo, error) {
	in := fileCall{ID: f.id, Path: path, Offset: offset, Length: length}
	if err := in.check(); err != nil {
		return sandbox.FileInfo{}, err
	}
	from, hangUp, err := f.stream.postFramed(ctx, "file/read", in, sandbox.Offsets{})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	defer hangUp()
	for {
		kind, err := from.frame(frameData, frameResult)
		if err != nil {
			return sandbox.FileInfo{}, cutOff(ctx, "file/read", err)
		}
		if kind == frameResult {
			return decodeInfo(from.buf)
		}
		if _, err := w.Write(from.buf); err != nil {
			return sandbox.FileInfo{}, err
		}
	}
}

func decodeInfo(body []byte) (sandbox.FileInfo, error) {
	var info sandbox.FileInfo
	err := json.Unmarshal(body, &info)
	if err == nil {
		err = dispatch.CheckFileInfo(info)
	}
	if err != nil {
		return sandbox.FileInfo{}, fault.New(fault.Unavailable, "the worker's answer cannot be used: %w", err)
	}
	return info, nil
}

// WriteFile implements sandbox.Filer.
func (f *files) WriteFile(ctx context.Context, path string, mode uint32, body io.Reader) (sandbox.FileInfo, error) {
	return upload(ctx, f.stream, "file/write", fileCall{ID: f.id, Path: path, Mode: mode}, fileCall.check, body, dispatch.CheckFileInfo)
}

// Mkdir implements sandbox.Filer.
func (f *files) Mkdir(ctx context.Context, path string, mode uint32) error {
	_, err := ask(ctx, f.stream, "file/mkdir", fileCall{ID: f.id, Path: path, Mode: mode}, fileCall.check, fine)
	return err
}

// Move implements sandbox.Filer.
func (f *files) Move(ctx context.Context, from, to string) error {
	_, err := ask(ctx, f.stream, "file/move", fileCall{ID: f.id, Path: from, To: to}, fileCall.checkBoth, fine)
	return err
}

// Copy implements sandbox.Filer.
func (f *files) Copy(ctx context.Context, from, to string) error {
	_, err := ask(ctx, f.stream, "file/copy", fileCall{ID: f.id, Path: from, To: to}, fileCall.checkBoth, fine)
	return err
}

// Remove implements sandbox.Filer.
func (f *files) Remove(ctx context.Context, path string, recursive bool) error {
	_, err := ask(ctx, f.stream, "file/remove", fileCall{ID: f.id, Path: path, Recursive: recursive}, fileCall.check, fine)
	return err
}

// Watch implements sandbox.Filer. What it tells comes as lines of JSON.
func (f *files) Watch(ctx context.Context, path string, recursive bool) (sandbox.Watch, error) {
	in := fileCall{ID: f.id, Path: path, Recursive: recursive}
	if err := in.check(); err != nil {
		return nil, err
	}
	body, err := encode(in)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	resp, err := f.stream.post(life, "file/watch", body) //nolint:bodyclose // the watch closes it
	if err == nil && resp.StatusCode != http.StatusOK {
		err = readProblem(resp)
		_ = resp.Body.Close()
	}
	if !stop() && err == nil {
		err = cutOff(ctx, "file/watch", errHungUp)
		_ = resp.Body.Close()
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	w := &watching{changes: make(chan sandbox.Change), over: make(chan struct{}), close: func() {
		cancel(errHungUp)
		_ = resp.Body.Close()
	}}
	go w.receive(life, resp.Body)
	return w, nil
}

// watching is a watch from afar.
type watching struct {
	changes chan sandbox.Change
	over    chan struct{} // closed when nothing more comes
	err     error         // set before over is closed
	close   func()
	once    sync.Once
}

// changeLine is one line: a change, or why there are no more.
type changeLine struct {
	Change  *sandbox.Change `json:"change,omitempty"`
	Problem *problem        `json:"problem,omitempty"`
	End     bool            `json:"end,omitempty"`
}

func (w *watching) receive(ctx context.Context, r io.Reader) {
	defer close(w.over)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxChangeLine)
	for lines.Scan() {
		var l changeLine
		err := json.Unmarshal(lines.Bytes(), &l)
		if err == nil && l.Change != nil {
			err = dispatch.CheckChange(*l.Change)
		}
		switch {
		case err != nil:
			w.err = fault.New(fault.Unavailable, "watch: the worker's answer is not what a worker says: %w", err)
			return
		case l.Problem != nil:
			w.err = l.Problem.fault()
			return
		case l.End:
			w.err = io.EOF
			return
		case l.Change == nil:
			continue
		}
		select {
		case w.changes <- *l.Change:
		case <-ctx.Done():
		}
	}
	w.err = cutOff(context.WithoutCancel(ctx), "watch", errCutShort)
	if errors.Is(context.Cause(ctx), errHungUp) {
		w.err = io.EOF
	}
}

// Next implements sandbox.Watch.
func (w *watching) Next(ctx context.Context) (sandbox.Change, error) {
	select {
	case c := <-w.changes:
		return c, nil
	case <-w.over:
		return sandbox.Change{}, w.err
	case <-ctx.Done():
		return sandbox.Change{}, context.Cause(ctx)
	}
}

// Close implements sandbox.Watch.
func (w *watching) Close() error {
	w.once.Do(w.close)
	<-w.over
	return nil
}
