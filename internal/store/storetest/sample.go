package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// odd is text that a careless layer would change.
const odd = "ünïcödé 日本語 🚀 'quoted' \"double\" \\ %s $1 ; -- \t\r\n end "

// moment returns a fixed time, n seconds and some microseconds in.
func moment(n int) time.Time {
	return time.Date(2025, 3, 4, 5, 6, n, 123456000, time.UTC)
}

// fullJob has no zero field but Seq.
func fullJob() job.Job {
	return job.Job{
		ID: job.NewID(), RootID: job.NewID(), Owner: "owner " + odd, ProjectID: 1 << 40, SessionID: "session " + odd,
		Key: "key " + odd, Title: "title " + odd, Role: "role " + odd, Type: "type " + odd,
		Payload: json.RawMessage(`{"text":"` + strings.Repeat("日本", 500) + `","n":1e400, "spaces":  [ ] }`), Priority: -7,
		DependsOn: []string{"b", "a", odd}, Timeout: 12345678901 * time.Nanosecond, MaxRetries: 4, Validate: true,
		State: job.Validating, Outcome: job.OutcomeRejected, Details: json.RawMessage(`{"a":[1,2,{"b":null}]}`),
		AssignedModel: "model " + odd, Waiting: 2, Open: 3, Failures: 5, Losses: 6, Attempt: 8,
		Worker: "worker " + odd, Submitter: "submitter " + odd, Fence: 1<<62 + 1, LeaseUntil: moment(1), Reported: 7,
		ReadyAt: moment(2), CreatedAt: moment(3), StartedAt: moment(4), CompletedAt: moment(5), UpdatedAt: moment(6), Trace: "trace " + odd,
	}
}

// newJob is a plain task that waits in the queue.
func newJob() *job.Job {
	return &job.Job{
		ID: job.NewID(), RootID: "root", Owner: "local", Title: "a task", Role: job.DefaultRole,
		Payload: json.RawMessage(`{}`), State: job.Queued, ReadyAt: moment(0), CreatedAt: moment(0), UpdatedAt: moment(0),
	}
}

// fullEvent has no zero field but Seq.
func fullEvent() event.Event {
	return event.Event{
		Type: event.JobFailed, Version: 3, Entity: "job", EntityID: "entity " + odd, JobID: "job " + odd,
		RootID: "root " + odd, ProjectID: 1 << 41, Actor: "actor " + odd, Owner: "owner " + odd, At: moment(7),
		Data: json.RawMessage(`{"text": "` + strings.Repeat("é", 1000) + `"}`),
	}
}

// newEvent is a plain event.
func newEvent(entityID string) *event.Event {
	return &event.Event{Type: event.JobCreated, Version: 1, Entity: "job", EntityID: entityID, JobID: entityID, Actor: "local", Owner: "local", At: moment(0)}
}

// fullRecord has no zero field.
func fullRecord(jobID string, attempt int) evidence.Record {
	return evidence.Record{
		JobID: jobID, Attempt: attempt, Fence: 9, Worker: "worker " + odd, PayloadSHA256: strings.Repeat("a", 64),
		Command: []string{"sh", "-c", odd}, Sandbox: "box", Driver: "fake", Isolation: "none", Image: "host",
		Network: sandbox.NetworkNone, Asked: sandbox.Limits{MilliCPU: 1, Memory: 2, Processes: 3, Disk: 4, OpenFiles: 5},
		Enforced: sandbox.Limits{MilliCPU: 6, Memory: 7, Processes: 8, Disk: 9, OpenFiles: 10}, Timeout: time.Minute,
		Verdict: sandbox.OOM, Cause: "memory " + odd, ExitCode: 137, Signal: 9, Started: moment(1), Ended: moment(2),
		Usage:    &sandbox.Usage{CPU: time.Second, PeakMemory: 1 << 40, Processes: 2},
		Stdout:   evidence.Output{Bytes: 1, Seen: 2, SHA256: "s", Truncated: true},
		Stderr:   evidence.Output{Bytes: 3, Seen: 4, SHA256: "t", Truncated: true},
		Snapshot: &evidence.Snapshot{Path: "p", SHA256: "x", Bytes: 5, TreeDigest: "y"}, Skipped: []string{"fifo " + odd},
	}
}

// digestOf is the digest under which bytes are kept.
func digestOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}
