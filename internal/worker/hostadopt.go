package worker

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// pastBox is what an earlier process wrote down of a sandbox that it kept.
type pastBox struct {
	boot    string
	order   live.Order
	memory  int64
	handle  *sandbox.Handle
	made    *live.Made
	paused  live.Paused
	folder  string // of the checkpoint that it lies in
	spent   time.Duration
	closing *live.Closing
	over    *live.Ended
	execs   []*pastExec
	sheets  int // the highest number of one that execs were written down in
	blank   []string
	damaged []string // those that cannot be read
}

// detached is a command that could not be met yet.
type detached struct {
	past *pastExec
	exec *keptExec
}

// pastExec is what it wrote down of a command.
type pastExec struct {
	path    string
	order   live.Command
	began   time.Time
	started bool
	ended   *live.ExecResult
}

func (p *pastBox) add(e boxEntry) {
	if e.Order != nil {
		p.order = *e.Order
	}
	if e.Boot != "" {
		p.boot = e.Boot
	}
	if e.Memory > 0 {
		p.memory = e.Memory
	}
	if e.Handle != nil {
		p.handle = e.Handle
	}
	if e.Made != nil {
		p.made = e.Made
	}
	if e.Paused != nil {
		p.paused, p.folder = *e.Paused, e.Folder
	}
	if e.Spent > 0 {
		p.spent = e.Spent
	}
	if e.Closing != nil {
		p.closing = e.Closing
	}
	if e.Over != nil {
		p.over = e.Over
	}
}

// readBox reads what is written down in the folder of a sandbox.
func readBox(folder string) (*pastBox, error) {
	p, lines := &pastBox{}, 0
	err := readLedger(filepath.Join(folder, boxName), func(e boxEntry) {
		if lines++; lines > 1 || e.Version == keptVersion {
			p.add(e)
		}
	})
	if err != nil {
		return nil, err
	}
	if p.order.ID != filepath.Base(folder) || dispatch.CheckSandboxID("id", p.order.ID) != nil {
		return nil, errDamaged
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != journalSuffix {
			continue
		}
		p.sheets = max(p.sheets, sheetNumber(e.Name()))
		x, err := readExec(filepath.Join(folder, e.Name()))
		if err == nil && x.order.ID == "" {
			// It is empty, or was being begun when the process died.
			p.blank = append(p.blank, x.path)
			continue
		}
		if err != nil || dispatch.CheckExecID("id", x.order.ID) != nil || known[x.order.ID] {
			p.damaged = append(p.damaged, e.Name())
			continue
		}
		known[x.order.ID] = true
		p.execs = append(p.execs, x)
	}
	return p, nil
}

func readExec(path string) (*pastExec, error) {
	x, lines := &pastExec{path: path}, 0
	err := readLedger(path, func(e execLine) {
		if lines++; lines == 1 && e.Version == keptVersion && e.Order != nil {
			x.order, x.began = *e.Order, e.Began
		}
		x.started = x.started || e.Started
		if e.Ended != nil {
			x.ended = e.Ended
		}
	})
	return x, err
}

// adoptBoxes goes on with the sandboxes that an earlier process kept. It returns
// those that live, by the ids of their handles.
func (r *run) adoptBoxes(ctx context.Context) (living map[string]bool, err error) {
	entries, err := os.ReadDir(filepath.Join(r.base.folder, "boxes"))
	if err != nil {
		return nil, err
	}
	living = map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	turns := make(chan struct{}, adopters)
	for _, e := range entries {
		folder := r.base.boxFolder(e.Name())
		p, err := readBox(folder)
		if err == nil && p.made == nil {
			err = errHalfMade
		}
		if err != nil {
			r.log.Warn("a sandbox of an earlier run is given up", "sandbox", clip(e.Name()), "error", err)
			if err := os.RemoveAll(folder); err != nil {
				return nil, err
			}
			continue
		}
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			if k := r.adoptBox(ctx, p); k.box != nil {
				mu.Lock()
				defer mu.Unlock()
				living[p.handle.ID] = true
			}
		})
	}
	group.Wait()
	return living, nil
}

var errHalfMade = fault.New(fault.NotFound, "it was not made when the worker ended")

// adoptBox goes on with one sandbox, or with telling of its end.
func (r *run) adoptBox(ctx context.Context, p *pastBox) *kept {
	k := &kept{
		run: r, order: p.order, image: p.made.Image, limits: p.made.Enforced, made: *p.made, memory: p.memory, paused: p.paused, spent: p.spent,
		log: r.log.With("sandbox", p.order.ID), ready: make(chan struct{}), gone: make(chan struct{}), ending: make(chan struct{}), turn: make(chan struct{}, 1), next: make(chan struct{}),
		execs: map[string]*keptExec{}, closing: p.closing,
	}
	k.keepIn(r.base.boxFolder(k.order.ID))
	k.sheets.last = p.sheets
	if len(p.damaged) > 0 {
		k.log.Error("commands of an earlier run are given up: what was written down of them is damaged", "files", p.damaged)
	}
	for _, path := range p.blank {
		os.Remove(path) //nolint:errcheck // the next start tries again
	}
	if k.closing != nil {
		close(k.ending)
	}
	close(k.ready)
	r.hosted.adopt(k)
	for _, x := range p.execs {
		e := k.newExec(x.order, x.path)
		e.began = x.began
		k.execs[x.order.ID] = e
		k.running++
		k.untold++
	}
	err := k.meet(ctx, p)
	if err != nil {
		k.bury(p, err)
		return k
	}
	if k.box != nil {
		r.room.holdMemory(k.memory)
		k.live.Add(1)
	} else {
		k.memory = 0
	}
	k.attachAll(ctx, p)
	k.log.Info("goes on with a sandbox of an earlier run", "execs", len(p.execs))
	k.then(k.watch)
	return k
}

// then has something done once everything was met again: whoever registers names
// all that is kept.
func (k *kept) then(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.after = append(k.after, do)
}

// goOn lets a sandbox that was taken over go on.
func (k *kept) goOn() {
	k.mu.Lock()
	after := k.after
	k.after = nil
	k.mu.Unlock()
	for _, do := range after {
		k.working.Go(do)
	}
}

// meet finds the sandbox again.
func (k *kept) meet(ctx context.Context, p *pastBox) error {
	if p.handle != nil {
		k.handle = p.handle.ID
	}
	switch {
	case p.over != nil:
		return errBoxEnded
	case p.paused == live.Checkpointed && p.closing == nil:
		k.aside = p.folder
		return nil // it uses nothing, and outlives the machine
	case p.boot != k.base.boot:
		return errReboot
	case p.handle == nil:
		return errHalfMade
	}
	stop := k.brake.Check(k.subject())
	if stop.Kill {
		return fault.New(fault.NotFound, "%s", stop.Reason).WithCode(sandbox.CodeStopped)
	}
	d := k.Drivers[p.handle.Driver]
	if d == nil {
		return fault.New(fault.NotFound, "the worker does not have the driver %q any more", p.handle.Driver)
	}
	box, err := sandbox.Adopt(ctx, sandbox.Options{
		Driver: d, OutputCap: defaultExecOutput, ProvisionTimeout: recoverTimeout, Logger: k.log, Brake: k.brake, Subject: k.subject(),
	}, *p.handle)
	if err != nil {
		return err
	}
	k.box = box
	switch {
	case p.paused == live.Frozen:
		box.AssumePaused()
	case stop.Freeze:
		box.AssumeFrozen()
		k.halted = true
	}
	return nil
}

// bury has the ends of a sandbox that is gone told, and of all that was in it.
// What is left of it the sweep destroys.
func (k *kept) bury(p *pastBox, why error) {
	verdict, cause := sandbox.Lost, why.Error()
	outcome := sandbox.OutcomeLost
	switch fault.CodeOf(why) {
	case sandbox.CodeOutOfMemory:
		verdict, cause = sandbox.OOM, "the sandbox ran out of memory while no worker watched"
	case sandbox.CodeStopped:
		verdict, outcome = sandbox.Killed, sandbox.OutcomeKilled
	}
	end := live.Ended{ID: k.order.ID, Outcome: outcome, Reason: line(cause), Usage: sandbox.Usage{CPU: -1, PeakMemory: -1, Processes: -1}, At: time.Now().UTC()}
	switch {
	case p.over != nil:
		end, verdict, cause = *p.over, sandbox.Killed, "the end of the sandbox"
	case p.closing != nil:
		end.Outcome, end.Reason = p.closing.Outcome, line(p.closing.Reason)
		verdict, cause = sandbox.Killed, "the end of the sandbox"
	default:
		k.log.Warn("could not go on with a sandbox of an earlier run", "error", why)
	}
	k.mu.Lock()
	k.over, k.paused, k.memory = &end, "", 0
	if p.over == nil {
		k.ledger.note(boxEntry{Over: &end})
	}
	k.mu.Unlock()
	close(k.gone)
	if len(p.execs) == 0 {
		k.then(func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.lastTold()
		})
	}
	for _, x := range p.execs {
		e := k.execs[x.order.ID]
		k.then(func() {
			close(e.ready)
			if x.ended != nil {
				e.endedBefore(*x.ended)
				return
			}
			e.lost(verdict, cause, x.began)
		})
	}
}

// attachAll goes on with the commands of a sandbox, unless it is paused: then
// that is done when it goes on.
func (k *kept) attachAll(ctx context.Context, p *pastBox) {
	var group sync.WaitGroup
	for _, x := range p.execs {
		k.mu.Lock()
		e := k.execs[x.order.ID]
		k.mu.Unlock()
		group.Go(func() { k.attach(ctx, x, e) })
	}
	group.Wait()
}

// attach goes on with one command, from where its spool ends.
func (k *kept) attach(ctx context.Context, x *pastExec, e *keptExec) {
	if x.ended != nil {
		close(e.ready)
		k.then(func() { e.endedBefore(*x.ended) })
		return
	}
	if k.paused != "" || k.halted {
		if _, _, err := e.out.resume(); err != nil {
			k.log.Error("could not read the output of a command", "exec", x.order.ID, "error", err)
		}
		close(e.ready)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.detached = append(k.detached, detached{x, e})
		return
	}
	err := e.attach(ctx, x)
	switch {
	case err == nil:
		close(e.ready)
		k.then(e.see)
	case fault.Is(err, fault.NotFound) && !x.started && !k.dead():
		// It was never started, and nobody was told that it was.
		e.err = errExecLost
		e.forget()
		close(e.ready)
	default:
		k.log.Warn("could not go on with a command of an earlier run", "exec", x.order.ID, "error", err)
		close(e.ready)
		k.then(func() { e.lost(sandbox.Lost, err.Error(), x.began) })
	}
}

func (k *kept) dead() bool {
	select {
	case <-k.box.Done():
		return true
	default:
		return false
	}
}

// attach goes on with a command from where its spool ends.
func (e *keptExec) attach(ctx context.Context, x *pastExec) error {
	from, counted, err := e.out.resume()
	if err != nil {
		return err
	}
	from.Started = x.began
	e.in.resume(counted, !x.order.Open)
	bounded, cancel := context.WithTimeoutCause(ctx, recoverTimeout, errSilent)
	defer cancel()
	exec, err := e.of.box.Attach(bounded, e.order.ID, e.options(), from)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exec = exec
	return nil
}

// resume goes on from what an earlier process counted.
func (in *input) resume(counted [counts]int64, never bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken, in.closed = counted[countFed], counted[countClosed] != 0 || never
	in.unsure = counted[countFeeding] != counted[countFed]
}

// endedBefore hands over an end that an earlier process saw.
func (e *keptExec) endedBefore(res live.ExecResult) {
	if _, _, err := e.out.resume(); err != nil {
		e.of.log.Error("could not read the output of a command", "exec", e.order.ID, "error", err)
	}
	e.out.end()
	e.in.shut()
	e.mu.Lock()
	e.result = &res
	e.mu.Unlock()
	e.of.mu.Lock()
	e.of.running--
	e.of.mu.Unlock()
	e.handOver()
}
