package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/pool"
	"github.com/aurea-dev/aurea/internal/probe"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/trace"
)

// Defaults of a Config.
const (
	DefaultSlots        = 4
	DefaultDrainTimeout = 30 * time.Second
)

// Config says how a worker is set up. Manager, Drivers, Base and WorkerID have
// no default.
type Config struct {
	Manager dispatch.Manager
	// Drivers are the ways to make sandboxes, by name; Driver names the one
	// that is used. The caller closes them after Run.
	Drivers map[string]sandbox.Driver
	Driver  string
	// Probe proves a driver at the start; one that fails is not served. nil
	// serves every driver unproved, which is for tests.
	Probe func(ctx context.Context, d sandbox.Driver) probe.Report
	// Base is the worker's folder; it is made where it is missing.
	Base     string
	WorkerID string
	Role     string
	Models   []string // further names under which it takes jobs
	Version  string
	// Slots is how many sandboxes work at a time, Memory how much their memory
	// limits may come to together: 0 is most of the machine's. Sandboxes without
	// a limit are not counted.
	Slots  int
	Memory int64
	// MinDisk is how much must be free where Base is for the worker to take
	// more jobs; 0 is a twentieth of the disk, but at most a GiB.
	MinDisk int64
	// KeepSnapshots and KeepWorkspaces are how long the worker keeps what jobs
	// left in its folder; 0 is for good.
	KeepSnapshots, KeepWorkspaces time.Duration
	Tracer                        *trace.Tracer // nil is off
	// Disk measures a file system; nil asks the machine.
	Disk func(folder string) (free, size int64, err error)
	// Image, Limits and Network are asked for where a job does not say.
	Image   string
	Limits  sandbox.Limits
	Network sandbox.Network
	// DefaultImage names the image of jobs that name none, where Image is empty
	// and that can change while the worker runs; nil is the driver's own.
	DefaultImage func() string
	// Languages are what code can be written in; nil is what we ship.
	Languages *language.Registry
	// Survey looks which programs an image has, and so which languages are
	// active in it; nil takes all of them as active, which is for tests.
	Survey func(ctx context.Context, d sandbox.Driver, image string, limits sandbox.Limits, programs []string) (Found, error)
	// Builder makes images on this machine when the manager asks; nil is
	// nobody.
	Builder dispatch.Builder
	// Pool is how many sandboxes wait for runs, by language; a language of which
	// PoolMax is more may have more waiting when they are used up fast.
	Pool    map[string]int
	PoolMax int
	// Digest is what an image stands for at this moment, "" where that is not
	// known; nil is never known.
	Digest func(image string) string
	// Bounds hold each workspace, OutputCap each stream of output.
	Bounds    evidence.Bounds
	OutputCap int64
	// NoSnapshot leaves out the snapshot, for measurements.
	NoSnapshot bool
	// DrainTimeout is how long running jobs may go on after a stop was asked
	// for, and how long their results are offered to a manager that is away.
	DrainTimeout time.Duration
	// Keep, where it is set, takes the place of the drain: it ends the process
	// at once, and does not return. What was begun stays as it is, for the next
	// process to go on with, as after a kill.
	Keep func()
	// PartitionLimit is how long sandboxes go on while no manager can be reached;
	// then all are killed. 0 is for good.
	PartitionLimit time.Duration
	// Trip is told when this machine's kill switch is pulled by a signal; nil is
	// never. The file named trip in Base pulls it too.
	Trip   <-chan struct{}
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Role = cmp.Or(c.Role, job.DefaultRole)
	c.Slots = cmp.Or(c.Slots, DefaultSlots)
	c.Network = cmp.Or(c.Network, sandbox.NetworkNone)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.Memory = cmp.Or(c.Memory, defaultMemory())
	if c.Disk == nil {
		c.Disk = measureDisk
	}
	if d := c.Drivers[c.Driver]; c.Image == "" && d != nil {
		c.Image = onlyImage(d.Capabilities())
	}
	if c.DefaultImage == nil {
		c.DefaultImage = func() string { return "" }
	}
	if c.Digest == nil {
		c.Digest = func(string) string { return "" }
	}
	if c.Bounds == (evidence.Bounds{}) {
		c.Bounds = evidence.DefaultBounds()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// onlyImage names the image of a driver that has just one, so that the evidence
// says what ran; a driver that takes any is left to its own default.
func onlyImage(c sandbox.Capabilities) string {
	if len(c.Images) == 1 && c.Images[0] != "*" {
		return c.Images[0]
	}
	return ""
}

func (c Config) check() error {
	switch {
	case c.Manager == nil:
		return fault.Field("manager", "is missing")
	case c.Base == "":
		return fault.Field("base", "is missing; name the worker's folder")
	case c.WorkerID == "":
		return fault.Field("worker_id", "is missing")
	case c.Drivers[c.Driver] == nil:
		return fault.Field("driver", "%q is not one of the drivers that this worker has", c.Driver)
	case c.Slots < 1:
		return fault.Field("slots", "must be at least 1")
	case c.Memory < 0 || c.Memory > 0 && c.Limits.Memory > c.Memory:
		return fault.Field("memory", "%d bytes for all sandboxes are not enough for one, whose limit is %d; raise AUREA_MEMORY, or lower SANDBOX_MEMORY_LIMIT", c.Memory, c.Limits.Memory)
	case c.MinDisk < 0:
		return fault.Field("min_disk", "must not be negative")
	case c.Keep != nil && !c.Drivers[c.Driver].Capabilities().Recover:
		return fault.Field("--keep/AUREA_ON_STOP", "the driver %s cannot find its sandboxes again; leave it out", c.Driver).WithCode("refused_setting")
	}
	return nil
}

// Worker is one worker, ready to run.
type Worker struct{ config Config }

// New checks the configuration. It touches nothing yet.
func New(c Config) (*Worker, error) {
	c = c.withDefaults()
	if c.Languages == nil {
		shipped, err := language.Default()
		if err != nil {
			return nil, err
		}
		c.Languages = shipped
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if _, err := c.poolClasses(); err != nil {
		return nil, err
	}
	return &Worker{config: c}, nil
}

// Run works until ctx ends, then drains: it takes no more jobs, lets the
// running ones end within DrainTimeout, stops and gives back the others, and
// says goodbye. It returns nil after a drain, and an error when it could not
// start or was refused by the manager for good. It can be called again after it
// has returned.
func (w *Worker) Run(ctx context.Context) error {
	folder, err := openBase(w.config.Base)
	if err != nil {
		return err
	}
	defer folder.close()
	archive, err := evidence.OpenArchive(folder.snapshots(), w.config.Bounds)
	if err != nil {
		return err
	}
	defer archive.Close() //nolint:errcheck // it was only read and synced
	r := newRun(ctx, w.config, folder, archive)
	defer r.end(errStopped)
	if r.pool, err = r.newPool(); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		if ctx.Err() != nil {
			r.keep(ctx)
		}
		r.tasks.dropAll(errStopped)
		r.hosted.endAll(errBoxLeft.Message)
		r.hosted.giveUp(errStopped)
		r.working.Wait()
		failed := r.failure()
		r.end(errStopped)
		r.services.Wait()
		if ctx.Err() != nil && failed == nil {
			return nil
		}
		return err
	}
	return r.serve(ctx)
}

// begin takes over what an earlier process left, and makes the worker known.
// The leases of what was taken over run out, so they do not wait for the proof
// of the drivers.
func (r *run) begin(ctx context.Context) error {
	adopting := ctx
	if r.Keep != nil {
		// A stop in the middle of it must not cost those that are not met yet.
		adopting = context.WithoutCancel(ctx)
	}
	r.stops.recall(ctx)
	if err := r.adopt(adopting); err != nil {
		return err
	}
	r.services.Go(r.stops.watch)
	r.services.Go(r.watchContact)
	if r.tasks.len()+r.hosted.len() > 0 || r.stops.engaged() {
		if err := r.session.renew(ctx, ""); err != nil {
			return err
		}
		r.reach() // nobody who uses a sandbox waits for the proof of what makes new ones
	}
	if r.stops.engaged() {
		return nil // nothing begins here, not even a probe: see awaitProof
	}
	r.prove(ctx)
	r.survey(ctx)
	if r.Probe == nil && r.Survey == nil && r.session.current() != "" {
		return nil
	}
	return r.session.renew(ctx, r.session.current())
}

// run is one life of a worker, from a registration to its goodbye.
type run struct {
	Config
	incarnation string
	base        *base
	archive     *evidence.Archive
	driver      sandbox.Driver
	log         *slog.Logger

	// life is the run's own context, stored because tasks and reports go on
	// while the context of Run has ended and the worker drains.
	life context.Context
	end  context.CancelCauseFunc

	proofs  proofs
	surveys surveys
	session *session
	room    *room
	seals   chan struct{} // tokens of those who pack and sync after their slot
	tasks   *taskSet
	printed chan struct{} // one token: a job has printed enough to be reported
	done    chan struct{} // one token: a result may be ready
	changed chan struct{} // one token: whether work is taken has changed
	runs    *runs
	hosted  *hosted
	pool    *pool.Pool
	brake   *sandbox.Brake
	stops   *stops
	contact *contact
	working sync.WaitGroup
	// services are what serves until the run ends; reached says that those began
	// by which the manager reaches the worker.
	services sync.WaitGroup
	reached  bool
	live     atomic.Int64 // sandboxes that are there now

	mu     sync.Mutex
	lost   []dispatch.Lost // of an earlier process; the next registration says so
	paused string          // why no work is taken now
}

// maxSeals is how many jobs at a time are packed and synced. It is larger than
// the number of slots of a small worker on purpose: syncs wait for the disk and
// share its rounds.
const maxSeals = 16

var (
	errStopped = fault.New(fault.Unavailable, "the worker has stopped")
	errDrained = fault.New(fault.Unavailable, "the worker is stopping and the job did not end in time")
)

func newRun(ctx context.Context, c Config, folder *base, archive *evidence.Archive) *run {
	r := &run{
		Config: c, incarnation: uuid.NewString(), base: folder, archive: archive, driver: c.Drivers[c.Driver],
		log:  c.Logger.With("worker", c.WorkerID),
		room: newRoom(c.Slots, c.Memory, c.Limits.Memory), seals: make(chan struct{}, maxSeals), tasks: newTaskSet(),
		printed: make(chan struct{}, 1), done: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	r.life, r.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.brake, r.stops = sandbox.NewBrake(), newStops(r)
	r.session, r.contact = newSession(r), newContact()
	r.runs = newRuns(c.Slots)
	r.hosted = newHosted(r.life) //nolint:contextcheck // what is hosted lives as long as the run
	return r
}

// fail ends the run for a reason that trying again does not mend.
func (r *run) fail(err error) { r.end(&failure{err}) }

// failure marks the cause of a run's end that Run must return.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func (r *run) failure() error {
	var f *failure
	if errors.As(context.Cause(r.life), &f) {
		return f.err
	}
	return nil
}

// serve works until ctx ends or the run fails, and leaves nothing behind.
func (r *run) serve(ctx context.Context) error {
	r.reach()
	for _, service := range []func(){r.extend, r.report, r.tidy, r.surveyOn, r.keepPool} {
		r.services.Go(service)
	}
	for range finishers {
		r.services.Go(r.handOver)
	}
	r.log.Info("worker is ready", "driver", r.Driver, "slots", r.Slots, "base", r.Base)
	r.takeWork(ctx)
	r.keep(ctx)
	if r.failure() == nil {
		r.drain(ctx)
	}
	r.tasks.dropAll(errDrained)
	r.runs.stopAll(errDrained)
	r.hosted.endAll(errBoxLeft.Message)
	r.hosted.giveUp(errDrained)
	r.working.Wait()
	if r.failure() == nil {
		r.leave(ctx)
	}
	r.end(errStopped)
	r.services.Wait()
	r.hosted.sweep()
	return r.failure()
}

// reach lets the manager reach what the worker keeps, and hear of its ends.
func (r *run) reach() {
	if r.reached {
		return
	}
	r.reached = true
	r.services.Go(r.attend)
	for range tellers {
		r.services.Go(r.tell)
	}
}

// keep leaves everything to the next process, where that is asked for.
func (r *run) keep(ctx context.Context) {
	if r.Keep == nil || r.failure() != nil {
		return
	}
	r.pool.Empty(ctx) // nobody would find them
	r.log.Info("sandboxes are kept for the next start", "jobs", r.tasks.len())
	r.Keep()
}

// drain waits until every job has ended and its result was taken.
func (r *run) drain(ctx context.Context) {
	r.runs.refuse()
	r.hosted.endAll(errBoxLeft.Message)
	if n, runs := r.tasks.len(), r.runs.running(); n+runs > 0 {
		r.log.Info("worker is draining", "jobs", n, "runs", runs, "timeout", r.DrainTimeout)
	}
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.DrainTimeout, errDrained)
	defer cancel()
	failed := context.AfterFunc(r.life, cancel) //nolint:contextcheck // it ends with the run too
	defer failed()
	if r.tasks.awaitFewer(bounded, 1) != nil {
		r.log.Warn("jobs did not end in time and are given back", "jobs", r.tasks.len())
	}
	if r.runs.awaitNone(bounded) != nil {
		r.log.Warn("runs did not end in time and are stopped", "runs", r.runs.running())
	}
	if r.hosted.awaitNone(bounded) != nil {
		r.log.Warn("the ends of sandboxes could not be told; the next start does", "open", r.hosted.open())
	}
}

func (r *run) leave(ctx context.Context) {
	const patience = 5 * time.Second
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), patience, errStopped)
	defer cancel()
	if err := r.Manager.Leave(bounded, r.session.current()); err != nil {
		// Its leases run out by themselves.
		r.log.Warn("could not say goodbye to the manager", "error", err)
	}
}
