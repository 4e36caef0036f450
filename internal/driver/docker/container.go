package docker

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
)

// The labels of our containers. labelState holds the state folder's id.
const (
	labelState   = "aurea.state"
	labelSandbox = "aurea.sandbox"
	labelLook    = "aurea.look" // a container that only shows an image's files
)

// Where things are in a container.
const (
	guestPath   = "/.aurea/guest"
	channelPath = "/.aurea/channel"
)

// guestRoom is how many tasks the guest may have beside the commands'. It is
// what keeps a fork bomb from starving it.
const guestRoom = 64

// makeContainer has the engine make the container. The call is not cut off
// with ctx: the engine would go on, and make what nobody knows of.
func (d *Driver) makeContainer(ctx context.Context, r record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTime)
	defer cancel()
	id := r.Handle.ID
	_, err := d.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: d.container(id),
		Config: &container.Config{
			Image:      r.Image,
			Hostname:   "sandbox",
			User:       "0:0", // the guest steps down by itself
			WorkingDir: "/",
			Env:        []string{"PATH=/usr/bin"},
			Entrypoint: []string{guestPath, "container", channelPath, strconv.FormatUint(uint64(r.Guest), 10)},
			Labels:     map[string]string{labelState: d.id, labelSandbox: id},
			// The engine would run the image's own check inside, as root.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: d.hostConfig(r),
	})
	return engineFault("make the container", err)
}

// hostConfig is the wall.
func (d *Driver) hostConfig(r record) *container.HostConfig {
	no, l := false, r.Enforced
	security := []string{"no-new-privileges:true", "seccomp=" + d.engine.seccomp}
	if d.engine.apparmor {
		security = append(security, "apparmor=docker-default")
	}
	h := &container.HostConfig{
		NetworkMode:    "none",
		IpcMode:        "private",
		CgroupnsMode:   "private",
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		// The guest's; it gives up the last one, and commands get none.
		CapAdd:        []string{"SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "SETPCAP"},
		SecurityOpt:   security,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     container.LogConfig{Type: "none"},
		Init:          &no,
		Runtime:       d.config.Runtime,
		OomScoreAdj:   500, // when the host runs out, sandboxes go first
		ShmSize:       l.Disk / 8,
		Tmpfs: map[string]string{
			guest.Workspace: tmpfs(l.Disk-2*(l.Disk/8), "0755", r.User),
			// Nobody's but root's: its owner could remove others' files.
			"/tmp": tmpfs(l.Disk/8, "1777", 0),
		},
		Mounts:        d.mounts(r),
		MaskedPaths:   maskedPaths(),
		ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		Resources: container.Resources{
			NanoCPUs: l.MilliCPU * 1e6,
			Memory:   l.Memory, MemorySwap: l.Memory, // equal: no swap
			Ulimits: []*container.Ulimit{
				{Name: "core"},
				{Name: "nofile", Soft: l.OpenFiles, Hard: l.OpenFiles},
			},
		},
	}
	if l.Processes > 0 {
		// The first bounds each user of the sandbox, and each sandbox has
		// users of its own; the second bounds all of them, and the guest.
		h.Ulimits = append(h.Ulimits, &container.Ulimit{Name: "nproc", Soft: l.Processes, Hard: l.Processes})
		room := l.Processes + guestRoom
		h.PidsLimit = &room
	}
	return h
}

// tmpfs are the options of a writable place: bounded in bytes and in files.
func tmpfs(size int64, mode string, owner uint32) string {
	inodes := min(max(size/4096, 1024), 1<<20)
	return fmt.Sprintf("rw,nosuid,nodev,exec,size=%d,nr_inodes=%d,mode=%s,uid=%d,gid=%d", size, inodes, mode, owner, owner)
}

// mounts are what the container sees of the host: the guest and its channel,
// and five small files of ours. All of them are read-only, which for a FIFO
// means that it can be used but not removed.
func (d *Driver) mounts(r record) []mount.Mount {
	dir := d.dir(r.Handle.ID)
	bind := func(source, target string) mount.Mount {
		return mount.Mount{
			Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		}
	}
	list := []mount.Mount{bind(d.guest, guestPath), bind(filepath.Join(dir, "channel"), channelPath)}
	for _, name := range etcNames() {
		list = append(list, bind(filepath.Join(dir, "etc", name), "/etc/"+name))
	}
	return list
}

// maskedPaths are hidden: all of /sys, with the control groups in it, and what
// /proc tells of the machine.
func maskedPaths() []string {
	return []string{
		"/sys",
		"/proc/acpi", "/proc/asound", "/proc/config.gz", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore",
		"/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/latency_stats", "/proc/modules", "/proc/sched_debug",
		"/proc/scsi", "/proc/slabinfo", "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo",
	}
}

// startContainer has the engine start it, and is not cut off either.
func (d *Driver) startContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTime)
	defer cancel()
	_, err := d.api.ContainerStart(ctx, d.container(id), client.ContainerStartOptions{})
	return engineFault("start the container", err)
}

// removeContainer kills and removes, and returns when it is gone.
func (d *Driver) removeContainer(ctx context.Context, name string) error {
	for {
		_, err := d.api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case errdefs.IsNotFound(err):
			return nil
		case err != nil && !errdefs.IsConflict(err):
			return engineFault("remove the container", err)
		}
		// Removed, or somebody else is at it: then it is soon gone.
		_, err = d.api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			return nil
		}
		const pause = 20 * time.Millisecond
		select {
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "wait for the container to be removed: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// killContainer ends everything in the sandbox.
func (d *Driver) killContainer(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTime)
	defer cancel()
	_, err := d.api.ContainerKill(ctx, d.container(id), client.ContainerKillOptions{Signal: "KILL"})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
		d.config.Logger.Warn("cannot kill a sandbox", "sandbox", id, "error", err)
	}
}

// containers lists our containers that have the label.
func (d *Driver) containers(ctx context.Context, label string) ([]container.Summary, error) {
	result, err := d.api.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: client.Filters{}.Add("label", labelState+"="+d.id).Add("label", label),
	})
	if err != nil {
		return nil, engineFault("list the containers", err)
	}
	return result.Items, nil
}
