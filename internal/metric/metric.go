// Package metric keeps the figures that Prometheus reads at /metrics of the
// manager: what it counts as things happen, and what it asks the manager for
// when it is read. The workers' figures come through the manager, because
// nothing dials into a worker.
//
// Every label has a bounded set of values: names that come from outside are
// counted, and from a number on they are all called "other".
package metric

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Metrics is everything that is counted in one process.
type Metrics struct {
	registry  *prometheus.Registry
	drivers   names
	languages names
	runs      *runFigures

	requests *prometheus.HistogramVec
	answers  *prometheus.CounterVec
	wait     prometheus.Histogram
	finished *prometheus.CounterVec
	took     *prometheus.HistogramVec
	cpu      *prometheus.CounterVec
	memory   *prometheus.HistogramVec
	commits  prometheus.Histogram
	failures prometheus.Counter
	views    prometheus.Histogram
	enforced *prometheus.CounterVec
	fired    *prometheus.CounterVec
}

// other stands for every value of a label that is one too many.
const other = "other"

// maxNames is how many values of its own a label that outsiders choose has.
const maxNames = 32

// fine are the bounds of what should take milliseconds.
func fine() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
}

// New makes the figures of a manager of the given version.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), runs: newRunFigures(), enforced: newEnforced(), fired: newFired()}
	m.registry.MustRegister(append(m.runs.collectors(), m.enforced, m.fired)...)
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	long := []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
	m.requests = histogram("aurea_http_request_seconds", "How long requests took, by route. Streams last as long as their readers stay.", fine(), "method", "route")
	m.answers = counter("aurea_http_requests_total", "Requests by route and status.", "method", "route", "code")
	wait := histogram("aurea_job_wait_seconds", "From the submission of a job that waits for no other to its first lease.", fine())
	m.finished = counter("aurea_job_tries_total", "Tries that ended, by driver and verdict.", "driver", "verdict")
	m.took = histogram("aurea_job_try_seconds", "How long tries took on their worker, by driver.", long, "driver")
	m.cpu = counter("aurea_sandbox_cpu_seconds_total", "Processor time that sandboxes used, by driver.", "driver")
	m.memory = histogram("aurea_sandbox_peak_memory_bytes", "The most memory that sandboxes used, by driver.", prometheus.ExponentialBuckets(1<<20, 4, 8), "driver")
	commits := histogram("aurea_store_commit_seconds", "How long a change waited until it was on disk.", fine())
	m.failures = prometheus.NewCounter(prometheus.CounterOpts{Name: "aurea_store_failures_total", Help: "Transactions that the database could not do."})
	views := histogram("aurea_store_view_seconds", "How long a look into the database took.", fine())
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "aurea_build_info", Help: "1, with the version of the manager."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.requests, m.answers, wait, m.finished, m.took, m.cpu, m.memory, commits, m.failures, views, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.wait, _ = wait.WithLabelValues().(prometheus.Histogram)
	m.commits, _ = commits.WithLabelValues().(prometheus.Histogram)
	m.views, _ = views.WithLabelValues().(prometheus.Histogram)
	return m
}

// Handler serves the figures. It bounds how many read them at a time.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
}

// Request counts a request that was answered. The route is the pattern that
// matched, never the path.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, method) {
		method = other
	}
	if route == "" || route == "/" {
		route = other
	}
	m.requests.WithLabelValues(method, route).Observe(took.Seconds())
	m.answers.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
}

// Leased counts a job that was given to a worker for the first time.
func (m *Metrics) Leased(waited time.Duration) { m.wait.Observe(max(0, waited.Seconds())) }

// Finished counts a try that ended.
func (m *Metrics) Finished(driver string, verdict sandbox.Verdict, took time.Duration, usage *sandbox.Usage) {
	driver = m.drivers.bound(driver)
	switch verdict {
	case sandbox.OK, sandbox.Failed, sandbox.Signal, sandbox.Timeout, sandbox.OOM, sandbox.Limit, sandbox.Killed, sandbox.Lost:
	default:
		verdict = other
	}
	m.finished.WithLabelValues(driver, string(verdict)).Inc()
	m.took.WithLabelValues(driver).Observe(max(0, took.Seconds()))
	if usage != nil {
		m.cpu.WithLabelValues(driver).Add(max(0, usage.CPU.Seconds()))
		m.memory.WithLabelValues(driver).Observe(float64(max(0, usage.PeakMemory)))
	}
}

// names is a set of values of a label that does not grow beyond a bound.
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

func (n *names) bound(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.known[name]:
		return name
	case len(n.known) >= maxNames || len(name) > 64 || name == "":
		return other
	case n.known == nil:
		n.known = map[string]bool{}
	}
	n.known[name] = true
	return name
}
