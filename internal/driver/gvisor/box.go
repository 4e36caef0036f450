package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// Box is one live sandbox. It implements sandbox.Box.
type Box struct {
	guest.Box
	handle sandbox.Handle
	state  state
	image  [2]string // its name and its digest
	root   string    // the image's file
	env    []string  // the image's; nil where it is not known
	kept   string    // where sentries and guests are kept
	log    *slog.Logger
	sentry *hostProcess
	group  *cgroup.Group
	memory *cgroup.OOMWatch // nil where the host's kernel sees to it
	limits atomic.Pointer[sandbox.Limits]
	dir    string
	turn   chan struct{} // held by who pauses or resumes
	paused bool          // by who holds the turn
	// verified is the driver's.
	verified *sync.Map
	done     chan struct{} // closed when the sandbox is dead
	gone     atomic.Bool   // destroyed: nothing of it is left to ask

	watched chan struct{} // closed when the watcher has ended
	once    sync.Once
}

var (
	_ sandbox.Box    = (*Box)(nil)
	_ sandbox.Mortal = (*Box)(nil)
)

// connect meets the guest of a sandbox whose processes are known.
func (d *Driver) connect(ctx context.Context, r record, made spawn.Made) (*Box, error) {
	sentry, err := openProcess(made.Sentry)
	if err != nil {
		return nil, fault.New(fault.NotFound, "sandbox %s is gone: %w", r.Handle.ID, err)
	}
	dir := d.dir(r.Handle.ID)
	group, err := d.group(r)
	if err != nil {
		sentry.close()
		return nil, err
	}
	client, paused, err := meet(ctx, dir, r.State.Created, guest.WithOOM(func() bool { return ranOut(group) }))
	if err != nil {
		sentry.close()
		return nil, fmt.Errorf("meet the guest of sandbox %s: %w%s", r.Handle.ID, err, panicNote(dir))
	}
	memory, err := group.WatchOOM()
	if err != nil {
		sentry.close()
		_ = client.Close()
		return nil, err
	}
	b := &Box{
		Box:    guest.Box{ID: r.Handle.ID, Env: r.Env, Client: client},
		handle: r.Handle,
		state:  r.State,
		image:  [2]string{r.State.Image, r.State.Digest},
		root:   r.Root,
		env:    r.ImageEnv,
		kept:   d.config.StateDir,
		log:    d.config.Logger,
		sentry: sentry,
		group:  group,
		memory: memory,
		dir:    dir,
		paused: paused,

		verified: &d.verified,
		turn:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		watched:  make(chan struct{}),
	}
	b.limits.Store(&r.Limits)
	go b.watch()
	return b, nil
}

var errSilent = fault.New(fault.Unavailable, "the guest did not say hello in time")

// ranOut reports whether a group has lost a process to its memory limit.
func ranOut(g *cgroup.Group) bool {
	kills, err := g.OOMKills()
	return err == nil && kills > 0
}

// watch waits for the sandbox's death, and brings it about where the sandbox is
// beyond help. It owns the box's other goroutines.
func (b *Box) watch() {
	defer close(b.watched)
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		select {
		case <-b.Client.Done():
			// Either we have let go of the sandbox, or its guest is broken:
			// then nothing in it can be reached any more, and it ends.
			if fault.Is(b.Client.Err(), fault.Unavailable) && !b.letGo() {
				_ = b.sentry.kill()
			}
		case <-stop:
		}
	})
	if b.memory != nil {
		others.Go(func() {
			// The host's kernel has killed a part of the sandbox, perhaps
			// before we watched.
			if (ranOut(b.group) || b.memory.Wait()) && !b.letGo() {
				_ = b.sentry.kill()
			}
		})
	}
	died := b.sentry.wait()
	close(stop)
	if b.memory != nil {
		b.memory.Close()
	}
	others.Wait()
	if died {
		b.Client.Lose()
		close(b.done)
	}
	b.sentry.close()
}

// Handle implements sandbox.Box.
func (b *Box) Handle() sandbox.Handle { return b.handle }

// Image implements sandbox.Imaged.
func (b *Box) Image() (name, digest string) { return b.image[0], b.image[1] }

// Enforced implements sandbox.Box. Create has refused what does not hold.
func (b *Box) Enforced() sandbox.Limits { return *b.limits.Load() }

// Usage implements sandbox.Box. It measures the sandbox's kernel with all that
// runs on it, and can be asked until the sandbox is destroyed, also after its
// death.
func (b *Box) Usage(context.Context) (sandbox.Usage, error) {
	u, err := b.group.Usage()
	if b.gone.Load() || errors.Is(err, fs.ErrNotExist) {
		return sandbox.Usage{}, fault.New(fault.NotFound, "sandbox %s is gone", b.handle.ID)
	}
	if err != nil {
		return sandbox.Usage{}, err
	}
	return sandbox.Usage(u), nil
}

// Done implements sandbox.Box.
func (b *Box) Done() <-chan struct{} { return b.done }

// Alive implements roster.Box.
func (b *Box) Alive() bool {
	select {
	case <-b.done:
		return false
	case <-b.Client.Done():
		return false
	default:
		return true
	}
}

// Dead implements sandbox.Mortal.
func (b *Box) Dead() bool { return !b.Alive() || b.sentry.ending() }

// letGo reports whether the driver has let go of the sandbox.
func (b *Box) letGo() bool { return b.sentry.interrupted() }

// Detach implements roster.Box.
func (b *Box) Detach() {
	b.once.Do(func() {
		b.sentry.interrupt()
		_ = b.Client.Close()
	})
	<-b.watched
}

// lose ends everything that waits for the sandbox, whose processes were killed.
func (b *Box) lose() {
	b.gone.Store(true)
	<-b.watched
}
