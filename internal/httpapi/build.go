package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Builder has images made from Dockerfiles.
type Builder interface {
	// BuildImage has the named worker build, or any where none is named.
	BuildImage(ctx context.Context, worker string, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error)
}

// BuildBody asks for an image.
type BuildBody struct {
	Dockerfile string  `json:"dockerfile,omitempty" doc:"Which Dockerfile of the server: sandbox (the default), node-expo, or one that the operator put into AUREA_DOCKERFILES."`
	Image      string  `json:"image,omitempty" doc:"What the image is called. By default SANDBOX_IMAGE for sandbox, else the name of the Dockerfile."`
	Args       TextMap `json:"args,omitempty" doc:"Values of the Dockerfile's ARGs, such as BASE."`
	Fresh      bool    `json:"fresh,omitempty" doc:"Use nothing that an earlier build left."`
	Worker     string  `json:"worker,omitempty" doc:"Which worker builds, for images are a machine's own. By default one that is connected."`
}

// BuiltBody is what a build came to.
type BuiltBody struct {
	Message string `json:"message"`
	Image   string `json:"image"`
	Digest  string `json:"digest"`
	Size    int64  `json:"size" doc:"Bytes of its layers, packed."`
}

type buildInput struct {
	Exchange
	Image      string   `query:"image" doc:"With an archive: what the image is called."`
	Dockerfile string   `query:"dockerfile" doc:"With an archive: where in it the Dockerfile is."`
	Args       []string `query:"arg,explode" doc:"With an archive: the value of an ARG, as NAME=VALUE."`
	Fresh      bool     `query:"fresh" doc:"With an archive: use nothing that an earlier build left."`
	Worker     string   `query:"worker" doc:"With an archive: which worker builds."`
}

func (a *API) registerBuild() {
	register(a, route{
		method: http.MethodPost, path: "/build-image", action: policy.Manage, id: "buildImage", tag: "images", summary: "Build an image from a Dockerfile",
		detail: "A worker builds it through the Docker Engine of its machine, and takes it over as one of its images. The body names a Dockerfile of the server; or it is an archive (application/x-tar, packed with gzip or not, at most 64 MiB) with a Dockerfile in it, and the query says the rest. " +
			"With Accept: application/x-ndjson or text/event-stream each step is told as it happens, and the last line or event is the result or the problem. " +
			"404 with the code no_dockerfile; 422 with build_failed, which names the line; 429 while another build goes on; 503 with no_engine and the remedy where there is no Docker Engine.",
		body: BuildBody{}, optional: true, example: BuildBody{Dockerfile: build.Default},
		answers: []string{ndjson, sse}, one: BuiltBody{},
	}, a.buildImage)
}

const (
	ndjson = "application/x-ndjson"
	sse    = "text/event-stream"
)

// maxUpload bounds an archive as it comes: names and padding count too.
const maxUpload = 2 * build.MaxContext

func (a *API) buildImage(ctx context.Context, in *buildInput) (*huma.StreamResponse, error) {
	order, worker, upload, err := in.order()
	if err != nil {
		return nil, err
	}
	if err := order.Check(); err != nil {
		return nil, err
	}
	if kind := streamKind(in.r); kind != "" {
		leave, err := a.streams.enter(ctx)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(huma.Context) {
			defer leave()
			s := &stepWriter{out: newSlowWriter(in.w), kind: kind}
			defer s.out.done()
			a.streamBuild(ctx, s, worker, order, upload)
		}}, nil
	}
	r, err := a.cfg.Manager.BuildImage(ctx, worker, order, upload, func(build.Step) error { return nil })
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { writeJSON(in.w, http.StatusOK, built(r)) }}, nil
}

func built(r build.Result) BuiltBody {
	return BuiltBody{Message: "Image " + r.Image + " built successfully", Image: r.Image, Digest: r.Digest, Size: r.Size}
}

// order reads what is asked: from a JSON body, or from the query where the body
// is an archive.
func (in *buildInput) order() (build.Order, string, io.Reader, error) {
	kind, _, _ := mime.ParseMediaType(in.r.Header.Get("Content-Type"))
	if slices.Contains([]string{"application/x-tar", "application/tar", "application/gzip", "application/x-gzip", "application/x-gtar"}, kind) {
		args, err := pairs(in.Args)
		if err != nil {
			return build.Order{}, "", nil, err
		}
		body := &archiveBody{r: io.LimitReader(in.r.Body, maxUpload), control: http.NewResponseController(in.w)}
		_ = body.control.EnableFullDuplex() // a sign of life may go out while it still comes in
		return build.Order{Tag: in.Image, Dockerfile: in.Dockerfile, Args: args, Fresh: in.Fresh, Uploaded: true}, in.Worker, body, nil
	}
	if in.Image != "" || in.Dockerfile != "" || len(in.Args) > 0 || in.Fresh || in.Worker != "" {
		return build.Order{}, "", nil, fault.Field("query", "is for archives; send application/x-tar, or say it in the body")
	}
	var body BuildBody
	if err := in.maybeInto(&body); err != nil {
		return build.Order{}, "", nil, err
	}
	return build.Order{Name: body.Dockerfile, Tag: body.Image, Args: body.Args, Fresh: body.Fresh}, body.Worker, nil, nil
}

func pairs(texts []string) (map[string]string, error) {
	found := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fault.Field("arg", "%.80q is not NAME=VALUE", text)
		}
		found[name] = value
	}
	return found, nil
}

// streamKind is the kind of stream that the client asks for; "" is none.
func streamKind(r *http.Request) string {
	for _, v := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(v, ",") {
			if kind, _, err := mime.ParseMediaType(part); err == nil && (kind == ndjson || kind == sse) {
				return kind
			}
		}
	}
	return ""
}

// archiveBody gives each read of an archive a time of its own.
type archiveBody struct {
	r       io.Reader
	control *http.ResponseController
}

func (b *archiveBody) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(writeTimeout)) // where the connection can
	n, err := b.r.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fault.New(fault.Invalid, "the archive broke off: %w", err).WithCode("broken_body")
	}
	return n, err
}

// streamBuild tells each step as it happens, and between them that it lives.
func (a *API) streamBuild(ctx context.Context, s *stepWriter, worker string, order build.Order, upload io.Reader) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamEnds)
	steps, ended := make(chan build.Step), make(chan func() error, 1)
	go func() {
		r, err := a.cfg.Manager.BuildImage(ctx, worker, order, upload, func(step build.Step) error {
			select {
			case steps <- step:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil {
			guard.NoteError(ctx, err)
			ended <- func() error { return s.write("problem", problem.From(err)) }
			return
		}
		ended <- func() error { return s.write("result", built(r)) }
	}()
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		var err error
		select {
		case step := <-steps:
			err = s.write("step", step)
		case last := <-ended:
			_ = last() // a client that has gone needs no answer
			return
		case <-tick.C:
			err = s.comment()
		case <-a.endings:
			err = errStreamEnds
		}
		if err != nil { // nobody listens: the build ends too, and is waited for
			cancel(err)
			<-ended
			return
		}
	}
}

// stepWriter writes steps as lines or as events.
type stepWriter struct {
	out   *slowWriter
	kind  string
	begun bool
}

func (s *stepWriter) write(what string, v any) error {
	line := map[string]any{what: v}
	var data []byte
	var err error
	if s.kind == sse {
		if data, err = json.Marshal(v); err == nil {
			data = []byte("event: " + what + "\ndata: " + string(data) + "\n\n")
		}
	} else if data, err = json.Marshal(line); err == nil {
		data = append(data, '\n')
	}
	if err != nil {
		return err
	}
	return s.send(data)
}

// comment says nothing, so that whatever stands between does not hang up.
func (s *stepWriter) comment() error {
	if s.kind == sse {
		return s.send([]byte(": keepalive\n\n"))
	}
	return s.send([]byte("{}\n"))
}

func (s *stepWriter) send(data []byte) error {
	if !s.begun {
		s.begun = true
		h := s.out.Header()
		h.Set("Content-Type", s.kind)
		h.Set("X-Accel-Buffering", "no")
		s.out.WriteHeader(http.StatusOK)
	}
	if _, err := s.out.Write(data); err != nil {
		return err
	}
	return s.out.flush()
}
