package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/cgroup"
)

// machine is the machine that is looked at.
type machine struct {
	root      string
	superuser bool
	rootless  error
	limited   map[cgroup.Controller]bool
}

func (m machine) read(path string) string {
	body, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(body))
}

func (m machine) kernel() string {
	return strings.TrimSpace(m.read("/proc/sys/kernel/ostype") + " " + m.read("/proc/sys/kernel/osrelease"))
}

func (m machine) user() Finding {
	if m.superuser {
		return Finding{Name: "root", Level: OK, Found: "yes"}
	}
	if m.rootless != nil {
		return Finding{
			Name: "root", Level: Lack, Found: "no, and without it: " + m.rootless.Error(), Cost: "no sandbox can be made",
			Remedy: "start the worker as root (manager and bridge run without it), or let every user make user namespaces",
		}
	}
	return Finding{
		Name: "root", Level: Weak, Found: "no; sandboxes are made in user namespaces",
		Cost:   "the process of a sandbox is this user on the host, not nobody; limits on memory, processors and processor time are refused where this user has no control groups",
		Remedy: "start the worker as root; or as a service of the user's systemd, or of the system's with User=, Delegate=yes and DelegateSubgroup=worker",
	}
}

func (m machine) pidfd() Finding {
	const name = "pidfd"
	fd, err := unix.PidfdOpen(os.Getpid(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return Finding{Name: name, Level: Lack, Found: err.Error(), Cost: "processes cannot be told apart safely", Remedy: "use Linux 5.10 or later"}
	}
	_ = unix.Close(fd)
	return Finding{Name: name, Level: OK, Found: "works"}
}

func (m machine) seccomp() Finding {
	const name = "seccomp"
	actions := strings.Fields(m.read("/proc/sys/kernel/seccomp/actions_avail"))
	for _, a := range actions {
		if a == "trap" {
			return Finding{Name: name, Level: OK, Found: "filters with trap"}
		}
	}
	return Finding{
		Name: name, Level: Lack, Found: "no filters", Cost: "the platform systrap does not work, and nothing bounds the sentry",
		Remedy: "use a kernel with CONFIG_SECCOMP_FILTER; in a container, one whose profile allows seccomp",
	}
}

// trace says whether the sentry may attach to the processes that it makes.
func (m machine) trace() Finding {
	const name = "systrap and ptrace"
	switch scope := m.read("/proc/sys/kernel/yama/ptrace_scope"); scope {
	case "", "0", "1":
		return Finding{Name: name, Level: OK, Found: "not restricted for own children"}
	case "2":
		if m.superuser {
			return Finding{Name: name, Level: OK, Found: "for root only"}
		}
	}
	return Finding{
		Name: name, Level: Lack, Found: "ptrace_scope forbids it", Cost: "the sentry cannot start",
		Remedy: "sysctl kernel.yama.ptrace_scope=1",
	}
}

func (m machine) namespaces() Finding {
	const name = "user namespaces"
	most, err := strconv.Atoi(m.read("/proc/sys/user/max_user_namespaces"))
	restricted := m.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" || m.read("/proc/sys/kernel/unprivileged_userns_clone") == "0"
	switch {
	case err != nil || most == 0:
		return Finding{
			Name: name, Level: Weak, Found: "none", Cost: "the sentry runs without one of its own",
			Remedy: "sysctl user.max_user_namespaces=10000",
		}
	case restricted:
		return Finding{Name: name, Level: OK, Found: "for root only"}
	}
	return Finding{Name: name, Level: OK, Found: "up to " + strconv.Itoa(most)}
}

const noGroups = "limits on memory, processors and processor time are refused"

// controlCost is what is missing without a controller.
func controlCost(c cgroup.Controller) string {
	if c == cgroup.Processes {
		return "nothing bounds the threads of a sandbox's kernel but that kernel; its own limit on processes holds"
	}
	return "a limit on it is refused"
}

// limitSetting is the setting of the limit that a controller keeps.
func limitSetting(c cgroup.Controller) string {
	switch c {
	case cgroup.CPU:
		return "SANDBOX_CPU_LIMIT"
	case cgroup.Memory:
		return "SANDBOX_MEMORY_LIMIT"
	case cgroup.Processes: // kept in the sandbox
	}
	return ""
}

// groups tries the control groups for real.
func (m machine) groups() []Finding {
	host, err := cgroup.Open(m.root, "doctor")
	if err != nil {
		return []Finding{{
			Name: "control groups", Level: Weak, Found: err.Error(), Cost: noGroups,
			Remedy: "mount the cgroup2 file system, and let the worker write below its own group (systemd: Delegate=yes)",
		}}
	}
	defer func() { _ = host.Close() }()
	lacks := host.Lacks()
	list := []Finding{{Name: "control groups", Level: OK, Found: host.Version()}}
	if len(lacks) == len(cgroup.Controllers()) {
		list[0].Level, list[0].Cost = Weak, noGroups
		list[0].Remedy = "mount the cgroup2 file system, and let the worker write below its own group (systemd: Delegate=yes)"
	}
	for _, c := range cgroup.Controllers() {
		f := Finding{Name: fmt.Sprintf("control of %v", c), Level: OK, Found: "works"}
		if why := lacks[c]; why != "" {
			f.Level, f.Found, f.Cost = Weak, why, controlCost(c)
			if m.limited[c] {
				f.Level, f.Cost = Lack, "the worker does not start: it is set to limit this"
			}
			f.Remedy = "enable the controller, and let the worker write below its own group (systemd: Delegate=yes)"
			if setting := limitSetting(c); setting != "" {
				f.Remedy += "; or run without the limit: " + setting + "=0"
			}
		}
		list = append(list, f)
	}
	return list
}

func (m machine) kvm() Finding {
	const name = "/dev/kvm"
	if _, err := os.Stat(filepath.Join(m.root, name)); err != nil {
		return Finding{Name: name, Level: OK, Found: "not there, and not needed"}
	}
	return Finding{Name: name, Level: OK, Found: "there, and not used: the platform is systrap"}
}

func (m machine) overlay() Finding {
	for line := range strings.Lines(m.read("/proc/filesystems")) {
		if strings.HasSuffix(strings.TrimSpace(line), "overlay") {
			return Finding{Name: "overlay", Level: OK, Found: "in the kernel"}
		}
	}
	return Finding{Name: "overlay", Level: Weak, Found: "not in the kernel", Cost: "the engine copies images", Remedy: "modprobe overlay"}
}

// What a driver needs at least.
const (
	leastDisk   = 1 << 30
	leastMemory = 512 << 20
	mebi        = 1 << 20
)

// disk looks at the folder, or at the nearest one above it that is there.
func (m machine) disk(folder string) Finding {
	f := Finding{Name: "disk", Level: Weak, Found: "unknown", Cost: "what is left is not known", Remedy: "set a data folder that can be read"}
	for dir := folder; dir != ""; dir = filepath.Dir(dir) {
		var info unix.Statfs_t
		if err := unix.Statfs(dir, &info); err != nil {
			if dir == "/" || dir == "." {
				break
			}
			continue
		}
		free := int64(info.Bavail) * info.Bsize
		f = Finding{Name: "disk", Level: OK, Found: fmt.Sprintf("%d MiB free", free/mebi)}
		if free < leastDisk {
			f.Level, f.Cost, f.Remedy = Lack, "new work is refused before the disk is full", "make room, or set --data to a folder on another disk"
		}
		break
	}
	return f
}

func (m machine) memory() Finding {
	for line := range strings.Lines(m.read("/proc/meminfo")) {
		value, ok := strings.CutPrefix(line, "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			break
		}
		f := Finding{Name: "memory", Level: OK, Found: fmt.Sprintf("%d MiB available, %d processors", kib>>10, runtime.NumCPU())}
		if kib<<10 < leastMemory {
			f.Level, f.Cost, f.Remedy = Weak, "few sandboxes fit at a time", "lower --concurrency and the memory limit, or add memory"
		}
		return f
	}
	return Finding{Name: "memory", Level: Weak, Found: "unknown"}
}
