package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/driver/roster"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// Name is what users call this driver.
const Name = "gvisor"

// handleVersion is the version of the handles that this driver writes.
const handleVersion = 1

// sentryID is what a sandbox is called in its own sentry.
const sentryID = "box"

// helloTime bounds how long a new or recovered sandbox may take to answer.
const helloTime = 10 * time.Second

// Config says where the driver lives and with what it works.
type Config struct {
	// StateDir is the driver's own folder.
	StateDir string
	// Sentry and Guest are the paths of the two binaries, aurea-sentry and
	// aurea-guest.
	Sentry string
	Guest  string
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
	sentry string // its digest
	guest  string // its digest
	groups *cgroup.Host
	pool   *spawn.Pool
	roster *roster.Roster[*Box]
	// verified are the digests of the snapshots' files that were read, by seen.
	verified sync.Map
}

var _ sandbox.Driver = (*Driver)(nil)

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
	sentry, digest, err := keepSentry(dir, config.Sentry)
	if err != nil {
		return nil, err
	}
	guest, err := keepGuest(dir, config.Guest)
	if err != nil {
		return nil, err
	}
	given := config.Sentry
	config.Sentry = sentry
	groups, err := openGroups(config)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		config: config,
		boot:   boot,
		sentry: digest,
		guest:  guest,
		groups: groups,
		pool:   spawn.NewPool(spawn.Config{Sentry: config.Sentry, Count: config.Spawners, Logger: config.Logger}),
		roster: roster.New[*Box](Name, handleVersion, filepath.Join(dir, "box")),
	}
	if err := d.pool.Warm(ctx); err != nil {
		_ = d.pool.Close()
		_ = groups.Close()
		return nil, fault.New(fault.Unavailable, "start %s: %w", given, err)
	}
	d.sweepGroups(ctx)
	d.sweepKept()
	return d, nil
}

// Possible says why this machine, or this user, can make no sandbox. It is
// asked before anything costly is prepared.
func Possible() error {
	if runtime.GOOS != "linux" {
		return fault.New(fault.Unavailable, "the gvisor driver needs Linux, this is %s", runtime.GOOS)
	}
	if os.Geteuid() == 0 {
		return nil
	}
	if err := spawn.Rootless(); err != nil {
		return fault.New(fault.Unavailable, "the gvisor driver needs root, or user namespaces for everybody: %w; start the worker as root, or choose another driver", err)
	}
	return nil
}

// check says what is missing for this driver here.
func check(config Config) error {
	if err := Possible(); err != nil {
		return err
	}
	switch {
	case config.StateDir == "" || config.Logger == nil || config.Images == nil:
		return fault.New(fault.Internal, "the gvisor driver needs a state folder, images and a logger")
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
	ctx, making, err := d.roster.Begin(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer making.Finish()

	r, err := d.plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := report(r.Handle); err != nil {
		return nil, fmt.Errorf("report the handle: %w", err)
	}
	b, err := d.make(ctx, r)
	if err == nil {
		err = d.roster.Adopt(spec.ID, b)
	}
	if err != nil {
		err = d.explain(spec.ID, err)
		d.removeAfter(ctx, spec.ID, making.Still)
		return nil, err
	}
	return b, nil
}

// plan is the record of a sandbox that is to be made.
func (d *Driver) plan(ctx context.Context, spec sandbox.Spec) (record, error) {
	if spec.Restore != "" {
		return d.restoring(ctx, spec)
	}
	image, err := d.config.Images.Resolve(ctx, spec.Image)
	if err != nil {
		return record{}, fmt.Errorf("find the image: %w", err)
	}
	return d.newRecord(spec, image)
}

// restoring is the record of a sandbox that goes on from a snapshot, once that was
// found to be whole, and to fit.
func (d *Driver) restoring(ctx context.Context, spec sandbox.Spec) (record, error) {
	if !filepath.IsAbs(spec.Restore) {
		return record{}, fault.Field("restore", "the folder of a snapshot must be an absolute path")
	}
	m, err := readManifest(spec.Restore)
	if err != nil {
		return record{}, err
	}
	if err := m.fits(spec); err != nil {
		return record{}, err
	}
	image, err := d.imageOf(ctx, spec, m)
	if err != nil {
		return record{}, err
	}
	if err := d.keepOlder(spec.Restore, m); err != nil {
		return record{}, err
	}
	if err := d.verify(spec.Restore, m); err != nil {
		return record{}, err
	}
	r, err := d.newRecord(spec, image)
	if err != nil {
		return record{}, err
	}
	r.restore = spec.Restore
	r.State.Sentry, r.State.Guest = m.Sentry, m.Guest
	r.State.Created = m.Since // some of its commands may have ended long ago
	err = r.encode()
	return r, err
}

// make makes the sandbox's folder, has it started, and meets its guest.
func (d *Driver) make(ctx context.Context, r record) (*Box, error) {
	dir, guest := d.dir(r.Handle.ID), keptGuest(d.config.StateDir, r.State.Guest)
	if err := writeBox(dir, guest, &r); err != nil {
		return nil, err
	}
	group, err := d.groups.Make(r.Handle.ID, d.hostLimits(r.Limits))
	if err != nil {
		return nil, err
	}
	if r.background {
		if err := group.SetBackground(true); err != nil {
			return nil, err
		}
	}
	made, err := d.spawn(ctx, r.State.Sentry, spawn.Create{
		ID:       sentryID,
		Bundle:   dir,
		Root:     filepath.Join(dir, "run"),
		Image:    r.Root,
		Guest:    guest,
		Disk:     r.Limits.Disk,
		Groups:   spawn.Groups(group.Join()),
		Memory:   r.Limits.Memory,
		MilliCPU: r.Limits.MilliCPU,
		Input:    filepath.Join(dir, "in"),
		Output:   filepath.Join(dir, "out"),
		Restore:  r.restore,
		PanicLog: filepath.Join(dir, "panic.log"),
		Record:   filepath.Join(dir, "process.json"),
	})
	if err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	return d.connect(ctx, r, made)
}

// removeTime bounds the removal of what a failed Create left.
const removeTime = 10 * time.Second

// removeAfter removes a sandbox that could not be made. If even that fails it
// is still listed, for somebody else to destroy. still is called when nothing of
// it runs.
func (d *Driver) removeAfter(ctx context.Context, id string, still func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := d.clear(ctx, id, still); err != nil {
		d.config.Logger.Warn("a sandbox that could not be made is left", "sandbox", id, "error", err)
	}
}

// Recover implements sandbox.Driver.
func (d *Driver) Recover(ctx context.Context, h sandbox.Handle) (sandbox.Box, error) {
	b, err := d.roster.Recover(h, func() (*Box, error) { return d.reconnect(ctx, h) })
	if err != nil {
		return nil, err
	}
	return b, nil
}

// reconnect meets the guest of a sandbox that an earlier process made.
func (d *Driver) reconnect(ctx context.Context, h sandbox.Handle) (*Box, error) {
	gone := fault.New(fault.NotFound, "sandbox %s is gone", h.ID)
	r, err := readRecord(d.dir(h.ID))
	if err != nil || r.State.Boot != d.boot {
		return nil, gone
	}
	made, err := readMade(d.dir(h.ID))
	if err != nil {
		return nil, gone
	}
	if group, err := d.group(r); err == nil && ranOut(group) {
		// What is left of it is maimed, and nobody saw to its end.
		if err := killKnown(ctx, made.Sentry); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.NotFound, "sandbox %s ran out of memory", h.ID).WithCode(sandbox.CodeOutOfMemory)
	}
	return d.connect(ctx, r, made)
}

// List implements sandbox.Driver.
func (d *Driver) List(context.Context) ([]sandbox.Handle, error) {
	return d.roster.Handles(func(dir string) (sandbox.Handle, error) {
		r, err := readRecord(dir)
		return r.Handle, err
	})
}

// Destroy implements sandbox.Driver.
func (d *Driver) Destroy(ctx context.Context, h sandbox.Handle) error {
	return d.roster.Destroy(ctx, h, func(ctx context.Context, id string) error { return d.clear(ctx, id, func() {}) })
}

// clear ends the sandbox's processes and removes its groups, calls still, and
// removes what is left of it.
func (d *Driver) clear(ctx context.Context, id string, still func()) error {
	dir := d.dir(id)
	dead, err := d.killAll(ctx, dir)
	if err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	if err := d.removeGroup(ctx, id); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	still()
	for _, p := range dead {
		awaitReaped(p)
	}
	if b, ok := d.roster.Drop(id); ok {
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
	if !d.roster.Close() {
		return nil
	}
	return errors.Join(d.pool.Close(), d.groups.Close())
}

func (d *Driver) dir(id string) string { return d.roster.Dir(id) }
