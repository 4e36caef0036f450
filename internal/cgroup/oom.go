package cgroup

import (
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// OOMWatch waits for a group of version 1 to run out of memory. There the
// kernel kills one process of it, and what is left goes on, maimed; on version 2
// it kills all by itself.
type OOMWatch struct {
	group *Group
	event *os.File
}

// WatchOOM returns a watch, or nil where none is needed: on version 2, and
// where memory is not bounded. Who has it closes it.
func (g *Group) WatchOOM() (*OOMWatch, error) {
	i := slices.IndexFunc(g.parts, func(p part) bool { return slices.Contains(p.t.controllers, Memory) })
	if i < 0 || g.parts[i].t.version == 2 {
		return nil, nil //nolint:nilnil // none is needed, which is no error
	}
	p := g.parts[i]
	control, err := p.t.root.Open(path.Join(p.path, "memory.oom_control"))
	if err != nil {
		return nil, fmt.Errorf("watch the memory of the group %s: %w", g.id, err)
	}
	defer func() { _ = control.Close() }()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the memory of the group %s: %w", g.id, err)
	}
	w := &OOMWatch{group: g, event: os.NewFile(uintptr(fd), "oom")}
	if err := p.t.write(path.Join(p.path, "cgroup.event_control"), fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch the memory of the group %s: %w", g.id, err)
	}
	return w, nil
}

// Wait returns true when a process of the group was killed for its memory, and
// false when the watch was closed or the group is gone.
func (w *OOMWatch) Wait() bool {
	const pause, tries = 2 * time.Millisecond, 1000
	for {
		var count [8]byte
		if _, err := w.event.Read(count[:]); err != nil {
			return false
		}
		// The kernel tells first and kills then.
		for range tries {
			kills, err := w.group.OOMKills()
			if err != nil {
				return false
			}
			if kills > 0 {
				return true
			}
			time.Sleep(pause)
		}
	}
}

// Close ends the watch.
func (w *OOMWatch) Close() { _ = w.event.Close() }
