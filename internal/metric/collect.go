package metric

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aurea-dev/aurea/internal/job"
)

// Source is asked for its figures whenever somebody reads them.
type Source interface {
	Figures(ctx context.Context) (job.Figures, error)
}

// Ask adds the figures of a source.
func (m *Metrics) Ask(s Source) {
	m.registry.MustRegister(newAsked(s))
}

// askTime bounds one reading.
const askTime = 5 * time.Second

var errSlow = errors.New("the figures took too long")

// asked is what is read from the source, one description for each name.
type asked struct {
	source Source
	up, jobs, dead, oldest, last, workers, paused, slots, leases, sandboxes,
	workerFree, workerSize, drivers, diskFree, diskSize, blobs, blobBytes *prometheus.Desc
}

func newAsked(s Source) *asked {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &asked{
		source:     s,
		up:         d("aurea_store_up", "1 when the database answered, else 0."),
		jobs:       d("aurea_jobs", "Jobs by state, those that stand for whole plans left out.", "state"),
		dead:       d("aurea_dead_letters", "Jobs that used up their tries."),
		oldest:     d("aurea_oldest_job_age_seconds", "How long the job that has waited longest for a worker has waited; 0 when none waits."),
		last:       d("aurea_event_head", "The number of the newest event."),
		workers:    d("aurea_workers", "Workers that are connected."),
		paused:     d("aurea_workers_paused", "Workers that are connected and take no jobs for now."),
		slots:      d("aurea_worker_slots", "How many jobs a worker does at once.", "worker"),
		leases:     d("aurea_worker_leases", "Leases that a worker holds.", "worker"),
		sandboxes:  d("aurea_worker_sandboxes", "Sandboxes that are there on a worker.", "worker"),
		workerFree: d("aurea_worker_disk_free_bytes", "What is free on the disk of a worker's sandboxes.", "worker"),
		workerSize: d("aurea_worker_disk_bytes", "How large that disk is.", "worker"),
		drivers:    d("aurea_drivers", "Connected workers that have a driver, by whether its isolation was proved.", "driver", "state"),
		diskFree:   d("aurea_disk_free_bytes", "What is free on the disk of the manager's data."),
		diskSize:   d("aurea_disk_bytes", "How large that disk is."),
		blobs:      d("aurea_blobs", "Files in the blob store, as the last pass over the history found them."),
		blobBytes:  d("aurea_blob_bytes", "How many bytes they have."),
	}
}

// Describe implements prometheus.Collector.
func (a *asked) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		a.up, a.jobs, a.dead, a.oldest, a.last, a.workers, a.paused, a.slots, a.leases, a.sandboxes,
		a.workerFree, a.workerSize, a.drivers, a.diskFree, a.diskSize, a.blobs, a.blobBytes,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Without the database it gives what
// it can.
func (a *asked) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), askTime, errSlow)
	defer cancel()
	f, err := a.source.Figures(ctx)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	up := 0.0
	if err == nil {
		up = 1
		for _, state := range job.States() {
			gauge(a.jobs, float64(f.Jobs[state]), string(state))
		}
		age := 0.0
		if !f.OldestQueued.IsZero() {
			age = max(0, time.Since(f.OldestQueued).Seconds())
		}
		gauge(a.oldest, age)
		gauge(a.dead, float64(f.DeadLetters))
		gauge(a.last, float64(f.LastEvent))
	}
	gauge(a.up, up)
	gauge(a.blobs, float64(f.Blobs))
	gauge(a.blobBytes, float64(f.BlobBytes))
	if f.DiskBytes > 0 {
		gauge(a.diskFree, float64(f.DiskFree))
		gauge(a.diskSize, float64(f.DiskBytes))
	}
	a.collectWorkers(f.Workers, gauge)
}

// collectWorkers gives the figures of each worker, and of those beyond the
// bound together.
func (a *asked) collectWorkers(workers []job.WorkerFigures, gauge func(*prometheus.Desc, float64, ...string)) {
	const most = 100
	paused, drivers := 0, map[[2]string]int{}
	var names names
	rest := job.WorkerFigures{ID: other}
	for i, w := range workers {
		if w.Paused {
			paused++
		}
		for _, d := range w.Drivers {
			state := "proved"
			if d.Degraded != "" {
				state = "degraded"
			}
			drivers[[2]string{names.bound(d.Name), state}]++
		}
		if i < most {
			a.worker(w, gauge)
			continue
		}
		rest.Slots += w.Slots
		rest.Leases += w.Leases
		rest.Sandboxes += w.Sandboxes
	}
	if len(workers) > most {
		a.worker(rest, gauge)
	}
	for key, n := range drivers {
		gauge(a.drivers, float64(n), key[0], key[1])
	}
	gauge(a.workers, float64(len(workers)))
	gauge(a.paused, float64(paused))
}

func (a *asked) worker(w job.WorkerFigures, gauge func(*prometheus.Desc, float64, ...string)) {
	gauge(a.slots, float64(w.Slots), w.ID)
	gauge(a.leases, float64(w.Leases), w.ID)
	gauge(a.sandboxes, float64(w.Sandboxes), w.ID)
	if w.DiskBytes > 0 {
		gauge(a.workerFree, float64(w.DiskFree), w.ID)
		gauge(a.workerSize, float64(w.DiskBytes), w.ID)
	}
}
