package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/driver/roster"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Killer = (*Driver)(nil)

// killers is how many kills are under way at the engine at a time.
const killers = 32

// KillAll implements sandbox.Killer. The engine is asked for what it has, so that
// a container without a folder is ended too.
func (d *Driver) KillAll(ctx context.Context, ids []string) error {
	halted := d.roster.Halt(ids)(ctx) // the engine makes a container to its end
	found, err := d.containers(ctx, labelSandbox)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(c container.Summary) bool {
		return ids != nil && !slices.Contains(ids, c.Labels[labelSandbox])
	})
	errs := make([]error, len(found))
	d.each(found, func(i int) { errs[i] = d.kill(ctx, found[i].ID) })
	d.each(found, func(i int) {
		if errs[i] == nil {
			errs[i] = d.awaitDead(ctx, &found[i])
		}
	})
	return errors.Join(append(errs, halted)...)
}

// KillLeft ends every sandbox of a state folder, as KillAll does, without opening
// the driver: it needs no more than the engine. A folder that is not there has
// none.
func KillLeft(ctx context.Context, stateDir, host string) error {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return fmt.Errorf("find the state folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "box")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d := &Driver{roster: roster.New[*Box](Name, handleVersion, filepath.Join(dir, "box"))}
	if d.id, err = stateID(dir); err != nil {
		return err
	}
	if d.api, err = dial(host); err != nil {
		return err
	}
	defer func() { _ = d.api.Close() }()
	return d.KillAll(ctx, nil)
}

// each does something for every container, several at a time.
func (d *Driver) each(all []container.Summary, do func(i int)) {
	var group sync.WaitGroup
	turns := make(chan struct{}, killers)
	for i := range all {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			do(i)
		})
	}
	group.Wait()
}

// kill sends one container its end. The engine refuses that for one that is
// paused, and lets it go on first.
func (d *Driver) kill(ctx context.Context, id string) error {
	for tries := 0; ; tries++ {
		_, err := d.api.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		found, asked := d.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		switch {
		case errdefs.IsNotFound(asked):
			return nil
		case asked == nil && found.Container.State != nil && !found.Container.State.Running:
			return nil // it has ended, or was never started
		case asked == nil && found.Container.State != nil && found.Container.State.Paused && tries == 0:
			if _, err := d.api.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{}); err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
				return engineFault("let a paused sandbox go on to its end", err)
			}
			continue
		}
		return engineFault("kill a sandbox", err)
	}
}

// awaitDead waits until nothing runs in a container any more.
func (d *Driver) awaitDead(ctx context.Context, c *container.Summary) error {
	if b, ok := d.roster.Get(c.Labels[labelSandbox]); ok {
		select {
		case <-b.watched:
			return nil
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "wait for the end of sandbox %s: %w", b.ID, context.Cause(ctx))
		}
	}
	_ = d.awaitEnd(ctx, c.Labels[labelSandbox]) // any error of it says that it has ended
	if ctx.Err() != nil {
		return fault.New(fault.Unavailable, "wait for the end of a sandbox: %w", context.Cause(ctx))
	}
	return nil
}
