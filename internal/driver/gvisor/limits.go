package gvisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Capabilities implements sandbox.Driver. Processes, disk and open files are
// bounded by the sandbox's own kernel, CPU and memory by the host's.
func (d *Driver) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Isolation: "user-space kernel",
		Images:    []string{"*"},
		Networks:  []sandbox.Network{sandbox.NetworkNone},
		CPU:       d.groups.Has(cgroup.CPU),
		Memory:    d.groups.Has(cgroup.Memory),
		Processes: true,
		Disk:      true,
		OpenFiles: true,
		CPUTime:   d.groups.MeasuresCPU(),
		TTY:       true,
		Pause:     true,
		Snapshot:  true,
		Recover:   true,
		Files:     true,
		Ports:     true,
	}
}

// Lacks says for each limit that cannot be kept on this machine why not.
func (d *Driver) Lacks() map[string]string {
	lacks := map[string]string{}
	for name, c := range map[string]cgroup.Controller{"cpu": cgroup.CPU, "memory": cgroup.Memory} {
		if why := d.groups.Lacks()[c]; why != "" {
			lacks[name] = why
		}
	}
	if !d.groups.MeasuresCPU() {
		lacks["cpu time"] = "no hierarchy that measures processor time can be used"
	}
	return lacks
}

// The least that a sandbox can be given. Below it the kernel and the guest in
// it could not do their own work.
const (
	leastMemory    = 48 << 20
	leastMilliCPU  = 10
	leastDisk      = 1 << 20
	leastOpenFiles = 64
	leastCPUTime   = time.Second
)

func checkFloors(l sandbox.Limits) error {
	for _, floor := range []struct {
		field        string
		asked, least int64
	}{
		{"limits.memory_bytes", l.Memory, leastMemory},
		{"limits.milli_cpu", l.MilliCPU, leastMilliCPU},
		{"limits.disk_bytes", l.Disk, leastDisk},
		{"limits.open_files", l.OpenFiles, leastOpenFiles},
		{"limits.cpu_time_ns", int64(l.CPUTime), int64(leastCPUTime)},
	} {
		if floor.asked > 0 && floor.asked < floor.least {
			return fault.Field(floor.field, "%d is less than a sandbox of this driver needs for itself; ask for at least %d", floor.asked, floor.least).
				WithCode("limit_too_small")
		}
	}
	return nil
}

// hostLimits is what the host holds. Its threads are those of the sandbox's
// kernel, which has several for each process inside and dies when it gets no
// more: the limit inside must always be met first.
func (d *Driver) hostLimits(l sandbox.Limits) cgroup.Limits {
	const own, each = 128, 3
	host := cgroup.Limits{MilliCPU: l.MilliCPU, Memory: l.Memory}
	if l.Processes > 0 && d.groups.Has(cgroup.Processes) {
		host.Processes = own + each*l.Processes
	}
	return host
}

// Adjust implements sandbox.Adjustable: the host's kernel holds memory and
// processors, and can hold others. How many processors a sandbox sees was told
// to its kernel, so their number must stay.
func (b *Box) Adjust(_ context.Context, l sandbox.Limits) error {
	now := b.Enforced()
	same := l
	same.Memory, same.MilliCPU = now.Memory, now.MilliCPU
	if same != now || (l.Memory > 0) != (now.Memory > 0) || wholeCPUs(l.MilliCPU) != wholeCPUs(now.MilliCPU) {
		return fault.Field("limits", "a sandbox that is there cannot be given these limits").WithCode("limit_unenforceable")
	}
	if err := checkFloors(l); err != nil {
		return err
	}
	if l != now {
		if err := b.group.Change(cgroup.Limits{MilliCPU: l.MilliCPU, Memory: l.Memory}); err != nil {
			return fault.Field("limits", "%w", err).WithCode("limit_unenforceable")
		}
		b.limits.Store(&l)
	}
	return b.group.SetBackground(false)
}

func wholeCPUs(milli int64) int64 { return (milli + 999) / 1000 }

// openGroups opens the host's control groups in the name of this state folder:
// a name of its own that no other folder has, also not one with the same path
// in another container.
func openGroups(config Config) (*cgroup.Host, error) {
	path := filepath.Join(config.StateDir, "owner")
	name, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails
		name = []byte(hex.EncodeToString(id[:]))
		err = os.WriteFile(path, name, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("name the state folder: %w", err)
	}
	root := config.HostRoot
	if root == "" {
		root = "/"
	}
	host, err := cgroup.Open(root, strings.TrimSpace(string(name)))
	if err != nil {
		return nil, fmt.Errorf("open the control groups: %w", err)
	}
	for controller, why := range host.Lacks() {
		config.Logger.Warn("limits cannot be kept on this host", "controller", controller, "reason", why)
	}
	return host, nil
}

// group returns the sandbox's group, or what there is of it.
func (d *Driver) group(r record) (*cgroup.Group, error) {
	g, err := d.groups.Find(r.Handle.ID, r.Groups)
	if err != nil {
		return nil, fmt.Errorf("find the sandbox's groups: %w", err)
	}
	return g, nil
}

// removeGroup removes the sandbox's groups, with whatever is still in them.
func (d *Driver) removeGroup(ctx context.Context, id string) error {
	var errs []error
	if r, err := readRecord(d.dir(id)); err == nil && r.State.Boot == d.boot {
		g, err := d.group(r)
		if err == nil {
			err = g.Remove(ctx)
		}
		errs = append(errs, err)
	}
	here, err := d.groups.Here(id)
	if err == nil {
		err = here.Remove(ctx)
	}
	return errors.Join(append(errs, err)...)
}

// sweepGroups removes groups that belong to no sandbox: only somebody who has
// removed a sandbox's folder by hand leaves such.
func (d *Driver) sweepGroups(ctx context.Context) {
	names, err := d.groups.List()
	if err != nil {
		d.config.Logger.Warn("control groups could not be swept", "error", err)
		return
	}
	for _, name := range names {
		if _, err := os.Lstat(d.dir(name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, removeTime)
		g, err := d.groups.Here(name)
		if err == nil {
			err = g.Remove(bounded)
		}
		cancel()
		if err != nil {
			d.config.Logger.Warn("a control group is left", "group", name, "error", err)
		}
	}
}

// explain adds to an error of Create what the sandbox's remains say.
func (d *Driver) explain(id string, err error) error {
	g, findErr := d.groups.Here(id)
	if findErr == nil {
		if kills, countErr := g.OOMKills(); countErr == nil && kills > 0 {
			return fault.New(fault.Invalid, "the memory limit is too small for a sandbox to start: %w", err).WithCode("limit_too_small")
		}
	}
	return err
}
