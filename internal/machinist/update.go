package machinist

import (
	"context"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/policy"
)

// UpdateMachine gives a machine another configuration, in a sandbox of its own,
// and starts it unless that is not wanted. An update that fails leaves the
// machine as it was.
func (k *Machinist) UpdateMachine(ctx context.Context, ref machine.Ref, req machine.Request) (m machine.Machine, err error) {
	err = k.steer(ctx, ref, func(ctx context.Context, old machine.Machine) error {
		next, err := updated(old, req)
		if err != nil {
			return err
		}
		switch {
		case req.SkipLaunch:
			return k.replaceLater(ctx, next)
		case old.Sandbox == "":
			return k.replaceNow(ctx, old, next)
		}
		return k.replaceBeside(ctx, old, next)
	})
	if err != nil {
		return m, err
	}
	return k.Machine(ctx, ref)
}

// updated is what a machine becomes by a request.
func updated(old machine.Machine, req machine.Request) (next machine.Machine, err error) {
	if req.CurrentVersion != "" && req.CurrentVersion != old.Instance {
		return next, fault.New(fault.Conflict, "the machine is at version %s, not %s", old.Instance, req.CurrentVersion).WithCode("version_mismatch")
	}
	if req.Name != "" && req.Name != old.Name {
		return next, fault.Field("name", "of a machine cannot be changed")
	}
	next = old
	if req.Region != "" {
		next.Region = req.Region
	}
	if err := fill(&next, req); err != nil {
		return next, err
	}
	next.Instance, next.Version, next.Wanted = machine.NewInstance(), old.Version+1, !req.SkipLaunch
	return next, old.State.Demand("update it", machine.Created, machine.Started, machine.Stopped, machine.Suspended)
}

// become gives a machine the configuration of another.
func become(m *machine.Machine, next machine.Machine) {
	m.Config, m.Region, m.Instance, m.Version, m.Wanted = next.Config, next.Region, next.Instance, next.Version, next.Wanted
}

// replacing notes that a machine is being updated, with what is known by then.
func (k *Machinist) replacing(ctx context.Context, id string, alter func(m *machine.Machine)) (machine.Machine, error) {
	return k.change(ctx, id, event.MachineUpdated, func(m *machine.Machine) error {
		alter(m)
		if m.State == machine.Replacing {
			return nil
		}
		return k.move(m, machine.Replacing, machine.Event{Type: "update", Source: "user"})
	})
}

// replaceLater gives a machine a configuration for its next start, and stops it.
func (k *Machinist) replaceLater(ctx context.Context, next machine.Machine) error {
	m, err := k.replacing(ctx, next.ID, func(m *machine.Machine) { become(m, next) })
	if err != nil {
		return err
	}
	return k.finishReplaceLater(ctx, m)
}

func (k *Machinist) finishReplaceLater(ctx context.Context, m machine.Machine) error {
	if err := k.part(ctx, m, "its machine was updated"); err != nil {
		return err
	}
	return k.backTo(ctx, m.ID, machine.Stopped, "", func(m *machine.Machine) { m.Sandbox, m.Roots = "", nil })
}

// replaceNow starts a machine that has no sandbox with another configuration.
func (k *Machinist) replaceNow(ctx context.Context, old, next machine.Machine) error {
	m, err := k.replacing(ctx, old.ID, func(m *machine.Machine) { become(m, next) })
	if err != nil {
		return err
	}
	st, err := k.stand(ctx, &m, m.SandboxNames()[0])
	if err == nil {
		return k.standing(ctx, m, st)
	}
	if ctx.Err() == nil { // else the next life of the manager goes on
		k.putBack(ctx, old, err, func(m *machine.Machine) { become(m, old) })
	}
	return err
}

// replaceBeside makes the sandbox of the new configuration while the old one
// runs, which is ended only when the new one stands.
func (k *Machinist) replaceBeside(ctx context.Context, old, next machine.Machine) error {
	name, err := k.freeName(ctx, old)
	if err != nil {
		return err
	}
	if _, err := k.replacing(ctx, old.ID, func(m *machine.Machine) { m.Wanted = true }); err != nil {
		return err
	}
	st, err := k.stand(ctx, &next, name)
	switch {
	case err == nil:
		return k.takeOver(ctx, next, st)
	case ctx.Err() != nil: // the next life of the manager clears up
		return err
	case fault.CodeOf(err) == "no_room":
		return k.replaceInRoom(ctx, old, next)
	}
	k.putBack(ctx, old, err, func(m *machine.Machine) { m.Wanted = old.Wanted })
	return err
}

// freeName is the name that the sandbox of a machine does not have.
func (k *Machinist) freeName(ctx context.Context, m machine.Machine) (string, error) {
	names := m.SandboxNames()
	s, err := k.Sandboxes.Sandbox(policy.AsOwner(ctx, m.Owner), m.Sandbox)
	if err == nil && s.Name == names[0] {
		return names[1], nil
	}
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return names[0], err
}

// takeOver lets a machine run in the sandbox of its new configuration, and ends
// the one before.
func (k *Machinist) takeOver(ctx context.Context, next machine.Machine, st stand) error {
	safe := context.WithoutCancel(ctx)
	m, err := k.change(safe, next.ID, event.MachineUpdated, func(m *machine.Machine) error {
		if err := m.State.Demand("update it", machine.Replacing); err != nil {
			return err
		}
		become(m, next)
		st.takeUp(m)
		return nil
	})
	if err != nil { // it was destroyed meanwhile
		k.endSandbox(ctx, next, st.sandbox.ID, "its machine is not wanted any more")
		return err
	}
	return k.finishTakeOver(ctx, m)
}

func (k *Machinist) finishTakeOver(ctx context.Context, m machine.Machine) error {
	if err := k.partOthers(ctx, m, "its machine was updated"); err != nil {
		return err
	}
	return k.backTo(context.WithoutCancel(ctx), m.ID, machine.Started, "", nil)
}

// replaceInRoom ends the old sandbox before the new one is made: there is no
// room for both. Where the new one cannot be made a machine that ran is started
// again as it was configured.
func (k *Machinist) replaceInRoom(ctx context.Context, old, next machine.Machine) error {
	if err := k.part(ctx, old, "its machine is updated"); err != nil {
		return err
	}
	m, err := k.replacing(ctx, old.ID, func(m *machine.Machine) {
		become(m, next)
		m.Sandbox, m.Roots = "", nil
	})
	if err != nil {
		return err
	}
	st, err := k.stand(ctx, &m, m.SandboxNames()[0])
	if err == nil {
		return k.standing(ctx, m, st)
	}
	if ctx.Err() != nil {
		return err
	}
	if _, back := k.replacing(ctx, old.ID, func(m *machine.Machine) { become(m, old) }); back != nil {
		return err
	}
	if again := k.launch(ctx, old.ID); again != nil {
		k.Logger.Error("could not start a machine again after an update that failed", "machine", old.ID, "error", again)
	}
	return err
}

// putBack leaves a machine as it was before an update that failed.
func (k *Machinist) putBack(ctx context.Context, old machine.Machine, why error, alter func(m *machine.Machine)) {
	err := k.backTo(ctx, old.ID, old.State, why.Error(), alter)
	if err != nil && !fault.Is(err, fault.Conflict) {
		k.Logger.Error("could not record that a machine was not updated", "machine", old.ID, "error", err)
	}
}

// backTo ends the update of a machine in a state.
func (k *Machinist) backTo(ctx context.Context, id string, to machine.State, reason string, alter func(m *machine.Machine)) error {
	_, err := k.change(ctx, id, event.MachineMoved, func(m *machine.Machine) error {
		if alter != nil {
			alter(m)
		}
		return k.move(m, to, machine.Event{Type: "update", Reason: reason})
	})
	return err
}

// resumeUpdate brings an update to its end that an earlier life began. What is
// written down holds: a machine with a sandbox keeps it, with its configuration,
// and one without is started.
func (k *Machinist) resumeUpdate(ctx context.Context, m machine.Machine) error {
	switch {
	case !m.Wanted:
		return k.finishReplaceLater(ctx, m)
	case m.Sandbox == "":
		return k.launch(ctx, m.ID)
	}
	s, err := k.Sandboxes.Sandbox(policy.AsOwner(ctx, m.Owner), m.Sandbox)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err == nil && s.Paused != "" { // it was suspended
		if err := k.partOthers(ctx, m, "its machine was not updated"); err != nil {
			return err
		}
		return k.backTo(ctx, m.ID, machine.Suspended, "", nil)
	}
	return k.finishTakeOver(ctx, m)
}
