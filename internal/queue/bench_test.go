package queue_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

// BenchmarkJob takes jobs from submission to their recorded end, sixteen at a
// time, as a loaded manager does.
func BenchmarkJob(b *testing.B) {
	const together = 16
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "db"), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	q, err := queue.New(queue.Config{Store: db})
	if err != nil {
		b.Fatal(err)
	}
	var fence int64
	err = db.Update(ctx, func(tx store.Tx) (err error) {
		fence, _, err = tx.Leaders().Acquire(ctx, "bench", time.Now(), time.Hour, true)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	q.Lead(fence)
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for done := 0; done < b.N; done += together {
		var group sync.WaitGroup
		for range together {
			group.Go(func() {
				_, err := q.Submit(ctx, policy.LocalCaller(), benchPRD(), "", "")
				check(err)
			})
		}
		group.Wait()
		_, _, err := q.Schedule(ctx, fence)
		check(err)
		leased, err := q.Lease(ctx, job.Worker{ID: "bench"}, together)
		check(err)
		results := make([]dispatch.Result, 0, len(leased))
		for i := range leased {
			results = append(results, benchResult(&leased[i]))
		}
		_, err = q.Finish(ctx, "bench", results)
		check(err)
	}
}

func benchPRD() job.PRD {
	payload := json.RawMessage(`{"action":"create file"}`)
	return job.PRD{
		ProjectID: 1, Title: "bench", Tasks: []job.Task{{Role: job.DefaultRole, Payload: payload}},
		Source: json.RawMessage(`{"project_id":1,"title":"bench","tasks":[{"role":"Employee","payload":{"action":"create file"}}]}`),
	}
}

func benchResult(j *job.Job) dispatch.Result {
	digest := blob.Empty
	happenings := make([]dispatch.Happening, 0, 4)
	for i, kind := range []event.Type{event.JobStarted, event.SandboxCreated, event.SandboxDestroyed, event.SnapshotStored} {
		happenings = append(happenings, dispatch.Happening{
			N: int64(i + 1), Type: kind, At: time.Now(), Data: json.RawMessage(`{"sandbox":"` + strconv.Itoa(i) + `","driver":"fake","image":""}`),
		})
	}
	return dispatch.Result{
		Held: dispatch.Held{JobID: j.ID, Fence: j.Fence}, Success: true,
		Details: json.RawMessage(`{"snapshot":"x.tar","snapshot_sha256":"` + digest + `","verdict":"ok","exit_code":0}`),
		Record: evidence.Record{
			JobID: j.ID, Attempt: j.Attempt, Fence: j.Fence, Worker: "bench", Driver: "fake", PayloadSHA256: digest,
			Snapshot: &evidence.Snapshot{Path: "x.tar", SHA256: digest, Bytes: 3072, TreeDigest: "sha256:" + digest},
		},
		Artifacts:  []evidence.Artifact{{Name: evidence.StdoutLog, SHA256: digest}, {Name: evidence.StderrLog, SHA256: digest}, {Name: evidence.ChangesDiff, SHA256: digest}},
		Happenings: happenings,
	}
}
