package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Usage is what a group has used. A field that cannot be measured is -1.
type Usage struct {
	CPU        time.Duration
	Memory     int64 // bytes now, counted as PeakMemory
	PeakMemory int64 // bytes, with the files that the kernel keeps in memory for it
	Processes  int64 // threads of the host's kernel, now
}

// Usage measures the group.
func (g *Group) Usage() (Usage, error) {
	u := Usage{CPU: -1, Memory: -1, PeakMemory: -1, Processes: -1}
	for _, p := range g.parts {
		if err := p.usage(&u); err != nil {
			return Usage{}, fmt.Errorf("measure the group %s: %w", g.id, err)
		}
	}
	return u, nil
}

func (p part) usage(u *Usage) error {
	has := func(c Controller) bool { return slices.Contains(p.t.controllers, c) }
	now, peak := "memory.usage_in_bytes", "memory.max_usage_in_bytes"
	if p.t.version == 2 {
		now, peak = "memory.current", "memory.peak"
		// Measured in every group, also where the controller is elsewhere.
		us, err := p.field("cpu.stat", "usage_usec")
		if err != nil && !isGone(err) {
			return err
		}
		if err == nil {
			u.CPU = time.Duration(us) * time.Microsecond
		}
	} else if has(cpuacct) {
		ns, err := p.number("cpuacct.usage")
		if err != nil {
			return err
		}
		u.CPU = time.Duration(ns)
	}
	if has(Memory) {
		n, err := p.number(now)
		if err != nil {
			return err
		}
		u.Memory = n
		n, err = p.number(peak)
		if err != nil && !isGone(err) { // version 2 has it since 5.19
			return err
		}
		if err == nil {
			u.PeakMemory = n
		}
	}
	if has(Processes) {
		n, err := p.number("pids.current")
		if err != nil {
			return err
		}
		u.Processes = n
	}
	return nil
}

// MeasuresCPU reports whether Usage tells the processor time of groups here.
func (h *Host) MeasuresCPU() bool {
	return slices.ContainsFunc(h.hierarchies, func(t *hierarchy) bool {
		return t.version == 2 || slices.Contains(t.controllers, cpuacct)
	})
}

// OOMKills counts the processes of the group that were killed because its
// memory limit was reached; -1 where that is not known.
func (g *Group) OOMKills() (int64, error) {
	return g.count(Memory, map[int]string{1: "memory.oom_control", 2: "memory.events"}, "oom_kill")
}

// Refused counts how often a new process was refused because of the limit; -1
// where that is not known.
func (g *Group) Refused() (int64, error) {
	return g.count(Processes, map[int]string{1: "pids.events", 2: "pids.events"}, "max")
}

func (g *Group) count(c Controller, files map[int]string, field string) (int64, error) {
	for _, p := range g.parts {
		if slices.Contains(p.t.controllers, c) {
			n, err := p.field(files[p.t.version], field)
			if err != nil {
				return 0, fmt.Errorf("count %s of the group %s: %w", field, g.id, err)
			}
			return n, nil
		}
	}
	return -1, nil
}

// number reads a file that holds one number.
func (p part) number(file string) (int64, error) {
	text, err := p.t.read(path.Join(p.path, file))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", file, err)
	}
	return n, nil
}

// field reads one number of a file with a name and a number in each line.
func (p part) field(file, name string) (int64, error) {
	text, err := p.t.read(path.Join(p.path, file))
	if err != nil {
		return 0, err
	}
	return parseField(text, file, name)
}

func parseField(text []byte, file, name string) (int64, error) {
	for line := range bytes.Lines(text) {
		key, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if !ok || string(key) != name {
			continue
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse %s of %s: %w", name, file, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// Freeze stops everything in the group, Thaw lets it go on. Freeze returns when
// all have stopped.
func (g *Group) Freeze(ctx context.Context) error { return g.freeze(ctx, true) }

// Thaw undoes Freeze.
func (g *Group) Thaw(ctx context.Context) error { return g.freeze(ctx, false) }

func (g *Group) freeze(ctx context.Context, stop bool) error {
	for _, p := range g.parts {
		switch {
		case p.t.version == 2:
			return p.freezeBy(ctx, "cgroup.freeze", map[bool]string{true: "1", false: "0"}[stop], func() (bool, error) {
				frozen, err := p.field("cgroup.events", "frozen")
				return (frozen == 1) == stop, err
			})
		case slices.Contains(p.t.controllers, freezer):
			state := map[bool]string{true: "FROZEN", false: "THAWED"}[stop]
			return p.freezeBy(ctx, "freezer.state", state, func() (bool, error) {
				now, err := p.t.read(path.Join(p.path, "freezer.state"))
				return string(now) == state, err
			})
		}
	}
	return fault.New(fault.Unavailable, "this host cannot stop a group: it has neither cgroup.freeze nor the freezer")
}

func (p part) freezeBy(ctx context.Context, file, value string, done func() (bool, error)) error {
	const pause = 2 * time.Millisecond
	for {
		if err := p.t.write(path.Join(p.path, file), value); err != nil {
			return err
		}
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "wait for the group to change to %s: %w", value, errors.Join(context.Cause(ctx)))
		case <-time.After(pause):
		}
	}
}
