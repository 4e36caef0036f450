package dispatchtest

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Idle is a worker's end that does no runs and keeps no sandboxes: for tests
// that need a Receiver.
type Idle struct{ NoHost }

var errIdle = fault.New(fault.Unavailable, "this worker does no runs")

// Run refuses.
func (Idle) Run(context.Context, run.Order, func(dispatch.Chunk) error) (run.Result, error) {
	return run.Result{}, errIdle
}

// Forget has nothing to forget.
func (Idle) Forget(context.Context, string) error { return nil }

// Pool is empty.
func (Idle) Pool(context.Context) (dispatch.PoolState, error) { return dispatch.PoolState{}, nil }

// Canceller is a worker's end that takes cancels by a function, and does nothing
// else.
type Canceller struct {
	Idle
	do func(context.Context, dispatch.Cancel) error
}

var _ dispatch.Receiver = Canceller{}

// Cancels makes a worker's end of a function that takes cancels.
func Cancels(do func(context.Context, dispatch.Cancel) error) Canceller { return Canceller{do: do} }

// Cancel calls the function.
func (c Canceller) Cancel(ctx context.Context, x dispatch.Cancel) error { return c.do(ctx, x) }

// Runs is a worker's end that does runs by a function, and nothing else.
type Runs struct {
	NoHost
	Do   func(ctx context.Context, order run.Order, piece func(dispatch.Chunk) error) (run.Result, error)
	Gone func(id string) error
	Held dispatch.PoolState
}

var _ dispatch.Receiver = Runs{}

// Cancel knows no lease.
func (Runs) Cancel(context.Context, dispatch.Cancel) error { return nil }

// Run calls the function.
func (r Runs) Run(ctx context.Context, order run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
	return r.Do(ctx, order, piece)
}

// Forget calls the function.
func (r Runs) Forget(_ context.Context, id string) error { return r.Gone(id) }

// Pool returns what is held.
func (r Runs) Pool(context.Context) (dispatch.PoolState, error) { return r.Held, nil }

// RunnerHarness makes what carries runs from a manager to a worker.
type RunnerHarness struct {
	// New returns the manager's end of a stream whose other end is rc. It must
	// work until the test ends.
	New func(t *testing.T, rc dispatch.Receiver) dispatch.Runner
}

// RunRunner holds what carries runs to the contract of dispatch.Runner.
func RunRunner(t *testing.T, h RunnerHarness) {
	t.Helper()
	for name, story := range map[string]func(*testing.T, RunnerHarness){
		"an order arrives as it was given":           orderArrives,
		"output comes before the result":             outputThenResult,
		"much output comes whole":                    muchOutput,
		"a refusal keeps its kind and code":          refusalKeepsKind,
		"a fault behind output keeps its kind":       faultBehindOutput,
		"the end of ctx stops the run":               ctxStopsRun,
		"an error of piece stops the run":            pieceStopsRun,
		"runs do not wait for each other":            runsAreParallel,
		"an order that is out of bounds is not sent": badOrderStays,
		"forget and pool arrive":                     forgetAndPool,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, h)
		})
	}
}

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func order(id string) run.Order {
	return run.Order{ID: id, Owner: "somebody", Language: "python", Code: "print(1)", Timeout: time.Second}
}

func endOK() run.Result {
	at := time.Unix(1_700_000_000, 0).UTC()
	return run.Result{
		Verdict: sandbox.OK, Step: run.StepRun, Stdout: run.Output{SHA256: emptySHA256}, Stderr: run.Output{SHA256: emptySHA256},
		Driver: "fake", Worker: "w", Started: at, Ended: at.Add(time.Second),
	}
}

func drop(dispatch.Chunk) error { return nil }

func orderArrives(t *testing.T, h RunnerHarness) {
	given := run.Order{
		ID: "a", Owner: "o", Language: "python", Code: "print('ä\x00<&>')", Files: map[string]string{"x.txt": "1\n"},
		Args: []string{"", "a b", "ü"}, Env: map[string]string{"A": "b=c"}, Stdin: "in\x00", Timeout: 3 * time.Second, ReadOnly: true,
		Artifacts: true, Driver: "gvisor", Image: "host", Network: sandbox.NetworkNone, Limits: sandbox.Limits{Memory: 1 << 20, CPUTime: time.Minute},
		OutputCap: 100, Keep: true, From: sandbox.Offsets{Stdout: 3, Stderr: 4}, Trace: "00-1-2",
	}
	wanted := endOK()
	wanted.Artifacts = map[string]run.Artifact{"plot.png": {Data: []byte{0, 255, 128}, SHA256: emptySHA256}}
	wanted.Skipped = []string{"a link"}
	wanted.Stages = []run.Stage{{Name: "exec", Took: 5}}
	got := make(chan run.Order, 1)
	r := h.New(t, Runs{Do: func(_ context.Context, o run.Order, _ func(dispatch.Chunk) error) (run.Result, error) {
		got <- o
		return wanted, nil
	}})
	res, err := r.Run(t.Context(), given, drop)
	if err != nil || !reflect.DeepEqual(res, wanted) {
		t.Errorf("got %+v, %v", res, err)
	}
	if o := <-got; !reflect.DeepEqual(o, given) {
		t.Errorf("the order arrived as %+v", o)
	}
}

func outputThenResult(t *testing.T, h RunnerHarness) {
	said := []dispatch.Chunk{
		{Stream: sandbox.Stdout, Offset: 2, Data: []byte("one\xff\x00")},
		{Stream: sandbox.Stderr, Offset: 0, Data: []byte("two")},
		{Stream: sandbox.Stdout, Offset: 7, Data: []byte("three")},
	}
	seen := make(chan struct{})
	r := h.New(t, Runs{Do: func(ctx context.Context, _ run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
		for _, c := range said {
			if err := piece(c); err != nil {
				return run.Result{}, err
			}
		}
		select { // the output must not wait for the result
		case <-seen:
		case <-ctx.Done():
		}
		return endOK(), nil
	}})
	o := order("a")
	o.From.Stdout = 2
	var got []dispatch.Chunk
	_, err := r.Run(t.Context(), o, func(c dispatch.Chunk) error {
		c.Data = bytes.Clone(c.Data)
		if got = append(got, c); len(got) == len(said) {
			close(seen)
		}
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, said) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func muchOutput(t *testing.T, h RunnerHarness) {
	const pieces = 64
	data := bytes.Repeat([]byte("0123456789abcdef"), dispatch.MaxChunk/16)
	r := h.New(t, Runs{Do: func(_ context.Context, _ run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
		for i := range int64(pieces) {
			if err := piece(dispatch.Chunk{Stream: sandbox.Stdout, Offset: i * dispatch.MaxChunk, Data: data}); err != nil {
				return run.Result{}, err
			}
		}
		return endOK(), nil
	}})
	n := 0
	_, err := r.Run(t.Context(), order("a"), func(c dispatch.Chunk) error {
		if !bytes.Equal(c.Data, data) {
			t.Errorf("the piece at %d is another", c.Offset)
		}
		n += len(c.Data)
		return nil
	})
	if err != nil || n != pieces*dispatch.MaxChunk {
		t.Errorf("%d bytes came, %v", n, err)
	}
}

func refusalKeepsKind(t *testing.T, h RunnerHarness) {
	r := h.New(t, Runs{Do: func(context.Context, run.Order, func(dispatch.Chunk) error) (run.Result, error) {
		return run.Result{}, fault.New(fault.Exhausted, "no room").WithCode("no_room")
	}})
	_, err := r.Run(t.Context(), order("a"), drop)
	if !fault.Is(err, fault.Exhausted) || fault.CodeOf(err) != "no_room" {
		t.Errorf("got %v", err)
	}
}

func faultBehindOutput(t *testing.T, h RunnerHarness) {
	r := h.New(t, Runs{Do: func(_ context.Context, _ run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
		if err := piece(dispatch.Chunk{Stream: sandbox.Stderr, Data: []byte("x")}); err != nil {
			return run.Result{}, err
		}
		return run.Result{}, fault.New(fault.Gone, "dropped").WithCode("dropped")
	}})
	_, err := r.Run(t.Context(), order("a"), drop)
	if !fault.Is(err, fault.Gone) || fault.CodeOf(err) != "dropped" {
		t.Errorf("got %v", err)
	}
}

// waiting is a worker whose runs wait until they are stopped.
func waiting() (rc Runs, begun chan string, stopped chan string) {
	begun, stopped = make(chan string, 8), make(chan string, 8)
	return Runs{Do: func(ctx context.Context, o run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
		begun <- o.ID
		_ = piece(dispatch.Chunk{Stream: sandbox.Stdout, Data: []byte("here")})
		<-ctx.Done()
		stopped <- o.ID
		return run.Result{}, context.Cause(ctx)
	}}, begun, stopped
}

func ctxStopsRun(t *testing.T, h RunnerHarness) {
	rc, begun, stopped := waiting()
	r := h.New(t, rc)
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, order("a"), drop)
		failed <- err
	}()
	soon(t, "the run to begin", begun)
	cancel(errors.New("nobody wants it"))
	soon(t, "the run to be stopped", stopped)
	if err := soon(t, "the call to return", failed); err == nil {
		t.Error("a run that was given up has a result")
	}
}

func pieceStopsRun(t *testing.T, h RunnerHarness) {
	rc, _, stopped := waiting()
	r := h.New(t, rc)
	why := errors.New("the disk is full")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	_, err := r.Run(ctx, order("a"), func(dispatch.Chunk) error {
		cancel(why) // a carrier in process has no other way to tell
		return why
	})
	if err == nil {
		t.Error("a run whose output nobody takes has a result")
	}
	soon(t, "the run to be stopped", stopped)
}

func runsAreParallel(t *testing.T, h RunnerHarness) {
	rc, begun, _ := waiting()
	r := h.New(t, rc)
	ctx, cancel := context.WithCancelCause(t.Context())
	var calls sync.WaitGroup
	for _, id := range []string{"a", "b", "c"} {
		calls.Go(func() { _, _ = r.Run(ctx, order(id), drop) })
	}
	for range 3 {
		soon(t, "all runs to begin", begun)
	}
	cancel(errors.New("the test is over"))
	calls.Wait()
}

func badOrderStays(t *testing.T, h RunnerHarness) {
	r := h.New(t, Runs{Do: func(_ context.Context, o run.Order, _ func(dispatch.Chunk) error) (run.Result, error) {
		t.Errorf("the order %q arrived", o.ID)
		return endOK(), nil
	}})
	for field, spoil := range map[string]func(*run.Order){
		"id":         func(o *run.Order) { o.ID = "" },
		"language":   func(o *run.Order) { o.Language = "" },
		"code":       func(o *run.Order) { o.Code = "\xff" },
		"files":      func(o *run.Order) { o.Files = map[string]string{"../x": ""} },
		"args[0]":    func(o *run.Order) { o.Args = []string{"\x00"} },
		"env":        func(o *run.Order) { o.Env = map[string]string{"a=b": ""} },
		"timeout_ns": func(o *run.Order) { o.Timeout = -1 },
		"network":    func(o *run.Order) { o.Network = "everything" },
		"limits":     func(o *run.Order) { o.Limits.Memory = -1 },
		"from":       func(o *run.Order) { o.From.Stderr = -1 },
		"image":      func(o *run.Order) { o.Image = strings.Repeat("x", 5000) },
	} {
		o := order("a")
		spoil(&o)
		_, err := r.Run(t.Context(), o, drop)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func forgetAndPool(t *testing.T, h RunnerHarness) {
	gone := make(chan string, 1)
	held := dispatch.PoolState{Classes: []dispatch.PoolClass{{Driver: "fake", Image: "host", Language: "python", Wanted: 2, Hits: 7}}}
	r := h.New(t, Runs{Gone: func(id string) error { gone <- id; return nil }, Held: held})
	if err := r.Forget(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if id := soon(t, "the run's name", gone); id != "a" {
		t.Errorf("forgot %q", id)
	}
	if got, err := r.Pool(t.Context()); err != nil || !reflect.DeepEqual(got, held) {
		t.Errorf("got %+v, %v", got, err)
	}
}
