// Package dispatch is the agreement between a worker and the manager: the only
// calls that cross between them. The worker dials out and nothing dials in.
// The manager fulfils Manager in process; wire carries the same contract over
// HTTP; one suite, dispatchtest, holds both to it.
//
// The worker's side imports it without knowing the store or the manager.
package dispatch

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Version is the version of the agreement. A manager refuses a worker whose
// version it does not speak, and says so.
const Version = 1

// Bounds of what crosses. Both sides hold them.
const (
	MaxLeases     = 64       // leases in one answer
	MaxHeld       = 4096     // leases in one Extend
	MaxReports    = 256      // items in one Report
	MaxChunk      = 64 << 10 // bytes of output in one item
	MaxInline     = 32 << 10 // bytes of one blob inside a Finish
	MaxFinishes   = 64       // results in one Finish
	MaxArtifacts  = 1000     // artifacts of one try
	MaxBlobBytes  = 4 << 30  // bytes of one blob
	MaxBodyBytes  = 16 << 20 // bytes of one call, blobs aside
	MaxWait       = time.Minute
	ReportTimeout = 15 * time.Second
)

// Manager is what a worker knows of the manager.
//
// Order. Register comes first and gives a session; every other call names it.
// A call with a session that the manager does not know (it was restarted, or
// another incarnation took over) is a fault of kind Unauthenticated with code
// "unknown_session": the worker registers again, with the same incarnation,
// and keeps its leases. Calls may be repeated after a lost answer: each is
// idempotent as described.
//
// Fencing. Each lease has a number. A report or result under an older number,
// or for a job that is no longer leased, is refused and audited; the refusal
// is in the answer, for that item alone, and is final: the worker stops the
// work and drops what it had.
type Manager interface {
	// Register announces a worker. Another live worker with the same ID is a
	// fault of kind Conflict with code "worker_id_taken". Leases of an earlier
	// incarnation of the same worker are given back to the queue, but for those
	// that Holding names.
	Register(ctx context.Context, r Registration) (Welcome, error)
	// Lease waits up to req.Wait for work and answers at most req.Max leases,
	// none when there is none. It returns early when ctx ends.
	Lease(ctx context.Context, req LeaseRequest) ([]Lease, error)
	// Extend renews leases and says which are gone: work on those must stop.
	Extend(ctx context.Context, req ExtendRequest) (ExtendAnswer, error)
	// Report hands over events and output of running jobs, in order. Items
	// that were taken before (by their ordinal, or their offset) are dropped.
	Report(ctx context.Context, req ReportRequest) (Refusals, error)
	// Finish hands over results. A result that was taken before under the same
	// number is taken as said again.
	Finish(ctx context.Context, req FinishRequest) (Refusals, error)
	// Tell says which execs and sandboxes have ended. What was told before, and
	// what the manager does not know, is taken as said.
	Tell(ctx context.Context, req TellRequest) error
	// PutBlob stores bytes under their digest; bytes that do not match it are
	// a fault of kind Invalid. Storing what is there is a success, and need
	// not read r.
	PutBlob(ctx context.Context, session, sha256 string, size int64, r io.Reader) error
	// Attend holds the command stream: the manager calls rc while it is open.
	// It returns when ctx ends, or when the stream broke. One stream is open
	// per session; a new one replaces the old. Once it has returned because ctx
	// ended no call of rc is under way; before that, with several managers, some
	// may be.
	Attend(ctx context.Context, session string, rc Receiver) error
	// Leave says goodbye after a drain. Leases that are left go back.
	Leave(ctx context.Context, session string) error
}

// Beside is a Manager that shares its database with others, and reaches the
// sandboxes of a worker also while another of them holds the command stream.
type Beside interface {
	// AttendBeside holds a second stream: the manager calls host while it is
	// open, and hands out no work through it. The session must be known. It
	// returns when ctx ends, when the stream broke, or when the session is over.
	// One is open per session; a new one replaces the old. What was under way
	// over one that was replaced, or whose session is over, may end in its time.
	AttendBeside(ctx context.Context, session string, host Host) error
}

// Receiver is the worker's end of the command stream. Calls come from several
// goroutines and, but for runs and sandboxes, must answer soon.
type Receiver interface {
	Runner
	Host
	// Cancel stops the work under a lease: kills the sandbox, reports nothing
	// more. An unknown lease is a success.
	Cancel(ctx context.Context, c Cancel) error
}

// Runner is the part of the worker's end that does runs: it goes over the same
// command stream. Calls come from several goroutines.
type Runner interface {
	// Run does a run and returns how it ended. Output comes to piece while it
	// runs, from one goroutine at a time, each stream in order and without a gap
	// from order.From on; the data is piece's until it returns. An error of
	// piece ends the call as the end of ctx does. When ctx
	// ends, a run without Keep is stopped, its sandbox destroyed, and nothing
	// of it is kept; one with Keep goes on, and Run with the same ID finds it
	// again, also after its end, until Forget. A fault is about the order or
	// the worker, never about the program: kind Exhausted is "no room".
	Run(ctx context.Context, order run.Order, piece func(Chunk) error) (run.Result, error)
	// Forget drops what is kept of a run, and stops it where it still runs. An
	// unknown one is a success.
	Forget(ctx context.Context, id string) error
	// Pool says what the worker's warm pool holds.
	Pool(ctx context.Context) (PoolState, error)
}

// PoolState is what a worker's warm pool holds and has done since it started.
type PoolState struct {
	Classes []PoolClass `json:"classes"`
}

// PoolClass is one kind of waiting sandbox.
type PoolClass struct {
	Driver   string         `json:"driver"`
	Image    string         `json:"image"`
	Language string         `json:"language"`
	Limits   sandbox.Limits `json:"limits"`
	Wanted   int            `json:"wanted"`  // how many shall wait now
	Waiting  int            `json:"waiting"` // how many do
	Making   int            `json:"making"`
	Hits     int64          `json:"hits"`
	Misses   int64          `json:"misses"`
	Discards int64          `json:"discards"` // found dead or wrong at claim
	Oldest   time.Duration  `json:"oldest_ns"`
}

// Registration is how a worker announces itself.
type Registration struct {
	Wire        int             `json:"wire"`
	WorkerID    string          `json:"worker_id"`
	Identity    string          `json:"identity"`
	Incarnation string          `json:"incarnation"`
	Role        string          `json:"role"`
	Models      []string        `json:"models,omitempty"`
	Drivers     []DriverSummary `json:"drivers"`
	Slots       int             `json:"slots"`
	Version     string          `json:"version"`
	// Languages are what code can be written in on this worker.
	Languages []language.Status `json:"languages,omitempty"`
	// Holding are leases that this incarnation works on: after it lost its
	// session, or since it took over the sandboxes of an earlier incarnation.
	Holding []Held `json:"holding,omitempty"`
	// Sandboxes are those that this worker has, also from earlier incarnations.
	// What it had before and does not name is lost.
	Sandboxes []live.Standing `json:"sandboxes,omitempty"`
	// Lost are leases of an earlier incarnation whose sandboxes could not be
	// taken over. They go back to the queue, and the record says why.
	Lost []Lost `json:"lost,omitempty"`
	// Tripped are kill switches that were engaged at this machine without a
	// manager. They hold, and the manager engages them for all.
	Tripped []killswitch.Switch `json:"tripped,omitempty"`
}

// Lost is a sandbox that a restarted worker could not go on with.
type Lost struct {
	Held
	Sandbox string `json:"sandbox,omitempty"`
	Reason  string `json:"reason"`
}

// DriverSummary says what a worker can make sandboxes with.
type DriverSummary struct {
	Name         string               `json:"name"`
	Version      string               `json:"version,omitempty"`
	Capabilities sandbox.Capabilities `json:"capabilities"`
	// Degraded is why the worker does not serve the driver; "" is served.
	Degraded string `json:"degraded,omitempty"`
	// Probe is how the driver was proved; nil where it was not.
	Probe *ProbeSummary `json:"probe,omitempty"`
}

// ProbeSummary is what the isolation probe of a driver came to.
type ProbeSummary struct {
	At      time.Time `json:"at"`
	Tried   int       `json:"tried"`
	Stopped int       `json:"stopped"`
	// Exempt says why nothing had to be proved.
	Exempt string `json:"exempt,omitempty"`
}

// Welcome is the manager's answer to a registration.
type Welcome struct {
	Session     string        `json:"session"`
	LeaseTerm   time.Duration `json:"lease_term_ns"`
	ExtendEvery time.Duration `json:"extend_every_ns"`
	Gone        []Held        `json:"gone,omitempty"` // of Holding: stop these
	// Strangers are of Sandboxes: nobody knows them, or they have ended. They
	// are destroyed.
	Strangers []string `json:"strangers,omitempty"`
	// StrangeExecs are of the execs in Sandboxes: nobody knows them. Those that
	// run are killed.
	StrangeExecs []live.ExecID `json:"strange_execs,omitempty"`
	// Switches is what the kill switch says. The worker brings what it has to it
	// before it begins anything.
	Switches killswitch.State `json:"switches,omitzero"`
}

// LeaseRequest asks for work.
type LeaseRequest struct {
	Session string        `json:"session"`
	Max     int           `json:"max"`
	Wait    time.Duration `json:"wait_ns"`
}

// Held names a lease.
type Held struct {
	JobID string `json:"job_id"`
	Fence int64  `json:"fence"`
}

// Lease is one job given to one worker until a deadline.
type Lease struct {
	Held
	Attempt   int             `json:"attempt"`
	RootID    string          `json:"root_job_id"`
	ProjectID int64           `json:"project_id"`
	Title     string          `json:"title"`
	Role      string          `json:"role"`
	Payload   json.RawMessage `json:"payload"`
	Timeout   time.Duration   `json:"timeout_ns"`
	Until     time.Time       `json:"until"`
	Trace     string          `json:"trace,omitempty"` // where in a trace it belongs, or ""
}

// ExtendRequest renews leases.
type ExtendRequest struct {
	Session string `json:"session"`
	Held    []Held `json:"held"`
	// Paused says why the worker takes no more work for now, if it does not.
	Paused string `json:"paused,omitempty"`
	// Figures say how the worker is doing: nobody can ask it.
	Figures Figures `json:"figures,omitzero"`
	// Languages are said each time: whether one is active changes with the
	// images, and any manager may be asked.
	Languages []language.Status `json:"languages,omitempty"`
	// Tripped is that of a Registration, for what was tripped since.
	Tripped []killswitch.Switch `json:"tripped,omitempty"`
}

// Figures are what a worker measures of itself.
type Figures struct {
	Sandboxes int   `json:"sandboxes"`  // that are there now
	DiskFree  int64 `json:"disk_free"`  // bytes, where its sandboxes lie
	DiskBytes int64 `json:"disk_bytes"` // how large that disk is; 0 is not known
}

// ExtendAnswer says which leases are gone; the others run until Until.
type ExtendAnswer struct {
	Gone  []Held    `json:"gone,omitempty"`
	Until time.Time `json:"until"`
	// Switches is what the kill switch says: a command may not have arrived.
	Switches killswitch.State `json:"switches,omitzero"`
}

// ReportRequest hands over what happened so far.
type ReportRequest struct {
	Session string       `json:"session"`
	Items   []ReportItem `json:"items"`
}

// ReportItem is an event, or a piece of output, of one leased job.
type ReportItem struct {
	Held
	Event  *Happening `json:"event,omitempty"`
	Output *Chunk     `json:"output,omitempty"`
}

// Happening is an event that a worker saw. N counts the happenings of one
// lease from 1, so that one that is said twice is stored once. At is the
// worker's clock; the manager holds it inside the lease.
type Happening struct {
	N    int64           `json:"n"`
	Type event.Type      `json:"type"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Chunk is a piece of output at its offset.
type Chunk struct {
	Stream sandbox.Stream `json:"stream"`
	Offset int64          `json:"offset"`
	Data   []byte         `json:"data"`
}

// FinishRequest hands over results.
type FinishRequest struct {
	Session string   `json:"session"`
	Results []Result `json:"results"`
}

// Result is how one try ended. Blobs larger than MaxInline were put before;
// the smaller ones may ride along, keyed by their digest.
type Result struct {
	Held
	Success    bool                `json:"success"`
	Details    json.RawMessage     `json:"details"` // an object
	Record     evidence.Record     `json:"record"`
	Artifacts  []evidence.Artifact `json:"artifacts"`
	Inline     map[string][]byte   `json:"inline,omitempty"`
	Happenings []Happening         `json:"happenings,omitempty"`
}

// Refusals names the leases whose items were refused, with the reason.
type Refusals struct {
	Refused []Refusal `json:"refused,omitempty"`
}

// Refusal is final: the lease is not this worker's any more.
type Refusal struct {
	Held
	Reason string `json:"reason"`
}

// Cancel stops the work under a lease.
type Cancel struct {
	Held
	Reason string `json:"reason"`
}
