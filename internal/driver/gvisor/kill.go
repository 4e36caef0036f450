package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/driver/roster"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Killer = (*Driver)(nil)

// KillAll implements sandbox.Killer. A sandbox is one process of the host's with
// what hangs on it, and of each that was met a pidfd is at hand: its end is one
// system call.
func (d *Driver) KillAll(ctx context.Context, ids []string) error {
	made := d.roster.Halt(ids)
	boxes, killed := d.killBoxes(ids, nil)
	left, err := d.killLeft(ids)
	all := []error{killed, err}
	for _, b := range boxes {
		all = append(all, b.awaitDeath(ctx))
	}
	for _, h := range left {
		all = append(all, h.waitUntil(ctx))
		h.close()
	}
	// One that was made before it could be halted is known by now.
	all = append(all, made(ctx))
	late, killed := d.killBoxes(ids, boxes)
	all = append(all, killed)
	for _, b := range late {
		all = append(all, b.awaitDeath(ctx))
	}
	// Nor is one being made that had not begun to be when the others were halted.
	all = append(all, d.roster.Halt(ids)(ctx))
	return errors.Join(append(all, d.killHalfMade(ctx, ids))...)
}

// KillLeft ends every sandbox of a state folder, as KillAll does, without opening
// the driver: it needs neither binaries nor images nor a worker. A folder that is
// not there has none.
func KillLeft(ctx context.Context, stateDir string) error {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return fmt.Errorf("find the state folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "box")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	d := &Driver{boot: boot, roster: roster.New[*Box](Name, handleVersion, filepath.Join(dir, "box"))}
	return d.KillAll(ctx, nil)
}

// killBoxes sends those that were met their end, but for some.
func (d *Driver) killBoxes(ids []string, but map[string]*Box) (map[string]*Box, error) {
	boxes := d.roster.Boxes(ids)
	var all []error
	for id, b := range boxes {
		if but[id] == b {
			delete(boxes, id)
			continue
		}
		if err := b.sentry.kill(); err != nil && b.Alive() { // else it has died by itself
			all = append(all, fmt.Errorf("kill sandbox %s: %w", id, err))
		}
	}
	return boxes, errors.Join(all...)
}

// awaitDeath waits until nothing runs in the sandbox any more.
func (b *Box) awaitDeath(ctx context.Context) error {
	select {
	case <-b.watched: // also where we have let go of it: then it is not ours
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "wait for the end of sandbox %s: %w", b.ID, context.Cause(ctx))
	}
}

// killLeft kills the sandboxes that have a folder and were not met, and returns
// their processes, to be waited for.
func (d *Driver) killLeft(ids []string) ([]*hostProcess, error) {
	left, err := d.roster.Left(ids)
	if err != nil {
		return nil, err
	}
	var dying []*hostProcess
	var all []error
	for _, id := range left {
		dir := d.dir(id)
		made, err := readMade(dir)
		if err != nil {
			continue // half made: see killHalfMade
		}
		if r, err := readRecord(dir); err == nil && r.State.Boot != d.boot {
			continue // the machine has been off since
		}
		h, err := openProcess(made.Sentry)
		if err != nil {
			continue // it has ended
		}
		if err := h.kill(); err != nil {
			all = append(all, fmt.Errorf("kill sandbox %s: %w", id, err))
		}
		dying = append(dying, h)
	}
	return dying, errors.Join(all...)
}

// killHalfMade kills what somebody began to make and was killed over: nothing
// says which processes those are, so they are looked for.
func (d *Driver) killHalfMade(ctx context.Context, ids []string) error {
	left, err := d.roster.Left(ids)
	all := []error{err}
	for _, id := range left {
		if d.roster.IsStill(id) {
			continue // who made it has seen to that, and is clearing it away
		}
		if _, err := readMade(d.dir(id)); errors.Is(err, fs.ErrNotExist) {
			_, err := killFound(ctx, d.dir(id))
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
