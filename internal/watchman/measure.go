package watchman

import (
	"context"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// meanOver is the time over which the use of processors is taken as a mean. They
// are given out in slices, so that a shorter one would waver by itself.
const meanOver = 5 * time.Second

// reading is how much processor time a sandbox had used at a time.
type reading struct {
	cpu time.Duration
	at  time.Time
}

// meters has the last readings of each worker, oldest first. Only a look uses it,
// and looks come one after the other.
type meters map[string][]reading

// cpu takes a reading and returns the mean number of processors in use. A sandbox
// that was restored, or a clock that was set back, begins anew.
func (m meters) cpu(worker string, r reading) (mean float64, known bool) {
	list := m[worker]
	if n := len(list); n > 0 && (r.cpu < list[n-1].cpu || !r.at.After(list[n-1].at)) {
		if r.at.Equal(list[n-1].at) && r.cpu >= list[n-1].cpu {
			return 0, false // no time has passed
		}
		list = nil
	}
	for len(list) > 1 && r.at.Sub(list[1].at) >= meanOver {
		list = list[1:]
	}
	m[worker] = append(list, r)
	if len(list) == 0 {
		return 0, false
	}
	return (r.cpu - list[0].cpu).Seconds() / r.at.Sub(list[0].at).Seconds(), true
}

// keep forgets all but these workers.
func (m meters) keep(there map[string]*subject) {
	for id := range m {
		if there[id] == nil {
			delete(m, id)
		}
	}
}

// subject is one worker in a look.
type subject struct {
	manifest.Worker
	box  live.Sandbox
	mine bool // it is this manager's to look after
	// halted says that a kill switch stands against it.
	halted bool
	cpu    trigger.Value
	mem    trigger.Value
	disk   trigger.Value
	count  store.Commands
}

// measure asks the sandboxes of workers what they use. Who does not answer in
// time is not known this time.
func (w *Watchman) measure(ctx context.Context, list []*subject) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	turns := make(chan struct{}, together)
	for _, s := range list {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			bounded, cancel := context.WithTimeout(ctx, measureTime)
			defer cancel()
			stats, err := w.Sandboxes.SandboxStats(bounded, s.Sandbox)
			if err != nil {
				return
			}
			if stats.At.IsZero() {
				stats.At = w.now()
			}
			mu.Lock()
			defer mu.Unlock()
			s.take(w.meters, &stats)
		})
	}
	asking.Wait()
}

// take makes values of what was measured. What a driver cannot measure is
// negative, or nothing.
func (s *subject) take(m meters, stats *live.Stats) {
	if u := stats.Usage; u.CPU >= 0 {
		mean, known := m.cpu(s.ID(), reading{u.CPU, stats.At})
		s.cpu = trigger.Value{Is: 100 * mean / s.Manifest.Resources.CPULimit, Known: known}
	}
	if u := stats.Usage; u.Memory > 0 {
		s.mem = trigger.Value{Is: float64(u.Memory) / (1 << 20), Known: true}
	}
	s.disk = trigger.Value{Is: float64(stats.Disk) / (1 << 20), Known: stats.Disk >= 0}
}

// value is the figure of a worker that a trigger is about.
func (s *subject) value(k trigger.Kind, now time.Time) trigger.Value {
	switch k {
	case trigger.CPU:
		return s.cpu
	case trigger.Memory:
		return s.mem
	case trigger.Disk:
		return s.disk
	case trigger.TimeLimit:
		from := s.StartedAt
		if s.RevivedAt.After(from) {
			from = s.RevivedAt
		}
		return trigger.Value{Is: now.Sub(from).Seconds(), Known: !from.IsZero()}
	case trigger.Requests:
		return trigger.Value{Is: float64(s.count.Begun), Known: true}
	case trigger.Errors:
		share := 0.0
		if s.count.Ended >= trigger.FewestEnded {
			share = float64(s.count.Failed) / float64(s.count.Ended)
		}
		return trigger.Value{Is: share, Known: true}
	case trigger.Network, trigger.Anomaly, trigger.Manual, trigger.Custom:
	}
	return trigger.Value{}
}
