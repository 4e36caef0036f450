package worker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// room counts how many more sandboxes may be made: so many at a time, and so
// many that their memory limits fit into what the worker may give.
type room struct {
	each  int64         // memory of one sandbox; 0 is not counted
	freed chan struct{} // one token: somebody gave something back

	mu     sync.Mutex
	slots  int   // below zero when more was taken over than fits
	memory int64 // likewise
}

func newRoom(slots int, memory, each int64) *room {
	if memory <= 0 {
		memory = math.MaxInt64 // not known, so not counted
	}
	return &room{each: each, freed: make(chan struct{}, 1), slots: slots, memory: memory}
}

// fits is how many more sandboxes there is room for.
//
// Preconditions: mu is held.
func (r *room) fits() int {
	n := r.slots
	if r.each > 0 {
		n = int(min(int64(n), r.memory/r.each))
	}
	return max(n, 0)
}

// takeAll takes the room of as many sandboxes as there is, at most most, and
// waits for that of at least one. It returns 0 when ctx ends.
func (r *room) takeAll(ctx context.Context, most int) int {
	for {
		r.mu.Lock()
		n := min(r.fits(), most)
		r.slots -= n
		r.memory -= int64(n) * r.each
		rest := r.fits()
		r.mu.Unlock()
		if rest > 0 {
			wake(r.freed)
		}
		if n > 0 {
			return n
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
			return 0
		}
	}
}

// hold takes the room of one sandbox that is there already.
func (r *room) hold(memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots--
	r.memory -= memory
}

// give gives back the room of n sandboxes, each with so much memory.
func (r *room) give(n int, memory int64) {
	if n <= 0 {
		return
	}
	r.mu.Lock()
	r.slots += n
	r.memory += int64(n) * memory
	r.mu.Unlock()
	wake(r.freed)
}

// defaultMemory is what sandboxes may have together unless it is set: four
// fifths of the machine's memory, or 0 where that is not known.
func defaultMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit) / 5 * 4 //nolint:gosec // no machine has so much
}

// lookAgain is how often a worker without disk looks whether it has some.
const lookAgain = 2 * time.Second

// awaitDisk returns when there is room on the disk for another job. A disk that
// cannot be measured is used.
func (r *run) awaitDisk(ctx context.Context) error {
	for {
		low := r.lowDisk()
		r.pause(low)
		if low == "" {
			return nil
		}
		timer := time.NewTimer(lookAgain)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// lowDisk says that the disk is too full for more work, or nothing.
func (r *run) lowDisk() string {
	const most, share = 1 << 30, 20
	free, size, err := r.Disk(r.base.folder)
	if err != nil {
		r.log.Debug("could not measure the disk", "error", err)
		return ""
	}
	need := r.MinDisk
	if need == 0 {
		need = min(size/share, most)
	}
	if free >= need {
		return ""
	}
	return fmt.Sprintf("low disk: %d MiB are free where the worker's folder is, %d MiB must be", free>>20, need>>20)
}

// pause notes why no work is taken, or that it is taken again.
func (r *run) pause(why string) {
	r.mu.Lock()
	was := r.paused
	r.paused = why
	r.mu.Unlock()
	switch {
	case why != "" && was == "":
		r.log.Warn("takes no more jobs for now", "reason", why)
	case why == "" && was != "":
		r.log.Info("takes jobs again")
	default:
		return
	}
	wake(r.changed)
}

func (r *run) pausedFor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused
}

// measureDisk asks for what an ordinary process could still write.
func measureDisk(folder string) (free, size int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return 0, 0, fmt.Errorf("measure the disk: %w", err)
	}
	return int64(fs.Bavail) * fs.Bsize, int64(fs.Blocks) * fs.Bsize, nil //nolint:gosec // no disk has so much
}
