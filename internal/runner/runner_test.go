package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config is a Runner's over a real database.
func config(t *testing.T, workers func() []Worker) Config {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	folder := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(folder, "aurea.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenLocal(filepath.Join(folder, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Close()
		_ = blobs.Close()
	})
	languages, err := language.Default()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Store: db, Blobs: blobs, Workers: workers, Logger: log, ID: "m",
		Terms: run.Terms{Languages: languages, Timeout: 30 * time.Second, OutputCap: 2 << 20},
	}
}

// start starts a Runner that stops with its test.
func start(t *testing.T, cfg Config) *Runner {
	t.Helper()
	r := New(cfg)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

func as(owner string) context.Context {
	return policy.With(context.Background(), policy.Caller{Kind: policy.Viewer, ID: owner})
}

func code(text string) run.Request { return run.Request{Code: text} }

// submit queues runs of one owner.
func submit(t *testing.T, r *Runner, owner string, codes ...string) (ids []string) {
	t.Helper()
	reqs := make([]run.Request, len(codes))
	for i, c := range codes {
		reqs[i] = code(c)
	}
	s, err := r.SubmitRuns(as(owner), reqs, run.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range s.Runs {
		ids = append(ids, x.ID)
	}
	return ids
}

// finished waits for the end of a run.
func finished(t *testing.T, r *Runner, owner, id string) run.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(as(owner), time.Minute)
	defer cancel()
	x, err := r.Wait(ctx, id)
	if err != nil {
		t.Fatalf("wait for run %s, which is %s: %v", id, x.State, err)
	}
	return x
}

func TestARunIsDoneWhileItsCallerWaits(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(2)))
	a, err := r.Execute(as("o"), code("say:hello err:oops left:artifact"), run.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	if string(a.Stdout) != "hello" || string(a.Stderr) != "oops" || string(a.Artifacts["left.txt"]) != "artifact" || a.State != run.Completed || a.Verdict != sandbox.OK {
		t.Errorf("the answer is %+v", a)
	}
	record, err := r.RunRecord(as("o"), a.ID)
	if err != nil || blob.Digest(record) != a.Evidence || bytes.Contains(record, []byte("say:hello")) {
		t.Errorf("the record is %s, %v", record, err)
	}
	again, err := r.RunAnswer(as("o"), a.ID)
	if err != nil || string(again.Stdout) != "hello" || string(again.Artifacts["left.txt"]) != "artifact" || again.Evidence != a.Evidence {
		t.Errorf("it reads %+v, %v", again, err)
	}
	if names := stageNames(a.Stages); names != "queue exec wire record" {
		t.Errorf("the stages are %s", names)
	}
	if types := eventTypes(t, r, a.ID); types != "run.started run.ended" {
		t.Errorf("the events are %s", types)
	}
	if _, err := r.Run(as("other"), a.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another sees it: %v", err)
	}
	if waiting, running := r.Depth(); waiting+running != 0 {
		t.Errorf("%d wait and %d run", waiting, running)
	}
}

// TestTheRecordTellsWhatWasGiven looks for every digest that is needed to know
// what ran, of one that was waited for and of one that was queued.
func TestTheRecordTellsWhatWasGiven(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(2)))
	req := code("say:hello left:artifact")
	req.Files, req.Stdin, req.Args, req.Env = map[string]string{"in.txt": "data"}, "typed", []string{"one"}, map[string]string{"A": "b"}
	a, err := r.Execute(as("o"), req, run.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	queued, err := r.SubmitRuns(as("o"), []run.Request{req}, run.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	finished(t, r, "o", queued.Runs[0].ID)
	sum := func(text string) string { return blob.Digest([]byte(text)) }
	for _, id := range []string{a.ID, queued.Runs[0].ID} {
		raw, err := r.RunRecord(as("o"), id)
		if err != nil {
			t.Fatal(err)
		}
		var got run.Record
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		in := got.Result.Inputs
		if got.CodeSHA256 != sum(req.Code) || in == nil || in.Files["in.txt"] != sum("data") || in.Stdin != sum("typed") ||
			in.Args != sum("one\x00") || in.Env != sum("A=b\x00") || got.Result.Stdout.SHA256 != sum("hello") || got.Result.Artifacts["left.txt"].SHA256 != sum("artifact") {
			t.Errorf("the record is %s", raw)
		}
	}
}

// TestArtifactsAreOpenedByNameAlone has one that lies in the row of its run and
// one that lies apart.
func TestArtifactsAreOpenedByNameAlone(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(2)))
	for _, left := range []string{"small", "", strings.Repeat("large", 100_000)} {
		a, err := r.Execute(as("o"), code("left:"+left), run.Asked{})
		if err != nil {
			t.Fatal(err)
		}
		f, about, err := r.OpenRunArtifact(as("o"), a.ID, "left.txt")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil || string(got) != left || about.SHA256 != blob.Digest(got) || about.Bytes != int64(len(got)) {
			t.Errorf("it has %d bytes, %+v, %v", len(got), about, err)
		}
		for _, name := range []string{"", "left", "./left.txt", "../left.txt", about.SHA256} {
			if _, _, err := r.OpenRunArtifact(as("o"), a.ID, name); !fault.Is(err, fault.NotFound) {
				t.Errorf("%q is opened: %v", name, err)
			}
		}
		if _, _, err := r.OpenRunArtifact(as("other"), a.ID, "left.txt"); !fault.Is(err, fault.NotFound) {
			t.Errorf("another opens it: %v", err)
		}
	}
}

func stageNames(list []run.Stage) string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return strings.Join(names, " ")
}

func eventTypes(t *testing.T, r *Runner, id string) string {
	t.Helper()
	var types []string
	err := r.Store.View(t.Context(), func(tx store.Tx) error {
		list, err := tx.Events().List(t.Context(), event.Filter{EntityIDs: []string{id}}, 100)
		for _, e := range list {
			types = append(types, string(e.Type))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(types, " ")
}

func TestACallerWhoGoesAwayTakesTheRunAlong(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(1)))
	ctx, leave := context.WithCancelCause(as("o"))
	done := make(chan error, 1)
	go func() {
		_, err := r.Execute(ctx, code("say:partial wait"), run.Asked{})
		done <- err
	}()
	id := b.begins(t)
	for { // until its output has come: that is kept
		arrived := r.Arrived()
		if p, err := r.RunOutput(as("o"), id, sandbox.Stdout, 0); err == nil && string(p.Data) == "partial" {
			break
		}
		<-arrived
	}
	leave(errors.New("the client hung up"))
	if err := <-done; fault.CodeOf(err) != "cancelled" {
		t.Errorf("got %v", err)
	}
	x := finished(t, r, "o", id)
	p, err := r.RunOutput(as("o"), id, sandbox.Stdout, 0)
	if x.State != run.Cancelled || x.Verdict != sandbox.Killed || err != nil || string(p.Data) != "partial" || !p.Ended {
		t.Errorf("it is %+v, and said %q, %v", x, p.Data, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy != 0 {
		t.Error("the worker still runs it")
	}
}

func TestOneWithHundredsQueuedKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(1)))
	codes := make([]string, 500)
	for i := range codes {
		codes[i] = "wait"
	}
	many := submit(t, r, "many", codes...)
	b.begins(t)
	one := submit(t, r, "few", "wait")
	place, ok := r.Place(one[0])
	if !ok || place.Position > 1 {
		t.Errorf("its place is %+v, %t", place, ok)
	}
	if last, _ := r.Place(many[499]); last.Position != 499 {
		t.Errorf("the last is told %d", last.Position)
	}
	b.letGo()
	finished(t, r, "few", one[0])
	b.mu.Lock()
	turn := 0
	for i, owner := range b.order {
		if owner == "few" {
			turn = i
		}
	}
	b.mu.Unlock()
	if turn > 2 {
		t.Errorf("it began after %d others", turn)
	}
	for _, id := range many {
		if x := finished(t, r, "many", id); x.State != run.Completed {
			t.Fatalf("run %s is %s: %s", id, x.State, x.Reason)
		}
	}
}

func TestAWorkerWithoutRoomIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.room = 1
	r := start(t, config(t, b.worker(8)))
	first := submit(t, r, "o", "wait")
	b.begins(t)
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			if a, err := r.Execute(as("o"), code("say:x"), run.Asked{}); err != nil || string(a.Stdout) != "x" || a.Attempt != 1 {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
	queued := submit(t, r, "p", "say:y")
	b.letGo()
	others.Wait()
	finished(t, r, "o", first[0])
	if x := finished(t, r, "p", queued[0]); x.Attempt != 1 || x.State != run.Completed {
		t.Errorf("it is %+v", x)
	}
}

func TestALostWorkerIsReplacedThreeTimesAtMost(t *testing.T) {
	t.Parallel()
	b := newBench()
	cfg := config(t, b.worker(4))
	cfg.Back = time.Millisecond
	r := start(t, cfg)
	b.lose["say:sync"], b.lose["say:never"] = 2, 1000
	a, err := r.Execute(as("o"), code("say:sync"), run.Asked{})
	if err != nil || string(a.Stdout) != "sync" || a.Attempt != 3 {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err := r.Execute(as("o"), code("say:never"), run.Asked{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
	list, _ := r.Runs(as("o"), store.RunFilter{State: run.Failed})
	if len(list) != 1 || list[0].Attempt != 3 {
		t.Errorf("kept are %+v", list)
	}
	b.mu.Lock()
	b.refuse = fault.New(fault.NotFound, "the image x is not there").WithCode("no_image")
	b.mu.Unlock()
	if _, err := r.Execute(as("o"), code("say:x"), run.Asked{}); !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != "no_image" {
		t.Errorf("got %v", err)
	}
	id := submit(t, r, "o", "say:x")[0]
	if x := finished(t, r, "o", id); x.State != run.Failed || !strings.Contains(x.Reason, "image x") || x.Attempt != 1 {
		t.Errorf("it is %+v", x)
	}
}

func TestRunsAreCancelledWhereverTheyAre(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(1)))
	ids := submit(t, r, "o", "say:partial wait", "say:never")
	b.begins(t)
	if _, err := r.CancelRun(as("other"), ids[1], ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("another cancels it: %v", err)
	}
	x, err := r.CancelRun(as("o"), ids[1], "not needed")
	if err != nil || x.State != run.Cancelled || x.Reason != "not needed" || x.Attempt != 0 {
		t.Errorf("the queued one is %+v, %v", x, err)
	}
	x, err = r.CancelRun(as("o"), ids[0], "enough")
	if err != nil || x.State != run.Cancelled || x.Reason != "enough" {
		t.Errorf("the running one is %+v, %v", x, err)
	}
	b.mu.Lock()
	if !b.forgot[ids[0]] || b.began[ids[1]] != 0 {
		t.Error("the worker was not told, or began what was cancelled")
	}
	b.mu.Unlock()
	if _, err := r.CancelRun(as("o"), ids[0], ""); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("cancelled twice: %v", err)
	}
	if types := eventTypes(t, r, ids[0]); types != "run.created run.started run.cancelling run.ended" {
		t.Errorf("the events are %s", types)
	}
}

func TestLargeOutputIsReadFromAnyOffset(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(1)))
	id := submit(t, r, "o", "flood wait err:end")[0]
	var live []byte
	for len(live) < 40*32<<10 {
		arrived := r.Arrived()
		p, err := r.RunOutput(as("o"), id, sandbox.Stdout, int64(len(live)))
		if err != nil || p.Ended {
			t.Fatalf("got %+v, %v", p, err)
		}
		if live = append(live, p.Data...); len(p.Data) == 0 {
			<-arrived
		}
	}
	b.letGo()
	x := finished(t, r, "o", id)
	if x.Result.Stdout.Kept != int64(len(live)) || x.Result.Stdout.SHA256 != blob.Digest(live) {
		t.Errorf("kept is %+v of %d", x.Result.Stdout, len(live))
	}
	const from = 1_000_001
	var stored []byte
	for p := (run.Piece{Next: from}); !p.Ended; {
		var err error
		if p, err = r.RunOutput(as("o"), id, sandbox.Stdout, p.Next); err != nil {
			t.Fatal(err)
		}
		stored = append(stored, p.Data...)
	}
	if !bytes.Equal(stored, live[from:]) {
		t.Errorf("%d bytes are read again of %d", len(stored), len(live)-from)
	}
	if p, err := r.RunOutput(as("o"), id, sandbox.Stderr, 1); err != nil || string(p.Data) != "nd" || !p.Ended {
		t.Errorf("stderr from 1 is %q, %v", p.Data, err)
	}
	if p, err := r.RunOutput(as("o"), id, sandbox.Stdout, 1<<40); err != nil || len(p.Data) != 0 || !p.Ended {
		t.Errorf("far behind the end is %q, %v", p.Data, err)
	}
}

func TestThePoolIsTheWorkers(t *testing.T) {
	t.Parallel()
	r := start(t, config(t, newBench().worker(1)))
	if p := r.Pool(t.Context()); len(p) != 1 || p[0].Worker != "bench" || p[0].Classes[0].Hits != 7 {
		t.Errorf("the pool is %+v", p)
	}
}

func TestNothingRunsWithoutAWorker(t *testing.T) {
	t.Parallel()
	cfg := config(t, func() []Worker { return nil })
	cfg.Patience = time.Millisecond
	r := start(t, cfg)
	if _, err := r.Execute(as("o"), code("say:x"), run.Asked{}); err == nil || fault.KindOf(err) == fault.Internal {
		t.Errorf("got %v", err)
	}
	id := submit(t, r, "o", "say:x")[0]
	if x, err := r.Run(as("o"), id); err != nil || x.State != run.Queued {
		t.Errorf("it is %+v, %v", x, err)
	}
	var facts struct {
		CodeSHA256 string `json:"code_sha256"`
	}
	_ = r.Store.View(t.Context(), func(tx store.Tx) error {
		list, err := tx.Events().List(t.Context(), event.Filter{EntityIDs: []string{id}}, 1)
		if err == nil {
			err = json.Unmarshal(list[0].Data, &facts)
		}
		return err
	})
	if facts.CodeSHA256 != blob.Digest([]byte("say:x")) {
		t.Errorf("the event says %+v", facts)
	}
}
