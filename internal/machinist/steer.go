package machinist

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// steer does something to a machine of the caller that nobody else is at. It
// goes on when the caller hangs up.
func (k *Machinist) steer(ctx context.Context, ref machine.Ref, do func(ctx context.Context, m machine.Machine) error) error {
	if _, err := k.look(ctx, ref); err != nil {
		return err
	}
	done, err := k.hold(ctx, ref.ID)
	if err != nil {
		return err
	}
	defer done()
	work, end, err := k.detached(ctx)
	if err != nil {
		return err
	}
	defer end()
	var m machine.Machine
	err = k.Store.View(work, func(tx store.Tx) (err error) {
		m, err = k.open(work, tx, ref)
		return err
	})
	if err != nil {
		return err
	}
	return do(work, m)
}

// StartMachine starts a machine that is stopped, or lets one that is suspended
// go on, and returns where it stood.
func (k *Machinist) StartMachine(ctx context.Context, ref machine.Ref) (before machine.State, err error) {
	err = k.steer(ctx, ref, func(ctx context.Context, m machine.Machine) error {
		before = m.State
		switch m.State {
		case machine.Started:
			return nil
		case machine.Suspended:
			m, err := k.change(ctx, m.ID, event.MachineMoved, func(m *machine.Machine) error {
				return k.move(m, machine.Starting, machine.Event{Type: "start", Source: "user"})
			})
			if err != nil {
				return err
			}
			return k.wakeUp(ctx, m)
		case machine.Created, machine.Stopped:
			return k.launch(ctx, m.ID)
		case machine.Starting, machine.Suspending, machine.Stopping, machine.Replacing, machine.Destroying, machine.Destroyed:
		}
		return m.State.Demand("start it", machine.Created, machine.Stopped, machine.Suspended)
	})
	return before, err
}

// wakeUp lets a suspended machine go on. One that cannot stays suspended: what
// was in its memory is not given up behind its owner's back.
func (k *Machinist) wakeUp(ctx context.Context, m machine.Machine) error {
	_, err := k.Sandboxes.ResumeSandbox(policy.AsOwner(ctx, m.Owner), m.Sandbox)
	to, e := machine.Started, machine.Event{Type: "start"}
	if err != nil {
		to, e.Reason = machine.Suspended, err.Error()
	}
	_, moved := k.change(context.WithoutCancel(ctx), m.ID, event.MachineMoved, func(m *machine.Machine) error { return k.move(m, to, e) })
	return cmp.Or(err, moved)
}

// Stop is how a machine is stopped; zero values stand for what its
// configuration says.
type Stop struct {
	Signal  string
	Timeout time.Duration
}

// StopMachine stops a machine: its sandbox ends, and with auto_destroy the
// machine too. One that is stopped stays so.
func (k *Machinist) StopMachine(ctx context.Context, ref machine.Ref, how Stop) error {
	return k.steer(ctx, ref, func(ctx context.Context, m machine.Machine) error {
		if m.State == machine.Stopped || m.State == machine.Created {
			return nil
		}
		if err := k.halt(ctx, m, how); err != nil {
			return err
		}
		return k.finishStop(ctx, m)
	})
}

// halt lets the processes of a machine end and notes that it is being stopped.
func (k *Machinist) halt(ctx context.Context, m machine.Machine, how Stop) error {
	c, err := machine.ReadConfig(m.Config)
	if err != nil {
		return err
	}
	if how.Signal == "" && c.Stop != nil {
		how.Signal = c.Stop.Signal
	}
	signal, err := machine.Signal(how.Signal)
	if err != nil {
		return err
	}
	if how.Timeout == 0 && c.Stop != nil {
		how.Timeout, _ = machine.Seconds("timeout", c.Stop.Timeout) // checked when it was taken
	}
	was := m.State
	m, err = k.change(ctx, m.ID, event.MachineMoved, func(m *machine.Machine) error {
		m.Wanted = false
		return k.move(m, machine.Stopping, machine.Event{Type: "stop", Source: "user"})
	})
	if err != nil || was == machine.Suspended {
		return err
	}
	k.letEnd(policy.AsOwner(ctx, m.Owner), m, signal, min(cmp.Or(how.Timeout, stopTime), maxStopTime))
	return nil
}

// letEnd tells the processes of a machine to end and waits for them a while.
func (k *Machinist) letEnd(ctx context.Context, m machine.Machine, signal int, wait time.Duration) {
	bounded, cancel := context.WithTimeoutCause(ctx, wait, errors.New("they take long"))
	defer cancel()
	for _, id := range m.Roots {
		if err := k.Execs.SignalExec(bounded, id, signal, false); err != nil {
			continue // it has ended, or will with the sandbox
		}
		_, _ = k.Execs.WaitExec(bounded, id)
	}
}

// finishStop ends the sandbox of a machine that is being stopped.
func (k *Machinist) finishStop(ctx context.Context, m machine.Machine) error {
	if err := k.part(ctx, m, "its machine was stopped"); err != nil {
		return err
	}
	return k.stopped(context.WithoutCancel(ctx), m.ID, machine.Event{Type: "exit", Exit: &machine.Exit{Requested: true, At: k.Now()}})
}

// stopped notes that a machine has no sandbox any more, and destroys it where
// that was wished for.
func (k *Machinist) stopped(ctx context.Context, id string, e machine.Event) error {
	_, err := k.change(ctx, id, event.MachineMoved, func(m *machine.Machine) error {
		m.Wanted, m.Sandbox, m.Roots = false, "", nil
		if err := k.move(m, machine.Stopped, e); err != nil {
			return err
		}
		c, err := machine.ReadConfig(m.Config)
		if err != nil || !c.AutoDestroy {
			return err
		}
		if err := k.move(m, machine.Destroying, machine.Event{Type: "destroy", Reason: "auto_destroy"}); err != nil {
			return err
		}
		return k.move(m, machine.Destroyed, machine.Event{Type: "destroy", Reason: "auto_destroy"})
	})
	return err
}

// part ends the sandbox of a machine, also one that is still being made for it.
func (k *Machinist) part(ctx context.Context, m machine.Machine, reason string) error {
	if err := k.partOthers(ctx, m, reason); err != nil || m.Sandbox == "" {
		return err
	}
	return k.end(policy.AsOwner(ctx, m.Owner), m.Sandbox, reason)
}

// partOthers ends what has the name of a machine's sandbox and is not the one
// that it runs in: what was being made for it, or was before.
func (k *Machinist) partOthers(ctx context.Context, m machine.Machine, reason string) error {
	own := policy.AsOwner(ctx, m.Owner)
	for _, name := range m.SandboxNames() {
		s, err := k.Sandboxes.SandboxByName(own, name)
		if fault.Is(err, fault.NotFound) || err == nil && s.ID == m.Sandbox {
			continue
		}
		if err == nil {
			err = k.end(own, s.ID, reason)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end ends a sandbox, unless it is gone.
func (k *Machinist) end(own context.Context, sandbox, reason string) error {
	_, err := k.Sandboxes.EndSandbox(own, sandbox, reason)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// SuspendMachine puts a machine aside with its memory, or freezes it where the
// driver cannot.
func (k *Machinist) SuspendMachine(ctx context.Context, ref machine.Ref) error {
	return k.steer(ctx, ref, func(ctx context.Context, m machine.Machine) error {
		if m.State == machine.Suspended {
			return nil
		}
		if err := m.State.Demand("suspend it", machine.Started); err != nil {
			return err
		}
		m, err := k.change(ctx, m.ID, event.MachineMoved, func(m *machine.Machine) error {
			return k.move(m, machine.Suspending, machine.Event{Type: "suspend", Source: "user"})
		})
		if err != nil {
			return err
		}
		return k.finishSuspend(ctx, m)
	})
}

func (k *Machinist) finishSuspend(ctx context.Context, m machine.Machine) error {
	own := policy.AsOwner(ctx, m.Owner)
	_, err := k.Sandboxes.PauseSandbox(own, m.Sandbox, live.Checkpointed)
	if fault.Is(err, fault.Invalid) { // this driver has no checkpoints
		_, err = k.Sandboxes.PauseSandbox(own, m.Sandbox, live.Frozen)
	}
	to, e := machine.Suspended, machine.Event{Type: "suspend"}
	if err != nil {
		to, e.Reason = machine.Started, err.Error()
	}
	_, moved := k.change(context.WithoutCancel(ctx), m.ID, event.MachineMoved, func(m *machine.Machine) error { return k.move(m, to, e) })
	return cmp.Or(err, moved)
}

// RestartMachine stops a machine and starts it again; auto_destroy does not
// count here.
func (k *Machinist) RestartMachine(ctx context.Context, ref machine.Ref, how Stop) error {
	return k.steer(ctx, ref, func(ctx context.Context, m machine.Machine) error {
		if m.State == machine.Started || m.State == machine.Suspended {
			if err := k.halt(ctx, m, how); err != nil {
				return err
			}
			if err := k.part(ctx, m, "its machine is restarted"); err != nil {
				return err
			}
			_, err := k.change(ctx, m.ID, event.MachineMoved, func(m *machine.Machine) error {
				m.Sandbox, m.Roots = "", nil
				return k.move(m, machine.Stopped, machine.Event{Type: "exit", Exit: &machine.Exit{Requested: true, Restarting: true, At: k.Now()}})
			})
			if err != nil {
				return err
			}
		}
		return k.launch(ctx, m.ID)
	})
}

// DestroyMachine ends a machine for good, wherever it stands. It does not wait
// for who is at it: what they are making is not wanted any more.
func (k *Machinist) DestroyMachine(ctx context.Context, ref machine.Ref) error {
	err := k.Store.View(ctx, func(tx store.Tx) error {
		_, err := k.open(ctx, tx, ref)
		return err
	})
	if err != nil {
		return err
	}
	return k.destroy(ctx, ref.ID, "")
}

func (k *Machinist) destroy(ctx context.Context, id, reason string) error {
	work, end, err := k.detached(ctx)
	if err != nil {
		return err
	}
	defer end()
	m, err := k.change(work, id, event.MachineMoved, func(m *machine.Machine) error {
		m.Wanted = false
		if m.State == machine.Destroying {
			return nil
		}
		return k.move(m, machine.Destroying, machine.Event{Type: "destroy", Source: "user", Reason: reason})
	})
	if err != nil {
		return err
	}
	return k.finishDestroy(work, m)
}

func (k *Machinist) finishDestroy(ctx context.Context, m machine.Machine) error {
	if err := k.part(ctx, m, "its machine was destroyed"); err != nil {
		return err
	}
	_, err := k.change(context.WithoutCancel(ctx), m.ID, event.MachineMoved, func(m *machine.Machine) error {
		m.Sandbox, m.Roots = "", nil
		if m.State == machine.Destroyed { // by another who destroys it
			return nil
		}
		return k.move(m, machine.Destroyed, machine.Event{Type: "destroy"})
	})
	return err
}

// SignalMachine sends a signal to the processes of a machine. One that has none
// is stopped by a signal that would end a process, and bears the others.
func (k *Machinist) SignalMachine(ctx context.Context, ref machine.Ref, name string) error {
	signal, err := machine.Signal(name)
	if err != nil {
		return err
	}
	return k.steer(ctx, ref, func(ctx context.Context, m machine.Machine) error {
		if err := m.State.Demand("signal it", machine.Started); err != nil {
			return err
		}
		if len(m.Roots) == 0 {
			if !ends(signal) {
				return nil
			}
			if err := k.halt(ctx, m, Stop{Signal: name}); err != nil {
				return err
			}
			return k.finishStop(ctx, m)
		}
		own := policy.AsOwner(ctx, m.Owner)
		for _, id := range m.Roots {
			if err := k.Execs.SignalExec(own, id, signal, false); err != nil && !fault.Is(err, fault.Conflict) {
				return err
			}
		}
		return nil
	})
}

// ends reports whether a signal ends a process that waits for nothing.
func ends(signal int) bool {
	switch signal {
	case 1, 2, 3, 6, 9, 15:
		return true
	}
	return false
}

// settle sees to a machine whose sandbox, or one of whose processes, has ended.
//
// Preconditions: the caller has taken the machine.
func (k *Machinist) settle(ctx context.Context, id string) error {
	var m machine.Machine
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		m, err = tx.Machines().Get(ctx, id)
		return err
	})
	if err != nil || m.Sandbox == "" || m.State != machine.Started && m.State != machine.Suspended {
		return err
	}
	own := policy.AsOwner(ctx, m.Owner)
	s, err := k.Sandboxes.Sandbox(own, m.Sandbox)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err != nil || !s.Open() {
		return k.stopped(ctx, id, machine.Event{Type: "exit", Reason: cmp.Or(s.Reason, string(s.Outcome)), Exit: &machine.Exit{Code: -1, At: k.Now()}})
	}
	for _, root := range m.Roots {
		e, err := k.Execs.Exec(own, root)
		if err == nil && e.State == live.Done {
			return k.exited(ctx, m, e)
		}
	}
	return nil
}

// exited starts the processes of a machine again, or stops it, when one of them
// has ended.
func (k *Machinist) exited(ctx context.Context, m machine.Machine, e live.Exec) error {
	c, err := machine.ReadConfig(m.Config)
	if err != nil {
		return err
	}
	exit := &machine.Exit{Code: e.Result.ExitCode, Signal: e.Result.Signal, OOM: e.Result.Verdict == sandbox.OOM, At: e.EndedAt}
	if !c.Again(e.Result.Verdict != sandbox.OK, m.Restarts) {
		if err := k.part(ctx, m, "the process of its machine ended"); err != nil {
			return err
		}
		return k.stopped(ctx, m.ID, machine.Event{Type: "exit", Reason: e.Result.Cause, Exit: exit})
	}
	own := policy.AsOwner(ctx, m.Owner)
	for _, id := range m.Roots { // the others end with it
		_ = k.Execs.SignalExec(own, id, 9, true)
	}
	roots, err := k.startRoots(own, m.Sandbox, &c)
	if err != nil {
		return err
	}
	exit.Restarting = true
	_, err = k.change(ctx, m.ID, event.MachineUpdated, func(m *machine.Machine) error {
		m.Roots, m.Restarts = roots, m.Restarts+1
		m.Note(machine.Event{Type: "exit", Source: "flyd", At: k.Now().UTC().Truncate(time.Millisecond), Reason: e.Result.Cause, Exit: exit})
		return nil
	})
	return err
}
