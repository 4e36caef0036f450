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
// many that their memory limits fit into what the worker may give. Jobs and runs
// share it. Who asks the manager for jobs takes room ahead of them; as long as
// none came, a run may have it, and a job that comes then waits its turn.
// Sandboxes that wait in the pool take memory, and give it up for real work;
// those that are kept take memory and give it up for nothing.
type room struct {
	each int64 // memory of one job's sandbox; 0 is not counted

	mu      sync.Mutex
	slots   int   // below zero when more was taken than fits
	memory  int64 // likewise
	asking  int   // of the slots that are taken: for jobs that have not come
	waiting int64 // of the memory that is taken: for sandboxes that wait
	changed chan struct{}
}

func newRoom(slots int, memory, each int64) *room {
	if memory <= 0 {
		memory = math.MaxInt64 / 2 // not known, so not counted
	}
	return &room{each: each, slots: slots, memory: memory, changed: make(chan struct{})}
}

// wake lets everybody who waits for room look again.
//
// Preconditions: mu is held.
func (r *room) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// fits is how many more jobs there is room for.
//
// Preconditions: mu is held.
func (r *room) fits() int {
	n := r.slots
	if r.each > 0 {
		n = int(min(int64(n), (r.memory+r.waiting)/r.each))
	}
	return max(n, 0)
}

// askFor takes the room of as many jobs as there is, at most most, and waits for
// that of at least one. It returns 0 when ctx ends. asked must follow.
func (r *room) askFor(ctx context.Context, most int) int {
	for {
		r.mu.Lock()
		n := min(r.fits(), most)
		r.slots -= n
		r.memory -= int64(n) * r.each
		r.asking += n
		changed := r.changed
		r.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0
		}
	}
}

// asked says how many of the n jobs came for which room was taken.
func (r *room) asked(n, came int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking -= n
	r.slots += n - came
	r.memory += int64(n-came) * r.each
	r.wake()
}

// settle waits until there really is room for the jobs that have come: runs may
// have taken it meanwhile.
func (r *room) settle(ctx context.Context) {
	for {
		r.mu.Lock()
		ok := r.slots+r.asking >= 0 && r.memory+int64(r.asking)*r.each+r.waiting >= 0
		changed := r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// takeOne takes the room of one run, where there is any.
func (r *room) takeOne(memory int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slots+r.asking < 1 || r.memory+int64(r.asking)*r.each+r.waiting < memory {
		return false
	}
	r.slots--
	r.memory -= memory
	return true
}

// takeMemory takes the memory of a sandbox that is kept, where there is any. It
// takes no slot: most of its time it waits for somebody.
func (r *room) takeMemory(memory int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory+int64(r.asking)*r.each+r.waiting < memory {
		return false
	}
	r.memory -= memory
	return true
}

// holdMemory takes the memory of a sandbox that is there already.
func (r *room) holdMemory(memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory -= memory
}

// giveSlot gives back the slot of a run that has been answered, and whose
// sandbox is not yet gone: giveMemory follows when it is.
func (r *room) giveSlot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots++
	r.wake()
}

// giveMemory gives back what takeMemory took, or the memory of a run.
func (r *room) giveMemory(memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory += memory
	r.wake()
}

// hold takes the room of one sandbox that is there already.
func (r *room) hold(memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots--
	r.memory -= memory
}

// reserve takes memory for a sandbox that shall wait, where there is some.
func (r *room) reserve(memory int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory+int64(r.asking)*r.each < memory {
		return false
	}
	r.memory -= memory
	r.waiting += memory
	return true
}

// release gives back what reserve took.
func (r *room) release(memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory += memory
	r.waiting -= memory
	r.wake()
}

// lacks is how much memory waiting sandboxes hold that real work needs.
func (r *room) lacks() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(max(-(r.memory+int64(r.asking)*r.each), 0), r.waiting)
}

// give gives back the room of one sandbox with so much memory.
func (r *room) give(memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots++
	r.memory += memory
	r.wake()
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
