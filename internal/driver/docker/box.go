package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Box is one live sandbox. It implements sandbox.Box and sandbox.Pauser.
type Box struct {
	guest.Box
	driver *Driver
	record record
	meter  meter
	done   chan struct{} // closed when the sandbox is dead

	watched    chan struct{} // closed when the watcher has ended
	detached   atomic.Bool
	destroying atomic.Bool
	pausing    sync.Mutex // held by who pauses or resumes
	paused     atomic.Bool
	outOfMem   atomic.Bool
	killOnce   sync.Once
}

var (
	_ sandbox.Box    = (*Box)(nil)
	_ sandbox.Pauser = (*Box)(nil)
)

// make makes the sandbox's folder and container, and meets its guest.
func (d *Driver) make(ctx context.Context, r record, image image) (*Box, error) {
	dir := d.dir(r.Handle.ID)
	if err := d.writeBox(dir, r, image); err != nil {
		return nil, err
	}
	// While we hold both ends ourselves, what is said before the guest has
	// opened its own waits for it.
	release, err := hold(filepath.Join(dir, "channel"))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.makeContainer(ctx, r); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fault.New(fault.Unavailable, "make the sandbox: %w", err)
	}
	if err := d.startContainer(ctx, r.Handle.ID); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := d.awaitEnd(ctx, r.Handle.ID); err != nil {
			cancel(err)
		}
	}()
	b, err := d.connect(ctx, r)
	cancel(nil)
	<-ended
	return b, err
}

// hold opens both FIFOs for both ways.
func hold(channel string) (release func(), err error) {
	var files []*os.File
	release = func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for _, name := range []string{"in", "out"} {
		f, err := os.OpenFile(filepath.Join(channel, name), os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			release()
			return nil, fmt.Errorf("open the guest's channel: %w", err)
		}
		files = append(files, f)
	}
	return release, nil
}

// awaitEnd returns an error when the container has ended, nil with ctx.
func (d *Driver) awaitEnd(ctx context.Context, id string) error {
	wait := d.api.ContainerWait(ctx, d.container(id), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case result := <-wait.Result:
		return fault.New(fault.Unavailable, "the guest ended at once, with code %d", result.StatusCode)
	case err := <-wait.Error:
		if ctx.Err() != nil {
			return nil
		}
		return engineFault("watch the container", err)
	case <-ctx.Done():
		return nil
	}
}

var errSilent = fault.New(fault.Unavailable, "the guest did not say hello in time")

// connect meets the guest of a container that runs.
func (d *Driver) connect(ctx context.Context, r record, options ...guest.Option) (*Box, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, helloTime, errSilent)
	defer cancel()
	id := r.Handle.ID
	channel := filepath.Join(d.dir(id), "channel")
	c, err := guest.Connect(ctx, filepath.Join(channel, "in"), filepath.Join(channel, "out"), r.Created, options...)
	if err != nil {
		return nil, fmt.Errorf("meet the guest of sandbox %s: %w", id, err)
	}
	found, err := d.api.ContainerInspect(ctx, d.container(id), client.ContainerInspectOptions{})
	if err != nil || found.Container.State == nil {
		_ = c.Close()
		return nil, engineFault("look at the container", errors.Join(err, context.Cause(ctx)))
	}
	b := &Box{
		Box:    guest.Box{ID: id, Env: r.Env, Client: c},
		driver: d, record: r,
		meter:   newMeter("/proc", "/sys/fs/cgroup", found.Container.State.Pid),
		done:    make(chan struct{}),
		watched: make(chan struct{}),
	}
	go b.watch() //nolint:contextcheck // it watches for as long as the box lives
	return b, nil
}

// reconnect meets the guest of a sandbox that an earlier process made.
func (d *Driver) reconnect(ctx context.Context, r record) (*Box, error) {
	id := r.Handle.ID
	found, err := d.api.ContainerInspect(ctx, d.container(id), client.ContainerInspectOptions{})
	gone := fault.New(fault.NotFound, "sandbox %s is gone", id)
	switch {
	case errdefs.IsNotFound(err):
		return nil, gone
	case err != nil:
		return nil, engineFault("look for the container", err)
	case found.Container.State != nil && found.Container.State.OOMKilled:
		d.killContainer(ctx, id) // what is left of it is maimed
		return nil, fault.New(fault.NotFound, "sandbox %s ran out of memory", id).WithCode(sandbox.CodeOutOfMemory)
	case found.Container.State == nil || !found.Container.State.Running:
		return nil, gone
	}
	if !found.Container.State.Paused {
		return d.connect(ctx, r)
	}
	b, err := d.connect(ctx, r, guest.WithPaused())
	if err != nil {
		return nil, err
	}
	b.paused.Store(true)
	return b, nil
}

// watch waits for the end of the session: either we have let go of the sandbox,
// or it is dead, or its guest is broken: then nothing in it can be reached any
// more, and it ends. It is the box's only goroutine.
func (b *Box) watch() {
	defer close(b.watched)
	<-b.Client.Done()
	if b.detached.Load() {
		return
	}
	if !b.destroying.Load() {
		if fault.Is(b.Client.Err(), fault.Unavailable) {
			b.driver.killContainer(context.Background(), b.record.Handle.ID)
		}
		b.autopsy()
	}
	b.Client.Lose()
	close(b.done)
}

// autopsy finds out whether the sandbox died for want of memory.
func (b *Box) autopsy() {
	if b.ranOut() {
		return
	}
	ctx, cancel := context.WithTimeout(b.driver.life, helloTime)
	defer cancel()
	_ = b.driver.awaitEnd(ctx, b.record.Handle.ID)
	found, err := b.driver.api.ContainerInspect(ctx, b.driver.container(b.record.Handle.ID), client.ContainerInspectOptions{})
	if err == nil && found.Container.State != nil && found.Container.State.OOMKilled {
		b.outOfMem.Store(true)
	}
}

// ranOut reports whether the sandbox ran out of memory. If so it ends: with a
// part of it missing nothing in it can be believed.
func (b *Box) ranOut() bool {
	if !b.outOfMem.Load() {
		if out, known := b.meter.ranOut(); !known || !out {
			return false
		}
	}
	b.endForMemory()
	return true
}

func (b *Box) endForMemory() {
	b.outOfMem.Store(true)
	b.killOnce.Do(func() { b.driver.killContainer(b.driver.life, b.record.Handle.ID) })
}

// Handle implements sandbox.Box.
func (b *Box) Handle() sandbox.Handle { return b.record.Handle }

// Image implements sandbox.Imaged, with the engine's id, which is a digest.
func (b *Box) Image() (name, digest string) { return "", b.record.Image }

// Enforced implements sandbox.Box.
func (b *Box) Enforced() sandbox.Limits { return b.record.Enforced }

// ready refuses what a guest cannot do while it is paused.
func (b *Box) ready(what string) error {
	if err := b.Client.Err(); err != nil {
		return err
	}
	if b.paused.Load() {
		return fault.New(fault.Conflict, "cannot %s: the sandbox is paused", what).WithCode(sandbox.CodePaused)
	}
	return nil
}

// Exec implements sandbox.Box.
func (b *Box) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := b.ready("start a process"); err != nil {
		return nil, err
	}
	return b.seen(b.Box.Exec(ctx, spec))
}

// Attach implements sandbox.Box.
func (b *Box) Attach(ctx context.Context, id string, from sandbox.Offsets) (sandbox.Process, error) {
	if err := b.ready("attach to a process"); err != nil {
		return nil, err
	}
	return b.seen(b.Box.Attach(ctx, id, from))
}

// seen is a command whose end is seen in the light of the sandbox's.
func (b *Box) seen(p sandbox.Process, err error) (sandbox.Process, error) {
	if err != nil {
		return nil, err
	}
	return &process{Process: p, box: b}, nil
}

// Put implements sandbox.Box.
func (b *Box) Put(ctx context.Context, dir string, tar io.Reader) error {
	if err := b.ready("put files"); err != nil {
		return err
	}
	return b.Box.Put(ctx, dir, tar)
}

// Get implements sandbox.Box.
func (b *Box) Get(ctx context.Context, name string, w io.Writer) error {
	if err := b.ready("get files"); err != nil {
		return err
	}
	return b.Box.Get(ctx, name, w)
}

// Usage implements sandbox.Box, with the engine's numbers. The processes are
// tasks, and the guest's are among them.
func (b *Box) Usage(ctx context.Context) (sandbox.Usage, error) {
	if err := b.Client.Err(); err != nil {
		return sandbox.Usage{}, err
	}
	result, err := b.driver.api.ContainerStats(ctx, b.driver.container(b.record.Handle.ID), client.ContainerStatsOptions{})
	if err != nil {
		return sandbox.Usage{}, engineFault("read the usage", err)
	}
	defer func() { _ = result.Body.Close() }()
	var stats container.StatsResponse
	const largest = 1 << 20
	if err := json.NewDecoder(io.LimitReader(result.Body, largest)).Decode(&stats); err != nil {
		return sandbox.Usage{}, fault.New(fault.Unavailable, "read the usage: %w", err)
	}
	u := sandbox.Usage{
		CPU:        time.Duration(stats.CPUStats.CPUUsage.TotalUsage),
		Memory:     int64(stats.MemoryStats.Usage), //nolint:gosec // no machine has so much
		PeakMemory: b.meter.peakMemory(),
		Processes:  int64(stats.PidsStats.Current),
	}
	if u.CPU == 0 { // the engine answers so where it could not look
		u.CPU = b.meter.cpuTime()
	}
	if stats.MemoryStats.MaxUsage > 0 {
		u.PeakMemory = int64(stats.MemoryStats.MaxUsage)
	}
	return u, nil
}

// Pause implements sandbox.Pauser.
func (b *Box) Pause(ctx context.Context) error {
	if err := b.Client.Err(); err != nil {
		return err
	}
	b.pausing.Lock()
	defer b.pausing.Unlock()
	if b.paused.Load() {
		return nil
	}
	if err := b.Client.Pause(ctx); err != nil {
		return err
	}
	if _, err := b.driver.api.ContainerPause(ctx, b.driver.container(b.record.Handle.ID), client.ContainerPauseOptions{}); err != nil {
		return errors.Join(engineFault("pause the sandbox", err), b.Client.Resume(ctx))
	}
	b.paused.Store(true)
	return nil
}

// Resume implements sandbox.Pauser.
func (b *Box) Resume(ctx context.Context) error {
	if err := b.Client.Err(); err != nil {
		return err
	}
	b.pausing.Lock()
	defer b.pausing.Unlock()
	if b.paused.Load() {
		if _, err := b.driver.api.ContainerUnpause(ctx, b.driver.container(b.record.Handle.ID), client.ContainerUnpauseOptions{}); err != nil {
			return engineFault("resume the sandbox", err)
		}
		b.paused.Store(false)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helloTime, errSilent)
	defer cancel()
	return b.Client.Resume(ctx)
}

// Done implements sandbox.Box.
func (b *Box) Done() <-chan struct{} { return b.done }

// Alive implements roster.Box.
func (b *Box) Alive() bool {
	select {
	case <-b.Client.Done():
		return false
	default:
		return true
	}
}

// Detach implements roster.Box.
func (b *Box) Detach() {
	b.detached.Store(true)
	_ = b.Client.Close()
	<-b.watched
}

// lose ends everything that waits for the sandbox, whose container is gone.
func (b *Box) lose() {
	b.Client.Lose()
	<-b.watched
}
