package machinist

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// CreateApp makes an app. One that exists is a Conflict.
func (k *Machinist) CreateApp(ctx context.Context, name string) (a machine.App, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return a, err
	}
	if err := machine.CheckWord("app_name", name); err != nil {
		return a, err
	}
	a = machine.App{Owner: c.ID, Name: name, CreatedAt: k.Now().UTC().Truncate(time.Microsecond)}
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		added, err := k.addApp(ctx, tx, a)
		if err == nil && !added {
			err = fault.New(fault.Conflict, "an app with the name %s exists", name).WithCode("app_exists")
		}
		return err
	})
	return a, err
}

func (k *Machinist) addApp(ctx context.Context, tx store.Tx, a machine.App) (bool, error) {
	added, err := tx.Machines().AddApp(ctx, a)
	if err != nil || !added {
		return added, err
	}
	return true, tx.Events().Append(ctx, &event.Event{
		Type: event.AppCreated, Version: 1, Entity: "app", EntityID: a.Name, Owner: a.Owner, Actor: a.Owner, At: a.CreatedAt,
	})
}

// App returns an app; the caller's own before that of another.
func (k *Machinist) App(ctx context.Context, name string) (a machine.App, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return a, err
	}
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		a, err = appOf(ctx, tx, c, name)
		return err
	})
	return a, err
}

func appOf(ctx context.Context, tx store.Tx, c policy.Caller, name string) (a machine.App, err error) {
	a, err = tx.Machines().App(ctx, c.ID, name)
	if fault.Is(err, fault.NotFound) && c.SeesAll() {
		a, err = tx.Machines().App(ctx, "", name)
	}
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.NotFound, "app not found: %s", name[:min(len(name), 60)])
	}
	return a, err
}

// Apps lists the apps that the caller may see.
func (k *Machinist) Apps(ctx context.Context) (list []machine.App, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Machines().Apps(ctx, mine(c))
		return err
	})
	return list, err
}

// mine is the owner whose rows the caller sees; "" is everybody.
func mine(c policy.Caller) string {
	if c.SeesAll() {
		return ""
	}
	return c.ID
}

// DeleteApp destroys the machines of an app of the caller, and the app.
func (k *Machinist) DeleteApp(ctx context.Context, name string) error {
	c, err := policy.Asking(ctx)
	if err != nil {
		return err
	}
	var list []machine.Machine
	err = k.Store.View(ctx, func(tx store.Tx) error {
		if _, err := tx.Machines().App(ctx, c.ID, name); err != nil {
			return fault.New(fault.NotFound, "app not found: %s", name[:min(len(name), 60)])
		}
		list, err = tx.Machines().List(ctx, store.MachineFilter{Owner: c.ID, App: name})
		return err
	})
	if err != nil {
		return err
	}
	for i := range list {
		err := k.destroy(ctx, list[i].ID, "its app was deleted")
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return k.Store.Update(ctx, func(tx store.Tx) error {
		left, err := tx.Machines().List(ctx, store.MachineFilter{Owner: c.ID, App: name, Limit: 1})
		if err == nil && len(left) > 0 {
			err = fault.New(fault.Conflict, "the app %s got another machine meanwhile; delete it again", name).WithCode("app_in_use")
		}
		if err != nil {
			return err
		}
		if err := tx.Machines().DropApp(ctx, c.ID, name); err != nil {
			return err
		}
		if err := store.Acted(ctx, tx, store.Act{Source: "machinist", Action: string(event.AppDeleted), Target: name}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, &event.Event{
			Type: event.AppDeleted, Version: 1, Entity: "app", EntityID: name, Owner: c.ID, Actor: c.ID, At: k.Now(),
		})
	})
}

// Machines lists the machines of an app.
func (k *Machinist) Machines(ctx context.Context, f store.MachineFilter) (list []machine.Machine, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	f.Owner = mine(c)
	err = k.Store.View(ctx, func(tx store.Tx) error {
		if _, err := appOf(ctx, tx, c, f.App); err != nil {
			return err
		}
		list, err = tx.Machines().List(ctx, f)
		return err
	})
	return list, err
}

// Machine returns a machine as it stands. One that is destroyed is not found.
func (k *Machinist) Machine(ctx context.Context, ref machine.Ref) (machine.Machine, error) {
	m, err := k.look(ctx, ref)
	if err == nil && !m.Open() {
		err = notFound(ref.ID)
	}
	return m, err
}

// look returns a machine, destroyed or not, after what its sandbox came to was
// seen to.
func (k *Machinist) look(ctx context.Context, ref machine.Ref) (m machine.Machine, err error) {
	read := func() error {
		return k.Store.View(ctx, func(tx store.Tx) (err error) {
			m, err = find(ctx, tx, ref)
			return err
		})
	}
	if err := read(); err != nil || m.Sandbox == "" || m.State != machine.Started && m.State != machine.Suspended {
		return m, err
	}
	if s, err := k.Sandboxes.Sandbox(policy.AsOwner(ctx, m.Owner), m.Sandbox); err != nil || s.Open() {
		return m, nil //nolint:nilerr // a sandbox that cannot be looked at says nothing about the machine's record
	}
	done, ok := k.take(m.ID)
	if !ok {
		return m, nil // somebody is at it
	}
	err = k.settle(ctx, m.ID)
	done()
	if err != nil {
		return m, err
	}
	return m, read()
}

// WaitMachine waits until a machine is in a state, or ctx ends. instance says
// which version is meant; "" is any.
func (k *Machinist) WaitMachine(ctx context.Context, ref machine.Ref, state machine.State, instance string) error {
	for {
		moved := k.moved.Wait() // before the look
		m, err := k.look(context.WithoutCancel(ctx), ref)
		switch {
		case err != nil:
			return err
		case m.State == state && (instance == "" || m.Instance == instance):
			return nil
		case !m.Open():
			return notFound(ref.ID)
		}
		select {
		case <-moved:
		case <-time.After(rhythm): // another manager may have moved it
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "machine failed to reach desired state, %s, currently %s", state, m.State).WithCode("deadline_exceeded")
		}
	}
}

// SetMetadata sets a value of a machine's metadata, or removes it with nil. It
// needs no lease: clients of this shape hold one and have no way to say so here.
func (k *Machinist) SetMetadata(ctx context.Context, ref machine.Ref, key string, value *string) error {
	_, err := k.alter(ctx, ref, k.there, event.MachineUpdated, func(m *machine.Machine) error {
		c, err := machine.ReadConfig(m.Config)
		if err != nil {
			return err
		}
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		delete(c.Metadata, key)
		if value != nil {
			c.Metadata[key] = *value
		}
		if err := machine.CheckMetadata(c.Metadata); err != nil {
			return err
		}
		m.Config, err = c.Document(m.Config)
		return err
	})
	return err
}

// Cordon takes a machine out of what is routed to by itself, or puts it back.
func (k *Machinist) Cordon(ctx context.Context, ref machine.Ref, cordoned bool) error {
	_, err := k.alter(ctx, ref, k.open, event.MachineUpdated, func(m *machine.Machine) error {
		m.Cordoned = cordoned
		return nil
	})
	return err
}

// finding returns a machine of the caller, or says why it may not be changed.
type finding func(ctx context.Context, tx store.Tx, ref machine.Ref) (machine.Machine, error)

// alter changes a machine that is found.
func (k *Machinist) alter(ctx context.Context, ref machine.Ref, found finding, t event.Type, change func(m *machine.Machine) error) (m machine.Machine, err error) {
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		if m, err = found(ctx, tx, ref); err != nil {
			return err
		}
		return k.put(ctx, tx, &m, t, change)
	})
	k.moved.Wake()
	return m, err
}

// there returns a machine of the caller that is not destroyed.
func (k *Machinist) there(ctx context.Context, tx store.Tx, ref machine.Ref) (machine.Machine, error) {
	m, err := find(ctx, tx, ref)
	if err == nil && !m.Open() {
		err = notFound(ref.ID)
	}
	return m, err
}

// open returns a machine of the caller that may be changed: nobody else holds a
// lease on it.
func (k *Machinist) open(ctx context.Context, tx store.Tx, ref machine.Ref) (machine.Machine, error) {
	m, err := k.there(ctx, tx, ref)
	switch {
	case err != nil:
		return m, err
	case m.Lease.Held(k.Now()) && m.Lease.Nonce != ref.Nonce:
		return m, fault.New(fault.Conflict, "machine ID %s lease currently held by %s, expires at %s", m.ID, m.Lease.Owner, m.Lease.ExpiresAt.Format(time.RFC3339)).
			WithCode("lease_held")
	}
	return m, nil
}

// Lease returns the lease that holds on a machine, or NotFound.
func (k *Machinist) Lease(ctx context.Context, ref machine.Ref) (machine.Lease, error) {
	m, err := k.Machine(ctx, ref)
	if err == nil && !m.Lease.Held(k.Now()) {
		err = fault.New(fault.NotFound, "lease not found")
	}
	return m.Lease, err
}

// maxLease bounds how long a lease holds.
const maxLease = time.Hour

// TakeLease takes a machine, or holds on to it with the nonce of its lease.
func (k *Machinist) TakeLease(ctx context.Context, ref machine.Ref, ttl time.Duration, description string) (machine.Lease, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return machine.Lease{}, err
	}
	const most, usual = 500, 5 * time.Minute
	if ttl == 0 {
		ttl = usual
	}
	if ttl < time.Second || ttl > maxLease {
		return machine.Lease{}, fault.Field("ttl", "must be from 1 to %d seconds", int(maxLease.Seconds()))
	}
	if len(description) > most {
		return machine.Lease{}, fault.Field("description", "is longer than %d bytes", most)
	}
	m, err := k.alter(ctx, ref, k.open, event.MachineLeased, func(m *machine.Machine) error {
		now := k.Now().UTC().Truncate(time.Second)
		if !m.Lease.Held(now) {
			m.Lease = machine.Lease{Nonce: machine.NewNonce(), Owner: c.ID, Version: machine.NewInstance()}
		}
		m.Lease.ExpiresAt = now.Add(ttl)
		if description != "" {
			m.Lease.Description = description
		}
		return nil
	})
	return m.Lease, err
}

// ReleaseLease gives a machine back.
func (k *Machinist) ReleaseLease(ctx context.Context, ref machine.Ref) error {
	_, err := k.alter(ctx, ref, k.open, event.MachineLeased, func(m *machine.Machine) error {
		m.Lease = machine.Lease{}
		return nil
	})
	return err
}
