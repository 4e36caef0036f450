package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// FileBody is a file of a sandbox. All of it comes from inside.
type FileBody struct {
	Path       string           `json:"path"`
	Name       string           `json:"name"`
	Type       sandbox.FileType `json:"type" enum:"file,dir,link,other"`
	Size       int64            `json:"size"`
	Mode       string           `json:"mode" doc:"Its permissions, in octal." example:"0644"`
	ModifiedAt time.Time        `json:"modified_at"`
	Target     *string          `json:"target" doc:"Of a link, as it stands there."`
}

func fileBody(f sandbox.FileInfo) FileBody {
	return FileBody{
		Path: strings.ToValidUTF8(f.Path, "\uFFFD"), Name: strings.ToValidUTF8(f.Name, "\uFFFD"), Type: f.Type, Size: f.Size,
		Mode: fmt.Sprintf("%04o", f.Mode), ModifiedAt: f.ModTime.UTC(), Target: orNull(strings.ToValidUTF8(f.Target, "\uFFFD")),
	}
}

// FilePath is the input of an operation on one file.
type FilePath struct {
	SandboxPath
	Path string `query:"path" required:"true" maxLength:"4095" doc:"An absolute path in the sandbox." example:"/workspace/notes.txt"`
}

type fileOutput struct{ Body FileBody }

// filesFor are the files of the sandbox in the path of a request.
func (a *API) filesFor(ctx context.Context, id string, paths ...string) (sandbox.Filer, error) {
	for _, p := range paths {
		if err := checkAbsolute(p); err != nil {
			return nil, err
		}
	}
	return a.cfg.Keeper.Files(ctx, id)
}

func (a *API) registerFiles() {
	const base = "/sandboxes/{sandbox}/files"
	register(a, route{
		method: http.MethodGet, path: base, action: policy.Read, id: "listFiles", tag: "files", summary: "List the files of a sandbox",
	}, a.listFiles)
	register(a, route{
		method: http.MethodDelete, path: base, action: policy.Control, id: "removeFile", tag: "files", status: http.StatusNoContent, summary: "Remove a file or a folder",
	}, a.removeFile)
	register(a, route{
		method: http.MethodGet, path: base + "/stat", action: policy.Read, id: "statFile", tag: "files", summary: "Look at a file",
	}, a.statFile)
	register(a, route{
		method: http.MethodGet, path: base + "/content", action: policy.Read, id: "readFile", tag: "files", summary: "Read a file",
		detail: "The exact bytes, or a range of them with the header Range; one that begins behind the end is 416. Links are followed inside the sandbox; only regular files are read.", answers: []string{"application/octet-stream"},
	}, a.readFile)
	register(a, route{
		method: http.MethodPut, path: base + "/content", action: policy.Control, id: "writeFile", tag: "files", summary: "Write a file",
		detail: "The body is what it holds, as a stream of any length. It is there whole or not at all; folders on the way are made.",
	}, a.writeFile)
	register(a, route{
		method: http.MethodPost, path: base + "/mkdir", action: policy.Control, id: "makeFolder", tag: "files", summary: "Make a folder", status: http.StatusNoContent, body: MkdirBody{},
	}, a.makeFolder)
	register(a, route{
		method: http.MethodPost, path: base + "/move", action: policy.Control, id: "moveFile", tag: "files", summary: "Move or rename", status: http.StatusNoContent, body: FromToBody{},
	}, a.moveFile)
	register(a, route{
		method: http.MethodPost, path: base + "/copy", action: policy.Control, id: "copyFile", tag: "files", summary: "Copy a file or a folder", status: http.StatusNoContent, body: FromToBody{},
	}, a.copyFile)
	register(a, route{
		method: http.MethodPost, path: base + "/patch", action: policy.Control, id: "patchFiles", tag: "files", summary: "Apply a unified diff",
		detail: "The body is the diff, as git or diff -u write it; its names are below path. All of it is applied, or, where something does not fit, nothing: 409 with patch_conflict.",
	}, a.patchFiles)
	register(a, route{
		method: http.MethodGet, path: base + "/watch", action: policy.Read, id: "watchFiles", tag: "files", summary: "Follow what happens to files", answers: []string{sse},
		detail: "A stream of events created, modified, deleted, renamed, whose data is {\"path\", \"from\", \"type\"}; overflow says that some were missed, so that a look is needed.",
	}, a.watchFiles)
}

type listFilesInput struct {
	FilePath
	Depth int `query:"depth" minimum:"1" maximum:"256" default:"1" doc:"How deep; 1 is the folder's own entries."`
	Limit int `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"At most so many."`
}

// FilesBody is a listing.
type FilesBody struct {
	Path  string     `json:"path"`
	Files []FileBody `json:"files" nullable:"false"`
	More  bool       `json:"more" doc:"Whether there are more than were asked for."`
}

type listFilesOutput struct{ Body FilesBody }

func (a *API) listFiles(ctx context.Context, in *listFilesInput) (*listFilesOutput, error) {
	f, err := a.filesFor(ctx, in.ID, in.Path)
	if err != nil {
		return nil, err
	}
	list, more, err := f.List(ctx, in.Path, in.Depth, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &listFilesOutput{Body: FilesBody{Path: in.Path, Files: make([]FileBody, 0, len(list)), More: more}}
	for _, x := range list {
		out.Body.Files = append(out.Body.Files, fileBody(x))
	}
	return out, nil
}

func (a *API) statFile(ctx context.Context, in *FilePath) (*fileOutput, error) {
	f, err := a.filesFor(ctx, in.ID, in.Path)
	if err != nil {
		return nil, err
	}
	x, err := f.Stat(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	return &fileOutput{Body: fileBody(x)}, nil
}

type removeFileInput struct {
	FilePath
	Recursive bool `query:"recursive" doc:"Whether a folder goes with all below it."`
}

func (a *API) removeFile(ctx context.Context, in *removeFileInput) (*struct{}, error) {
	f, err := a.filesFor(ctx, in.ID, in.Path)
	if err != nil {
		return nil, err
	}
	return nil, f.Remove(ctx, in.Path, in.Recursive)
}

type readFileInput struct {
	FilePath
	Range string `header:"Range" maxLength:"100" doc:"bytes=FIRST-LAST; one range."`
}

func (a *API) readFile(ctx context.Context, in *readFileInput) (*huma.StreamResponse, error) {
	f, err := a.filesFor(ctx, in.ID, in.Path)
	if err != nil {
		return nil, err
	}
	offset, length, ranged, err := parseRange(in.Range)
	if err != nil {
		return nil, err
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		a.sendFile(ctx, in, f, offset, length, ranged)
	}}, nil
}

// sendFile sends a file or a range of it.
func (a *API) sendFile(ctx context.Context, in *readFileInput, f sandbox.Filer, offset, length int64, ranged bool) {
	out := &lateWriter{slow: newSlowWriter(in.w), begin: func(h http.Header) {
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Accept-Ranges", "bytes")
	}}
	defer out.slow.done()
	if ranged {
		// Nothing of it is read yet: only who opens it knows the size behind a link.
		info, err := f.ReadFile(ctx, in.Path, 0, 0, io.Discard)
		if err == nil {
			offset, length, err = out.cut(offset, length, info.Size)
		}
		if err != nil {
			a.refuse(in.w, in.r, err)
			return
		}
	}
	if _, err := f.ReadFile(ctx, in.Path, offset, length, out); err != nil {
		if !out.begun {
			a.refuse(in.w, in.r, err)
			return
		}
		guard.NoteError(ctx, err)
		panic(http.ErrAbortHandler) //nolint:forbidigo // the only way to say that the stream is cut short
	}
	out.start()
}

// cut makes the answer one of a range of a file, and says what is to be read for
// it: what of the range the file has. An empty file is answered whole: there are
// clients that ask for the beginning of everything.
func (w *lateWriter) cut(offset, length, size int64) (first, count int64, err error) {
	if size <= 0 {
		return 0, -1, nil
	}
	if first = offset; first < 0 { // the last so many bytes
		first = max(size+first, 0)
	}
	if first >= size {
		w.slow.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return 0, 0, problem.New(http.StatusRequestedRangeNotSatisfiable, "range_not_satisfiable", fmt.Sprintf("The file has %d bytes, and the range begins behind them.", size))
	}
	if count = size - first; length >= 0 {
		count = min(count, length)
	}
	whole := w.begin
	w.status, w.begin = http.StatusPartialContent, func(h http.Header) {
		whole(h)
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+count-1, size))
	}
	return first, count, nil
}

// parseRange reads one range of bytes: offset and length, length -1 to the end;
// a negative offset counts from there.
func parseRange(text string) (offset, length int64, ranged bool, err error) {
	if text == "" {
		return 0, -1, false, nil
	}
	bad := fault.Field("header.Range", "must be one range, such as bytes=0-99")
	spec, ok := strings.CutPrefix(strings.TrimSpace(text), "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	if !ok || !dash || strings.Contains(last, ",") {
		return 0, 0, false, bad
	}
	if first == "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 1 {
			return 0, 0, false, bad
		}
		return -n, -1, true, nil
	}
	offset, err = strconv.ParseInt(first, 10, 64)
	if err != nil || offset < 0 {
		return 0, 0, false, bad
	}
	if last == "" {
		return offset, -1, true, nil
	}
	end, err := strconv.ParseInt(last, 10, 64)
	if err != nil || end < offset {
		return 0, 0, false, bad
	}
	return offset, end - offset + 1, true, nil
}

type writeFileInput struct {
	FilePath
	Mode     string `query:"mode" maxLength:"5" doc:"Its permissions, in octal; as they were, or 0644, where it is left out." example:"0755"`
	Snapshot bool   `query:"snapshot_before_write" doc:"Take a snapshot of the files before, and name it in the header X-Snapshot."`
}

type writeFileOutput struct {
	Snapshot string `header:"X-Snapshot"`
	Body     FileBody
}

func (a *API) writeFile(ctx context.Context, in *writeFileInput) (*writeFileOutput, error) {
	mode, err := parseMode("query.mode", in.Mode)
	if err != nil {
		return nil, err
	}
	f, err := a.filesFor(ctx, in.ID, in.Path)
	if err != nil {
		return nil, err
	}
	out := &writeFileOutput{}
	if in.Snapshot {
		snap, err := a.cfg.Keeper.BeforeWrite(ctx, in.ID, in.Path)
		if err != nil {
			return nil, err
		}
		out.Snapshot = snap.ID
	}
	x, err := f.WriteFile(ctx, in.Path, mode, &slowReader{r: in.r.Body, control: http.NewResponseController(in.w)})
	if err != nil {
		return nil, err
	}
	out.Body = fileBody(x)
	return out, nil
}

func parseMode(field, text string) (uint32, error) {
	if text == "" {
		return 0, nil
	}
	const octal, bits = 8, 32
	mode, err := strconv.ParseUint(text, octal, bits)
	if err != nil || mode > sandbox.MaxFileMode || mode == 0 {
		return 0, fault.Field(field, "must be permissions in octal, such as 0644")
	}
	return uint32(mode), nil
}

// MkdirBody names a folder.
type MkdirBody struct {
	Path string `json:"path" doc:"Absolute; folders on the way are made too."`
	Mode string `json:"mode,omitempty" doc:"Its permissions, in octal; 0755 where it is left out."`
}

func (a *API) makeFolder(ctx context.Context, in *SandboxPath) (*struct{}, error) {
	var body MkdirBody
	if err := in.into(&body); err != nil {
		return nil, err
	}
	mode, err := parseMode("mode", body.Mode)
	if err != nil {
		return nil, err
	}
	if mode == 0 {
		mode = 0o755
	}
	f, err := a.filesFor(ctx, in.ID, body.Path)
	if err != nil {
		return nil, err
	}
	return nil, f.Mkdir(ctx, body.Path, mode)
}

// FromToBody names two paths.
type FromToBody struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (a *API) moveFile(ctx context.Context, in *SandboxPath) (*struct{}, error) {
	return nil, a.fromTo(ctx, in, sandbox.Filer.Move)
}

func (a *API) copyFile(ctx context.Context, in *SandboxPath) (*struct{}, error) {
	return nil, a.fromTo(ctx, in, sandbox.Filer.Copy)
}

func (a *API) fromTo(ctx context.Context, in *SandboxPath, do func(sandbox.Filer, context.Context, string, string) error) error {
	var body FromToBody
	if err := in.into(&body); err != nil {
		return err
	}
	f, err := a.filesFor(ctx, in.ID, body.From, body.To)
	if err != nil {
		return err
	}
	return do(f, ctx, body.From, body.To)
}

type watchFilesInput struct {
	FilePath
	Recursive bool `query:"recursive" doc:"Whether all below it is watched too."`
}

func (a *API) watchFiles(ctx context.Context, in *watchFilesInput) (*huma.StreamResponse, error) {
	f, err := a.filesFor(ctx, in.ID, in.Path)
	if err != nil {
		return nil, err
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	w, err := f.Watch(ctx, in.Path, in.Recursive)
	if err != nil {
		leave()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		defer w.Close() //nolint:errcheck // nobody watches any more
		s := &execStream{out: &eventWriter{out: newSlowWriter(in.w)}}
		defer s.out.out.done()
		if err := a.sendChanges(ctx, s, w); err != nil && ctx.Err() == nil {
			guard.NoteError(ctx, err)
		}
	}}, nil
}

func (a *API) sendChanges(ctx context.Context, s *execStream, w sandbox.Watch) error {
	s.out.out.Header().Set("Content-Type", sse)
	s.out.out.Header().Set("X-Accel-Buffering", "no")
	s.out.out.WriteHeader(http.StatusOK)
	if err := s.out.comment(); err != nil {
		return err
	}
	ctx, over := a.untilEnding(ctx)
	defer over()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		s.keepAlive(ctx)
	}()
	defer func() { <-idle }()
	defer over()
	for {
		c, err := w.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		facts := map[string]any{"path": c.Path}
		if c.From != "" {
			facts["from"] = c.From
		}
		if c.Type != "" {
			facts["type"] = c.Type
		}
		if err := s.send(string(c.Kind), facts); err != nil {
			return err
		}
	}
}

type patchInput struct {
	SandboxPath
	Path     string `query:"path" maxLength:"4095" default:"/workspace" doc:"The folder that the names in the diff are below."`
	Snapshot bool   `query:"snapshot_before_write" doc:"Take a snapshot of the files before, and name it in the header X-Snapshot."`
}

// PatchedBody is what a patch did to one file.
type PatchedBody struct {
	Path   string  `json:"path"`
	From   *string `json:"from" doc:"What it was called, if it was renamed."`
	Change string  `json:"change" enum:"created,modified,deleted,renamed"`
}

type patchOutput struct {
	Snapshot string        `header:"X-Snapshot"`
	Body     []PatchedBody `nullable:"false"`
}

func (a *API) patchFiles(ctx context.Context, in *patchInput) (*patchOutput, error) {
	if err := checkAbsolute(in.Path); err != nil {
		return nil, err
	}
	if in.r.ContentLength > maxFeed {
		return nil, bodyFault(&http.MaxBytesError{Limit: maxFeed}, maxFeed)
	}
	diff := &slowReader{r: http.MaxBytesReader(in.w, in.r.Body, maxFeed), control: http.NewResponseController(in.w)}
	out := &patchOutput{Body: []PatchedBody{}}
	if in.Snapshot {
		snap, err := a.cfg.Keeper.BeforeWrite(ctx, in.ID, in.Path)
		if err != nil {
			return nil, err
		}
		out.Snapshot = snap.ID
	}
	list, err := a.cfg.Keeper.PatchFiles(ctx, in.ID, in.Path, diff)
	if over := (*http.MaxBytesError)(nil); errors.As(err, &over) {
		return nil, bodyFault(err, maxFeed)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		out.Body = append(out.Body, PatchedBody{Path: p.Path, From: orNull(p.From), Change: p.Change})
	}
	return out, nil
}
