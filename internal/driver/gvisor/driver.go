package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// Name is what users call this driver.
const Name = "gvisor"

// handleVersion is the version of the handles that this driver writes.
const handleVersion = 1

// helloTime bounds how long a new or recovered sandbox may take to answer.
const helloTime = 10 * time.Second

// Config says where the driver lives and with what it works.
type Config struct {
	// StateDir is the driver's own folder.
	StateDir string
	// Sentry is the path of the aurea-sentry binary. The guest is in the images.
	Sentry string
	// Images finds the roots of sandboxes. The empty name is its default.
	Images sandbox.Images
	// Spawners is how many sandboxes can be in the making at once; by default
	// as many as there are processors, at most four.
	Spawners int
	// HostRoot is where the host's /proc and /sys are; "" is "/". Tests give
	// another, to see a host that can bound nothing.
	HostRoot string
	Logger   *slog.Logger
}

// Driver makes sandboxes in gVisor. It implements sandbox.Driver.
type Driver struct {
	config Config
	boot   string
	groups *cgroup.Host
	pool   *spawn.Pool

	mu     sync.Mutex
	closed bool
	boxes  map[string]*Box
	making map[string]*making
}

var _ sandbox.Driver = (*Driver)(nil)

// making is a Create under way.
type making struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// New returns the driver, or says what is missing for it on this machine.
func New(ctx context.Context, config Config) (*Driver, error) {
	if err := check(config); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(config.StateDir)
	if err != nil {
		return nil, fmt.Errorf("find the state folder: %w", err)
	}
	config.StateDir = dir
	if config.Spawners <= 0 {
		config.Spawners = min(runtime.NumCPU(), 4)
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"", "box", "panic"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("make the state folder: %w", err)
		}
	}
	groups, err := openGroups(config)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		config: config,
		boot:   boot,
		groups: groups,
		pool:   spawn.NewPool(spawn.Config{Sentry: config.Sentry, Count: config.Spawners, Logger: config.Logger}),
		boxes:  map[string]*Box{},
		making: map[string]*making{},
	}
	if err := d.pool.Warm(ctx); err != nil {
		_ = d.pool.Close()
		_ = groups.Close()
		return nil, fault.New(fault.Unavailable, "start %s: %w", config.Sentry, err)
	}
	d.sweepGroups(ctx)
	return d, nil
}

// check says what is missing for this driver here.
func check(config Config) error {
	switch {
	case runtime.GOOS != "linux":
		return fault.New(fault.Unavailable, "the gvisor driver needs Linux, this is %s", runtime.GOOS)
	case os.Geteuid() != 0:
		return fault.New(fault.Unavailable, "the gvisor driver needs root: start the worker as root, or choose another driver")
	case config.StateDir == "" || config.Logger == nil || config.Images == nil:
		return fault.New(fault.Internal, "the gvisor driver needs a state folder, images and a logger")
	}
	if err := unix.Access(config.Sentry, unix.X_OK); err != nil {
		return fault.New(fault.Unavailable, "the gvisor driver needs %q: %w (build it with make build)", config.Sentry, err)
	}
	fd, err := unix.PidfdOpen(os.Getpid(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return fault.New(fault.Unavailable, "the gvisor driver needs Linux 5.10 or later: open a pidfd: %w", err)
	}
	return unix.Close(fd)
}

// bootID tells this run of the machine from others.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return string(id[:len(id)-1]), nil
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := d.Capabilities().Check(spec); err != nil {
		return nil, err
	}
	if err := checkFloors(spec.Limits); err != nil {
		return nil, err
	}
	ctx, m, err := d.begin(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer d.finish(spec.ID, m)

	image, err := d.config.Images.Resolve(ctx, spec.Image)
	if err != nil {
		return nil, fmt.Errorf("find the image: %w", err)
	}
	r, err := d.newRecord(spec, image)
	if err != nil {
		return nil, err
	}
	if err := report(r.Handle); err != nil {
		return nil, fmt.Errorf("report the handle: %w", err)
	}
	b, err := d.make(ctx, r)
	if err == nil {
		err = d.adopt(b)
	}
	if err != nil {
		err = d.explain(spec.ID, err)
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

var (
	errClosed    = fault.New(fault.Conflict, "the driver was closed")
	errDestroyed = fault.New(fault.Conflict, "the sandbox was destroyed while it was made")
)

// make makes the sandbox's folder, has it started, and meets its guest.
func (d *Driver) make(ctx context.Context, r record) (*Box, error) {
	dir := d.dir(r.Handle.ID)
	if err := writeBox(dir, r); err != nil {
		return nil, err
	}
	group, err := d.groups.Make(r.Handle.ID, d.hostLimits(r.Limits))
	if err != nil {
		return nil, err
	}
	made, err := d.pool.Create(ctx, spawn.Create{
		ID:       "box",
		Bundle:   dir,
		Root:     filepath.Join(dir, "run"),
		Image:    r.Root,
		Disk:     r.Limits.Disk,
		Groups:   spawn.Groups(group.Join()),
		Memory:   r.Limits.Memory,
		MilliCPU: r.Limits.MilliCPU,
		Input:    filepath.Join(dir, "in"),
		Output:   filepath.Join(dir, "out"),
		PanicLog: filepath.Join(dir, "panic.log"),
		Record:   filepath.Join(dir, "process.json"),
	})
	if err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	return d.connect(ctx, r, made)
}

// adopt makes the driver answerable for the box.
func (d *Driver) adopt(b *Box) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		b.detach()
		return errClosed
	}
	d.boxes[b.handle.ID] = b
	return nil
}

// removeTime bounds the removal of what a failed Create left.
const removeTime = 10 * time.Second

// removeAfter removes a sandbox that could not be made. If even that fails it
// is still listed, for somebody else to destroy.
func (d *Driver) removeAfter(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := d.remove(ctx, id); err != nil {
		d.config.Logger.Warn("a sandbox that could not be made is left", "sandbox", id, "error", err)
	}
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
	gone := fault.New(fault.NotFound, "sandbox %s is gone", h.ID)
	r, err := readRecord(d.dir(h.ID))
	if err != nil || r.State.Boot != d.boot {
		return nil, gone
	}
	made, err := readMade(d.dir(h.ID))
	if err != nil {
		return nil, gone
	}
	b, err = d.connect(ctx, r, made)
	if err != nil {
		return nil, err
	}
	if err := d.adopt(b); err != nil {
		return nil, err
	}
	return b, nil
}

// owns refuses a handle that is not of this driver.
func (d *Driver) owns(h sandbox.Handle) error {
	switch {
	case h.Driver != Name:
		return fault.Field("driver", "the handle is of driver %q, this is %q", h.Driver, Name)
	case h.Version < 1 || h.Version > handleVersion:
		return fault.Field("version", "the handle has version %d, this driver knows up to %d", h.Version, handleVersion)
	}
	// The id becomes a path: nothing but an id may.
	return sandbox.Spec{ID: h.ID}.Validate()
}

// List implements sandbox.Driver.
func (d *Driver) List(context.Context) ([]sandbox.Handle, error) {
	entries, err := os.ReadDir(filepath.Join(d.config.StateDir, "box"))
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	handles := make([]sandbox.Handle, 0, len(entries))
	for _, entry := range entries {
		h := sandbox.Handle{Version: handleVersion, Driver: Name, ID: entry.Name()}
		if r, err := readRecord(d.dir(h.ID)); err == nil {
			h = r.Handle
		}
		if d.owns(h) == nil && h.ID == entry.Name() {
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

// remove ends the sandbox's processes, then removes its groups and its folder.
func (d *Driver) remove(ctx context.Context, id string) error {
	dir := d.dir(id)
	if err := d.killAll(ctx, dir); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	if err := d.removeGroup(ctx, id); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	d.mu.Lock()
	b := d.boxes[id]
	delete(d.boxes, id)
	d.mu.Unlock()
	if b != nil {
		b.lose()
	}
	d.keepPanic(id)
	if err := os.RemoveAll(dir); err != nil {
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
	return errors.Join(d.pool.Close(), d.groups.Close())
}

func (d *Driver) dir(id string) string { return filepath.Join(d.config.StateDir, "box", id) }
