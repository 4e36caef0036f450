package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
	// Sentry and Guest are the paths of the two binaries.
	Sentry, Guest string
	// Spawners is how many sandboxes can be in the making at once; by default
	// as many as there are processors, at most four.
	Spawners int
	Logger   *slog.Logger
}

// Driver makes sandboxes in gVisor. It implements sandbox.Driver.
type Driver struct {
	config Config
	boot   string
	image  image
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
	for _, name := range []string{"", "box", "image"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("make the state folder: %w", err)
		}
	}
	image, err := makeHostImage(filepath.Join(dir, "image"), config.Guest)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		config: config,
		boot:   boot,
		image:  image,
		pool:   spawn.NewPool(spawn.Config{Sentry: config.Sentry, Count: config.Spawners, Logger: config.Logger}),
		boxes:  map[string]*Box{},
		making: map[string]*making{},
	}
	if err := d.pool.Warm(ctx); err != nil {
		_ = d.pool.Close()
		return nil, fault.New(fault.Unavailable, "start %s: %w", config.Sentry, err)
	}
	d.sweepImages()
	return d, nil
}

// sweepImages removes roots of earlier hosts and guests that no sandbox uses.
func (d *Driver) sweepImages() {
	used := map[string]bool{d.image.name: true}
	boxes, err := os.ReadDir(filepath.Join(d.config.StateDir, "box"))
	if err != nil {
		return // for the next start
	}
	for _, box := range boxes {
		r, err := readRecord(d.dir(box.Name()))
		if err != nil {
			return // it is not known what this one uses
		}
		used[r.Image] = true
	}
	images, err := os.ReadDir(filepath.Join(d.config.StateDir, "image"))
	if err != nil {
		return
	}
	for _, image := range images {
		if used[image.Name()] || strings.HasPrefix(image.Name(), ".") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.config.StateDir, "image", image.Name())); err != nil {
			d.config.Logger.Warn("an old image is left", "image", image.Name(), "error", err)
		}
	}
}

// check says what is missing for this driver here.
func check(config Config) error {
	switch {
	case runtime.GOOS != "linux":
		return fault.New(fault.Unavailable, "the gvisor driver needs Linux, this is %s", runtime.GOOS)
	case os.Geteuid() != 0:
		return fault.New(fault.Unavailable, "the gvisor driver needs root: start the worker as root, or choose another driver")
	case config.StateDir == "" || config.Logger == nil:
		return fault.New(fault.Internal, "the gvisor driver needs a state folder and a logger")
	}
	for _, path := range []string{config.Sentry, config.Guest} {
		if err := unix.Access(path, unix.X_OK); err != nil {
			return fault.New(fault.Unavailable, "the gvisor driver needs %q: %w (build it with make build)", path, err)
		}
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

// Capabilities implements sandbox.Driver.
func (d *Driver) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Isolation: "user-space kernel",
		Images:    []string{hostImage},
		Networks:  []sandbox.Network{sandbox.NetworkNone},
		TTY:       true,
		Recover:   true,
	}
}

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := d.Capabilities().Check(spec); err != nil {
		return nil, err
	}
	if spec.Image != "" && spec.Image != hostImage {
		return nil, fault.Field("image", "this driver has no image %q; it has %q", spec.Image, hostImage)
	}
	ctx, m, err := d.begin(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer d.finish(spec.ID, m)

	r, err := d.newRecord(spec)
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
	if err := d.writeBox(dir, r); err != nil {
		return nil, err
	}
	made, err := d.pool.Create(ctx, spawn.Create{
		ID:       "box",
		Bundle:   dir,
		Root:     filepath.Join(dir, "run"),
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

// remove ends the sandbox's processes, then removes its folder.
func (d *Driver) remove(ctx context.Context, id string) error {
	dir := d.dir(id)
	if err := d.killAll(ctx, dir); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	d.mu.Lock()
	b := d.boxes[id]
	delete(d.boxes, id)
	d.mu.Unlock()
	if b != nil {
		b.lose()
	}
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
	return d.pool.Close()
}

func (d *Driver) dir(id string) string { return filepath.Join(d.config.StateDir, "box", id) }

// record is box.json.
type record struct {
	Handle sandbox.Handle    `json:"handle"`
	State  state             `json:"-"`
	Image  string            `json:"image"`
	Env    map[string]string `json:"env,omitempty"`
}

// state is this driver's part of a handle.
type state struct {
	// Boot is the run of the machine in which the sandbox was made: after
	// another its processes are gone, and their numbers belong to others.
	Boot    string            `json:"boot"`
	Created time.Time         `json:"created"`
	Labels  map[string]string `json:"labels,omitempty"`
}

func (d *Driver) newRecord(spec sandbox.Spec) (record, error) {
	s := state{Boot: d.boot, Created: time.Now(), Labels: spec.Labels}
	raw, err := json.Marshal(s)
	if err != nil {
		return record{}, fmt.Errorf("encode the handle: %w", err)
	}
	return record{
		Handle: sandbox.Handle{Version: handleVersion, Driver: Name, ID: spec.ID, State: raw},
		State:  s,
		Image:  d.image.name,
		Env:    spec.Env,
	}, nil
}

// readRecord reads box.json, which is missing or broken where a sandbox was
// only half made.
func readRecord(dir string) (record, error) {
	var r record
	body, err := os.ReadFile(filepath.Join(dir, "box.json"))
	if err != nil {
		return record{}, fmt.Errorf("read the sandbox's record: %w", err)
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return record{}, fmt.Errorf("decode the sandbox's record: %w", err)
	}
	if err := json.Unmarshal(r.Handle.State, &r.State); err != nil {
		return record{}, fmt.Errorf("decode the sandbox's handle: %w", err)
	}
	return r, nil
}

// readMade reads what the spawner wrote of the sandbox's processes.
func readMade(dir string) (spawn.Made, error) {
	var made spawn.Made
	body, err := os.ReadFile(filepath.Join(dir, "process.json"))
	if err != nil {
		return spawn.Made{}, fmt.Errorf("read the sandbox's processes: %w", err)
	}
	if err := json.Unmarshal(body, &made); err != nil {
		return spawn.Made{}, fmt.Errorf("decode the sandbox's processes: %w", err)
	}
	return made, nil
}
