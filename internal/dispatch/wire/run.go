package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
)

// named is the body of a command about one run.
type named struct {
	ID string `json:"id"`
}

// Check refuses what is out of bounds.
func (n named) Check() error { return dispatch.CheckRunID(n.ID) }

// Run hands an order to the worker and carries the output back. How long it
// takes is the caller's to bound: a dead worker is noticed by the stream.
func (s *stream) Run(ctx context.Context, order run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
	if err := dispatch.CheckOrder(order); err != nil {
		return run.Result{}, err
	}
	body, err := encode(order)
	if err != nil {
		return run.Result{}, err
	}
	if len(body) > dispatch.MaxOrderBytes {
		return run.Result{}, tooLarge()
	}
	resp, err := s.post(ctx, "run", body)
	if err != nil {
		return run.Result{}, err
	}
	defer func() { _ = resp.Body.Close() }() // before its end: that stops the run
	if err := framed(resp); err != nil {
		return run.Result{}, err
	}
	return carry(ctx, newFrames(bufio.NewReader(resp.Body), order.From), piece)
}

// carry hands on what comes until the result.
func carry(ctx context.Context, from *frames, piece func(dispatch.Chunk) error) (run.Result, error) {
	for {
		c, res, err := from.read()
		switch {
		case err != nil && ctx.Err() != nil:
			return run.Result{}, fault.New(fault.Unavailable, "run: given up: %w", context.Cause(ctx))
		case err != nil:
			var f *fault.Error
			if !errors.As(err, &f) {
				err = fault.New(fault.Unavailable, "run: the worker cannot be reached: %w", err)
			}
			return run.Result{}, err
		case res != nil:
			return *res, nil
		}
		if err := piece(*c); err != nil {
			return run.Result{}, err
		}
	}
}

// Forget drops what the worker keeps of a run.
func (s *stream) Forget(ctx context.Context, id string) error {
	n := named{ID: id}
	if err := n.Check(); err != nil {
		return err
	}
	return s.command(ctx, "forget", n, dispatch.ReportTimeout)
}

// Pool asks what the worker's pool holds.
func (s *stream) Pool(ctx context.Context) (dispatch.PoolState, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dispatch.ReportTimeout, errTimeout)
	defer cancel()
	resp, err := s.post(ctx, "pool", []byte("{}"))
	if err != nil {
		return dispatch.PoolState{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return dispatch.PoolState{}, readProblem(resp)
	}
	var state dispatch.PoolState
	if err := readAnswer(resp.Body, maxPool, &state); err != nil {
		return dispatch.PoolState{}, err
	}
	if err := state.Check(); err != nil {
		return dispatch.PoolState{}, fault.New(fault.Unavailable, "pool: the worker's answer is out of bounds: %w", err)
	}
	return state, nil
}

// maxPool bounds what a worker says of its pool.
const maxPool = 1 << 20

func (s *stream) post(ctx context.Context, name string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://worker/"+name, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Internal, "make the command: %w", err)
	}
	req.Header.Set("Content-Type", jsonType)
	resp, err := s.cc.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fault.New(fault.Unavailable, "%s: the worker cannot be reached: %w", name, err)
	}
	return resp, nil
}

// run is the worker's end of Run. The end of the request is the end of the
// call: a manager that hangs up has a run without Keep stopped.
func (m *commanded) run(w http.ResponseWriter, r *http.Request) {
	var order run.Order
	body, err := readCommand(r, dispatch.MaxOrderBytes)
	if err == nil {
		err = unmarshal(body, &order)
	}
	if err == nil {
		err = dispatch.CheckOrder(order)
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	out := newFramer(w)
	res, err := m.rc.Run(r.Context(), order, out.piece)
	if err == nil {
		err = dispatch.CheckRunResult(res)
	}
	if err != nil {
		out.problem(err)
		return
	}
	out.result(res)
}

// framer writes an answer in frames.
type framer struct {
	w     http.ResponseWriter
	flush func() error
	begun bool
	buf   []byte
}

func (f *framer) begin() {
	if !f.begun {
		f.begun = true
		f.w.Header().Set("Content-Type", framesType)
	}
}

func (f *framer) piece(c dispatch.Chunk) error {
	if err := c.Check(); err != nil {
		return err
	}
	f.begin()
	f.buf = appendPiece(f.buf[:0], c)
	if _, err := f.w.Write(f.buf); err != nil {
		return fault.New(fault.Unavailable, "send output: %w", err)
	}
	if err := f.flush(); err != nil {
		return fault.New(fault.Unavailable, "send output: %w", err)
	}
	return nil
}

func (f *framer) result(res run.Result) {
	body, err := encode(res)
	if err == nil && len(body) > dispatch.MaxResultBytes {
		err = fault.New(fault.TooLarge, "the result has %d bytes; at most %d cross", len(body), dispatch.MaxResultBytes)
	}
	if err != nil {
		f.problem(err)
		return
	}
	f.begin()
	_, _ = f.w.Write(append(appendHead(f.buf[:0], frameResult, len(body)), body...)) // a manager that is gone asks again
}

// problem ends the answer with a fault: as an ordinary refusal where nothing
// was said yet.
func (f *framer) problem(err error) {
	if !f.begun {
		writeProblem(f.w, err)
		return
	}
	body, err := json.Marshal(problemOf(err))
	if err != nil || len(body) > maxProblem {
		return // an answer that just ends is one
	}
	_, _ = f.w.Write(append(appendHead(f.buf[:0], frameProblem, len(body)), body...))
}

// pool is the worker's end of Pool.
func (m *commanded) pool(w http.ResponseWriter, r *http.Request) {
	state, err := m.rc.Pool(r.Context())
	if err == nil {
		err = state.Check()
	}
	var body []byte
	if err == nil {
		body, err = encode(state)
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(body)
}

// readCommand reads the body of a command, at most so many bytes of it.
func readCommand(r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	if err != nil {
		var over *http.MaxBytesError
		if errors.As(err, &over) {
			return nil, fault.New(fault.TooLarge, "the command can have at most %d bytes", most)
		}
		return nil, fault.New(fault.Unavailable, "read the command: %w", err)
	}
	return body, nil
}
