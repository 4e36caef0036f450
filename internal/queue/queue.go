// Package queue is what decides about jobs: who gets one, for how long, what a
// result means, and what follows from it for the others of its PRD. Each
// method is one transaction that writes the state changes and their events
// together, so the record and the state cannot part.
//
// It starts no goroutine, opens no door, and knows no clock but the one that it
// is handed. The manager calls it; the store keeps what it decides.
//
// Fencing. Every lease has a number, which grows with each lease and also when
// a lease is taken away (expired, released, cancelled). A result is taken only
// under the current number. A result that was taken leaves the number as it
// is, and leaves a record of the try, by which the same result said again is
// told apart from a late one.
package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// DefaultLeaseTerm is how long a lease lasts unless the Config says otherwise.
const DefaultLeaseTerm = 30 * time.Second

// batch bounds how many jobs one transaction of the leader touches, so that
// no other writer waits long.
const batch = 256

// Config is what a queue is made of. Store is required; the zero value of
// everything else has a meaning.
type Config struct {
	Store  store.Store
	Now    func() time.Time // nil is time.Now
	Logger *slog.Logger     // nil logs nothing

	// Jitter returns a duration from 0 to most; nil draws it at random.
	Jitter func(most time.Duration) time.Duration

	// Roles binds the jobs of a role to a worker or model. Fallback binds the
	// jobs of the other roles; "" leaves them to any worker.
	Roles    map[string]string
	Fallback string

	ProjectCap int           // jobs of one project that are out at a time; 0 is no bound
	LeaseTerm  time.Duration // 0 is DefaultLeaseTerm
	// Halt says what the kill switch does to the jobs of a project; nil is
	// nothing, to any.
	Halt func(project int64) Halt
}

// Halt is what the kill switch does to a job: one that it stops is not given out,
// and one that it killed is not tried again.
type Halt struct {
	Stopped, Killed bool
	Reason          string
}

// Queue decides. Its methods are safe for concurrent use: the store puts their
// transactions in order.
type Queue struct {
	cfg     Config
	leading atomic.Int64          // the fence of Lead
	held    atomic.Pointer[error] // why nothing is handed out
}

// New returns a queue.
func New(cfg Config) (*Queue, error) {
	if cfg.Store == nil {
		return nil, errors.New("make a queue: it needs a store")
	}
	if cfg.ProjectCap < 0 {
		return nil, errors.New("make a queue: the cap per project must not be negative")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Jitter == nil {
		cfg.Jitter = randomJitter
	}
	if cfg.LeaseTerm <= 0 {
		cfg.LeaseTerm = DefaultLeaseTerm
	}
	if cfg.Halt == nil {
		cfg.Halt = func(int64) Halt { return Halt{} }
	}
	return &Queue{cfg: cfg}, nil
}

// Obey tells the queue what the kill switch does. It is called before anything
// else is.
func (q *Queue) Obey(halt func(project int64) Halt) { q.cfg.Halt = halt }

// Lead tells the queue that its manager leads, under which fence; 0 says that
// it does not. A leader assigns what is submitted in the transaction that stores
// it, where no cap per project speaks against that, so that a job need not wait
// for the schedule.
func (q *Queue) Lead(fence int64) { q.leading.Store(fence) }

// Leading returns the fence of Lead.
func (q *Queue) Leading() int64 { return q.leading.Load() }

// Hold keeps the queue from handing out anything, because of err; nil lets it go
// on. What was handed out goes on, and what is submitted is kept.
func (q *Queue) Hold(err error) {
	if err == nil {
		q.held.Store(nil)
		return
	}
	q.held.Store(&err)
}

// holding returns why nothing is handed out; nil while it is.
func (q *Queue) holding() error {
	if err := q.held.Load(); err != nil {
		return *err
	}
	return nil
}

// Job returns a job that the caller can see; any other is a fault of kind
// NotFound, whether it exists or not.
func (q *Queue) Job(ctx context.Context, caller policy.Caller, id string) (j job.Job, err error) {
	err = q.cfg.Store.View(ctx, func(tx store.Tx) error {
		j, err = tx.Jobs().Get(ctx, id)
		if err != nil {
			return err
		}
		return visible(caller, &j)
	})
	if err != nil {
		return job.Job{}, err
	}
	return j, nil
}

// Stats counts the jobs that the caller can see.
func (q *Queue) Stats(ctx context.Context, caller policy.Caller) (s store.JobStats, err error) {
	owner := caller.ID
	if caller.SeesAll() {
		owner = ""
	}
	err = q.cfg.Store.View(ctx, func(tx store.Tx) error {
		s, err = tx.Jobs().Stats(ctx, owner)
		return err
	})
	return s, err
}

// now is the time of a decision, as exact as the store keeps it, so that a
// job that was just decided about equals the one that is read back.
func (q *Queue) now() time.Time { return q.cfg.Now().UTC().Truncate(time.Microsecond) }
