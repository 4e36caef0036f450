package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/driver/roster"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// writeBox writes everything of a sandbox that comes before its processes.
func writeBox(dir, guest string, r *record) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's folder: %w", err)
	}
	if own := filepath.Join(dir, imageLink); r.restore != "" && os.Link(r.Root, own) == nil {
		r.Root = own // the snapshot may go before the sandbox does
	}
	if err := writeJSON(filepath.Join(dir, roster.RecordName), r); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "config.json"), bundle(dir, guest, r.Handle.ID, r.Limits)); err != nil {
		return err
	}
	// gVisor asks for a folder where the root is a file.
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o700); err != nil {
		return fmt.Errorf("make the sandbox's root folder: %w", err)
	}
	for _, name := range []string{"in", "out"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			return fmt.Errorf("make the guest's channel: %w", err)
		}
	}
	return nil
}

func writeJSON(path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, body, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// guestUID is the guest's own user. No command may run as it.
const guestUID = 65533

// guestCapabilities are what the guest needs: to start commands as other
// users, to signal them, to hand over pipes and terminals, to keep control
// groups, and to read files for the record that a command has locked away.
func guestCapabilities() []string {
	return []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE"}
}

// guestFolder is where the guest's own image is mounted, and guestPath where the
// guest is then.
const (
	guestFolder = "/.aurea"
	guestPath   = guestFolder + "/" + guestName
)

// bundle is the OCI configuration: the guest as PID 1 over the image. Nothing
// in it is secret.
func bundle(dir, guest, hostname string, l sandbox.Limits) specs.Spec {
	return specs.Spec{
		Version:  specs.Version,
		Hostname: hostname,                                      // its own, also where it goes on from another's snapshot
		Root:     &specs.Root{Path: filepath.Join(dir, "root")}, // writable: the overlay takes the writes
		Mounts: []specs.Mount{
			{Destination: guestFolder, Type: "erofs", Source: guest, Options: []string{"ro", "nosuid", "nodev"}},
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"},
			// Of no kind that can be mounted. Without a word about it gVisor
			// lays a file system in memory over an empty /tmp, which the limit
			// on the disk would not hold.
			{Destination: "/tmp", Type: "image"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: sharedMemory(l)},
		},
		Process: &specs.Process{
			Args: []string{guestPath, strconv.FormatInt(l.Processes, 10)},
			Cwd:  "/",
			Env:  []string{"PATH=/usr/bin"},
			User: specs.User{UID: guestUID, GID: guestUID},
			// Ambient is how they reach a PID 1 that is not root; the guest
			// gives that up first of all. An empty bounding set is what keeps a
			// command that runs as root from having any capability.
			Capabilities: &specs.LinuxCapabilities{
				Effective: guestCapabilities(), Permitted: guestCapabilities(),
				Inheritable: guestCapabilities(), Ambient: guestCapabilities(),
			},
			NoNewPrivileges: true,
			Rlimits:         rlimits(l),
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
			},
		},
	}
}

// sharedMemory are the options of /dev/shm, where programs share memory: every
// user may write there, and no more than the sandbox has anyway.
func sharedMemory(l sandbox.Limits) []string {
	options := []string{"nosuid", "nodev", "noexec", "mode=1777"}
	if l.Disk > 0 {
		options = append(options, fmt.Sprintf("size=%d", l.Disk/8))
	}
	return options
}

// rlimits are the guest's, and so those of every command.
func rlimits(l sandbox.Limits) []specs.POSIXRlimit {
	limits := []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}}
	if n := uint64(l.OpenFiles); n > 0 {
		limits = append(limits, specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: n, Hard: n})
	}
	return limits
}
