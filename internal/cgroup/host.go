package cgroup

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Controller is what bounds one resource, by the kernel's name.
type Controller string

// The controllers that limits need.
const (
	CPU       Controller = "cpu"
	Memory    Controller = "memory"
	Processes Controller = "pids"
)

// Names of version 1 that only measure or stop.
const (
	cpuacct Controller = "cpuacct"
	freezer Controller = "freezer"
)

// Controllers lists those that a limit can need.
func Controllers() []Controller { return []Controller{CPU, Memory, Processes} }

// Limits bound a group. Zero means no bound.
type Limits struct {
	MilliCPU  int64
	Memory    int64 // bytes, without any swap
	Processes int64 // threads of the host's kernel
}

// Host is the machine's tree of groups as one owner uses it. Its methods may be
// called from several goroutines.
type Host struct {
	owner       string
	hierarchies []*hierarchy
	lacks       map[Controller]string
}

// folders makes and removes groups. A kernel fills a new one with files, and
// removes it in spite of them; in a test somebody else has to.
type folders struct {
	make, remove func(root *os.Root, name string) error
}

func kernelFolders() folders {
	return folders{
		make:   func(root *os.Root, name string) error { return root.Mkdir(name, 0o755) },
		remove: func(root *os.Root, name string) error { return root.Remove(name) },
	}
}

// hierarchy is one mounted tree.
type hierarchy struct {
	key         string // as in /proc/self/cgroup: controllers, or "" for version 2
	version     int
	dir         string // where it is mounted
	root        *os.Root
	folders     folders
	base        string // the owner's parent group, relative to root
	controllers []Controller
}

// parentName is the group that holds all owners.
const parentName = "aurea"

// Open finds out what this machine can bound, and makes the owner's parent
// groups. root is "/", or in a test a folder that stands for it. A machine that
// can bound nothing is no error: Lacks says why.
func Open(root, owner string) (*Host, error) { return open(root, owner, kernelFolders()) }

func open(root, owner string, how folders) (*Host, error) {
	if !validName(owner) {
		return nil, fault.Field("owner", "%q is not 1 to 64 lower-case letters and digits", owner)
	}
	h := &Host{owner: owner, lacks: map[Controller]string{}}
	mounts, err := findMounts(root)
	if err != nil {
		return nil, err
	}
	// Version 2 comes first: it measures and stops by itself, so that of
	// version 1 only what bounds is needed beside it.
	slices.SortStableFunc(mounts, func(a, b mount) int { return b.version - a.version })
	for _, m := range mounts {
		if err := h.use(m, how); err != nil {
			for _, c := range Controllers() {
				if slices.Contains(m.controllers, c) {
					h.lacks[c] = err.Error()
				}
			}
		}
	}
	for _, c := range Controllers() {
		if err := h.probe(c); err != nil && h.lacks[c] == "" {
			h.lacks[c] = err.Error()
		}
	}
	return h, nil
}

// validName keeps a name from being a path, and from hiding.
func validName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// use opens a hierarchy that has something for us and makes our parent in it.
func (h *Host) use(m mount, how folders) error {
	unified := len(h.hierarchies) > 0 && h.hierarchies[0].version == 2
	wanted := slices.DeleteFunc(slices.Clone(m.controllers), func(c Controller) bool {
		return !slices.Contains(Controllers(), c) && (unified || c != cpuacct && c != freezer)
	})
	if len(wanted) == 0 && m.version == 1 {
		return nil
	}
	if m.readOnly {
		return fmt.Errorf("%s is mounted read-only", m.dir)
	}
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", m.dir, err)
	}
	t := &hierarchy{key: m.key, version: m.version, dir: m.dir, root: root, folders: how, controllers: wanted}
	place := m.own
	if m.version == 2 && place != "." {
		place = path.Dir(place)
	}
	t.base = path.Join(place, parentName, h.owner)
	if err := t.makeParents(place); err != nil {
		_ = root.Close()
		return err
	}
	h.hierarchies = append(h.hierarchies, t)
	return nil
}

// makeParents makes the groups from place down to the owner's, and on version
// 2 has each hand its controllers on.
func (t *hierarchy) makeParents(place string) error {
	var kept []Controller
	at := place
	for i, name := range []string{"", parentName, path.Base(t.base)} {
		at = path.Join(at, name)
		if i > 0 {
			if err := t.folders.make(t.root, at); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make the group %s: %w", path.Join(t.dir, at), err)
			}
		}
		if t.version == 1 {
			continue
		}
		kept = nil
		for _, c := range t.controllers {
			if err := t.write(path.Join(at, "cgroup.subtree_control"), "+"+string(c)); err == nil {
				kept = append(kept, c)
			}
		}
		t.controllers = kept
	}
	return nil
}

// probe makes a group with a limit and removes it: what a file promises is not
// what holds.
func (h *Host) probe(c Controller) error {
	if h.with(c) == nil {
		return fmt.Errorf("no hierarchy with the controller %q is mounted, or it cannot be handed on to our groups", c)
	}
	limits := map[Controller]Limits{CPU: {MilliCPU: 1000}, Memory: {Memory: 1 << 30}, Processes: {Processes: 1000}}[c]
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	g, err := h.make("probe"+hex.EncodeToString(id[:]), limits)
	if g != nil {
		err = errors.Join(err, g.rmdir())
	}
	return err
}

// with returns the hierarchy that has the controller.
func (h *Host) with(c Controller) *hierarchy {
	i := slices.IndexFunc(h.hierarchies, func(t *hierarchy) bool { return slices.Contains(t.controllers, c) })
	if i < 0 {
		return nil
	}
	return h.hierarchies[i]
}

// Lacks says for each controller that does not work here why not.
func (h *Host) Lacks() map[Controller]string { return maps.Clone(h.lacks) }

// Has reports whether limits of the controller hold here.
func (h *Host) Has(c Controller) bool { return h.lacks[c] == "" }

// Version describes the tree: "v2", "v1", "hybrid" or "none".
func (h *Host) Version() string {
	versions := map[int]bool{}
	for _, t := range h.hierarchies {
		versions[t.version] = true
	}
	switch {
	case versions[1] && versions[2]:
		return "hybrid"
	case versions[2]:
		return "v2"
	case versions[1]:
		return "v1"
	}
	return "none"
}

// List returns the names of the owner's groups below the present parent.
func (h *Host) List() ([]string, error) {
	found := map[string]bool{}
	for _, t := range h.hierarchies {
		d, err := t.root.Open(t.base)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open our groups: %w", err)
		}
		entries, err := d.ReadDir(-1)
		_ = d.Close()
		if err != nil {
			return nil, fmt.Errorf("list our groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && validName(e.Name()) {
				found[e.Name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Close removes the owner's parent groups if nothing is in them. Groups live on.
func (h *Host) Close() error {
	for _, t := range h.hierarchies {
		t.prune(t.base)
		_ = t.root.Close()
	}
	return nil
}

// prune removes an owner's parent group, and the parent of all owners, where
// they are empty.
func (t *hierarchy) prune(base string) {
	if t.folders.remove(t.root, base) == nil {
		_ = t.folders.remove(t.root, path.Dir(base)) // stays while it has other owners
	}
}

// read reads a small file of the kernel's.
func (t *hierarchy) read(name string) ([]byte, error) {
	body, err := t.root.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return bytes.TrimSpace(body), nil
}

// write writes to a file of the kernel's, which must be there.
func (t *hierarchy) write(name, value string) error {
	f, err := t.root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, name, err)
	}
	return nil
}

func (t *hierarchy) exists(name string) bool {
	_, err := t.root.Lstat(name)
	return err == nil
}

func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
