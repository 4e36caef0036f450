package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Name is what users call this driver.
const Name = "docker"

// handleVersion is the version of the handles that this driver writes.
const handleVersion = 1

// The bounds of what the engine and a guest may take.
const (
	helloTime  = 20 * time.Second // a new or recovered sandbox to answer
	engineTime = 60 * time.Second // the engine to make or remove a container
)

// Config says where the driver lives and with what it works.
type Config struct {
	// StateDir is the driver's own folder.
	StateDir string
	// Host is the engine's address: unix:///path, or tcp:// on the loopback.
	Host string
	// Guest is the path of the guest's binary, which must be static.
	Guest string
	// Image is the image of sandboxes that name none.
	Image string
	// Runtime is the engine's runtime to use; "" is its default.
	Runtime string
	Logger  *slog.Logger
}

// Driver makes sandboxes in a Docker Engine. It implements sandbox.Driver.
type Driver struct {
	config   Config
	api      *client.Client
	engine   engine
	id       string // of the state folder
	guest    string // the guest's binary, in the state folder
	life     context.Context
	stop     context.CancelCauseFunc
	listened chan struct{} // closed when the listener has ended

	mu     sync.Mutex
	closed bool
	boxes  map[string]*Box
	making map[string]*making
	images map[string]image // by the engine's id
}

var _ sandbox.Driver = (*Driver)(nil)

// making is a Create under way.
type making struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

var (
	errClosed    = fault.New(fault.Conflict, "the driver was closed")
	errDestroyed = fault.New(fault.Conflict, "the sandbox was destroyed while it was made")
)

// New returns the driver, or says what is missing for it on this machine.
func New(ctx context.Context, config Config) (*Driver, error) {
	if config.StateDir == "" || config.Logger == nil {
		return nil, fault.New(fault.Internal, "the docker driver needs a state folder and a logger")
	}
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Unavailable, "the docker driver needs root, to hand each guest its channel: start the worker as root, or choose another driver")
	}
	dir, err := filepath.Abs(config.StateDir)
	if err != nil {
		return nil, fmt.Errorf("find the state folder: %w", err)
	}
	config.StateDir = dir
	api, err := dial(config.Host)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		config: config, api: api, listened: make(chan struct{}),
		boxes: map[string]*Box{}, making: map[string]*making{}, images: map[string]image{},
	}
	if err := d.prepare(ctx); err != nil {
		_ = api.Close()
		return nil, err
	}
	d.life, d.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	go d.listen()
	return d, nil
}

// prepare meets the engine and readies the state folder.
func (d *Driver) prepare(ctx context.Context) error {
	var err error
	if d.engine, err = meet(ctx, d.api, d.config); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(d.config.StateDir, "box"), 0o700); err != nil {
		return fmt.Errorf("make the state folder: %w", err)
	}
	if d.id, err = stateID(d.config.StateDir); err != nil {
		return err
	}
	if d.guest, err = installGuest(d.config.StateDir, d.config.Guest); err != nil {
		return err
	}
	return d.sweepLooks(ctx)
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Capabilities implements sandbox.Driver.
func (d *Driver) Capabilities() sandbox.Capabilities {
	c := sandbox.Capabilities{
		Isolation: "namespaces",
		Networks:  []sandbox.Network{sandbox.NetworkNone},
		CPU:       d.engine.cpu,
		Memory:    d.engine.memory,
		Processes: d.engine.processes,
		Disk:      true,
		OpenFiles: true,
		TTY:       true,
		Pause:     true,
		Recover:   true,
	}
	if d.config.Image != "" {
		c.Images = []string{d.config.Image}
	}
	return c
}

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := d.Capabilities().Check(spec); err != nil {
		return nil, err
	}
	limits, err := d.engine.limits(spec.Limits)
	if err != nil {
		return nil, err
	}
	ctx, m, err := d.begin(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer d.finish(spec.ID, m)
	image, err := d.findImage(ctx, spec.Image)
	if err != nil {
		return nil, err
	}
	r, err := d.newRecord(spec, image, limits)
	if err != nil {
		return nil, err
	}
	if err := report(r.Handle); err != nil {
		return nil, fmt.Errorf("report the handle: %w", err)
	}
	b, err := d.make(ctx, r, image)
	if err == nil {
		err = d.adopt(b)
	}
	if err != nil {
		d.removeAfter(ctx, spec.ID)
		return nil, err
	}
	return b, nil
}

// begin reserves the id, and returns a ctx that Destroy of the id ends.
func (d *Driver) begin(ctx context.Context, id string) (context.Context, *making, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, errClosed
	}
	_, err := os.Lstat(d.dir(id))
	if d.making[id] != nil || d.boxes[id] != nil || err == nil {
		return nil, nil, fault.New(fault.Conflict, "sandbox %s exists", id)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("look for the sandbox: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	m := &making{cancel: cancel, ended: make(chan struct{})}
	d.making[id] = m
	return ctx, m, nil
}

func (d *Driver) finish(id string, m *making) {
	m.cancel(nil)
	d.mu.Lock()
	delete(d.making, id)
	d.mu.Unlock()
	close(m.ended)
}

// adopt makes the driver answerable for the box.
func (d *Driver) adopt(b *Box) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		b.detach()
		return errClosed
	}
	d.boxes[b.record.Handle.ID] = b
	return nil
}

// removeAfter removes a sandbox that could not be made. If even that fails it
// is still listed, for somebody else to destroy.
func (d *Driver) removeAfter(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTime)
	defer cancel()
	if err := d.remove(ctx, id); err != nil {
		d.config.Logger.Warn("a sandbox that could not be made is left", "sandbox", id, "error", err)
	}
}

// owns refuses a handle that is not of this driver.
func (d *Driver) owns(h sandbox.Handle) error {
	switch {
	case h.Driver != Name:
		return fault.Field("driver", "the handle is of driver %q, this is %q", h.Driver, Name)
	case h.Version < 1 || h.Version > handleVersion:
		return fault.Field("version", "the handle has version %d, this driver knows up to %d", h.Version, handleVersion)
	}
	// The id becomes a path and a container's name: nothing but an id may.
	return sandbox.Spec{ID: h.ID}.Validate()
}

// Recover implements sandbox.Driver.
func (d *Driver) Recover(ctx context.Context, h sandbox.Handle) (sandbox.Box, error) {
	if err := d.owns(h); err != nil {
		return nil, err
	}
	d.mu.Lock()
	b, closed := d.boxes[h.ID], d.closed
	d.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if b != nil && b.alive() {
		return b, nil
	}
	r, err := readRecord(d.dir(h.ID))
	if err != nil {
		return nil, fault.New(fault.NotFound, "sandbox %s is gone", h.ID)
	}
	if b, err = d.reconnect(ctx, r); err != nil {
		return nil, err
	}
	if err := d.adopt(b); err != nil {
		return nil, err
	}
	return b, nil
}

// List implements sandbox.Driver: what has a folder, and what the engine has
// although its folder is gone.
func (d *Driver) List(ctx context.Context) ([]sandbox.Handle, error) {
	entries, err := os.ReadDir(filepath.Join(d.config.StateDir, "box"))
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	ids := map[string]bool{}
	for _, entry := range entries {
		ids[entry.Name()] = true
	}
	found, err := d.containers(ctx, labelSandbox)
	if err != nil {
		return nil, err
	}
	for _, c := range found {
		ids[c.Labels[labelSandbox]] = true
	}
	handles := make([]sandbox.Handle, 0, len(ids))
	for id := range ids {
		h := sandbox.Handle{Version: handleVersion, Driver: Name, ID: id}
		if r, err := readRecord(d.dir(id)); err == nil && r.Handle.ID == id {
			h = r.Handle
		}
		if d.owns(h) == nil {
			handles = append(handles, h)
		}
	}
	return handles, nil
}

// Destroy implements sandbox.Driver.
func (d *Driver) Destroy(ctx context.Context, h sandbox.Handle) error {
	if err := d.owns(h); err != nil {
		return err
	}
	d.mu.Lock()
	m := d.making[h.ID]
	d.mu.Unlock()
	if m != nil {
		m.cancel(errDestroyed)
		select {
		case <-m.ended:
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "wait for the sandbox's making to end: %w", context.Cause(ctx))
		}
	}
	return d.remove(ctx, h.ID)
}

// remove removes the container, then the folder.
func (d *Driver) remove(ctx context.Context, id string) error {
	d.mu.Lock()
	b := d.boxes[id]
	d.mu.Unlock()
	if b != nil {
		b.destroying.Store(true)
	}
	if err := d.removeContainer(ctx, d.container(id)); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	d.mu.Lock()
	b = d.boxes[id]
	delete(d.boxes, id)
	d.mu.Unlock()
	if b != nil {
		b.lose()
	}
	if err := os.RemoveAll(d.dir(id)); err != nil {
		return fmt.Errorf("remove the folder of sandbox %s: %w", id, err)
	}
	return nil
}

// Close implements sandbox.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	boxes := d.boxes
	d.boxes = map[string]*Box{}
	var creates []*making
	for _, m := range d.making {
		creates = append(creates, m)
	}
	d.mu.Unlock()
	for _, m := range creates {
		m.cancel(errClosed)
		<-m.ended
	}
	for _, b := range boxes {
		b.detach()
	}
	d.stop(errClosed)
	<-d.listened
	return d.api.Close()
}

func (d *Driver) dir(id string) string { return filepath.Join(d.config.StateDir, "box", id) }

// container is the name of a sandbox's container.
func (d *Driver) container(id string) string { return "aurea-" + d.id + "-" + id }
