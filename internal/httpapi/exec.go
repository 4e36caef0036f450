package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// maxExecText is how much of each stream stands in the answer about an exec.
const maxExecText = 1 << 20

// ExecPath is the input of an operation on one exec.
type ExecPath struct {
	SandboxPath
	Exec string `path:"exec" doc:"The id of the exec." format:"uuid"`
}

type execOutput struct{ Body ExecBody }

func (a *API) registerExecs() {
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/execs", action: policy.Submit, class: classExec, id: "startExec", tag: "execs", status: http.StatusCreated,
		summary: "Start a command in a sandbox", body: CreateExecBody{}, example: map[string]any{"command": []string{"echo", "hello"}},
		detail: "Answers at once with its id, or with wait when it has ended, or after so many seconds as it stands. Who hangs up stops nothing. A command that fails, runs out of time or memory is a result, not an error.",
	}, a.startExec)
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}/execs", action: policy.Read, own: true, id: "listExecs", tag: "execs", summary: "List the execs of a sandbox, newest first",
	}, a.listExecs)
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}/execs/{exec}", action: policy.Read, own: true, id: "getExec", tag: "execs", summary: "Look at an exec",
		detail: "Also when its sandbox is gone. With wait it answers when it has ended, or after so many seconds as it stands.",
	}, a.getExec)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/execs/{exec}/input", action: policy.Control, class: classExec, id: "feedExec", tag: "execs", status: http.StatusNoContent,
		summary: "Write to the standard input of an exec",
		detail:  "The body is what is written, as it is. With offset, which counts what was written before, a request that is said again writes nothing twice.",
	}, a.feedExec)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/execs/{exec}/resize", action: policy.Control, id: "resizeExec", tag: "execs", status: http.StatusNoContent,
		summary: "Set the size of an exec's terminal", body: ResizeBody{},
	}, a.resizeExec)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/execs/{exec}/signal", action: policy.Control, id: "signalExec", tag: "execs", status: http.StatusNoContent,
		summary: "Send a signal to an exec", body: SignalBody{},
	}, a.signalExec)
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/execs/{exec}/kill", action: policy.Control, id: "killExec", tag: "execs",
		summary: "End an exec with all of its descendants", detail: "Answers with the exec when it has ended. One that had ended stays as it is.",
	}, a.killExec)
	a.registerExecOutput()
}

type startExecInput struct {
	SandboxPath
	IdempotencyKey string  `header:"Idempotency-Key" maxLength:"200" doc:"The same key with the same body answers the exec of the first time, and starts nothing twice."`
	Wait           float64 `query:"wait" minimum:"0" maximum:"3600" doc:"Seconds to wait for the end."`
}

type startExecOutput struct {
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed"`
	Body     ExecBody
}

func (a *API) startExec(ctx context.Context, in *startExecInput) (*startExecOutput, error) {
	if err := checkPrintable("header.Idempotency-Key", in.IdempotencyKey); err != nil {
		return nil, err
	}
	if err := checkNumber("query.wait", in.Wait); err != nil {
		return nil, err
	}
	raw, err := in.read()
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fault.New(fault.Invalid, "The body is empty; send a JSON object with a command.").WithCode("no_body")
	}
	var body CreateExecBody
	if err := bind(raw, &body); err != nil {
		return nil, err
	}
	c, err := body.command(in.ID)
	if err != nil {
		return nil, err
	}
	asked := run.Asked{Key: in.IdempotencyKey, Digest: digest(http.MethodPost+" /sandboxes/"+in.ID+"/execs", raw)}
	begin := a.cfg.Keeper.StartExec
	if in.Wait > 0 {
		begin = a.cfg.Keeper.RunExec
	}
	e, replayed, err := begin(ctx, c, asked)
	if err != nil {
		return nil, err
	}
	out := &startExecOutput{Status: http.StatusCreated, Location: version + "/sandboxes/" + in.ID + "/execs/" + e.ID}
	if replayed {
		out.Status, out.Replayed = http.StatusOK, "true"
	}
	out.Body, err = a.execAnswer(ctx, e, in.Wait)
	return out, err
}

// execAnswer is an exec as it stands, or waits for its end.
func (a *API) execAnswer(ctx context.Context, e live.Exec, wait float64) (ExecBody, error) {
	if wait > 0 && e.State != live.Done {
		leave, err := a.streams.enter(ctx)
		if err != nil {
			return ExecBody{}, err
		}
		defer leave()
		bounded, cancel := context.WithTimeoutCause(ctx, time.Duration(wait*float64(time.Second)), errWaited)
		defer cancel()
		waiting, over := a.untilEnding(bounded)
		defer over()
		if e, err = a.cfg.Keeper.WaitExec(waiting, e.ID); err != nil && !errors.Is(err, errWaited) {
			return ExecBody{}, err
		}
	}
	b := execBody(&e)
	for _, x := range []struct {
		stream sandbox.Stream
		body   *ExecTextBody
	}{{sandbox.Stdout, b.Stdout}, {sandbox.Stderr, b.Stderr}} {
		if x.body == nil {
			continue
		}
		data, err := a.cfg.Keeper.ExecOutput(ctx, &e, x.stream, maxExecText)
		if fault.Is(err, fault.Gone) {
			continue
		}
		if err != nil {
			return b, err
		}
		text := legible(data)
		x.body.Text, x.body.Cut = &text, int64(len(data)) < x.body.Bytes
	}
	return b, nil
}

type getExecInput struct {
	ExecPath
	Wait float64 `query:"wait" minimum:"0" maximum:"3600" doc:"Seconds to wait for the end."`
}

// exec returns an exec of the sandbox in the path.
func (a *API) exec(ctx context.Context, in *ExecPath) (live.Exec, error) {
	e, err := a.cfg.Keeper.Exec(ctx, in.Exec)
	if err == nil && e.Sandbox != in.ID {
		err = fault.New(fault.NotFound, "The sandbox %s has no exec with the id %q.", in.ID, in.Exec)
	}
	return e, err
}

func (a *API) getExec(ctx context.Context, in *getExecInput) (*execOutput, error) {
	if err := checkNumber("query.wait", in.Wait); err != nil {
		return nil, err
	}
	e, err := a.exec(ctx, &in.ExecPath)
	if err != nil {
		return nil, err
	}
	b, err := a.execAnswer(ctx, e, in.Wait)
	if err != nil {
		return nil, err
	}
	return &execOutput{Body: b}, nil
}

type listExecsInput struct {
	SandboxPath
	State  string `query:"state" enum:"STARTING,RUNNING,ENDED" doc:"Only those in this state."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
	Cursor string `query:"cursor" maxLength:"100" doc:"Where to go on, from the Link header of the page before."`
}

type listExecsOutput struct {
	Link string     `header:"Link"`
	Body []ExecBody `nullable:"false"`
}

func (a *API) listExecs(ctx context.Context, in *listExecsInput) (*listExecsOutput, error) {
	if _, err := a.cfg.Keeper.Sandbox(ctx, in.ID); err != nil {
		return nil, err
	}
	if in.Cursor != "" && checkID("exec", in.Cursor) != nil {
		return nil, fault.Field("query.cursor", "is not a cursor of ours; take it from the Link header of the page before").WithCode("bad_cursor")
	}
	list, err := a.cfg.Keeper.Execs(ctx, store.ExecFilter{Sandbox: in.ID, State: live.ExecState(in.State), Before: in.Cursor, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	out := &listExecsOutput{Body: []ExecBody{}}
	if len(list) > in.Limit || store.Full(list, store.ExecBytes) {
		list = list[:min(len(list), in.Limit)]
		out.Link = nextLink(in.r.URL, "cursor", list[len(list)-1].ID)
	}
	for i := range list {
		out.Body = append(out.Body, execBody(&list[i]))
	}
	return out, nil
}

type feedExecInput struct {
	ExecPath
	Offset int64 `query:"offset" minimum:"-1" default:"-1" doc:"How many bytes were written before; -1 is as many as there were."`
	Close  bool  `query:"close" doc:"Whether the input ends with this."`
}

const (
	// maxFeed bounds what one request writes.
	maxFeed = 16 << 20
	// feedPiece is how much of it is held at a time: a command that reads
	// nothing must not fill our memory with what many send it.
	feedPiece = 256 << 10
)

func (a *API) feedExec(ctx context.Context, in *feedExecInput) (*struct{}, error) {
	if _, err := a.exec(ctx, &in.ExecPath); err != nil {
		return nil, err
	}
	if in.r.ContentLength > maxFeed {
		return nil, bodyFault(&http.MaxBytesError{Limit: maxFeed}, maxFeed)
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	body := &slowReader{r: http.MaxBytesReader(in.w, in.r.Body, maxFeed), control: http.NewResponseController(in.w)}
	offset, piece := in.Offset, make([]byte, feedPiece)
	for {
		n, err := io.ReadFull(body, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return nil, bodyFault(err, maxFeed)
		}
		if err := a.cfg.Keeper.FeedExec(ctx, in.Exec, offset, piece[:n], in.Close && last); err != nil || last {
			return nil, err
		}
		if offset >= 0 {
			offset += int64(n)
		}
	}
}

// bodyFault is what is wrong with a body that could not be read.
func bodyFault(err error, most int64) error {
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return fault.New(fault.TooLarge, "The body can have at most %d bytes.", most).WithCode("body_too_large")
	}
	return fault.New(fault.Invalid, "The body could not be read: %w", err).WithCode("bad_body")
}

// ResizeBody is the size of a terminal.
type ResizeBody struct {
	Cols int64 `json:"cols" minimum:"1" maximum:"1000"`
	Rows int64 `json:"rows" minimum:"1" maximum:"1000"`
}

func (a *API) resizeExec(ctx context.Context, in *ExecPath) (*struct{}, error) {
	var body ResizeBody
	if err := in.into(&body); err != nil {
		return nil, err
	}
	if _, err := a.exec(ctx, in); err != nil {
		return nil, err
	}
	return nil, a.resize(ctx, in.Exec, body)
}

func (a *API) resize(ctx context.Context, id string, b ResizeBody) error {
	if b.Cols < 1 || b.Cols > 1000 || b.Rows < 1 || b.Rows > 1000 {
		return fault.Field("cols", "cols and rows must be from 1 to 1000")
	}
	return a.cfg.Keeper.ResizeExec(ctx, id, uint16(b.Cols), uint16(b.Rows)) //nolint:gosec // bounded above
}

// SignalBody is a signal.
type SignalBody struct {
	Signal int64 `json:"signal" minimum:"1" maximum:"64" doc:"Its number: 2 is an interrupt, 15 asks to end, 9 ends."`
	Tree   bool  `json:"tree,omitempty" doc:"Whether all descendants get it too."`
}

func (a *API) signalExec(ctx context.Context, in *ExecPath) (*struct{}, error) {
	var body SignalBody
	if err := in.into(&body); err != nil {
		return nil, err
	}
	if _, err := a.exec(ctx, in); err != nil {
		return nil, err
	}
	return nil, a.cfg.Keeper.SignalExec(ctx, in.Exec, int(body.Signal), body.Tree)
}

func (a *API) killExec(ctx context.Context, in *ExecPath) (*execOutput, error) {
	if _, err := a.exec(ctx, in); err != nil {
		return nil, err
	}
	c, _ := policy.From(ctx)
	e, err := a.cfg.Keeper.KillExec(ctx, in.Exec, c.ID)
	if err != nil {
		return nil, err
	}
	b, err := a.execAnswer(ctx, e, 0)
	if err != nil {
		return nil, err
	}
	return &execOutput{Body: b}, nil
}

func (a *API) registerTar() {
	register(a, route{
		method: http.MethodGet, path: "/sandboxes/{sandbox}/tar", action: policy.Read, id: "downloadFiles", tag: "files", summary: "Download files of a sandbox as a tar",
		detail: "A folder with all below it, or one file. What is in it comes from inside the sandbox: unpack it with care.", answers: []string{"application/x-tar"},
	}, a.downloadTar)
	register(a, route{
		method: http.MethodPut, path: "/sandboxes/{sandbox}/tar", action: policy.Control, id: "uploadFiles", tag: "files", status: http.StatusNoContent, summary: "Unpack a tar into a sandbox",
		detail: "The body is a tar, as a stream of any length; it is unpacked below path, which is made if need be. Nothing in it leads out of path.",
	}, a.uploadTar)
}

type tarInput struct {
	SandboxPath
	Path string `query:"path" maxLength:"4095" default:"/workspace" doc:"Where in the sandbox."`
}

func (a *API) downloadTar(ctx context.Context, in *tarInput) (*huma.StreamResponse, error) {
	if err := checkAbsolute(in.Path); err != nil {
		return nil, err
	}
	if _, err := a.cfg.Keeper.Sandbox(ctx, in.ID); err != nil {
		return nil, err
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		out := &lateWriter{slow: newSlowWriter(in.w), begin: func(h http.Header) { h.Set("Content-Type", "application/x-tar") }}
		defer out.slow.done()
		if err := a.cfg.Keeper.GetFiles(ctx, in.ID, in.Path, out); err != nil {
			if !out.begun {
				a.refuse(in.w, in.r, err)
				return
			}
			guard.NoteError(ctx, err)
			panic(http.ErrAbortHandler) //nolint:forbidigo // the only way to say that the stream is cut short
		}
		out.start()
	}}, nil
}

// lateWriter begins an answer with its first byte, so that what fails before is
// answered as a problem.
type lateWriter struct {
	slow   *slowWriter
	begin  func(http.Header)
	status int // 0 is 200
	begun  bool
}

func (w *lateWriter) start() {
	if !w.begun {
		w.begun = true
		w.begin(w.slow.Header())
		w.slow.WriteHeader(cmp.Or(w.status, http.StatusOK))
	}
}

func (w *lateWriter) Write(p []byte) (int, error) {
	w.start()
	return w.slow.Write(p)
}

func (a *API) uploadTar(ctx context.Context, in *tarInput) (*struct{}, error) {
	if err := checkAbsolute(in.Path); err != nil {
		return nil, err
	}
	return nil, a.cfg.Keeper.PutFiles(ctx, in.ID, in.Path, &slowReader{r: in.r.Body, control: http.NewResponseController(in.w)})
}

// slowReader gives each read its own time, so that an upload may last but one
// that has stalled is let go.
type slowReader struct {
	r       io.Reader
	control *http.ResponseController
}

func (s *slowReader) Read(p []byte) (int, error) {
	_ = s.control.SetReadDeadline(time.Now().Add(writeTimeout)) // where the connection can
	return s.r.Read(p)
}
