package docker

import (
	"context"
	"hash/fnv"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// engine is what this engine can do.
type engine struct {
	version                string
	processors             int64
	cpu, memory, processes bool
	apparmor               bool
	seccomp                string // our profile
	// shift is added to a user's number in a sandbox to get the host's, where
	// the engine maps users; mapped says that it does.
	shift  int
	mapped bool
}

// dial returns a client for the engine at host, which must be on this machine:
// sandboxes share folders with us.
func dial(host string) (*client.Client, error) {
	u, err := url.Parse(host)
	if err != nil || (u.Scheme != "unix" && u.Scheme != "tcp") {
		return nil, fault.Field("DOCKER_HOST", "%q is not the address of an engine; use unix:///path/to/docker.sock", host)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "tcp" && (ip == nil || !ip.IsLoopback()) {
		return nil, fault.Field("DOCKER_HOST", "%q is not on this machine; the driver needs an engine that shares folders with it: use unix:///path/to/docker.sock", host)
	}
	api, err := client.New(client.WithHost(host), client.WithUserAgent("aurea"))
	if err != nil {
		return nil, fault.New(fault.Unavailable, "reach the Docker Engine: %w", err)
	}
	return api, nil
}

// meet asks the engine what it can do, and refuses one that cannot isolate.
func meet(ctx context.Context, api *client.Client, config Config) (engine, error) {
	result, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return engine{}, fault.New(fault.Unavailable, "the Docker Engine at %s does not answer: %w", config.Host, err)
	}
	info := result.Info
	has := func(option string) bool {
		return slices.ContainsFunc(info.SecurityOptions, func(s string) bool {
			return s == "name="+option || strings.HasPrefix(s, "name="+option+",")
		})
	}
	switch _, known := info.Runtimes[config.Runtime]; {
	case info.OSType != "linux":
		return engine{}, fault.New(fault.Unavailable, "the Docker Engine runs %s containers; the driver needs Linux", info.OSType)
	case !has("seccomp"):
		return engine{}, fault.New(fault.Unavailable, "the Docker Engine has no seccomp; the driver needs it")
	case has("rootless"):
		return engine{}, fault.New(fault.Unavailable, "the Docker Engine runs rootless, where a guest cannot have a user of its own; use one that runs as root, with userns-remap if you like")
	case config.Runtime != "" && !known:
		return engine{}, fault.New(fault.Unavailable, "the Docker Engine has no runtime %q; add it to its daemon.json", config.Runtime)
	}
	profile, err := seccompProfile(info.Architecture)
	if err != nil {
		return engine{}, err
	}
	e := engine{
		version: info.ServerVersion, processors: int64(max(info.NCPU, 1)),
		cpu: info.CPUCfsQuota, memory: info.MemoryLimit && info.SwapLimit, processes: info.PidsLimit,
		apparmor: has("apparmor"), seccomp: profile, mapped: has("userns"),
	}
	if e.mapped {
		// The engine keeps such containers apart in a folder named by the map.
		first, _, _ := strings.Cut(path.Base(info.DockerRootDir), ".")
		if e.shift, err = strconv.Atoi(first); err != nil || e.shift <= 0 {
			return engine{}, fault.New(fault.Unavailable, "the Docker Engine maps users, but its folder %q does not say to which", info.DockerRootDir)
		}
	}
	return e, nil
}

// user is the number of the user that commands of a sandbox run as; the one
// behind it is the guest's. Each sandbox has its own, because the kernel
// counts many things by user: processes, watches, pipes, signals, keys. Where
// the engine maps users, each container has counters of its own and there are
// only 65536 numbers.
func (e engine) user(id string) uint32 {
	const first, count = 1 << 30, 1 << 27
	if e.mapped {
		return 1000
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return first + 2*(h.Sum32()%count)
}

// What holds where nothing was asked for, and the least that works.
const (
	defaultProcesses = 1024
	defaultDisk      = 1 << 30
	defaultOpenFiles = 4096

	leastMilliCPU  = 10
	leastMemory    = 16 << 20
	leastProcesses = 16
	leastDisk      = 1 << 20
	leastOpenFiles = 64
	leastCPUTime   = time.Second
)

// limits are what is enforced for what was asked. Processes, disk and open
// files always have a limit.
func (e engine) limits(asked sandbox.Limits) (sandbox.Limits, error) {
	for _, l := range []struct {
		field        string
		asked, least int64
	}{
		{"limits.milli_cpu", asked.MilliCPU, leastMilliCPU},
		{"limits.memory_bytes", asked.Memory, leastMemory},
		{"limits.processes", asked.Processes, leastProcesses},
		{"limits.disk_bytes", asked.Disk, leastDisk},
		{"limits.open_files", asked.OpenFiles, leastOpenFiles},
		{"limits.cpu_time_ns", int64(asked.CPUTime), int64(leastCPUTime)},
	} {
		if l.asked != 0 && l.asked < l.least {
			return sandbox.Limits{}, fault.Field(l.field, "%d is less than the %d with which this driver can make a sandbox", l.asked, l.least).
				WithCode("limit_unenforceable")
		}
	}
	enforced := asked
	enforced.MilliCPU = min(enforced.MilliCPU, 1000*e.processors)
	if enforced.Processes == 0 && e.processes {
		enforced.Processes = defaultProcesses
	}
	if enforced.Disk == 0 {
		enforced.Disk = defaultDisk
	}
	if enforced.OpenFiles == 0 {
		enforced.OpenFiles = defaultOpenFiles
	}
	return enforced, nil
}

// engineFault puts an error of the engine's into our words.
func engineFault(doing string, err error) error {
	kind := fault.Unavailable
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err):
		kind = fault.NotFound
	case errdefs.IsConflict(err):
		kind = fault.Conflict
	case errdefs.IsInvalidArgument(err):
		kind = fault.Invalid
	}
	return fault.New(kind, "%s: %w", doing, err)
}
