// Package store is the contract of what is kept: one transaction writes a
// state change and its event. Two adapters fulfil it (SQLite, and
// PostgreSQL, which several managers may share), and both pass the suite in
// storetest.
//
// Only the manager's side imports it. Decisions are made above, in queue; the
// adapters hold SQL and nothing else.
package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Store is a database.
//
// Update runs fn in one transaction that no other Update interleaves with in
// effect. When it returns nil, what fn wrote is on disk; when it returns an
// error, nothing of it is. fn must have no effect but through its Tx: an
// adapter may run it again, and may share one commit among several Updates
// (then the failure of one never touches the others). That something exists,
// fn may learn only when it runs again. fn's own error is returned as it is. A
// panic in fn rolls back and goes on.
//
// View runs fn over one consistent, read-only state that includes every Update
// that returned before View was called. Writing through its Tx is an error.
//
// A Tx must not be used after fn returned, nor from several goroutines. fn must
// not call Update if it runs in one.
//
// Watch returns a channel that gets a value after commits that appended
// events: at least one after each, coalesced when the reader is slow, never
// lost for good. It is closed when ctx ends or the store closes. A reader that
// watches first and lists then misses nothing.
//
// Close waits for what runs and takes no more: later calls of Update and View
// are faults of kind Unavailable. Calling it again is harmless.
//
// Text is UTF-8 without zero bytes. Other text, which only hostile input has, is
// taken and may come back with U+FFFD in place of what is none.
//
// A list with a limit below 1 is empty, unless it says otherwise.
//
// Clients choose how large a job's payload or an event's data is, so the lists
// of jobs by filter and of events hold pages: a page ends before its limit, but
// never before its first element, when it has come to PageBytes (see Full).
type Store interface {
	Update(ctx context.Context, fn func(Tx) error) error
	View(ctx context.Context, fn func(Tx) error) error
	Watch(ctx context.Context) <-chan struct{}
	Close() error
}

// PageBytes is where a page ends.
const PageBytes = 4 << 20

// JobBytes is what a job of a page counts for.
func JobBytes(j *job.Job) int { return len(j.Payload) + len(j.Details) }

// EventBytes is what an event of a page counts for.
func EventBytes(e *event.Event) int { return len(e.Data) }

// Full reports whether a page ended, or would have, because of its bytes: then
// there may be more behind it, however short it is.
func Full[T any](page []T, size func(*T) int) bool {
	sum := 0
	for i := range page {
		sum += size(&page[i])
	}
	return sum >= PageBytes
}

// Tx is the inside of a transaction.
type Tx interface {
	Jobs() Jobs
	Events() Events
	Workers() Workers
	Records() Records
	Keys() Keys
	Organisation() Organisation
	Leaders() Leaders
	Replies() Replies
	Runs() Runs
	Hooks() Hooks
	Sandboxes() Sandboxes
	Execs() Execs
	Files() Files
	Synced() Synced
	Machines() Machines
	Sessions() Sessions
	Contracts() Contracts
	Fleet() Fleet
	Triggers() Triggers
	Firings() Firings
	Notices() Notices
	Switches() Switches
	History() History
	Audit() Audit
}

// Jobs keeps the jobs. Times are kept to the microsecond, in UTC.
type Jobs interface {
	// Add stores new jobs and sets their Seq. An id that exists is a Conflict.
	Add(ctx context.Context, jobs ...*job.Job) error
	// Get returns a job, or a fault of kind NotFound.
	Get(ctx context.Context, id string) (job.Job, error)
	// Find returns those of the jobs that there are, in order of Seq.
	Find(ctx context.Context, ids ...string) ([]job.Job, error)
	// Put stores the changed fields of a job that exists: everything but ID,
	// RootID, Owner, Seq, DependsOn, CreatedAt and Trace.
	Put(ctx context.Context, j *job.Job) error
	// List returns a page of jobs, newest first (largest Seq first).
	List(ctx context.Context, f JobFilter) ([]job.Job, error)
	// Due returns QUEUED jobs that wait for nothing and are ready at now:
	// highest priority first, then oldest.
	Due(ctx context.Context, now time.Time, limit int) ([]job.Job, error)
	// NextReady returns the earliest ReadyAt of a QUEUED job that waits for
	// nothing, or the zero time.
	NextReady(ctx context.Context) (time.Time, error)
	// Leasable returns ASSIGNED jobs that are bound to nobody or to one of
	// names: highest priority first, then oldest. Jobs with role Validator are
	// ordinary jobs here.
	Leasable(ctx context.Context, names []string, limit int) ([]job.Job, error)
	// Bound returns ASSIGNED jobs that are bound to a name: highest priority
	// first, then oldest.
	Bound(ctx context.Context, name string, limit int) ([]job.Job, error)
	// Expired returns IN_PROGRESS and VALIDATING jobs, roots aside, whose lease
	// ended before now: oldest lease first.
	Expired(ctx context.Context, now time.Time, limit int) ([]job.Job, error)
	// HeldBy returns the IN_PROGRESS and VALIDATING jobs, roots aside, whose
	// lease the worker holds.
	HeldBy(ctx context.Context, worker string) ([]job.Job, error)
	// Dependents returns the jobs that depend on one of ids, in order of Seq.
	Dependents(ctx context.Context, ids ...string) ([]job.Job, error)
	// Children returns the tasks of a root, in order of Seq.
	Children(ctx context.Context, rootID string) ([]job.Job, error)
	// States tells how the tasks of roots stand, in no order.
	States(ctx context.Context, rootIDs ...string) ([]TaskState, error)
	// Busy counts, per project, the jobs that are ASSIGNED or IN_PROGRESS, roots aside.
	Busy(ctx context.Context) (map[int64]int, error)
	// Stats counts jobs by state, roots aside. owner "" counts every owner's.
	Stats(ctx context.Context, owner string) (JobStats, error)
}

// TaskState is how a task of a root stands.
type TaskState struct {
	ID, RootID string
	State      job.State
}

// JobFilter chooses jobs. Zero fields choose all.
type JobFilter struct {
	State     job.State
	ProjectID *int64
	Role      string
	RootID    string
	Owner     string
	Outcome   job.Outcome
	Before    int64 // only jobs with a smaller Seq
	Limit     int   // 0 is 100
}

// JobStats counts jobs. OldestQueued is when the oldest QUEUED or ASSIGNED job
// was created; zero when there is none.
type JobStats struct {
	Counts       map[job.State]int64
	DeadLetters  int64 // FAILED with outcome failed or lost
	OldestQueued time.Time
}

// Events keeps the record.
type Events interface {
	// Append stores events in order and sets their Seq.
	Append(ctx context.Context, events ...*event.Event) error
	// List returns a page of matching events in order of Seq, at most limit.
	List(ctx context.Context, f event.Filter, limit int) ([]event.Event, error)
	// Last returns the largest Seq, or 0.
	Last(ctx context.Context) (int64, error)
}

// Workers keeps who has registered.
type Workers interface {
	Get(ctx context.Context, id string) (job.Worker, error) // NotFound
	// BySession returns the worker that has a session, or NotFound.
	BySession(ctx context.Context, session string) (job.Worker, error)
	Put(ctx context.Context, w job.Worker) error    // insert or replace
	List(ctx context.Context) ([]job.Worker, error) // by ID
}

// Records keeps evidence, one record and one set of artifacts per try.
type Records interface {
	// Add stores the record of a try. A try that has one, and two artifacts of
	// one name, are a Conflict. blobs are small ones that the record or the
	// artifacts name, by digest; they are kept with it.
	Add(ctx context.Context, r evidence.Record, artifacts []evidence.Artifact, blobs map[string][]byte) error
	// Get returns the record of one try, or of the newest when attempt is 0;
	// NotFound when there is none.
	Get(ctx context.Context, jobID string, attempt int) (evidence.Record, error)
	// Artifacts returns the artifacts of one try, or of the newest when
	// attempt is 0, by name.
	Artifacts(ctx context.Context, jobID string, attempt int) ([]evidence.Artifact, error)
	// Blob returns a blob that is kept with the record of one try, or of the
	// newest when attempt is 0, and whether it is.
	Blob(ctx context.Context, jobID string, attempt int, sha256 string) ([]byte, bool, error)
}

// Keys keeps API keys by hash.
type Keys interface {
	Add(ctx context.Context, k policy.Key) error                   // an id or hash that exists is a Conflict
	ByHash(ctx context.Context, hash [32]byte) (policy.Key, error) // NotFound
	Get(ctx context.Context, id string) (policy.Key, error)        // NotFound
	List(ctx context.Context) ([]policy.Key, error)                // oldest first
	// Used notes when a key was used, unless a later use is known.
	Used(ctx context.Context, id string, at time.Time) error
	// Revoke ends a key, or returns NotFound. A key that was revoked before
	// keeps that time.
	Revoke(ctx context.Context, id string, at time.Time) error
}

// Leaders keeps who leads. The fence grows with each change of holder; a
// leader's write passes its fence to Check in the same transaction.
type Leaders interface {
	// Acquire makes holder the leader if nobody else's term runs at now, or if
	// force is set, until now+term. It returns the fence, and whether holder
	// leads. Acquiring again extends the term and keeps the fence.
	Acquire(ctx context.Context, holder string, now time.Time, term time.Duration, force bool) (fence int64, leads bool, err error)
	// Holder returns who leads, or led last; "" when nobody ever did.
	Holder(ctx context.Context) (string, error)
	// Check returns a Conflict unless fence is the current one.
	Check(ctx context.Context, fence int64) error
}

// Replies keeps the answers to requests that carried an idempotency key.
type Replies interface {
	// Get returns the reply to a key of an owner, or NotFound.
	Get(ctx context.Context, owner, key string) (Reply, error)
	// Put keeps a reply, in place of an earlier one.
	Put(ctx context.Context, owner, key string, r Reply) error
	// Forget removes replies older than before and returns how many.
	Forget(ctx context.Context, before time.Time) (int64, error)
}

// Reply is a kept answer. Request is a digest of route and body, so that one
// key with another request can be refused.
type Reply struct {
	Request string
	Body    json.RawMessage
	At      time.Time
}

// History is what is kept of the past, and how it is let go.
type History interface {
	// Floor returns the largest Seq of an event that was forgotten, or 0: a
	// reader whose cursor is below it has missed something.
	Floor(ctx context.Context) (int64, error)
	// ForgetEvents removes the oldest events, at most limit, as long as they are
	// older than before, and raises the floor. The newest event is always kept.
	ForgetEvents(ctx context.Context, before time.Time, limit int) (int64, error)
	// EndedPlans returns the ids of roots that ended before, oldest end first.
	EndedPlans(ctx context.Context, before time.Time, limit int) ([]string, error)
	// ForgetPlan removes a root with its jobs and their records, and returns how
	// many jobs went, the root aside. A root that has not ended is a Conflict;
	// one that does not exist is a success.
	ForgetPlan(ctx context.Context, rootID string) (int64, error)
	// Kept lists what records refer to, in order of job and attempt, after a
	// place; the zero Kept is before the first.
	Kept(ctx context.Context, after Kept, limit int) ([]Kept, error)
	// DropBlobs removes blobs that are kept with a record, notes what was
	// dropped, and returns how many bytes went.
	DropBlobs(ctx context.Context, jobID string, attempt int, digests []string, what Dropped) (int64, error)
	// ForgetWorkers removes workers that are not connected and were last seen
	// before, and returns how many.
	ForgetWorkers(ctx context.Context, before time.Time) (int64, error)
	// EndedRuns returns the ids of runs that ended before, oldest end first.
	EndedRuns(ctx context.Context, before time.Time, limit int) ([]string, error)
	// ForgetRuns removes runs that have ended, with what is kept of them, and
	// returns how many there were; one that has not ended stays.
	ForgetRuns(ctx context.Context, ids ...string) (int64, error)
	// KeptRuns lists what ended runs refer to, in order of the id, after one.
	KeptRuns(ctx context.Context, after string, limit int) ([]KeptRun, error)
	// DropRunBlobs removes the small blobs of an ended run, notes it, and
	// returns how many bytes went.
	DropRunBlobs(ctx context.Context, id string) (int64, error)
	// EndedSandboxes returns the ids of sandboxes that ended before and have no
	// snapshot, oldest end first; ForgetSandboxes removes such with their execs.
	EndedSandboxes(ctx context.Context, before time.Time, limit int) ([]string, error)
	ForgetSandboxes(ctx context.Context, ids ...string) (int64, error)
	// KeptExecs lists what ended execs refer to, in order of the id, after one;
	// DropExecBlobs removes the small blobs of one and notes that its output is
	// gone, and returns how many bytes went.
	KeptExecs(ctx context.Context, after string, limit int) ([]KeptExec, error)
	DropExecBlobs(ctx context.Context, id string) (int64, error)
	// FileDigests lists what stored files refer to, in order, behind one.
	FileDigests(ctx context.Context, after string, limit int) ([]string, error)
}

// Kept is what one record refers to.
type Kept struct {
	JobID     string
	Attempt   int
	Ended     time.Time
	Snapshot  string // digest, or ""
	Artifacts []evidence.Artifact
	Small     int64 // bytes of the blobs that lie with it
	Dropped   Dropped
}

// Dropped says which of the blobs that lay with a record were dropped.
type Dropped int64

// What can be dropped; they add up.
const (
	DroppedSnapshot Dropped = 1
	DroppedOutput   Dropped = 2
)
