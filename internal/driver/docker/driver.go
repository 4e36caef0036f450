package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/driver/roster"
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
	// Aliases say what stands in for images that the engine does not have, by
	// name; "default" is Image.
	Aliases map[string]string
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
	roster   *roster.Roster[*Box]

	mu     sync.Mutex
	images map[string]image // by the engine's id
}

var _ sandbox.Driver = (*Driver)(nil)

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
		config: config, api: api, listened: make(chan struct{}), images: map[string]image{},
		roster: roster.New[*Box](Name, handleVersion, filepath.Join(dir, "box")),
	}
	if err := d.prepare(ctx); err != nil {
		_ = api.Close()
		return nil, err
	}
	d.life, d.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	go d.listen() //nolint:contextcheck // it listens until the driver is closed
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

// Version is that of the engine.
func (d *Driver) Version() string { return d.engine.version }

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
		CPUTime:   true, // the engine measures it
		TTY:       true,
		Pause:     true,
		Recover:   true,
		Files:     true,
		Ports:     true,
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
	ctx, making, err := d.roster.Begin(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer making.Finish()
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
		err = d.roster.Adopt(spec.ID, b)
	}
	if err != nil {
		d.removeAfter(ctx, spec.ID)
		return nil, err
	}
	return b, nil
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

// Recover implements sandbox.Driver.
func (d *Driver) Recover(ctx context.Context, h sandbox.Handle) (sandbox.Box, error) {
	b, err := d.roster.Recover(h, func() (*Box, error) {
		r, err := roster.ReadRecord[record](d.dir(h.ID))
		if err != nil {
			return nil, fault.New(fault.NotFound, "sandbox %s is gone", h.ID)
		}
		return d.reconnect(ctx, r)
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// List implements sandbox.Driver: what has a folder, and what the engine has
// although its folder is gone.
func (d *Driver) List(ctx context.Context) ([]sandbox.Handle, error) {
	found, err := d.containers(ctx, labelSandbox)
	if err != nil {
		return nil, err
	}
	var more []string
	for _, c := range found {
		more = append(more, c.Labels[labelSandbox])
	}
	return d.roster.Handles(func(dir string) (sandbox.Handle, error) {
		r, err := roster.ReadRecord[record](dir)
		return r.Handle, err
	}, more...)
}

// Destroy implements sandbox.Driver.
func (d *Driver) Destroy(ctx context.Context, h sandbox.Handle) error {
	return d.roster.Destroy(ctx, h, d.remove)
}

// remove removes the container, then the folder.
func (d *Driver) remove(ctx context.Context, id string) error {
	if b, ok := d.roster.Get(id); ok {
		b.destroying.Store(true)
	}
	if err := d.removeContainer(ctx, d.container(id)); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	if b, ok := d.roster.Drop(id); ok {
		b.lose()
	}
	if err := os.RemoveAll(d.dir(id)); err != nil {
		return fmt.Errorf("remove the folder of sandbox %s: %w", id, err)
	}
	return nil
}

// Close implements sandbox.Driver.
func (d *Driver) Close() error {
	if !d.roster.Close() {
		return nil
	}
	d.stop(errors.New("the driver was closed"))
	<-d.listened
	return d.api.Close()
}

func (d *Driver) dir(id string) string { return d.roster.Dir(id) }

// container is the name of a sandbox's container.
func (d *Driver) container(id string) string { return "aurea-" + d.id + "-" + id }
