package worker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	// adopters is how many sandboxes are taken over at a time.
	adopters = 16
	// recoverTimeout bounds meeting one sandbox again. It is well below the term
	// of a lease, so that one that is silent does not cost the others theirs.
	recoverTimeout = 10 * time.Second
	// sweepTimeout bounds the end of one sandbox that nobody goes on with.
	sweepTimeout = 30 * time.Second
)

// adopt goes on with what an earlier process of this worker left, and removes
// the rest. It comes before the registration, which names what is held and what
// was lost.
func (r *run) adopt(ctx context.Context) error {
	all, err := r.base.readPasts(r.log)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *past) int {
		return cmp.Or(cmp.Compare(a.lease.Fence, b.lease.Fence), a.began.Compare(b.began))
	})
	newest := map[string]*past{}
	for _, p := range all {
		newest[p.lease.JobID] = p
	}
	found := make([]*task, len(all))
	var group sync.WaitGroup
	turns := make(chan struct{}, adopters)
	for i, p := range all {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			if newest[p.lease.JobID] == p {
				found[i] = r.takeOver(ctx, p)
				return
			}
			r.lose(ctx, p, errOlder)
		})
	}
	group.Wait()
	kept, live := map[string]bool{}, map[string]bool{}
	for _, t := range found {
		if t != nil {
			kept[t.past.name()] = true
			live[t.past.handle.ID] = t.past.box != nil
		}
	}
	boxes, err := r.adoptBoxes(ctx)
	if err != nil {
		return err
	}
	maps.Copy(live, boxes)
	r.sweep(ctx, live)
	if err := r.base.sweepSpool(kept); err != nil {
		return err
	}
	// All are held before the first goes on: it may be the one to register, and
	// what a registration does not name is given to others.
	found = slices.DeleteFunc(found, func(t *task) bool { return t == nil })
	for _, t := range found {
		r.tasks.adopt(t)
	}
	for _, t := range found {
		r.goOn(t) //nolint:contextcheck // a task has a context of its own
	}
	for _, k := range r.hosted.each() {
		k.goOn()
	}
	return nil
}

var (
	errOlder  = fault.New(fault.Conflict, "a later try of the job was begun")
	errReboot = fault.New(fault.NotFound, "the machine was restarted")
	errInput  = fault.New(fault.Conflict, "the worker died while it wrote to the command's input, and how much of it arrived is not known")
	errNoDisk = fault.New(fault.NotFound, "the files that were taken out of the sandbox are gone")
)

// takeOver prepares a task to go on where an earlier process was stopped, or
// returns nil where that cannot be done.
func (r *run) takeOver(ctx context.Context, p *past) *task {
	t := newTask(r, p.lease, false)
	t.past, t.began, t.memory = p, p.began, p.record.Asked.Memory
	t.happened = slices.Clone(p.happened)
	for _, h := range p.happened {
		t.said = append(t.said, h.Type)
	}
	t.journal.log = t.log
	t.output.init(r.base, p.lease.Held, &t.journal, func() { wake(r.printed) })
	err := p.goOn(&t.journal)
	if err == nil {
		err = r.find(ctx, t, p)
	}
	if err == nil {
		return t
	}
	t.stop(err)
	t.output.close()
	t.journal.drop()
	r.lose(ctx, p, err)
	return nil
}

// find finds what the rest of the work needs: nothing for a result, the files
// for what was performed, else the sandbox, and the exec where there was one.
func (r *run) find(ctx context.Context, t *task, p *past) error {
	if p.result != nil {
		return nil // also after a reboot: what it names was synced or handed over
	}
	from, err := t.output.resume()
	switch {
	case err != nil:
		return err
	case p.boot != r.base.boot:
		return errReboot
	case p.performed:
		if _, err := os.Stat(r.base.workspace(p.lease.JobID)); err != nil {
			return errNoDisk
		}
		return nil
	case !p.ended && p.feeding > p.fed:
		return errInput
	}
	if stop := r.brake.Check(subjectOf(&p.lease)); stop.Kill || stop.Freeze {
		// Nobody is met while it must stand still: the job waits for its next try.
		return fault.New(fault.Unavailable, "%s", stop.Reason).WithCode(sandbox.CodeStopped)
	}
	if _, err := planFor(p.lease.Payload, r.Languages); err != nil {
		return err // this version does not understand it any more
	}
	d := r.Drivers[p.handle.Driver]
	if d == nil {
		return fault.New(fault.NotFound, "the worker does not have the driver %q any more", p.handle.Driver)
	}
	box, err := sandbox.Adopt(ctx, sandbox.Options{
		Driver: d, OutputCap: r.OutputCap, ProvisionTimeout: recoverTimeout, Logger: t.log, Brake: r.brake, Subject: subjectOf(&p.lease),
	}, *p.handle)
	switch {
	case err == nil:
	case p.ended && p.record.Verdict != sandbox.OK:
		return nil // how the command ended is known, and says more than a new try
	case fault.CodeOf(err) == sandbox.CodeOutOfMemory && p.exec != nil && !p.ended:
		return p.ranOut(from)
	default:
		return err
	}
	p.box = box
	if p.ended || p.exec == nil {
		return nil
	}
	if err := r.attach(ctx, t, p, from); err != nil {
		if err := box.End(ctx, sandbox.OutcomeLost, err.Error()); err != nil {
			t.log.Error("could not destroy a sandbox", "sandbox", box.ID(), "error", err)
		}
		p.box = nil
		return err
	}
	return nil
}

// ranOut is the end of a command whose sandbox ran out of memory while no worker
// lived: a result, not a loss.
func (p *past) ranOut(from sandbox.Resume) error {
	stdout, stderr, err := from.Output()
	if err != nil {
		return err
	}
	rec := p.record
	rec.Verdict, rec.Cause, rec.ExitCode = sandbox.OOM, "the sandbox ran out of memory while no worker watched", -1
	rec.Stdout, rec.Stderr = outputRecord(stdout), outputRecord(stderr)
	p.ended, p.unseen = true, true
	return nil
}

// attach goes on with the exec, from where its spool ends. One that is not
// there was never started, and is started in its turn.
func (r *run) attach(ctx context.Context, t *task, p *past, from sandbox.Resume) error {
	bounded, cancel := context.WithTimeoutCause(ctx, recoverTimeout, errSilent)
	defer cancel()
	from.Started = p.exec.Started
	left := max(p.began.Add(p.record.Timeout+p.stood).Sub(p.exec.Started), 1)
	process, err := p.box.Attach(bounded, p.exec.ID, sandbox.ExecOptions{Timeout: left, Sink: &t.output}, from)
	if fault.Is(err, fault.NotFound) {
		select {
		case <-p.box.Done():
			return err
		default:
			return nil
		}
	}
	p.process = process
	return err
}

var errSilent = fault.New(fault.Unavailable, "the sandbox does not answer")

// lose gives up what cannot be gone on with. Its lease goes back to the queue.
func (r *run) lose(ctx context.Context, p *past, why error) {
	r.log.Warn("could not go on with a sandbox of an earlier run", "job", p.lease.JobID, "fence", p.lease.Fence, "sandbox", p.handle.ID, "error", why)
	if d := r.Drivers[p.handle.Driver]; d != nil {
		r.destroy(ctx, d, *p.handle)
	}
	if err := os.RemoveAll(p.path); err != nil {
		r.log.Error("could not remove the lease of an earlier run", "job", p.lease.JobID, "error", err)
	}
	if !errors.Is(why, errOlder) { // whose workspace is the later one's
		if err := r.base.removeWorkspace(p.lease.JobID); err != nil {
			r.log.Error("could not remove the workspace of an earlier run", "job", p.lease.JobID, "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, dispatch.Lost{Held: p.lease.Held, Sandbox: p.handle.ID, Reason: line(why.Error())})
}

// goOn lets a task that was taken over run.
func (r *run) goOn(t *task) {
	if p := t.past; p.result != nil {
		t.log.Info("a result of an earlier run is handed over")
		t.finished(p.result)
		t.output.close()
		r.tasks.letGo(t)
		wake(r.done)
		return
	}
	r.room.hold(t.memory)
	t.log.Info("goes on with a job of an earlier run", "sandbox", t.past.handle.ID)
	r.working.Go(func() {
		r.do(t)
		r.tasks.letGo(t)
	})
}

// sweep destroys every sandbox of an earlier process that is not gone on with.
func (r *run) sweep(ctx context.Context, live map[string]bool) {
	for name, d := range r.Drivers {
		handles, err := d.List(ctx)
		if err != nil {
			r.log.Error("could not list the sandboxes of an earlier run", "driver", name, "error", err)
			continue
		}
		var group sync.WaitGroup
		turns := make(chan struct{}, adopters)
		for _, h := range handles {
			if live[h.ID] {
				continue
			}
			turns <- struct{}{}
			group.Go(func() {
				defer func() { <-turns }()
				if r.destroy(ctx, d, h) {
					r.log.Info("destroyed a sandbox of an earlier run", "driver", name, "sandbox", h.ID)
				}
			})
		}
		group.Wait()
	}
}

// destroy ends a sandbox, also when the worker is being stopped: its lease is
// given back then too.
func (r *run) destroy(ctx context.Context, d sandbox.Driver, h sandbox.Handle) bool {
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), sweepTimeout, errStopped)
	defer cancel()
	if err := d.Destroy(bounded, h); err != nil {
		r.log.Error("could not destroy a sandbox of an earlier run", "driver", d.Name(), "sandbox", h.ID, "error", err)
		return false
	}
	return true
}

// resume goes on with a try from where an earlier process left it.
func (y *try) resume() {
	p := y.past
	y.record = *p.record
	y.dir = y.base.workspace(y.lease.JobID)
	if p.failure != "" {
		y.fail(fault.New(fault.Internal, "%s", p.failure))
	}
	var err error
	if y.plan, err = planFor(y.lease.Payload, y.Languages); err != nil {
		y.fail(err)
	}
	y.plan.command = y.record.Command
	y.happen(event.SandboxCreated, y.created())
	if p.performed {
		y.happen(event.SandboxDestroyed, map[string]any{"sandbox": p.handle.ID}) // by the sweep
		return
	}
	if y.dir, err = y.base.newWorkspace(y.lease.JobID); err != nil {
		y.fail(err)
	}
	if p.unseen {
		y.happen(event.ExecStarted, map[string]any{"exec": p.exec.ID, "command": briefly(y.plan.command)})
		y.journal.write(entry{Record: &y.record, Ended: true})
		y.happen(event.ExecEnded, map[string]any{
			"verdict": y.record.Verdict, "cause": y.record.Cause, "exit_code": y.record.ExitCode,
			"stdout_bytes": y.record.Stdout.Bytes, "stderr_bytes": y.record.Stderr.Bytes,
		})
	}
	if p.box == nil {
		y.missing(errReclaimed)
		y.performed()
		y.happen(event.SandboxDestroyed, map[string]any{"sandbox": p.handle.ID})
		return
	}
	y.adopted()
	timed, allowed := y.allow(y.record.Timeout + p.stood - time.Since(y.began))
	defer allowed.Stop()
	y.inSandbox(timed, p.box, allowed)
}

var errReclaimed = fault.New(fault.NotFound, "the sandbox was gone when the worker came back")

// adopted says that the sandbox was taken over, and from where its output goes
// on.
func (y *try) adopted() {
	data := map[string]any{"sandbox": y.past.handle.ID, "worker": y.WorkerID}
	if e := y.past.exec; e != nil {
		stdout, stderr := y.output.sizes()
		data["exec"], data["stdout_bytes"], data["stderr_bytes"] = e.ID, stdout, stderr
	}
	y.happen(event.SandboxAdopted, data)
}

// lostSoFar is what the next registration says was lost.
func (r *run) lostSoFar() []dispatch.Lost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lost[:min(len(r.lost), dispatch.MaxHeld)])
}

// toldLost forgets what a registration has said. Registrations come one at a
// time, and nothing is lost after the first.
func (r *run) toldLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = nil
}
