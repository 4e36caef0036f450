package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

const (
	linesType = "application/x-ndjson"
	// maxHead bounds the order before what is sent, maxBuildLine one line of the
	// answer, and maxUpload the context: names and padding count too.
	maxHead      = 1 << 20
	maxBuildLine = 64 << 10
	maxUpload    = 2 * build.MaxContext
)

// buildLine is one line of the answer to a build: a step, or how it ended.
type buildLine struct {
	Step    *build.Step   `json:"step,omitempty"`
	Result  *build.Result `json:"result,omitempty"`
	Problem *problem      `json:"problem,omitempty"`
}

var _ dispatch.Builder = (*stream)(nil)

// Build hands an order to the worker, with the context behind it, and carries
// the steps back.
func (s *stream) Build(ctx context.Context, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error) {
	if err := order.Check(); err != nil {
		return build.Result{}, err
	}
	head, err := encode(order) // ends its line
	if err != nil {
		return build.Result{}, err
	}
	var body io.Reader = bytes.NewReader(head)
	if order.Uploaded {
		body = io.MultiReader(body, upload)
	}
	// Hanging up ends the build, whatever the reason.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://worker/build", io.NopCloser(body))
	if err != nil {
		return build.Result{}, fault.New(fault.Internal, "make the command: %w", err)
	}
	resp, err := s.cc.RoundTrip(req)
	if err != nil {
		return build.Result{}, lost(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return build.Result{}, readProblem(resp)
	}
	return readBuild(ctx, resp.Body, tell)
}

func lost(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fault.New(fault.Unavailable, "build: the worker cannot be reached: %w", err)
}

// readBuild reads the lines of an answer until the one that ends it.
func readBuild(ctx context.Context, r io.Reader, tell func(build.Step) error) (build.Result, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxBuildLine)
	for lines.Scan() {
		var l buildLine
		err := json.Unmarshal(lines.Bytes(), &l)
		switch {
		case err != nil:
			return build.Result{}, fault.New(fault.Unavailable, "build: the worker's answer is not what a worker says: %w", err)
		case l.Problem != nil:
			return build.Result{}, l.Problem.fault()
		case l.Result != nil:
			return build.Result{Image: printable(l.Result.Image), Digest: printable(l.Result.Digest), Size: max(l.Result.Size, 0)}, nil
		case l.Step != nil:
			l.Step.Doing, l.Step.Text = printable(l.Step.Doing), printable(l.Step.Text)
			if err := tell(*l.Step); err != nil {
				return build.Result{}, err
			}
		}
	}
	err := lines.Err()
	if err == nil {
		err = errors.New("it ended without an end")
	}
	return build.Result{}, lost(ctx, err)
}

// build is the worker's end of Build.
func (m *commanded) build(w http.ResponseWriter, r *http.Request) {
	b, ok := m.rc.(dispatch.Builder)
	if !ok {
		writeProblem(w, fault.New(fault.Unavailable, "this worker builds no images").WithCode("no_builder"))
		return
	}
	order, upload, err := readBuildOrder(http.MaxBytesReader(nil, r.Body, maxUpload+maxHead))
	if err != nil {
		writeProblem(w, err)
		return
	}
	out := &buildLines{w: w, flush: http.NewResponseController(w).Flush}
	res, err := b.Build(r.Context(), order, upload, func(s build.Step) error { return out.write(buildLine{Step: &s}) })
	switch {
	case err == nil:
		_ = out.write(buildLine{Result: &res}) // a manager that is gone asks again
	case !out.begun:
		writeProblem(w, err)
	default:
		p := problemOf(err)
		p.Detail = printable(p.Detail) // which bounds it too
		_ = out.write(buildLine{Problem: &p})
	}
}

// readBuildOrder reads the line of the order; what follows is the context.
func readBuildOrder(r io.Reader) (build.Order, io.Reader, error) {
	var order build.Order
	body, err := readHead(r, &order)
	if err == nil {
		err = order.Check()
	}
	return order, body, err
}

// readHead reads the line that says what the rest of a body is for, and returns
// the rest.
func readHead(r io.Reader, into any) (io.Reader, error) {
	body := bufio.NewReader(r)
	var line []byte
	for {
		part, err := body.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxHead {
			return nil, fault.New(fault.TooLarge, "the order before what is sent can have at most %d bytes", maxHead)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fault.New(fault.Unavailable, "read the command: %w", err)
		}
	}
	return body, unmarshal(line, into)
}

// buildLines writes the answer to a build, line by line.
type buildLines struct {
	w     http.ResponseWriter
	flush func() error
	begun bool
}

func (l *buildLines) write(v buildLine) error {
	line, err := encode(v)
	if err != nil {
		return err
	}
	if len(line) >= maxBuildLine {
		return fault.New(fault.TooLarge, "a line of a build can have at most %d bytes", maxBuildLine)
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", linesType)
	}
	if _, err := l.w.Write(line); err != nil {
		return fault.New(fault.Unavailable, "send a step: %w", err)
	}
	return l.flush()
}
