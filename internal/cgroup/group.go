package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Group is one group: a folder in each hierarchy that bounds or measures it.
// Its methods may be called from several goroutines.
type Group struct {
	id    string
	parts []part
}

// part is a group's folder in one hierarchy.
type part struct {
	t    *hierarchy
	path string // relative to the hierarchy's root
}

// Paths says where a group is, so that it can be written down and found again:
// the group's path in each hierarchy, by its key in /proc/self/cgroup.
type Paths map[string]string

// Make makes a group with the limits. A limit whose controller does not work
// here is a fault of kind Invalid. A name that is taken is a Conflict.
func (h *Host) Make(id string, l Limits) (*Group, error) {
	if !validName(id) {
		return nil, fault.Field("id", "%q is not 1 to 64 lower-case letters and digits", id)
	}
	for _, need := range []struct {
		c     Controller
		asked int64
	}{{CPU, l.MilliCPU}, {Memory, l.Memory}, {Processes, l.Processes}} {
		if need.asked < 0 {
			return nil, fault.Field(string(need.c), "the limit %d is negative", need.asked)
		}
		if need.asked > 0 && !h.Has(need.c) {
			return nil, fault.Field(string(need.c), "this host cannot bound it: %s", h.lacks[need.c])
		}
	}
	g, err := h.make(id, l)
	if err != nil && g != nil {
		err = errors.Join(err, g.rmdir())
	}
	if err != nil {
		return nil, fmt.Errorf("make the group %s: %w", id, err)
	}
	return g, nil
}

// make also returns the group if only its limits could not be set.
func (h *Host) make(id string, l Limits) (*Group, error) {
	g := &Group{id: id}
	for _, t := range h.hierarchies {
		p := part{t: t, path: path.Join(t.base, id)}
		err := t.folders.make(t.root, p.path)
		if errors.Is(err, fs.ErrNotExist) { // somebody has removed our parents
			if err = t.makeParents(path.Dir(path.Dir(t.base))); err == nil {
				err = t.folders.make(t.root, p.path)
			}
		}
		if errors.Is(err, fs.ErrExist) {
			_ = g.rmdir()
			return nil, fault.New(fault.Conflict, "the group %s exists", id)
		}
		if err != nil {
			_ = g.rmdir()
			return nil, fmt.Errorf("make its folder: %w", err)
		}
		g.parts = append(g.parts, p)
	}
	for _, p := range g.parts {
		if err := p.limit(l); err != nil {
			return g, err
		}
	}
	return g, nil
}

// cpuPeriod is over which time a share of the processors is counted, in
// microseconds: the kernel's own default.
const cpuPeriod = 100_000

// setting is one file with its value. A missing file of one that may be
// missing says that the kernel was built without what it switches off.
type setting struct {
	c       Controller
	file    string
	value   string
	mayMiss bool
}

func (p part) limit(l Limits) error {
	for _, s := range settings(p.t.version, l) {
		if !slices.Contains(p.t.controllers, s.c) {
			continue
		}
		err := p.t.write(path.Join(p.path, s.file), s.value)
		if err != nil && (!s.mayMiss || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// settings are the files to write, in the order in which the kernel takes them.
func settings(version int, l Limits) []setting {
	quota := strconv.FormatInt(l.MilliCPU*cpuPeriod/1000, 10)
	memory, processes := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Processes, 10)
	var all []setting
	add := func(asked int64, more ...setting) {
		if asked > 0 {
			all = append(all, more...)
		}
	}
	if version == 2 {
		add(l.MilliCPU, setting{CPU, "cpu.max", quota + " " + strconv.Itoa(cpuPeriod), false})
		add(l.Memory, setting{Memory, "memory.max", memory, false}, setting{Memory, "memory.swap.max", "0", true},
			setting{Memory, "memory.oom.group", "1", false})
		add(l.Processes, setting{Processes, "pids.max", processes, false})
		return all
	}
	add(l.MilliCPU, setting{CPU, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false}, setting{CPU, "cpu.cfs_quota_us", quota, false})
	add(l.Memory, setting{Memory, "memory.limit_in_bytes", memory, false}, setting{Memory, "memory.memsw.limit_in_bytes", memory, true},
		setting{Memory, "memory.swappiness", "0", true})
	add(l.Processes, setting{Processes, "pids.max", processes, false})
	return all
}

// Find returns a group that was made earlier, perhaps below another parent of
// the same owner. Paths that are not of this owner are a fault of kind Invalid.
// Parts that are gone are left out.
func (h *Host) Find(id string, paths Paths) (*Group, error) {
	g := &Group{id: id}
	if !validName(id) {
		return nil, fault.Field("id", "%q is not a group's name", id)
	}
	for key, at := range paths {
		if path.Clean(at) != at || path.IsAbs(at) || strings.HasPrefix(at, "..") ||
			!strings.HasSuffix("/"+at, "/"+path.Join(parentName, h.owner, id)) {
			return nil, fault.Field("paths", "%q is not a group of ours", at)
		}
		for _, t := range h.hierarchies {
			if t.key == key && t.exists(at) {
				g.parts = append(g.parts, part{t: t, path: at})
			}
		}
	}
	return g, nil
}

// Here returns what there is of a group below the present parent.
func (h *Host) Here(id string) (*Group, error) { return h.Find(id, h.Places(id)) }

// Places says where Make would make a group.
func (h *Host) Places(id string) Paths {
	paths := Paths{}
	for _, t := range h.hierarchies {
		paths[t.key] = path.Join(t.base, id)
	}
	return paths
}

// Paths says where the group is.
func (g *Group) Paths() Paths {
	paths := Paths{}
	for _, p := range g.parts {
		paths[p.t.key] = p.path
	}
	return paths
}

// Join says how a process gets into the group: it is to be cloned into the
// folder Into where that is not empty, and then, before anything else, to write
// "0" to each of Files. That moves the thread that writes, for which the kernel
// waits for nobody; the process must have no other, or leave them behind by
// calling a program.
type Join struct {
	Into  string   `json:"into,omitempty"`
	Files []string `json:"files,omitempty"`
}

// Join says how a new process gets into the group.
func (g *Group) Join() Join {
	var j Join
	for _, p := range g.parts {
		if p.t.version == 2 {
			j.Into = filepath.Join(p.t.dir, p.path)
		} else {
			j.Files = append(j.Files, filepath.Join(p.t.dir, p.path, "tasks"))
		}
	}
	return j
}

// Holds returns an error unless the process is in every part of the group.
func (g *Group) Holds(pid int) error {
	for _, p := range g.parts {
		members, err := p.members()
		if err != nil {
			return err
		}
		if !slices.Contains(members, pid) {
			return fmt.Errorf("process %d is not in %s", pid, path.Join(p.t.dir, p.path))
		}
	}
	return nil
}

func (p part) members() ([]int, error) {
	text, err := p.t.read(path.Join(p.path, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Kill kills everything in the group. It does not wait for the ends.
func (g *Group) Kill() error {
	for _, p := range g.parts {
		if err := p.kill(); err != nil && !isGone(err) {
			return fmt.Errorf("kill the group %s: %w", g.id, err)
		}
	}
	return nil
}

func (p part) kill() error {
	if p.t.version == 2 {
		err := p.t.write(path.Join(p.path, "cgroup.kill"), "1")
		if !errors.Is(err, fs.ErrNotExist) || !p.t.exists(p.path) {
			return err
		}
		// A kernel before 5.14 kills one by one.
	}
	members, err := p.members()
	if err != nil {
		return err
	}
	for _, pid := range members {
		if err := p.killOne(pid); err != nil {
			return err
		}
	}
	return nil
}

// killOne kills a process only if it is in the group while we hold it: its
// number may have been given to another since it was listed.
func (p part) killOne(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if now, err := p.members(); err != nil || !slices.Contains(now, pid) {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}

// Remove kills what is in the group and removes it, or gives up when ctx ends.
// A group that is gone is removed.
func (g *Group) Remove(ctx context.Context) error {
	const longest = 20 * time.Millisecond
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		err := g.rmdir()
		if err == nil {
			return nil
		}
		if err := g.Kill(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "remove the group %s: %w (%w)", g.id, err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// rmdir removes the group's folders once, and the parents of those that were
// made by an earlier run elsewhere.
func (g *Group) rmdir() error {
	var errs []error
	for _, p := range g.parts {
		if err := p.t.folders.remove(p.t.root, p.path); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("remove %s: %w", p.path, err))
			continue
		}
		if base := path.Dir(p.path); base != p.t.base {
			p.t.prune(base)
		}
	}
	return errors.Join(errs...)
}
