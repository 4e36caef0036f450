package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// workspace is where commands start, and their home.
const workspace = "/workspace"

// Box is one live sandbox. It implements sandbox.Box.
type Box struct {
	handle sandbox.Handle
	env    map[string]string
	client *guest.Client
	sentry *hostProcess
	group  *cgroup.Group
	memory *cgroup.OOMWatch // nil where the host's kernel sees to it
	limits sandbox.Limits
	done   chan struct{} // closed when the sandbox is dead
	gone   atomic.Bool   // destroyed: nothing of it is left to ask

	watched chan struct{} // closed when the watcher has ended
	once    sync.Once
}

var _ sandbox.Box = (*Box)(nil)

// connect meets the guest of a sandbox whose processes are known.
func (d *Driver) connect(ctx context.Context, r record, made spawn.Made) (*Box, error) {
	sentry, err := openProcess(made.Sentry)
	if err != nil {
		return nil, fault.New(fault.NotFound, "sandbox %s is gone: %w", r.Handle.ID, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helloTime, errSilent)
	defer cancel()
	dir := d.dir(r.Handle.ID)
	group, err := d.group(r)
	if err != nil {
		sentry.close()
		return nil, err
	}
	client, err := guest.Connect(ctx, filepath.Join(dir, "in"), filepath.Join(dir, "out"), r.State.Created, guest.WithOOM(func() bool { return ranOut(group) }))
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
		handle:  r.Handle,
		env:     r.Env,
		client:  client,
		sentry:  sentry,
		group:   group,
		memory:  memory,
		limits:  r.Limits,
		done:    make(chan struct{}),
		watched: make(chan struct{}),
	}
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
		case <-b.client.Done():
			// Either we have let go of the sandbox, or its guest is broken:
			// then nothing in it can be reached any more, and it ends.
			if fault.Is(b.client.Err(), fault.Unavailable) && !b.letGo() {
				_ = b.sentry.kill()
			}
		case <-stop:
		}
	})
	if b.memory != nil {
		others.Go(func() {
			// The host's kernel has killed a part of the sandbox.
			if b.memory.Wait() && !b.letGo() {
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
		b.client.Lose()
		close(b.done)
	}
	b.sentry.close()
}

// Handle implements sandbox.Box.
func (b *Box) Handle() sandbox.Handle { return b.handle }

// Enforced implements sandbox.Box. Create has refused what does not hold.
func (b *Box) Enforced() sandbox.Limits { return b.limits }

// Exec implements sandbox.Box.
func (b *Box) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	command := guest.Command{
		ID: spec.ID, Args: spec.Command, Env: b.environ(spec),
		Dir: spec.Dir, User: spec.User,
		TTY: spec.TTY, Stdin: spec.Stdin, Cols: spec.Cols, Rows: spec.Rows,
	}
	if command.Dir == "" {
		command.Dir = workspace
	}
	if command.User == "" {
		command.User = defaultUser
	}
	p, err := b.client.Exec(ctx, command)
	if err != nil {
		return nil, fmt.Errorf("exec in sandbox %s: %w", b.handle.ID, err)
	}
	return p, nil
}

// defaultUser is whom commands run as.
const defaultUser = "sandbox"

// environ is the whole environment of a command.
func (b *Box) environ(spec sandbox.ExecSpec) []string {
	env := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"HOME": workspace,
		"LANG": "C.UTF-8",
		"USER": defaultUser,
	}
	if spec.TTY {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, b.env)
	maps.Copy(env, spec.Env)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// Attach implements sandbox.Box.
func (b *Box) Attach(ctx context.Context, id string, from sandbox.Offsets) (sandbox.Process, error) {
	if err := (sandbox.ExecSpec{ID: id, Command: []string{"-"}}).Validate(); err != nil {
		return nil, fault.New(fault.NotFound, "no exec %q: %w", id, err)
	}
	if from.Stdout < 0 || from.Stderr < 0 {
		return nil, fault.Field("from", "an offset is negative")
	}
	p, err := b.client.Attach(ctx, id, from)
	if err != nil {
		return nil, fmt.Errorf("attach to exec %s in sandbox %s: %w", id, b.handle.ID, err)
	}
	return p, nil
}

// Put implements sandbox.Box.
func (b *Box) Put(ctx context.Context, dir string, tar io.Reader) error {
	if err := checkPath("dir", dir); err != nil {
		return err
	}
	if err := b.client.Put(ctx, path.Clean(dir), tar); err != nil {
		return fmt.Errorf("put files into sandbox %s: %w", b.handle.ID, err)
	}
	return nil
}

// Get implements sandbox.Box.
func (b *Box) Get(ctx context.Context, name string, w io.Writer) error {
	if err := checkPath("path", name); err != nil {
		return err
	}
	if err := b.client.Get(ctx, path.Clean(name), w); err != nil {
		return fmt.Errorf("get files from sandbox %s: %w", b.handle.ID, err)
	}
	return nil
}

func checkPath(field, name string) error {
	const longest = 4096
	if !path.IsAbs(name) || len(name) >= longest || strings.ContainsRune(name, 0) {
		return fault.Field(field, "%q is not an absolute path in the sandbox", name)
	}
	return nil
}

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

func (b *Box) alive() bool {
	select {
	case <-b.done:
		return false
	case <-b.client.Done():
		return false
	default:
		return true
	}
}

// letGo reports whether the driver has let go of the sandbox.
func (b *Box) letGo() bool { return b.sentry.interrupted() }

// detach lets go of the sandbox, which lives on.
func (b *Box) detach() {
	b.once.Do(func() {
		b.sentry.interrupt()
		_ = b.client.Close()
	})
	<-b.watched
}

// lose ends everything that waits for the sandbox, whose processes were killed.
func (b *Box) lose() {
	b.gone.Store(true)
	<-b.watched
}
