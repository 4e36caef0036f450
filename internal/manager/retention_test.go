package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

const day = 24 * time.Hour

// museum is a manager with a worker whose jobs leave things behind.
type museum struct {
	t       *testing.T
	m       *Manager
	folder  string
	session string
}

func openMuseum(t *testing.T, keep Retention) museum {
	t.Helper()
	folder := t.TempDir()
	m := open(t, folder)
	m.Retention = keep
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err := m.Register(t.Context(), dispatch.Registration{
		Wire: dispatch.Version, WorkerID: "w", Identity: "i", Incarnation: "1", Role: "Employee", Slots: 8, Version: "test",
		Drivers: []dispatch.DriverSummary{{Name: "fake", Capabilities: sandbox.Capabilities{Isolation: "none", Images: []string{"*"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return museum{t, m, folder, w.Session}
}

// later moves the manager's clock.
func (mu museum) later(d time.Duration) {
	mu.m.Now = func() time.Time { return time.Now().Add(d) }
}

// put stores a blob that was last wanted some days ago, and returns its digest.
func (mu museum) put(text string, ago time.Duration) string {
	mu.t.Helper()
	digest := blob.Digest([]byte(text))
	if err := mu.m.Blobs.Put(mu.t.Context(), digest, int64(len(text)), strings.NewReader(text)); err != nil {
		mu.t.Fatal(err)
	}
	at := time.Now().Add(-ago)
	if err := os.Chtimes(filepath.Join(mu.folder, "blobs", digest[:2], digest[2:]), at, at); err != nil {
		mu.t.Fatal(err)
	}
	return digest
}

// lease submits jobs and leases them.
func (mu museum) lease(n int) []dispatch.Lease {
	mu.t.Helper()
	for range n {
		control{mu.t, mu.m}.Submit(json.RawMessage(`{"action":"create file"}`))
	}
	var all []dispatch.Lease
	for len(all) < n {
		some, err := mu.m.Lease(mu.t.Context(), dispatch.LeaseRequest{Session: mu.session, Max: min(n-len(all), dispatch.MaxLeases), Wait: 10 * time.Second})
		if err != nil {
			mu.t.Fatal(err)
		}
		all = append(all, some...)
	}
	return all
}

// finish ends a job that leaves a log, a small diff, and a snapshot.
func (mu museum) finish(l dispatch.Lease, log, snapshot, small string) error {
	r := dispatch.Result{
		Held: l.Held, Success: true, Details: json.RawMessage(`{}`),
		Record: evidence.Record{
			JobID: l.JobID, Attempt: l.Attempt, Fence: l.Fence, Worker: "w", Driver: "fake", Isolation: "none", Network: sandbox.NetworkNone,
			Verdict: sandbox.OK, Started: time.Now().UTC(), Ended: time.Now().UTC(),
		},
		Artifacts: []evidence.Artifact{{Name: evidence.StdoutLog, SHA256: log, Bytes: 1}},
	}
	if snapshot != "" {
		r.Record.Snapshot = &evidence.Snapshot{SHA256: snapshot, Path: "p", TreeDigest: strings.Repeat("0", 64)}
	}
	if small != "" {
		digest := blob.Digest([]byte(small))
		r.Artifacts = append(r.Artifacts, evidence.Artifact{Name: evidence.ChangesDiff, SHA256: digest, Bytes: int64(len(small))})
		r.Inline = map[string][]byte{digest: []byte(small)}
	}
	refused, err := mu.m.Finish(mu.t.Context(), dispatch.FinishRequest{Session: mu.session, Results: []dispatch.Result{r}})
	if err == nil && len(refused.Refused) > 0 {
		mu.t.Errorf("refused: %v", refused)
	}
	return err
}

func (mu museum) collect(dry bool) job.Collection {
	mu.t.Helper()
	c, err := mu.m.Collect(mu.t.Context(), dry)
	if err != nil {
		mu.t.Fatal(err)
	}
	return c
}

func (mu museum) read(id, name string) (string, error) {
	f, _, err := mu.m.OpenArtifact(local(), id, 0, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(f)
	return string(raw), err
}

func TestOnlyWhatNothingRefersToIsRemoved(t *testing.T) {
	t.Parallel()
	mu := openMuseum(t, Retention{Unreferenced: day})
	l := mu.lease(1)[0]
	log, snap := mu.put("the log", 3*day), mu.put("the snapshot", 3*day)
	mu.put("nobody's", 3*day)
	mu.put("on its way", time.Minute)
	if err := mu.finish(l, log, snap, "the diff"); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{log, snap} { // as if that had been long ago
		at := time.Now().Add(-3 * day)
		if err := os.Chtimes(filepath.Join(mu.folder, "blobs", digest[:2], digest[2:]), at, at); err != nil {
			t.Fatal(err)
		}
	}
	kept := mu.put("a file", 3*day) // of a session
	err := mu.m.Store.Update(t.Context(), func(tx store.Tx) error {
		return tx.Files().Put(t.Context(), &file.File{Session: "s", Path: "f", SHA256: kept, Size: 6}, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := job.Collection{DryRun: true, Blobs: 1, BlobBytes: 8, KeptBlobs: 4, KeptBytes: 35}
	if c := mu.collect(true); c != want {
		t.Fatalf("a dry run says %+v", c)
	}
	if want.DryRun = false; mu.collect(false) != want {
		t.Fatal("the real one says something else")
	}
	if want.Blobs, want.BlobBytes = 0, 0; mu.collect(false) != want {
		t.Fatal("the second finds more")
	}
	if text, err := mu.read(l.JobID, evidence.StdoutLog); text != "the log" {
		t.Fatal(text, err)
	}
	if text, err := mu.read(l.JobID, evidence.ChangesDiff); text != "the diff" {
		t.Fatal(text, err)
	}
}

func TestEachKindHasItsTime(t *testing.T) {
	t.Parallel()
	mu := openMuseum(t, Retention{Jobs: 40 * day, Events: 30 * day, Output: 20 * day, Snapshots: 10 * day, Workers: 50 * day, Unreferenced: day})
	l := mu.lease(2)
	for i := range l {
		log, snap := mu.put(fmt.Sprint("log", i), 0), mu.put(fmt.Sprint("snapshot", i), 0)
		if err := mu.finish(l[i], log, snap, "diff"); err != nil {
			t.Fatal(err)
		}
	}
	id := l[0].JobID
	if c := mu.collect(false); c.Plans+c.Events+c.Blobs+c.SmallBytes+c.Workers != 0 {
		t.Fatalf("at first %+v", c)
	}
	first, err := mu.m.Events(local(), event.Filter{}, 1)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}

	mu.later(15 * day)
	if c := mu.collect(false); c.Blobs != 2 || c.Plans+c.Events+c.SmallBytes != 0 {
		t.Fatalf("after 15 days %+v", c)
	}
	if _, _, err := mu.m.OpenSnapshot(local(), id, 0); !fault.Is(err, fault.Gone) || fault.CodeOf(err) != "expired" {
		t.Fatalf("the snapshot: %v", err)
	}
	if text, err := mu.read(id, evidence.StdoutLog); text != "log0" {
		t.Fatal(text, err)
	}

	mu.later(25 * day)
	if c := mu.collect(true); c.Blobs != 2 || c.SmallBytes == 0 {
		t.Fatalf("a dry run after 25 days %+v", c)
	}
	if c := mu.collect(false); c.Blobs != 2 || c.SmallBytes == 0 || c.Plans+c.Events != 0 {
		t.Fatalf("after 25 days %+v", c)
	}
	for _, name := range []string{evidence.StdoutLog, evidence.ChangesDiff} {
		if _, err := mu.read(id, name); !fault.Is(err, fault.Gone) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if _, err := mu.m.Logs(local(), id, sandbox.Stdout, 0); !fault.Is(err, fault.Gone) {
		t.Fatalf("the log: %v", err)
	}
	if r, err := mu.m.Evidence(local(), id, 0); err != nil || r.Snapshot == nil {
		t.Fatal("the record went too", err)
	}

	mu.later(35 * day)
	if c := mu.collect(false); c.Events == 0 || c.Plans != 0 {
		t.Fatalf("after 35 days %+v", c)
	}
	last, err := mu.m.LastEvent(local())
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []int64{first[0].Seq, last - 2} {
		if _, err := mu.m.Events(local(), event.Filter{After: after}, 10); !fault.Is(err, fault.Gone) || fault.CodeOf(err) != "gap" {
			t.Fatalf("after %d of %d: %v", after, last, err)
		}
		if err := mu.m.CheckCursor(local(), after); fault.CodeOf(err) != "gap" {
			t.Fatal(err)
		}
	}
	for _, after := range []int64{0, last - 1, last} {
		if es, err := mu.m.Events(local(), event.Filter{After: after}, 10); err != nil || len(es) != 1-int(after/last) {
			t.Fatal(after, es, err)
		}
	}

	mu.later(45 * day)
	if c := mu.collect(true); c.Plans != 2 {
		t.Fatalf("a dry run after 45 days %+v", c)
	}
	if c := mu.collect(false); c.Plans != 2 {
		t.Fatalf("after 45 days %+v", c)
	}
	if _, err := mu.m.Job(local(), id); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}

	mu.later(55 * day)
	if c := mu.collect(false); c.Workers != 1 {
		t.Fatalf("after 55 days %+v", c)
	}
}

// Results come in that name old blobs while those are being removed: a result
// that was taken has its bytes, whoever was first.
func TestNoResultLosesItsBytes(t *testing.T) {
	t.Parallel()
	mu := openMuseum(t, Retention{Unreferenced: day})
	const all = 120
	leases := mu.lease(all)
	var wanted []string
	for i := range all {
		wanted = append(wanted, mu.put(fmt.Sprint("bytes of ", i), 3*day))
	}
	done := make(chan struct{})
	var passes sync.WaitGroup
	removed := int64(0)
	passes.Go(func() {
		for {
			c, err := mu.m.Collect(mu.t.Context(), false)
			if err != nil {
				t.Error(err)
			}
			removed += c.Blobs
			select {
			case <-done:
				return
			default:
			}
		}
	})
	var finishers sync.WaitGroup
	for w := range 4 {
		finishers.Go(func() {
			for i := w; i < all; i += 4 {
				err := mu.finish(leases[i], wanted[i], "", "")
				for fault.CodeOf(err) == "blob_missing" { // the pass was first
					mu.put(fmt.Sprint("bytes of ", i), 3*day)
					err = mu.finish(leases[i], wanted[i], "", "")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	finishers.Wait()
	close(done)
	passes.Wait()
	for i := range all {
		if text, err := mu.read(leases[i].JobID, evidence.StdoutLog); text != fmt.Sprint("bytes of ", i) {
			t.Fatalf("result %d has %q, %v", i, text, err)
		}
	}
	t.Logf("%d blobs were removed meanwhile", removed)
}

func TestLiveOutputOfLostLeases(t *testing.T) {
	t.Parallel()
	mu := openMuseum(t, Retention{})
	l := mu.lease(1)[0]
	lost := dispatch.Held{JobID: l.JobID, Fence: l.Fence - 1}
	for _, h := range []dispatch.Held{l.Held, lost, {JobID: job.NewID(), Fence: 7}} {
		if err := mu.m.outputs.take(t.Context(), h, &dispatch.Chunk{Stream: sandbox.Stdout, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if c := mu.collect(false); c.Outputs != 2 {
		t.Fatalf("%+v", c)
	}
	if got := mu.m.outputs.leases(); len(got) != 1 || got[0] != l.Held {
		t.Fatalf("%v stay", got)
	}
}

func TestNewPlansAndRunsAreRefusedWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	mu := openMuseum(t, Retention{})
	l := mu.lease(1)[0]
	mu.m.Data, mu.m.MinDisk = mu.folder, 1<<62
	_, err := mu.m.SubmitPRD(local(), job.PRD{Title: "x", Tasks: []job.Task{{}}}, "", "")
	if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != "disk_full" {
		t.Fatal(err)
	}
	req := run.Request{Code: "echo hello", Language: "bash"}
	_, queued := mu.m.SubmitRuns(local(), []run.Request{req}, run.Asked{})
	_, awaited := mu.m.Execute(local(), req, run.Asked{})
	for _, err := range []error{queued, awaited} {
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Unavailable || f.Code != "disk_full" || f.RetryAfter <= 0 {
			t.Errorf("a run is answered with %v", err)
		}
	}
	if list, err := mu.m.Runs(local(), store.RunFilter{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("%d runs are stored, %v", len(list), err)
	}
	if err := mu.finish(l, blob.Empty, "", "what runs can end"); err != nil {
		t.Fatal(err)
	}
	mu.m.MinDisk = 1
	if _, err := mu.m.SubmitRuns(local(), []run.Request{req}, run.Asked{}); err != nil {
		t.Error(err)
	}
	if _, err := mu.m.SubmitPRD(local(), job.PRD{Title: "x", Tasks: []job.Task{{}}}, "", ""); err != nil {
		t.Fatal(err)
	}
}

func TestRegistrationsAreBounded(t *testing.T) {
	t.Parallel()
	mu := openMuseum(t, Retention{})
	err := mu.m.Store.Update(t.Context(), func(tx store.Tx) error {
		for i := range maxWorkers {
			if err := tx.Workers().Put(t.Context(), job.Worker{ID: fmt.Sprint("gone", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := dispatch.Registration{
		Wire: dispatch.Version, WorkerID: "new", Identity: "i", Incarnation: "1", Role: "Employee", Slots: 1, Version: "test",
		Drivers: []dispatch.DriverSummary{{Name: "fake", Capabilities: sandbox.Capabilities{Isolation: "none", Images: []string{"*"}}}},
	}
	if _, err := mu.m.Register(t.Context(), r); !fault.Is(err, fault.Exhausted) {
		t.Fatal(err)
	}
	r.WorkerID = "w" // is known
	if _, err := mu.m.Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}
