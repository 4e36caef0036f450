package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Bounds of what is kept.
const (
	// maxRunningExecs is how many execs of one sandbox run at a time, maxExecs how
	// many of it are known: those that run, and those whose end was not told.
	maxRunningExecs = 1024
	maxExecs        = 4096
	// maxUnread bounds the input that came with the orders of one sandbox and was
	// not taken yet; one order may always be larger.
	maxUnread = 16 << 20
	// defaultExecOutput is how much of each stream of an exec is kept unless the
	// order says otherwise.
	defaultExecOutput = 100 << 20
	// keepTold is how long the output of an exec can be read here after its end
	// was told: somebody may be at it.
	keepTold = time.Minute
)

var (
	errTooManyBoxes = fault.New(fault.Exhausted, "the worker keeps as many sandboxes as it can").WithCode("no_room")
	errBoxEnded     = fault.New(fault.Conflict, "the sandbox has ended").WithCode(dispatch.CodeSandboxEnded)
	errBoxLeft      = fault.New(fault.Unavailable, "the worker was stopped")
)

// hosted is all sandboxes that this worker keeps, from the order until their end
// was told.
type hosted struct {
	// handing is the context of handing ends over. It is stored because ends are
	// handed over by nobody's call, until the worker has stopped.
	handing context.Context
	giveUp  context.CancelCauseFunc
	news    chan struct{} // one token: there is an end to tell

	mu       sync.Mutex
	all      map[string]*kept
	stopping bool
	untold   []ending      // oldest first
	later    []ending      // to be told when they are due, oldest first
	telling  int           // of those that were untold, on their way
	fewer    chan struct{} // closed when something was told; nil while nobody waits
}

func newHosted(life context.Context) *hosted {
	h := &hosted{news: make(chan struct{}, 1), all: map[string]*kept{}}
	h.handing, h.giveUp = context.WithCancelCause(life)
	return h
}

// find returns a sandbox that is kept and was opened.
func (h *hosted) find(ctx context.Context, id string) (*kept, error) {
	h.mu.Lock()
	k := h.all[id]
	h.mu.Unlock()
	if k == nil {
		return nil, fault.New(fault.NotFound, "the worker does not have the sandbox %s", clip(id)).WithCode(dispatch.CodeNoSandbox)
	}
	select {
	case <-k.ready:
		return k, k.err
	default:
	}
	select {
	case <-k.ready:
		return k, k.err
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "wait for the sandbox: %w", context.Cause(ctx))
	}
}

// add makes a sandbox one of those that are kept and starts it, unless there is
// one with its id, which is returned then.
func (h *hosted) add(k *kept, start func()) (*kept, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.all[k.order.ID]; known != nil {
		return known, nil
	}
	if h.stopping {
		return nil, errStopping
	}
	if len(h.all) >= dispatch.MaxSandboxes {
		return nil, errTooManyBoxes
	}
	h.all[k.order.ID] = k
	start()
	return k, nil
}

// adopt makes a sandbox of an earlier process one of those that are kept.
func (h *hosted) adopt(k *kept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[k.order.ID] = k
}

func (h *hosted) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// sweep removes what is left of sandboxes whose end was told.
func (h *hosted) sweep() {
	for _, k := range h.each() {
		k.mu.Lock()
		told := k.told
		k.mu.Unlock()
		if told {
			k.removeFolder()
		}
	}
}

// known reports whether there is one with this id.
func (h *hosted) known(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[id] != nil
}

// drop forgets a sandbox.
func (h *hosted) drop(k *kept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[k.order.ID] == k {
		delete(h.all, k.order.ID)
	}
	h.wake()
}

// wake lets those who wait for fewer look again.
//
// Preconditions: mu is held.
func (h *hosted) wake() {
	if h.fewer != nil {
		close(h.fewer)
		h.fewer = nil
	}
}

// each returns all that are kept.
func (h *hosted) each() []*kept {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.all))
}

// standings are the sandboxes as a registration names them: also those whose end
// was not told yet, so that nobody takes them for lost.
func (h *hosted) standings() []live.Standing {
	var all []live.Standing
	for _, k := range h.each() {
		if s, there := k.standing(); there {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b live.Standing) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// strangers destroys those that nobody knows.
func (h *hosted) strangers(ids []string) {
	for _, id := range ids {
		h.mu.Lock()
		k := h.all[id]
		h.mu.Unlock()
		if k != nil {
			k.log.Warn("nobody knows the sandbox any more; it is destroyed")
			k.close(live.Closing{ID: id, Outcome: sandbox.OutcomeReaped, Reason: "the manager does not know it"})
		}
	}
}

// killStrangers kills the commands that nobody knows.
func (h *hosted) killStrangers(list []live.ExecID) {
	for _, x := range list {
		h.mu.Lock()
		k := h.all[x.Sandbox]
		h.mu.Unlock()
		if k == nil {
			continue
		}
		k.working.Go(func() {
			ctx, cancel := context.WithTimeoutCause(k.life, recoverTimeout, errSilent)
			defer cancel()
			err := receiver{run: k.run}.SignalExec(ctx, live.Signal{Sandbox: x.Sandbox, Exec: x.Exec, Signal: 9, Tree: true, Kill: "the manager does not know it"})
			if err != nil {
				k.log.Warn("could not kill a command that nobody knows", "exec", x.Exec, "error", err)
			}
		})
	}
}

// endAll takes no more sandboxes and ends those that are there.
func (h *hosted) endAll(why string) {
	h.mu.Lock()
	h.stopping = true
	h.mu.Unlock()
	for _, k := range h.each() {
		k.close(live.Closing{ID: k.order.ID, Outcome: sandbox.OutcomeReaped, Reason: why})
	}
}

// open counts those that were not destroyed, and what was not told.
func (h *hosted) open() int {
	n := 0
	for _, k := range h.each() {
		select {
		case <-k.gone:
			k.mu.Lock()
			if !k.told { // its end, or that of one of its execs, is about to be
				n++
			}
			k.mu.Unlock()
		default:
			n++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return n + len(h.untold) + len(h.later) + h.telling
}

// awaitNone waits until nothing is open.
func (h *hosted) awaitNone(ctx context.Context) error {
	for {
		h.mu.Lock()
		if h.fewer == nil {
			h.fewer = make(chan struct{})
		}
		fewer := h.fewer
		h.mu.Unlock()
		if h.open() == 0 {
			return nil
		}
		select {
		case <-fewer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
