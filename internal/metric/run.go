package metric

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// runFigures are what is counted of runs.
type runFigures struct {
	ended   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	starts  *prometheus.CounterVec
	wait    prometheus.Histogram
	refused prometheus.Counter
}

func newRunFigures() *runFigures {
	return &runFigures{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aurea_runs_total", Help: "Runs that ended, by language and verdict; without a result the state stands for it.",
		}, []string{"language", "verdict"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "aurea_run_seconds", Help: "From the turn of a run to its end on disk, by language.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"language"}),
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aurea_run_starts_total", Help: "Runs with a result, by language and whether their sandbox was waiting for them (warm) or not (cold).",
		}, []string{"language", "start"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "aurea_run_wait_seconds", Help: "How long runs waited for their turn.", Buckets: fine(),
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "aurea_runs_refused_total", Help: "Runs that found no place in the line, or no turn in time."}),
	}
}

func (f *runFigures) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.ended, f.took, f.starts, f.wait, f.refused}
}

// RunEnded counts a run that ended. The language is one of the registry.
func (m *Metrics) RunEnded(r *run.Run, waited, took time.Duration) {
	language := m.languages.bound(r.Language)
	verdict := r.Verdict
	switch verdict {
	case sandbox.OK, sandbox.Failed, sandbox.Signal, sandbox.Timeout, sandbox.OOM, sandbox.Limit, sandbox.Killed, sandbox.Lost:
	default:
		verdict = sandbox.Verdict("state_" + strings.ToLower(string(r.State)))
	}
	m.runs.ended.WithLabelValues(language, string(verdict)).Inc()
	m.runs.took.WithLabelValues(language).Observe(max(0, took.Seconds()))
	m.runs.wait.Observe(max(0, waited.Seconds()))
	if r.State == run.Completed && r.Result != nil {
		start := "cold"
		if r.Result.Warm {
			start = "warm"
		}
		m.runs.starts.WithLabelValues(language, start).Inc()
	}
}

// RunRefused counts a run that was not taken.
func (m *Metrics) RunRefused() { m.runs.refused.Inc() }

// RunSource is asked for the line and the pools whenever somebody reads them.
type RunSource interface {
	Depth() (waiting, running int)
	Pool(ctx context.Context) []run.Pool
}

// AskRuns adds the figures of a source.
func (m *Metrics) AskRuns(s RunSource) {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&askedRuns{
		source:   s,
		waiting:  d("aurea_runs_waiting", "Runs that wait for their turn at this manager."),
		running:  d("aurea_runs_running", "Runs that are at workers of this manager."),
		pool:     d("aurea_pool_sandboxes", "Sandboxes that wait for code at connected workers, are being made, or shall be there.", "driver", "language", "state"),
		claims:   d("aurea_pool_claims_total", "Runs that found a sandbox waiting (hit), found none (miss), or found a dead one (discard), since their worker started.", "driver", "language", "outcome"),
		waitedBy: &names{},
	})
}

type askedRuns struct {
	source                         RunSource
	waiting, running, pool, claims *prometheus.Desc
	waitedBy                       *names
}

// Describe implements prometheus.Collector.
func (a *askedRuns) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{a.waiting, a.running, a.pool, a.claims} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The workers of a class are added up.
func (a *askedRuns) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), askTime, errSlow)
	defer cancel()
	waiting, running := a.source.Depth()
	ch <- prometheus.MustNewConstMetric(a.waiting, prometheus.GaugeValue, float64(waiting))
	ch <- prometheus.MustNewConstMetric(a.running, prometheus.GaugeValue, float64(running))
	states, claims := map[[3]string]float64{}, map[[3]string]float64{}
	for _, p := range a.source.Pool(ctx) {
		for _, c := range p.Classes {
			driver, language := a.waitedBy.bound(c.Driver), a.waitedBy.bound(c.Language)
			for state, n := range map[string]int{"waiting": c.Waiting, "making": c.Making, "wanted": c.Wanted} {
				states[[3]string{driver, language, state}] += float64(n)
			}
			for outcome, n := range map[string]int64{"hit": c.Hits, "miss": c.Misses, "discard": c.Discards} {
				claims[[3]string{driver, language, outcome}] += float64(n)
			}
		}
	}
	for labels, n := range states {
		ch <- prometheus.MustNewConstMetric(a.pool, prometheus.GaugeValue, n, labels[:]...)
	}
	for labels, n := range claims {
		ch <- prometheus.MustNewConstMetric(a.claims, prometheus.CounterValue, n, labels[:]...)
	}
}
