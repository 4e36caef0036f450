package worker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/pool"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// plainLanguage is the language whose waiting sandboxes have nothing in them
// but the image.
const plainLanguage = "bash"

// kept is one sandbox that is kept: somebody's computer for a while.
type kept struct {
	*run
	order  live.Order // without its files
	image  string
	limits sandbox.Limits
	log    *slog.Logger
	ledger ledger
	sheets sheets
	ready  chan struct{} // closed when it was opened, or could not be
	gone   chan struct{} // closed when nothing of it is left but what is told
	ending chan struct{} // closed when it is to be ended
	turn   chan struct{} // holds one token while somebody pauses, resumes or saves it

	// Set before ready is closed.
	err error

	mu      sync.Mutex
	box     *sandbox.Sandbox // nil while it lies on disk
	handle  string           // the driver's id of it
	leaving *sandbox.Sandbox // what is left for a snapshot
	next    chan struct{}    // closed and replaced when box is another
	aside   string           // the checkpoint that it lies in, or lay last
	made    live.Made
	paused  live.Paused
	closing *live.Closing // once it is to be ended
	failure error         // of its end
	over    *live.Ended   // once it has ended; nothing more begins
	memory  int64         // what it takes of what the worker may give
	spent   time.Duration // processor time before it was last put aside
	execs   map[string]*keptExec
	running int
	untold  int  // execs whose end was not told
	unread  int  // bytes of input that came with orders and were not taken
	told    bool // so was its own
	// detached are commands of an earlier process that cannot be met while the
	// sandbox stands still.
	detached []detached
	halted   bool     // it was frozen with others when this process met it
	after    []func() // what is to be done once all that was taken over is named
}

// newKept finds out what an order means here. Nothing is made yet.
func (r *run) newKept(o live.Order) (*kept, error) {
	if err := r.demandDriver(o.Spec.Driver); err != nil {
		return nil, err
	}
	k := &kept{
		run: r, order: o, image: cmp.Or(o.Spec.Image, r.Image, r.DefaultImage()), limits: overLimits(r.Limits, o.Spec.Limits),
		log: r.log.With("sandbox", o.ID), ready: make(chan struct{}), gone: make(chan struct{}), ending: make(chan struct{}), turn: make(chan struct{}, 1), next: make(chan struct{}),
		execs: map[string]*keptExec{},
	}
	k.order.Files = nil
	k.memory = k.limits.Memory
	k.keepIn(r.base.boxFolder(o.ID))
	if r.Memory > 0 && k.limits.Memory > r.Memory {
		return nil, fault.Field("memory_limit", "%d bytes are more than this worker has for all its sandboxes, which is %d", k.limits.Memory, r.Memory).WithCode("limit_too_large")
	}
	spec := sandbox.Spec{ID: o.ID, Image: k.image, Env: o.Spec.Env, Limits: k.limits, Network: o.Spec.Network}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return k, r.driver.Capabilities().Check(spec)
}

// OpenSandbox makes a sandbox, or finds the one with the same id. It goes on
// when the caller gives up: who asks again finds it.
func (rc receiver) OpenSandbox(ctx context.Context, o live.Order) (live.Made, error) {
	if err := dispatch.CheckSandboxOrder(o); err != nil {
		return live.Made{}, err
	}
	r := rc.run
	known := r.hosted.known(o.ID)
	if !known {
		if err := r.enterBox(o); err != nil { //nolint:contextcheck // a kept sandbox outlives the call that makes it
			return live.Made{}, err
		}
	}
	k, err := r.hosted.find(ctx, o.ID)
	if err != nil {
		return live.Made{}, err
	}
	if known && o.Restore != "" && o.Restore != k.order.Restore {
		return k.setBack(ctx, o.Restore)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over != nil || k.closing != nil {
		return live.Made{}, errBoxEnded
	}
	return k.made, nil
}

// enterBox begins to make a sandbox, unless another call was faster.
func (r *run) enterBox(o live.Order) error {
	if why := r.degraded(r.Driver); why != "" {
		return fault.New(fault.Unavailable, "the driver %s is not served: %s", r.Driver, line(why)).WithCode("driver_degraded")
	}
	if why := r.pausedFor(); why != "" {
		return fault.New(fault.Exhausted, "the worker takes no work for now: %s", line(why)).WithCode("no_room")
	}
	k, err := r.newKept(o)
	if err != nil {
		return err
	}
	if !r.room.takeMemory(k.memory) {
		return errNoRoom
	}
	known, err := r.hosted.add(k, func() { r.working.Go(func() { k.begin(o.Files) }) })
	if known != k {
		r.room.giveMemory(k.memory)
		return err
	}
	return nil
}

// begin opens the sandbox, and watches over it to its end.
func (k *kept) begin(files map[string][]byte) {
	ctx, cancel := context.WithCancelCause(k.life)
	defer cancel(nil)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		select {
		case <-k.ending:
			cancel(errBoxEnded)
		case <-ctx.Done():
		case <-k.ready:
		}
	}()
	err := k.open(ctx, files)
	if err != nil {
		k.log.Warn("could not make a sandbox", "error", err)
		k.err = err
		k.hosted.drop(k)
		k.room.giveMemory(k.memory)
		k.ledger.clear()
		k.removeFolder()
		close(k.gone)
		close(k.ready)
		<-stop
		return
	}
	close(k.ready)
	<-stop
	k.watch()
}

// open writes the order down and gets a sandbox: one that waits, else a new one.
func (k *kept) open(ctx context.Context, files map[string][]byte) error {
	filed, err := k.base.binders.take(k.base.boxFolder(k.order.ID))
	if err != nil {
		return fmt.Errorf("make the folder of a sandbox: %w", err)
	}
	if filed {
		k.sheets.laid()
	}
	if err := k.ledger.add(boxEntry{Version: keptVersion, Boot: k.base.boot, Order: &k.order, Memory: k.memory}); err != nil {
		return err
	}
	box, warm, err := k.acquire(ctx, files)
	if err != nil {
		return err
	}
	k.made = k.describe(box, warm)
	if err = k.ledger.add(boxEntry{Made: &k.made}); err != nil {
		if end := box.End(ctx, sandbox.OutcomeCancelled, "it could not be made"); end != nil {
			k.log.Error("could not destroy a sandbox", "error", end)
		}
		return err
	}
	k.box, k.handle = box, box.Handle().ID
	k.live.Add(1)
	if k.order.Restore == "" {
		return nil
	}
	if err := k.inherit(ctx); err != nil {
		k.abandon(ctx)
		return err
	}
	return nil
}

func (k *kept) describe(box *sandbox.Sandbox, warm bool) live.Made {
	m := live.Made{
		Driver: k.Driver, Isolation: k.driver.Capabilities().Isolation, Image: k.image, Enforced: box.Enforced(), Warm: warm,
		Started: time.Now().UTC(),
	}
	if name, digest := box.Image(); name != "" {
		m.Image, m.Digest = name, digest
	}
	return m
}

// acquire gets a sandbox with the files of the order in it. One that waits is
// like a new one: its environment is laid under that of each exec.
func (k *kept) acquire(ctx context.Context, files map[string][]byte) (box *sandbox.Sandbox, warm bool, err error) {
	if k.order.Restore != "" {
		box, err := k.fromSnapshot(ctx, k.order.ID, k.order.Restore)
		return box, false, err
	}
	if h := k.claim(ctx); h != nil {
		if box, err := k.takeOver(ctx, h.Sandbox, files); box != nil || err != nil {
			return box, true, err
		}
	}
	if box, err = k.create(ctx); err != nil {
		return nil, false, err
	}
	if err := k.fill(ctx, box, files); err != nil {
		if end := box.End(ctx, sandbox.OutcomeCancelled, "it could not be made"); end != nil {
			k.log.Error("could not destroy a sandbox", "error", end)
		}
		return nil, false, err
	}
	return box, false, nil
}

// takeOver makes one that waited the sandbox of the order. It returns none where
// that one is not well, which is no reason to fail: it may have died this moment.
func (k *kept) takeOver(ctx context.Context, box *sandbox.Sandbox, files map[string][]byte) (*sandbox.Sandbox, error) {
	handle := box.Handle()
	err := box.Assign(k.subject())
	if err == nil {
		err = k.ledger.add(boxEntry{Handle: &handle})
	}
	if err != nil {
		return nil, errors.Join(err, box.Close(ctx))
	}
	err = k.fill(ctx, box, files)
	if err == nil && !box.Dead() {
		return box, nil
	}
	k.log.Debug("a sandbox that had waited is not well; another is made", "error", err)
	if err := box.Close(ctx); err != nil {
		k.log.Error("could not destroy a sandbox that had waited", "error", err)
	}
	return nil, nil
}

// create makes a new sandbox.
func (k *kept) create(ctx context.Context) (*sandbox.Sandbox, error) {
	spec := sandbox.Spec{
		ID: k.order.ID, Image: k.image, Env: k.order.Spec.Env, Limits: k.limits, Network: k.order.Spec.Network,
		Labels: map[string]string{"kept": k.order.ID, "worker": k.WorkerID},
	}
	return sandbox.Open(ctx, sandbox.Options{
		Driver: k.driver, OutputCap: defaultExecOutput, Logger: k.log, Spec: spec, Brake: k.brake, Subject: k.subject(),
		Report: func(h sandbox.Handle) error { return k.ledger.add(boxEntry{Handle: &h}) },
	})
}

// subject says whose the sandbox is.
func (k *kept) subject() sandbox.Subject {
	return sandbox.Subject{ID: k.order.ID, Parent: k.order.Parent, Labels: k.order.Spec.Labels}
}

// claim takes a plain sandbox that waits, where there is one like it.
func (k *kept) claim(ctx context.Context) *pool.Held {
	defer k.makeWay(ctx)
	if k.order.Restore != "" || k.order.Spec.Network != "" && k.order.Spec.Network != sandbox.NetworkNone {
		return nil
	}
	h := k.pool.Claim(ctx, pool.Want{Language: plainLanguage, Image: k.image, Limits: k.limits})
	if h == nil {
		return nil
	}
	h.Release() // room was taken for it
	return h
}

// fill puts the files of the order in.
func (k *kept) fill(ctx context.Context, box *sandbox.Sandbox, files map[string][]byte) error {
	if len(files) == 0 {
		return nil
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[name])), Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("pack %s: %w", clip(name), err)
		}
		if _, err := w.Write(files[name]); err != nil {
			return fmt.Errorf("pack %s: %w", clip(name), err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("pack files: %w", err)
	}
	return box.Put(ctx, workspacePath, &b)
}

// close asks for the sandbox's end. The first who asks says why.
func (k *kept) close(c live.Closing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing != nil || k.over != nil {
		return
	}
	k.closing = &c
	k.ledger.note(boxEntry{Closing: &c})
	close(k.ending)
}

// EndSandbox destroys a sandbox, and returns when nothing of it is left.
func (rc receiver) EndSandbox(ctx context.Context, c live.Closing) error {
	if err := dispatch.CheckClosing(c); err != nil {
		return err
	}
	h := rc.run.hosted
	h.mu.Lock()
	k := h.all[c.ID]
	h.mu.Unlock()
	if k == nil {
		return nil
	}
	k.close(c)
	select {
	case <-k.gone:
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "wait for the end of the sandbox: %w", context.Cause(ctx))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failure
}

// watch waits for the end of the sandbox and brings it to its end.
func (k *kept) watch() {
	for !k.awaitEnd() {
	}
	k.finish()
}

// awaitEnd waits until the sandbox is to end or has died, and reports whether
// that is so: it may go on in another of the driver's.
func (k *kept) awaitEnd() bool {
	k.mu.Lock()
	box, next := k.box, k.next
	k.mu.Unlock()
	var done <-chan struct{}
	if box != nil {
		done = box.Done()
	}
	select {
	case <-k.ending:
		return true
	case <-next:
		return false
	case <-done:
	}
	k.mu.Lock()
	left := k.leaving == box
	k.mu.Unlock()
	if !left {
		return true
	}
	select {
	case <-k.ending:
		return true
	case <-next:
		return false
	}
}

// finish destroys the sandbox, ends its execs, and has its end told after
// theirs.
func (k *kept) finish() {
	ctx := context.WithoutCancel(k.life)
	k.turn <- struct{}{} // whoever saves it or lets it go on comes to an end
	defer k.giveTurn()
	k.mu.Lock()
	box, why, spent := k.box, k.closing, k.spent
	k.mu.Unlock()
	end := live.Ended{ID: k.order.ID, Usage: sandbox.Usage{CPU: -1, PeakMemory: -1, Processes: -1}, Outcome: sandbox.OutcomeLost}
	if box == nil && spent > 0 {
		end.Usage.CPU = spent
	}
	if box != nil {
		end.Usage = k.measure(ctx, box)
		now := box.Status()
		end.Outcome, end.Reason = now.Outcome, line(now.Reason)
	}
	if why != nil {
		end.Outcome, end.Reason = why.Outcome, line(why.Reason)
	}
	var err error
	if box != nil {
		err = box.End(ctx, end.Outcome, end.Reason)
		k.live.Add(-1)
	}
	if err != nil {
		// The next start sweeps it; meanwhile people have to know.
		k.log.Error("could not destroy a sandbox", "error", err)
		end.Outcome, end.Reason = sandbox.OutcomeUncleaned, line(err.Error())
	}
	k.dropAside()
	k.mu.Lock()
	unmet := k.detached
	k.detached = nil
	k.mu.Unlock()
	k.ended(end, err)
	for _, d := range unmet {
		d.exec.lost(sandbox.Killed, "the end of the sandbox", d.past.began)
	}
}

// ended notes the end of the sandbox, all of whose processes have ended.
func (k *kept) ended(end live.Ended, err error) {
	end.At = time.Now().UTC()
	k.mu.Lock()
	if !end.Outcome.Valid() {
		end.Outcome = sandbox.OutcomeLost
	}
	k.over, k.failure = &end, err
	k.ledger.note(boxEntry{Over: &end})
	k.room.giveMemory(k.memory)
	k.memory = 0
	k.lastTold()
	k.mu.Unlock()
	k.hosted.sayNow()
	close(k.gone)
	k.hosted.mu.Lock()
	k.hosted.wake()
	k.hosted.mu.Unlock()
	k.pool.Look()
}

func (k *kept) measure(ctx context.Context, box *sandbox.Sandbox) sandbox.Usage {
	bounded, cancel := context.WithTimeoutCause(ctx, usageTimeout, errFetch)
	defer cancel()
	usage, err := box.Usage(bounded)
	if err != nil {
		k.log.Debug("could not measure a sandbox", "error", err)
		return sandbox.Usage{CPU: -1, PeakMemory: -1, Processes: -1}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return withSpent(usage, k.spent)
}

// withSpent adds the processor time of what a sandbox was before it was put
// aside or set back: what it goes on as is measured from zero.
func withSpent(u sandbox.Usage, spent time.Duration) sandbox.Usage {
	if u.CPU >= 0 {
		u.CPU += spent
	}
	return u
}

// standing says how it stands, if anybody is still to hear of it.
func (k *kept) standing() (live.Standing, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := live.Standing{ID: k.order.ID, Paused: k.paused}
	for id, e := range k.execs {
		if e.open() {
			s.Execs = append(s.Execs, id)
		}
	}
	slices.Sort(s.Execs)
	return s, !k.told
}
