package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// SetBackground has the kernel prefer others to what is in the group, or treat
// it like them again. Where the host bounds no processors there is nothing to
// prefer by, and nothing is done.
func (g *Group) SetBackground(background bool) error {
	for _, p := range g.parts {
		if !slices.Contains(p.t.controllers, CPU) {
			continue
		}
		// A sixteenth of what others have.
		file, value := "cpu.shares", "1024"
		if background {
			value = "64"
		}
		if p.t.version == 2 {
			if file, value = "cpu.weight", "100"; background {
				value = "6"
			}
		}
		if err := p.t.write(path.Join(p.path, file), value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("weigh the group %s: %w", g.id, err)
		}
	}
	return nil
}

// Change gives a living group other limits on processors and memory; zero values
// are left as they are. Memory that is in use cannot be taken away: that is an
// error, and then any of them may hold.
func (g *Group) Change(l Limits) error {
	l.Processes = 0
	for _, p := range g.parts {
		if err := p.change(l); err != nil {
			return fmt.Errorf("change the limits of the group %s: %w", g.id, err)
		}
	}
	return nil
}

// change writes the limits. A hierarchy of the first version wants the limit
// with swap to be the larger of the two at any moment, so going up they are
// written the other way round.
func (p part) change(l Limits) error {
	err := p.limit(l)
	if err == nil || p.t.version == 2 {
		return err
	}
	for _, s := range slices.Backward(settings(p.t.version, Limits{Memory: l.Memory})) {
		if slices.Contains(p.t.controllers, s.c) {
			if err := p.t.write(path.Join(p.path, s.file), s.value); err != nil && (!s.mayMiss || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
	}
	return p.limit(l)
}
