package httpapi

import (
	"context"
	"encoding/json"
	"io"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Manager is everything that this door needs of the manager. Each call finds
// its caller in ctx (policy.From) and shows that caller only what is theirs.
// Errors are faults.
type Manager interface {
	Queue
	Worker
	Controller
	History
	Records
	Overseer
	Authenticator
	Runner
	RunReader
	Builder
}

// Queue takes plans and shows jobs.
type Queue interface {
	// SubmitPRD stores a plan. The same key with the same digest answers as it
	// did before; with another digest it is a Conflict. "" is no key.
	SubmitPRD(ctx context.Context, prd job.PRD, idempotencyKey, requestDigest string) (job.Submission, error)
	// Jobs lists jobs, newest first.
	Jobs(ctx context.Context, f store.JobFilter) ([]job.Job, error)
	Job(ctx context.Context, id string) (job.Job, error)
	QueueStats(ctx context.Context) (store.JobStats, error)
}

// Worker is the side of those who do the work over plain HTTP. A nil fence is
// accepted only while the lease is current.
type Worker interface {
	Claim(ctx context.Context, id, worker string) (job.Job, error)
	Complete(ctx context.Context, id, worker string, fence *int64, success bool, details json.RawMessage) (job.Job, error)
	SubmitWork(ctx context.Context, id, worker string, fence *int64, details json.RawMessage) (job.Job, error)
	Validate(ctx context.Context, id string, v job.Validation) (job.Job, error)
	Heartbeat(ctx context.Context, id, worker string, fence *int64) (job.Job, error)
	Stream(ctx context.Context, id, worker, chunk string, final bool) (job.Job, error)
}

// Controller steers jobs from outside.
type Controller interface {
	// Assign binds a job to a worker or model; "" binds it as the role map says.
	Assign(ctx context.Context, id, model string) (job.Job, error)
	Cancel(ctx context.Context, id, reason string) (job.Job, error)
	Retry(ctx context.Context, id string) (job.Job, error)
}

// History is the record of events.
type History interface {
	// Events lists events in order of their cursor, at most limit.
	Events(ctx context.Context, f event.Filter, limit int) ([]event.Event, error)
	// LastEvent returns the cursor of the newest event, whoever's it is.
	LastEvent(ctx context.Context) (int64, error)
	// CheckCursor refuses a cursor that is older than what is kept.
	CheckCursor(ctx context.Context, after int64) error
	// WatchEvents returns a channel that gets a value after new events, and is
	// closed when ctx ends.
	WatchEvents(ctx context.Context) <-chan struct{}
}

// Records is what is kept of each try. Attempt 0 is the newest.
type Records interface {
	Artifacts(ctx context.Context, id string, attempt int) ([]evidence.Artifact, error)
	OpenArtifact(ctx context.Context, id string, attempt int, name string) (io.ReadSeekCloser, evidence.Artifact, error)
	Evidence(ctx context.Context, id string, attempt int) (evidence.Record, error)
	OpenSnapshot(ctx context.Context, id string, attempt int) (io.ReadSeekCloser, evidence.Snapshot, error)
	// Logs returns a piece of output from an offset on.
	Logs(ctx context.Context, id string, s sandbox.Stream, offset int64) (job.Log, error)
	// LogsArrived returns a channel that is closed when some output arrives.
	LogsArrived() <-chan struct{}
}

// Overseer says how the whole is doing.
type Overseer interface {
	Workers(ctx context.Context) ([]job.Worker, error)
	Health(ctx context.Context) (job.Health, error)
	// Ready returns nil when requests can be served.
	Ready(ctx context.Context) error
	// Collect removes what is older than its retention, or says what it would
	// remove.
	Collect(ctx context.Context, dry bool) (job.Collection, error)
}

// Runner takes code to be run.
type Runner interface {
	// Execute does a run while its caller waits; it ends with ctx.
	Execute(ctx context.Context, req run.Request, asked run.Asked) (run.Answer, error)
	// SubmitRuns queues runs, all or none.
	SubmitRuns(ctx context.Context, reqs []run.Request, asked run.Asked) (run.Submission, error)
	CancelRun(ctx context.Context, id, reason string) (run.Run, error)
	// Pool says what waits for code at the workers, Languages what it can be
	// written in.
	Pool(ctx context.Context) []run.Pool
	Languages() []language.Status
}

// RunReader shows runs and what they came to.
type RunReader interface {
	Run(ctx context.Context, id string) (run.Run, error)
	// Runs lists runs, newest first.
	Runs(ctx context.Context, f store.RunFilter) ([]run.Run, error)
	// Wait returns a run when it has ended, or with the cause when ctx has.
	Wait(ctx context.Context, id string) (run.Run, error)
	RunAnswer(ctx context.Context, id string) (run.Answer, error)
	RunRecord(ctx context.Context, id string) ([]byte, error)
	OpenRunArtifact(ctx context.Context, id, name string) (io.ReadSeekCloser, run.Artifact, error)
	// RunOutput returns a piece of output from an offset on; Arrived returns a
	// channel that is closed when some arrives.
	RunOutput(ctx context.Context, id string, s sandbox.Stream, offset int64) (run.Piece, error)
	Arrived() <-chan struct{}
	// Place says where in the line a run is that waits here.
	Place(id string) (run.Place, bool)
}

// Authenticator turns a secret into a caller.
type Authenticator interface {
	Authenticate(ctx context.Context, secret string) (policy.Caller, error)
}
