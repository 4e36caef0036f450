package worker

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

// tellers is how many calls tell of ends at a time: while the manager writes
// one down, the next is on its way.
const tellers = 2

// ending is an end that is to be told: of an exec, or of a sandbox.
type ending struct {
	exec *live.ExecEnded
	box  *live.Ended
	told func()
	due  time.Time // of one that is told later
}

func (n ending) size() int {
	size := 1 << 10
	if n.exec != nil {
		for _, data := range n.exec.Inline {
			size += len(data)
		}
	}
	return size
}

// say puts an end into the line of those that are to be told.
func (h *hosted) say(n ending) {
	h.mu.Lock()
	h.untold = append(h.untold, n)
	h.mu.Unlock()
	wake(h.news)
}

// again is how long after it was told by an answer an end is told as any other:
// until then that answer is on its way, and more of them gather.
const again = 250 * time.Millisecond

// sayLater is say for an end that an answer brings along. That may be lost, so it
// is told once more.
func (h *hosted) sayLater(n ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.due = time.Now().Add(again)
	if h.later = append(h.later, n); len(h.later) == 1 {
		time.AfterFunc(again, func() { h.sayDue(time.Now()) })
	}
}

// sayDue puts those into the line that are due.
func (h *hosted) sayDue(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.later) && !h.later[n].due.After(now) {
		n++
	}
	if n == 0 {
		return
	}
	h.untold = append(h.untold, h.later[:n]...)
	if h.later = slices.Clone(h.later[n:]); len(h.later) > 0 {
		// Not when the next one is due: then each would be told by itself.
		time.AfterFunc(again, func() { h.sayDue(time.Now()) })
	}
	wake(h.news)
}

// sayNow puts all of them into the line: somebody waits for the last word.
func (h *hosted) sayNow() { h.sayDue(time.Now().Add(again)) }

// tell tells of ends until the run ends. What comes up while a call is on its
// way gathers and goes with the next.
func (r *run) tell() {
	for {
		select {
		case <-r.hosted.news:
		case <-r.life.Done():
			return
		}
		for r.life.Err() == nil && r.tellOnce() {
		}
	}
}

// tellOnce tells of one batch and reports whether there was one.
func (r *run) tellOnce() bool {
	batch := r.hosted.take()
	if len(batch) == 0 {
		return false
	}
	err := r.tellAll(batch)
	if err != nil && r.life.Err() == nil {
		r.tellEach(batch)
	}
	r.hosted.told(len(batch))
	return true
}

// take takes what can be told in one call.
func (h *hosted) take() []ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, size := 0, 0
	for n < len(h.untold) && n < dispatch.MaxTold && size < finishBytes {
		size += h.untold[n].size()
		n++
	}
	batch := h.untold[:n:n]
	h.untold = h.untold[n:]
	h.telling += n
	if len(h.untold) > 0 {
		wake(h.news)
	}
	return batch
}

// told says that a batch is not on its way any more.
func (h *hosted) told(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.telling -= n
	h.wake()
}

// tellAll tells of ends until the manager has taken them. An error means that it
// calls the request itself wrong, or that the run ended.
func (r *run) tellAll(batch []ending) error {
	req := dispatch.TellRequest{}
	for _, n := range batch {
		if n.exec != nil {
			req.Execs = append(req.Execs, *n.exec)
		} else {
			req.Sandboxes = append(req.Sandboxes, *n.box)
		}
	}
	err := r.session.insist(r.life, "tell", dispatch.ReportTimeout, func(ctx context.Context, session string) error {
		req.Session = session
		return r.Manager.Tell(ctx, req)
	})
	if err != nil {
		return err
	}
	for _, n := range batch {
		n.told()
	}
	return nil
}

// tellEach finds the end that spoils a batch. That one is told without what it
// printed, so that it is told at all.
func (r *run) tellEach(batch []ending) {
	for _, n := range batch {
		err := r.tellAll([]ending{n})
		if err == nil {
			continue
		}
		if r.life.Err() != nil {
			return
		}
		r.log.Error("the manager does not take the end of a command or a sandbox as it is", "error", err)
		if n.exec != nil {
			bare := *n.exec
			bare.Inline = nil
			for i := range 2 {
				o := bytesOf(&bare.Result, i)
				o.Kept, o.SHA256, o.Truncated = 0, emptySHA256, true
			}
			n.exec = &bare
			if err = r.tellAll([]ending{n}); err == nil {
				continue
			}
		}
		if r.life.Err() != nil {
			return
		}
		r.log.Error("the manager does not take it at all; it is given up", "error", err)
		n.told()
	}
}

// handOver has the end of an exec told that is written down.
func (e *keptExec) handOver() {
	if n := e.pack(); n != nil {
		e.tell(n, e.answer(n))
	}
}

// pack makes what is told of an end, with what was printed: small streams ride
// along, large ones are put before. It is nil when that could not be done before
// the worker stopped.
func (e *keptExec) pack() *live.ExecEnded {
	e.mu.Lock()
	n := &live.ExecEnded{ID: e.order.ID, Sandbox: e.of.order.ID, Result: *e.result}
	e.mu.Unlock()
	for i := range 2 {
		o := bytesOf(&n.Result, i)
		if o.Kept == 0 {
			continue
		}
		if data, rides := e.out.small(i); rides && int64(len(data)) == o.Kept {
			if n.Inline == nil {
				n.Inline = map[string][]byte{}
			}
			n.Inline[o.SHA256] = data
			continue
		}
		err := e.put(i, o.SHA256, o.Kept)
		if err != nil && e.of.hosted.handing.Err() != nil {
			return nil
		}
		if err != nil {
			e.of.log.Error("could not hand over what a command printed", "exec", e.order.ID, "error", err)
			o.Kept, o.SHA256, o.Truncated = 0, emptySHA256, true
		}
	}
	return n
}

// rides reports whether all that was printed rides along.
func (e *keptExec) rides(res *live.ExecResult) bool {
	for i := range 2 {
		data, rides := e.out.small(i)
		if kept := bytesOf(res, i).Kept; kept > 0 && (!rides || int64(len(data)) != kept) {
			return false
		}
	}
	return true
}

// answer gives the end to who waits for the answer to the start, if somebody does.
func (e *keptExec) answer(n *live.ExecEnded) (awaited bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.news = n
	close(e.handed)
	return e.awaited
}

// tell has an end told. One that was awaited is told later: it goes with the
// answer.
func (e *keptExec) tell(n *live.ExecEnded, awaited bool) {
	h := e.of.hosted
	if awaited {
		h.sayLater(ending{exec: n, told: e.taken})
	} else {
		h.say(ending{exec: n, told: e.taken})
	}
	e.of.mu.Lock()
	over := e.of.over != nil
	e.of.mu.Unlock()
	if over { // it waits for this
		h.sayNow()
	}
}

// put uploads what is kept of a stream, for as long as the manager is away.
func (e *keptExec) put(i int, sha256 string, size int64) error {
	r := e.of.run
	patience := dispatch.ReportTimeout + time.Duration(size/(256<<10))*time.Second
	return r.session.insist(r.hosted.handing, "put blob", patience, func(ctx context.Context, session string) error {
		f, err := os.Open(e.out.name(i))
		if err != nil {
			// Its bytes are gone, and asking again does not bring them back.
			return fault.New(fault.Invalid, "read what was printed: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		return r.Manager.PutBlob(ctx, session, sha256, size, f)
	})
}

// taken says that the manager has the end of an exec. What it printed can be
// read here for another while.
func (e *keptExec) taken() {
	e.mu.Lock()
	e.told = true
	e.mu.Unlock()
	e.out.rest()
	e.ledger.giveTo(&e.of.sheets)
	k := e.of
	k.mu.Lock()
	k.untold--
	k.lastTold()
	k.mu.Unlock()
	time.AfterFunc(keepTold, func() {
		if k.life.Err() != nil {
			return // the next start sweeps it
		}
		k.mu.Lock()
		delete(k.execs, e.order.ID)
		k.mu.Unlock()
		e.out.remove()
		k.leave()
	})
}

// lastTold has the end of the sandbox told when those of its execs were.
//
// Preconditions: mu is held.
func (k *kept) lastTold() {
	if k.over == nil || k.untold > 0 {
		return
	}
	end := *k.over
	for _, e := range k.execs {
		if e.starved() && k.closing == nil {
			end.Reason = "the sandbox ran out of memory"
		}
	}
	k.hosted.say(ending{box: &end, told: func() {
		k.ledger.clear()
		k.mu.Lock()
		k.told = true
		k.mu.Unlock()
		k.leave()
	}})
}

// leave forgets a sandbox whose end was told, once nobody can be at what its
// execs printed any more.
func (k *kept) leave() {
	k.mu.Lock()
	over := k.told && len(k.execs) == 0
	k.mu.Unlock()
	if !over {
		return
	}
	k.hosted.drop(k)
	k.removeFolder()
}

func (k *kept) removeFolder() {
	if err := k.base.binders.give(k.base.boxFolder(k.order.ID)); err != nil {
		k.log.Error("could not remove the folder of a sandbox", "error", err)
	}
}
