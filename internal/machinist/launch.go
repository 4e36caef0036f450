package machinist

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// CreateMachine makes a machine, and its app if there is none, and starts it.
// It returns when the machine is started, or after a time that clients bear.
// One that cannot be started is destroyed: the fault says why.
func (k *Machinist) CreateMachine(ctx context.Context, app string, req machine.Request) (m machine.Machine, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return m, err
	}
	m = machine.Machine{ID: machine.NewID(), App: app, Owner: c.ID, Name: req.Name, Region: req.Region, Instance: machine.NewInstance(), Version: 1, State: machine.Created, Wanted: !req.SkipLaunch}
	if err := fill(&m, req); err != nil {
		return m, err
	}
	m.CreatedAt = k.Now().UTC().Truncate(time.Microsecond)
	m.UpdatedAt = m.CreatedAt
	m.Note(machine.Event{Type: "launch", Source: "user", At: m.CreatedAt})
	done, _ := k.take(m.ID) // nobody else knows it
	err = k.Store.Update(ctx, func(tx store.Tx) error {
		if _, err := k.addApp(ctx, tx, machine.App{Owner: c.ID, Name: app, CreatedAt: m.CreatedAt}); err != nil {
			return err
		}
		if err := tx.Machines().Add(ctx, &m); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(ctx, &m, event.MachineCreated, m.CreatedAt, map[string]any{}))
	})
	done()
	if err != nil || req.SkipLaunch {
		return m, err
	}
	return k.soon(ctx, m, k.launch)
}

// fill checks a request and puts it into a machine.
func fill(m *machine.Machine, req machine.Request) error {
	if m.Name == "" {
		m.Name = machine.NewName(m.ID)
	}
	if m.Region == "" {
		m.Region = machine.DefaultRegion
	}
	for _, x := range []struct{ field, word string }{{"app", m.App}, {"name", m.Name}, {"region", m.Region}} {
		if err := machine.CheckWord(x.field, x.word); err != nil {
			return err
		}
	}
	c, err := machine.ReadConfig(req.Config)
	if err != nil {
		return err
	}
	m.Config, err = c.Document(req.Config)
	return err
}

// soon does something to a machine in the background and waits for it, but not
// for ever; then the machine is returned as it stands.
func (k *Machinist) soon(ctx context.Context, m machine.Machine, do func(ctx context.Context, id string) error) (machine.Machine, error) {
	work, end, err := k.detached(ctx)
	if err != nil {
		return m, err
	}
	result := make(chan error, 1)
	go func() { // detached counts it
		defer end()
		done, err := k.hold(work, m.ID)
		if err == nil {
			err = do(work, m.ID)
			done()
		}
		result <- err
	}()
	wait, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it takes long"))
	defer cancel()
	select {
	case err = <-result:
	case <-wait.Done():
	}
	if err != nil {
		return m, err
	}
	err = k.Store.View(context.WithoutCancel(ctx), func(tx store.Tx) (err error) {
		m, err = tx.Machines().Get(ctx, m.ID)
		return err
	})
	return m, err
}

// launch gives a machine a sandbox and starts its processes.
//
// Preconditions: the caller has taken the machine.
func (k *Machinist) launch(ctx context.Context, id string) error {
	m, err := k.change(ctx, id, event.MachineMoved, func(m *machine.Machine) error {
		m.Wanted = true
		if m.State == machine.Starting { // it was left on its way
			return nil
		}
		return k.move(m, machine.Starting, machine.Event{Type: "start", Source: "user"})
	})
	if err != nil {
		return err
	}
	st, err := k.stand(ctx, &m, m.SandboxNames()[0])
	if err != nil {
		return k.fallBack(ctx, m, err)
	}
	return k.standing(ctx, m, st)
}

// stand is a machine's sandbox in which its processes run.
type stand struct {
	sandbox live.Sandbox
	roots   []string
}

// stand makes a sandbox of a name for a machine, with its files and processes.
// What could not be finished is ended, but not while the manager stops: the next
// one finds it by its name.
func (k *Machinist) stand(ctx context.Context, m *machine.Machine, name string) (st stand, err error) {
	config, err := machine.ReadConfig(m.Config)
	if err != nil {
		return st, err
	}
	own := policy.AsOwner(ctx, m.Owner)
	if st.sandbox, err = k.fresh(own, k.order(m, &config, name)); err != nil {
		return st, err
	}
	if err = k.putFiles(own, st.sandbox.ID, &config); err == nil {
		st.roots, err = k.startRoots(own, st.sandbox.ID, &config)
	}
	if err != nil && ctx.Err() == nil {
		k.endSandbox(ctx, *m, st.sandbox.ID, "its machine could not be started")
	}
	return st, err
}

// takeUp has a machine run where it stands now.
func (st stand) takeUp(m *machine.Machine) {
	m.Sandbox, m.Roots, m.Restarts, m.Ran = st.sandbox.ID, st.roots, 0, true
	m.Image = machine.Image{Name: st.sandbox.Made.Image, Digest: st.sandbox.Made.Digest}
}

// standing notes that a machine is started.
func (k *Machinist) standing(ctx context.Context, m machine.Machine, st stand) error {
	_, err := k.change(context.WithoutCancel(ctx), m.ID, event.MachineMoved, func(m *machine.Machine) error {
		st.takeUp(m)
		return k.move(m, machine.Started, machine.Event{Type: "start"})
	})
	if err != nil { // it was destroyed meanwhile
		k.endSandbox(ctx, m, st.sandbox.ID, "its machine is not wanted any more")
	}
	return err
}

// fresh makes a sandbox. One that an earlier life of this manager made and did
// not come to note is ended first: nobody knows how far it came.
func (k *Machinist) fresh(ctx context.Context, req live.Request) (live.Sandbox, error) {
	s, made, err := k.Sandboxes.CreateSandbox(ctx, req)
	if err != nil || made {
		return s, err
	}
	if _, err := k.Sandboxes.EndSandbox(ctx, s.ID, "its machine is started anew"); err != nil {
		return s, err
	}
	s, _, err = k.Sandboxes.CreateSandbox(ctx, req)
	return s, err
}

// fallBack ends a launch that failed: a machine that never ran is destroyed, any
// other is stopped. While the manager stops nothing is given up: the next one
// goes on.
func (k *Machinist) fallBack(ctx context.Context, m machine.Machine, why error) error {
	if ctx.Err() != nil {
		return why
	}
	_, err := k.change(ctx, m.ID, event.MachineMoved, func(m *machine.Machine) error {
		m.Wanted, m.Sandbox, m.Roots = false, "", nil
		e := machine.Event{Type: "launch", Reason: why.Error()}
		if m.Ran || m.State != machine.Starting {
			return k.move(m, machine.Stopped, e)
		}
		if err := k.move(m, machine.Destroying, e); err != nil {
			return err
		}
		return k.move(m, machine.Destroyed, e)
	})
	if err != nil && !fault.Is(err, fault.Conflict) {
		k.Logger.Error("could not record that a machine was not started", "machine", m.ID, "error", err)
	}
	return why
}

// order is the sandbox that a machine asks for.
func (k *Machinist) order(m *machine.Machine, c *machine.Config, name string) live.Request {
	env := map[string]string{
		"FLY_APP_NAME": m.App, "FLY_MACHINE_ID": m.ID, "FLY_REGION": m.Region, "FLY_PRIVATE_IP": machine.PrivateIP(m.ID), "FLY_MACHINE_VERSION": m.Instance,
	}
	maps.Copy(env, c.Env)
	ttl, idle := k.MaxTTL, time.Duration(0)
	return live.Request{
		Name: name, App: m.App, TTL: &ttl, Idle: &idle,
		Spec: live.Spec{Image: c.Image, Env: env, Limits: c.Guest.Limits(), Labels: map[string]string{"machine": m.ID}},
	}
}

// putFiles puts the files of a configuration into a sandbox. They are written
// with the rights of its user: where that may not, the fault names the file.
func (k *Machinist) putFiles(ctx context.Context, sandbox string, c *machine.Config) error {
	if len(c.Files) == 0 {
		return nil
	}
	err := k.putTar(ctx, sandbox, c.Files)
	if !fault.Is(err, fault.Denied) {
		return err
	}
	for i := range c.Files { // the stream does not say reliably which it was
		if fault.Is(k.putTar(ctx, sandbox, c.Files[i:i+1]), fault.Denied) {
			return fault.Field(fmt.Sprintf("config.files[%d].guest_path", i), "%s is not where the user of a sandbox may write; take a place below /workspace or /tmp", c.Files[i].Path).WithCode("not_writable")
		}
	}
	return err
}

// putTar puts files into a sandbox, all in one stream.
func (k *Machinist) putTar(ctx context.Context, sandbox string, files []machine.File) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		data, err := f.Data()
		if err != nil {
			return err
		}
		mode := int64(f.Mode)
		if mode == 0 {
			mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Clean(f.Path)[1:], Mode: mode, Size: int64(len(data))}); err != nil {
			return fmt.Errorf("pack %s: %w", f.Path, err)
		}
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("pack %s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("pack files: %w", err)
	}
	return k.Sandboxes.PutFiles(ctx, sandbox, "/", &b)
}

// startRoots starts the processes of a machine.
func (k *Machinist) startRoots(ctx context.Context, sandbox string, c *machine.Config) (ids []string, err error) {
	for _, p := range c.Roots() {
		e, _, err := k.Execs.StartExec(ctx, live.Command{Sandbox: sandbox, Command: p.Words(), Env: p.Env, User: p.User, Timeout: -1}, run.Asked{})
		if err != nil {
			return ids, err
		}
		ids = append(ids, e.ID)
	}
	return ids, nil
}

// endSandbox ends a sandbox that a machine has no use for.
func (k *Machinist) endSandbox(ctx context.Context, m machine.Machine, id, reason string) {
	if _, err := k.Sandboxes.EndSandbox(policy.AsOwner(context.WithoutCancel(ctx), m.Owner), id, reason); err != nil && !fault.Is(err, fault.NotFound) {
		k.Logger.Error("could not end the sandbox of a machine", "machine", m.ID, "sandbox", id, "error", err)
	}
}
