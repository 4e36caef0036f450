// Package simulate is the orchestrator of the fleet in memory: it launches,
// kills and holds to their limits workers that do not exist. Simulations and
// tests use it without a server; the records, the log events and the metric are
// those of the real thing, and one suite holds both.
//
// It checks no signature and knows no contract: whoever uses it decides what to
// launch.
package simulate

import (
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/manifest"
)

// The words of the fleet.
type (
	// Manifest is the paper of a worker: seven fields.
	Manifest = manifest.Manifest
	// Resources are what a worker may use.
	Resources = manifest.Resources
	// NetworkPolicy is how far a worker may reach.
	NetworkPolicy = manifest.NetworkPolicy
	// Record is the record of a container: manifest, resources, status,
	// started_at and reason.
	Record = manifest.Container
	// Metric is a measurement: name, value and labels.
	Metric = manifest.Enforcement
)

// MaxHistory bounds how many ended containers, and how many metrics, are
// remembered.
const MaxHistory = 10_000

// Orchestrator launches simulated workers. Its methods may be called from
// several goroutines.
type Orchestrator struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	active  map[string]Record
	ended   []Record // the newest last
	metrics []Metric // the newest last
}

// New makes an orchestrator. Without a logger it makes its own, which writes
// JSON to standard error.
func New(logger *slog.Logger) *Orchestrator {
	if logger == nil {
		logger = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	return &Orchestrator{log: logger, now: time.Now, active: map[string]Record{}}
}

// Containers returns the containers that run, by worker id.
func (o *Orchestrator) Containers() map[string]Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.active)
}

// LaunchWorker starts a worker. One with an id that runs takes its place.
func (o *Orchestrator) LaunchWorker(m Manifest) Record {
	at := o.now().UTC()
	r := Record{Manifest: m, Resources: m.Resources, Status: manifest.StatusRunning, StartedAt: &at}
	o.mu.Lock()
	o.active[m.WorkerID] = r
	o.mu.Unlock()
	o.log.Info("container_launched", "worker_id", m.WorkerID, "parent_id", m.ParentID, "cpu_limit", m.Resources.CPULimit,
		"memory_limit_mb", m.Resources.MemoryLimitMB, "allow_external", m.Resources.Network.AllowExternal)
	return r
}

// KillWorker stops and removes a worker, and reports whether there was one.
func (o *Orchestrator) KillWorker(id, reason string) bool {
	o.mu.Lock()
	r, there := o.active[id]
	if there {
		delete(o.active, id)
		r.Status = manifest.StatusKilled
		if reason != "" {
			r.Reason = &reason
		}
		o.ended = bounded(append(o.ended, r))
	}
	o.mu.Unlock()
	if !there {
		o.log.Info("container_kill_skipped", "worker_id", id, "reason", reason)
		return false
	}
	o.log.Info("container_killed", "worker_id", id, "reason", reason)
	return true
}

// KillAll kills every worker that runs, and returns how many.
func (o *Orchestrator) KillAll(reason string) (killed int) {
	for _, id := range slices.Sorted(maps.Keys(o.Containers())) {
		if o.KillWorker(id, reason) {
			killed++
		}
	}
	return killed
}

// EnforceResourceBounds emits the metric of a worker; ok is false where there is
// none. Simulated workers use nothing, so none is ever found above its limits.
func (o *Orchestrator) EnforceResourceBounds(id string) (m Metric, ok bool) {
	o.mu.Lock()
	r, ok := o.active[id]
	if ok {
		m = Metric{Name: manifest.ResourceEnforced, Value: 1, Labels: map[string]string{
			"worker_id": id, "cpu": strconv.FormatFloat(r.Resources.CPULimit, 'g', -1, 64), "memory": strconv.FormatInt(r.Resources.MemoryLimitMB, 10),
			"measured_cpu": "0.000", "measured_memory": "0",
		}}
		o.metrics = bounded(append(o.metrics, m))
	}
	o.mu.Unlock()
	if ok {
		o.log.Info("metric", "name", m.Name, "value", m.Value, "labels", m.Labels)
	}
	return m, ok
}

// History returns containers that were killed, the oldest first.
func (o *Orchestrator) History() []Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ended)
}

// Metrics returns what was emitted, the oldest first.
func (o *Orchestrator) Metrics() []Metric {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.metrics)
}

// bounded drops the oldest of a list that is too long.
func bounded[T any](list []T) []T {
	if len(list) > MaxHistory {
		return slices.Clone(list[len(list)-MaxHistory:])
	}
	return list
}
