package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/cgroup"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/sandbox"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/aurea-dev/aurea/internal/spawn"
)

// arguments opens all that a sandbox is given. closeFiles closes what is still
// open of it, also after an error.
func arguments(c spawn.Create, conf *config.Config) (args *sandbox.Args, closeFiles func(), err error) {
	var files []*os.File
	closeFiles = func() {
		for _, f := range files {
			_ = f.Close() // most were closed when they had been handed over
		}
	}
	open := func(path string, flags int) *os.File {
		if err != nil {
			return nil
		}
		var f *os.File
		if f, err = os.OpenFile(path, flags, 0); err == nil {
			files = append(files, f)
		}
		return f
	}
	spec, err := specutils.ReadSpec(c.Bundle, conf)
	if err != nil {
		return nil, closeFiles, fmt.Errorf("read bundle: %w", err)
	}
	hints, err := boot.NewPodMountHints(spec)
	if err != nil {
		return nil, closeFiles, fmt.Errorf("read the bundle's mounts: %w", err)
	}
	args = &sandbox.Args{ID: c.ID, Spec: spec, BundleDir: c.Bundle, MountHints: hints, Cgroup: shown{c}}
	// In the order in which the bundle mounts them.
	args.IOFiles = []*os.File{open(c.Image, os.O_RDONLY), open(c.Guest, os.O_RDONLY)}
	// What is written goes to a file of the host without a name, which is gone
	// when the sandbox is, so that it takes disk and not memory.
	store := open(c.Bundle, os.O_RDWR|unix.O_TMPFILE)
	args.GoferFilestoreFiles = []*os.File{store}
	layer := specutils.GoferMountConf{Lower: specutils.Erofs, Upper: specutils.AnonOverlay}
	if c.Disk > 0 {
		layer.Size = strconv.FormatInt(c.Disk, 10)
	}
	args.GoferMountConfs = specutils.GoferMountConfFlags{layer, {Lower: specutils.Erofs, Upper: specutils.NoOverlay}}
	if c.Groups.Into != "" {
		args.CloneIntoCgroupFD = open(c.Groups.Into, os.O_RDONLY|unix.O_DIRECTORY)
	}
	// These reach our own package join, which forgets them. gVisor has no use for
	// what it calls sinks without a configuration of them.
	for _, path := range c.Groups.Files {
		args.SinkFiles = append(args.SinkFiles, open(path, os.O_WRONLY))
	}
	if err != nil {
		return nil, closeFiles, fmt.Errorf("open what the sandbox is given: %w", err)
	}
	pgalloc.IMAWorkAroundForMemFile(store.Fd())
	return args, closeFiles, nil
}

// joined returns an error unless the sentry is in all of its groups. No code of
// a user's runs before.
func joined(groups spawn.Groups, pid int) error {
	var folders []string
	if groups.Into != "" {
		folders = append(folders, groups.Into)
	}
	for _, file := range groups.Files {
		folders = append(folders, filepath.Dir(file))
	}
	for _, folder := range folders {
		members, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
		if err != nil {
			return fmt.Errorf("check the sentry's groups: %w", err)
		}
		if !hasLine(members, strconv.Itoa(pid)) {
			return fmt.Errorf("the sentry is not in its group %s", folder)
		}
	}
	return nil
}

// hasLine reports whether a line of the text is exactly this.
func hasLine(text []byte, line string) bool {
	for l := range bytes.Lines(text) {
		if string(bytes.TrimSpace(l)) == line {
			return true
		}
	}
	return false
}

// shown is how gVisor asks for the size of the machine that programs see. It is
// asked for nothing else: its own code for groups is off.
type shown struct{ c spawn.Create }

var _ cgroup.Cgroup = shown{}

// fewest is the least number of processors that a sandbox sees: with one, some
// programs leave out locks that they need.
const fewest = 2

// NumCPU implements cgroup.Cgroup.
func (s shown) NumCPU() (int, error) {
	const whole = 1000
	if s.c.MilliCPU <= 0 {
		return runtime.NumCPU(), nil
	}
	return min(runtime.NumCPU(), max(fewest, int((s.c.MilliCPU+whole-1)/whole))), nil
}

// MemoryLimit implements cgroup.Cgroup.
func (s shown) MemoryLimit() (uint64, error) {
	if s.c.Memory <= 0 {
		return math.MaxUint64, nil
	}
	return uint64(s.c.Memory), nil
}

// CPUQuota implements cgroup.Cgroup: there is none to tell.
func (shown) CPUQuota() (int64, error) { return -1, nil }

// CPUPeriod implements cgroup.Cgroup.
func (shown) CPUPeriod() (int64, error) { return -1, nil }

// CPUUsage implements cgroup.Cgroup.
func (shown) CPUUsage() (uint64, error) { return 0, nil }

// The rest of cgroup.Cgroup would change groups, and is never called.

func (shown) Install(*specs.LinuxResources) error { return errNotOurs }
func (shown) Update(*specs.LinuxResources) error  { return errNotOurs }
func (shown) Uninstall() error                    { return errNotOurs }
func (shown) Join() (func(), error)               { return nil, errNotOurs }
func (shown) CloneIntoCgroup() (*os.File, error)  { return nil, errNotOurs }
func (shown) MakePath(string) string              { return "" }

var errNotOurs = errors.New("the sandbox's groups are not gvisor's to change")
