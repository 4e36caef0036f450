package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/wake"
)

// bench is a worker by the contract of dispatch.Runner that executes nothing:
// the code is a list of words. "say:X" prints X, "err:X" prints it to stderr,
// "exit:3" sets the code, "wait" waits until it is let go, "left:X" leaves an
// artifact.
type bench struct {
	mu      sync.Mutex
	room    int // how many at a time; 0 is no bound
	busy    int
	kept    map[string]*benchRun
	began   map[string]int // how often a run was really begun
	order   []string       // owners, as their runs began
	forgot  map[string]bool
	lose    map[string]int // how often the stream breaks under a run of this code
	refuse  error
	gate    chan struct{} // closed to let those go that wait
	started chan string   // ids, as they begin
}

func newBench() *bench {
	return &bench{
		kept: map[string]*benchRun{}, began: map[string]int{}, forgot: map[string]bool{}, lose: map[string]int{},
		gate: make(chan struct{}), started: make(chan string, 10_000),
	}
}

// benchRun is one that runs, or has run and is kept.
type benchRun struct {
	over   chan struct{}
	stop   context.CancelCauseFunc
	pieces []dispatch.Chunk
	result run.Result
	grew   wake.Signal
}

func (b *bench) Run(ctx context.Context, order run.Order, piece func(dispatch.Chunk) error) (run.Result, error) {
	x, err := b.begin(ctx, order)
	if err != nil {
		return run.Result{}, err
	}
	sent := 0
	for {
		grew := x.grew.Wait()
		b.mu.Lock()
		fresh := x.pieces[sent:]
		b.mu.Unlock()
		for _, p := range fresh {
			if err := piece(p); err != nil {
				x.stop(err)
				return run.Result{}, err
			}
		}
		sent += len(fresh)
		select {
		case <-x.over:
			b.mu.Lock()
			all := sent == len(x.pieces)
			b.mu.Unlock()
			if all {
				return x.result, nil
			}
			continue
		default:
		}
		select {
		case <-grew:
		case <-x.over:
		case <-ctx.Done():
			if !order.Keep {
				x.stop(context.Cause(ctx))
				<-x.over
			}
			return run.Result{}, fault.New(fault.Unavailable, "given up: %w", context.Cause(ctx))
		}
	}
}

func (b *bench) begin(ctx context.Context, order run.Order) (*benchRun, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.kept[order.ID]; x != nil {
		return x, nil
	}
	if b.refuse != nil {
		return nil, b.refuse
	}
	if b.lose[order.Code] > 0 {
		b.lose[order.Code]--
		return nil, fault.New(fault.Unavailable, "the worker cannot be reached")
	}
	if b.room > 0 && b.busy >= b.room {
		return nil, fault.New(fault.Exhausted, "no room")
	}
	b.busy++
	b.began[order.ID]++
	b.order = append(b.order, order.Owner)
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	x := &benchRun{over: make(chan struct{}), stop: stop}
	if order.Keep {
		b.kept[order.ID] = x
	}
	b.started <- order.ID
	go b.do(life, order, x)
	return x, nil
}

func (b *bench) do(life context.Context, order run.Order, x *benchRun) {
	res := run.Result{
		Verdict: sandbox.OK, Step: run.StepRun, Driver: "fake", Image: "host", Worker: "bench", Started: time.Now(),
		Artifacts: map[string]run.Artifact{}, Stages: []run.Stage{{Name: "exec", Took: time.Microsecond}},
	}
	at := map[sandbox.Stream]int64{}
	say := func(s sandbox.Stream, text string) {
		b.mu.Lock()
		x.pieces = append(x.pieces, dispatch.Chunk{Stream: s, Offset: at[s], Data: []byte(text)})
		b.mu.Unlock()
		at[s] += int64(len(text))
		x.grew.Wake()
	}
	for word := range strings.SplitSeq(order.Code, " ") {
		name, rest, _ := strings.Cut(word, ":")
		switch name {
		case "say":
			say(sandbox.Stdout, rest)
		case "err":
			say(sandbox.Stderr, rest)
		case "exit":
			res.Verdict, res.ExitCode = sandbox.Failed, 3
		case "left":
			sum := sha256.Sum256([]byte(rest))
			res.Artifacts["left.txt"] = run.Artifact{Data: []byte(rest), SHA256: hex.EncodeToString(sum[:])}
		case "flood":
			for range 40 {
				say(sandbox.Stdout, strings.Repeat("x", 32<<10))
			}
		case "wait":
			select {
			case <-b.gate:
			case <-life.Done():
				res.Verdict, res.ExitCode = sandbox.Killed, -1
			}
		}
	}
	res.Ended = time.Now()
	res.Stdout.Kept, res.Stdout.Seen = at[sandbox.Stdout], at[sandbox.Stdout]
	res.Stderr.Kept, res.Stderr.Seen = at[sandbox.Stderr], at[sandbox.Stderr]
	b.mu.Lock()
	b.busy--
	x.result = res
	b.mu.Unlock()
	close(x.over)
}

func (b *bench) Forget(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgot[id] = true
	if x := b.kept[id]; x != nil {
		x.stop(errCancelled)
		delete(b.kept, id)
	}
	return nil
}

func (b *bench) Pool(context.Context) (dispatch.PoolState, error) {
	return dispatch.PoolState{Classes: []dispatch.PoolClass{{Driver: "fake", Language: "python", Hits: 7}}}, nil
}

// worker is the bench as a manager sees it.
func (b *bench) worker(slots int) func() []Worker {
	return func() []Worker { return []Worker{{ID: "bench", Slots: slots, Drivers: []string{"fake"}, Runner: b}} }
}

// letGo lets those go that wait.
func (b *bench) letGo() { close(b.gate) }

// begins waits until a run has begun at the bench, and returns its id.
func (b *bench) begins(t *testing.T) string {
	t.Helper()
	select {
	case id := <-b.started:
		return id
	case <-time.After(time.Minute):
		t.Fatal("no run began")
		return ""
	}
}
