package httpapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// fakeRun is a run of the fake: it prints its code and fails where the code
// says so.
type fakeRun struct {
	run.Answer
	done chan struct{}
}

func (f *fake) terms() run.Terms {
	all, err := language.Default()
	if err != nil {
		panic(err) //nolint:forbidigo // a test without languages is no test
	}
	return run.Terms{Languages: all, Timeout: 30 * time.Second, OutputCap: 1 << 20, Most: sandbox.Limits{Memory: 1 << 30, MilliCPU: 4000, Processes: 100}}
}

// begin makes a run that has not ended.
func (f *fake) begin(ctx context.Context, req run.Request, what string) (*fakeRun, error) {
	order, err := req.Order(f.terms())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed(ctx, what, order)
	c, _ := policy.From(ctx)
	x := &fakeRun{done: make(chan struct{})}
	x.Run = run.Run{ID: job.NewID(), Owner: c.ID, State: run.Queued, Language: order.Language, Timeout: order.Timeout, CreatedAt: time.Now(), Attempt: 1, Webhook: req.Webhook}
	x.Stdout = []byte(order.Code)
	f.runs = append(f.runs, x)
	return x, nil
}

// end ends a run: code that says "timeout" ran out of time, "left" leaves
// artifacts, "signal" was killed.
func (f *fake) end(x *fakeRun) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	res := &run.Result{
		Verdict: sandbox.OK, Step: run.StepRun, Driver: "fake", Image: "host", Usage: run.Usage{CPU: time.Second, PeakMemory: 5, Wall: 1500 * time.Millisecond},
		Stdout: run.Output{Kept: int64(len(x.Stdout)), SHA256: sum(x.Stdout)}, Artifacts: map[string]run.Artifact{},
	}
	x.Artifacts = map[string][]byte{}
	switch code := string(x.Stdout); {
	case strings.Contains(code, "timeout"):
		res.Verdict, res.ExitCode, res.Signal = sandbox.Timeout, -1, 9
	case strings.Contains(code, "signal"):
		res.Verdict, res.ExitCode, res.Signal = sandbox.Signal, -1, 9
	case strings.Contains(code, "left"):
		for name, data := range map[string][]byte{"a.txt": []byte("text"), "b.png": {0x89, 'P', 'N', 'G', 0xff}, "c/d <e>.html": []byte("<p>")} {
			x.Artifacts[name] = data
			res.Artifacts[name] = run.Artifact{SHA256: sum(data), Bytes: int64(len(data))}
		}
	}
	x.State, x.Result, x.Verdict, x.EndedAt, x.Evidence = run.Completed, res, res.Verdict, time.Now(), sum(nil)
	x.Stages = []run.Stage{{Name: "exec", Took: time.Millisecond}}
	close(x.done)
	close(f.arrived)
	f.arrived = make(chan struct{})
}

func (f *fake) Execute(ctx context.Context, req run.Request, asked run.Asked) (run.Answer, error) {
	if f.busy > 0 {
		return run.Answer{}, fault.New(fault.Exhausted, "no room").WithCode("no_room").Retry(f.busy)
	}
	x, err := f.begin(ctx, req, "execute")
	if err != nil {
		return run.Answer{}, err
	}
	f.end(x)
	return x.Answer, nil
}

func (f *fake) SubmitRuns(ctx context.Context, reqs []run.Request, asked run.Asked) (s run.Submission, err error) {
	for i := range reqs {
		if _, err := reqs[i].Order(f.terms()); err != nil {
			return s, err
		}
	}
	for _, r := range reqs {
		x, err := f.begin(ctx, r, "submit runs")
		if err != nil {
			return s, err
		}
		s.Runs = append(s.Runs, x.Run)
	}
	return s, nil
}

func (f *fake) findRun(id string) (*fakeRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.runs, func(x *fakeRun) bool { return x.ID == id })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "No run has the id %q.", id)
	}
	return f.runs[i], nil
}

func (f *fake) Run(_ context.Context, id string) (run.Run, error) {
	x, err := f.findRun(id)
	if err != nil {
		return run.Run{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return x.Run, nil
}

func (f *fake) Runs(_ context.Context, filter store.RunFilter) (list []run.Run, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.runs) - 1; i >= 0 && len(list) < filter.Limit; i-- {
		x := f.runs[i].Run
		if (filter.Before == "" || x.ID < filter.Before) && (filter.State == "" || x.State == filter.State) {
			list = append(list, x)
		}
	}
	return list, nil
}

func (f *fake) Wait(ctx context.Context, id string) (run.Run, error) {
	x, err := f.findRun(id)
	if err != nil {
		return run.Run{}, err
	}
	select {
	case <-x.done:
		return f.Run(ctx, id)
	case <-ctx.Done():
		return run.Run{}, context.Cause(ctx)
	}
}

func (f *fake) RunAnswer(_ context.Context, id string) (run.Answer, error) {
	x, err := f.findRun(id)
	if err != nil {
		return run.Answer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return x.Answer, nil
}

func (f *fake) OpenRunArtifact(_ context.Context, id, name string) (io.ReadSeekCloser, run.Artifact, error) {
	x, err := f.findRun(id)
	if err != nil {
		return nil, run.Artifact{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	data, left := x.Artifacts[name]
	if !left {
		return nil, run.Artifact{}, fault.New(fault.NotFound, "it left no %s", name)
	}
	return heldBytes{bytes.NewReader(data)}, x.Result.Artifacts[name], nil
}

type heldBytes struct{ *bytes.Reader }

func (heldBytes) Close() error { return nil }

func (f *fake) RunRecord(context.Context, string) ([]byte, error) {
	return []byte(`{"run_id":"x"}`), nil
}

func (f *fake) RunOutput(_ context.Context, id string, s sandbox.Stream, offset int64) (run.Piece, error) {
	x, err := f.findRun(id)
	if err != nil {
		return run.Piece{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := x.Stdout
	if s == sandbox.Stderr {
		all = x.Stderr
	}
	rest := all[min(offset, int64(len(all))):]
	return run.Piece{Data: rest, Next: offset + int64(len(rest)), Attempt: x.Attempt, Ended: x.State.Ended()}, nil
}

func (f *fake) Arrived() <-chan struct{} { return f.LogsArrived() }

func (f *fake) Place(string) (run.Place, bool) {
	return run.Place{Position: 3, Wait: 2 * time.Second}, true
}

func (f *fake) CancelRun(ctx context.Context, id, reason string) (run.Run, error) {
	x, err := f.findRun(id)
	if err != nil {
		return run.Run{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed(ctx, "cancel run", reason)
	x.State, x.Reason, x.EndedAt = run.Cancelled, reason, time.Now()
	return x.Run, nil
}

func (f *fake) Pool(context.Context) []run.Pool {
	return []run.Pool{{Worker: "w", Classes: []run.PoolClass{{Driver: "fake", Language: "python", Waiting: 2, Hits: 7}}}}
}

func (f *fake) Languages() []language.Status {
	return []language.Status{{Name: "python", File: "main.py", Active: true}, {Name: "ruby", File: "main.rb", Reason: "the image has no ruby"}}
}
