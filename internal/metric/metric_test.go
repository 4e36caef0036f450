package metric_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/metric"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

type source struct {
	f   job.Figures
	err error
}

func (s *source) Figures(context.Context) (job.Figures, error) { return s.f, s.err }

func (s *source) Depth() (waiting, running int) { return 5, 6 }

func (s *source) Pool(context.Context) []run.Pool {
	class := []run.PoolClass{{Driver: "gvisor", Language: "python", Waiting: 2, Hits: 7}}
	return []run.Pool{{Worker: "w1", Classes: class}, {Worker: "w2", Classes: class}}
}

// broken is a store that fails in the way that it is told.
type broken struct {
	store.Store
	err error
}

func (b broken) Update(context.Context, func(store.Tx) error) error { return b.err }
func (b broken) View(context.Context, func(store.Tx) error) error   { return b.err }

// read returns the lines that Prometheus would read.
func read(t *testing.T, m *metric.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func full() *source {
	return &source{f: job.Figures{
		Jobs: map[job.State]int64{job.Queued: 3}, DeadLetters: 2, OldestQueued: time.Now().Add(-time.Hour), LastEvent: 77, DiskFree: 5, DiskBytes: 10,
		Workers: []job.WorkerFigures{
			{ID: "w1", Slots: 4, Leases: 2, Sandboxes: 1, DiskFree: 1, DiskBytes: 2, Drivers: []job.Driver{{Name: "fake"}, {Name: "gvisor", Degraded: "a hole"}}},
			{ID: "w2", Paused: true, Drivers: []job.Driver{{Name: "fake"}}},
		},
	}}
}

func exercised(t *testing.T) (*metric.Metrics, *source) {
	t.Helper()
	m, s := metric.New("1.2.3"), full()
	m.Ask(s)
	m.Request("GET", "GET /jobs/{id}", 200, time.Millisecond)
	m.Request("BREW", "", 404, time.Millisecond)
	m.Leased(20 * time.Millisecond)
	m.Finished("fake", sandbox.OOM, time.Second, &sandbox.Usage{CPU: 2 * time.Second, PeakMemory: 1 << 20})
	m.Finished("fake", "nonsense", time.Second, nil)
	m.AskRuns(s)
	m.AskSandboxes(kept{}, 1)
	m.RunEnded(&run.Run{Language: "python", State: run.Completed, Verdict: sandbox.Timeout, Result: &run.Result{Warm: true}}, time.Millisecond, time.Second)
	m.RunEnded(&run.Run{Language: "python", State: run.Failed}, time.Millisecond, time.Second)
	m.RunRefused()
	ctx := t.Context()
	_ = m.Store(broken{}).Update(ctx, nil)
	_ = m.Store(broken{err: fault.New(fault.Conflict, "no")}).Update(ctx, nil)
	_ = m.Store(broken{err: errors.New("the disk is on fire")}).View(ctx, nil)
	return m, s
}

func TestFigures(t *testing.T) {
	t.Parallel()
	m, s := exercised(t)
	text := read(t, m)
	for _, want := range []string{
		`aurea_jobs{state="QUEUED"} 3`, `aurea_jobs{state="FAILED"} 0`, `aurea_dead_letters 2`, `aurea_event_head 77`, `aurea_store_up 1`,
		`aurea_workers 2`, `aurea_workers_paused 1`, `aurea_worker_sandboxes{worker="w1"} 1`, `aurea_worker_leases{worker="w1"} 2`,
		`aurea_drivers{driver="fake",state="proved"} 2`, `aurea_drivers{driver="gvisor",state="degraded"} 1`, `aurea_disk_free_bytes 5`,
		`aurea_http_requests_total{code="200",method="GET",route="GET /jobs/{id}"} 1`, `aurea_http_requests_total{code="404",method="other",route="other"} 1`,
		`aurea_job_tries_total{driver="fake",verdict="oom"} 1`, `aurea_job_tries_total{driver="fake",verdict="other"} 1`,
		`aurea_sandbox_cpu_seconds_total{driver="fake"} 2`, `aurea_job_wait_seconds_count 1`, `aurea_store_commit_seconds_count 2`,
		`aurea_runs_total{language="python",verdict="timeout"} 1`, `aurea_runs_total{language="python",verdict="state_failed"} 1`,
		`aurea_run_starts_total{language="python",start="warm"} 1`, `aurea_runs_refused_total 1`, `aurea_runs_waiting 5`, `aurea_runs_running 6`,
		`aurea_run_wait_seconds_count 2`, `aurea_run_seconds_count{language="python"} 2`,
		`aurea_pool_sandboxes{driver="gvisor",language="python",state="waiting"} 4`, `aurea_pool_claims_total{driver="gvisor",language="python",outcome="hit"} 14`,
		`aurea_store_failures_total 1`, `aurea_build_info{version="1.2.3"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
	s.err = errors.New("the disk is on fire")
	text = read(t, m)
	if !strings.Contains(text, "aurea_store_up 0\n") || !strings.Contains(text, "aurea_workers 2\n") || strings.Contains(text, "aurea_jobs{") {
		t.Error("without the database it says something else")
	}
}

// Names that outsiders choose do not make the figures grow without end.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := metric.New("1")
	s := &source{}
	for i := range 500 {
		name := fmt.Sprint("d", i)
		m.Finished(name, sandbox.Verdict(name), 0, nil)
		m.Request(name, "", 200, 0)
		s.f.Workers = append(s.f.Workers, job.WorkerFigures{ID: name, Leases: 1, Drivers: []job.Driver{{Name: name}}})
	}
	m.Ask(s)
	text := read(t, m)
	if n := strings.Count(text, "\naurea_"); n > 1500 {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(text, `aurea_worker_leases{worker="other"} 400`) || !strings.Contains(text, `aurea_workers 500`) {
		t.Error("the rest is not counted together")
	}
}

var named = regexp.MustCompile(`\baurea_[a-z_]+`)

// TestWhatIsShippedNamesWhatExists fails when an alert, the dashboard or the
// docs name a figure that is not there, and when the docs leave one out.
func TestWhatIsShippedNamesWhatExists(t *testing.T) {
	t.Parallel()
	m, _ := exercised(t)
	there := map[string]bool{}
	for _, line := range strings.Split(read(t, m), "\n") {
		if fields := strings.Fields(line); len(fields) > 3 && fields[1] == "TYPE" && strings.HasPrefix(fields[2], "aurea_") {
			there[fields[2]] = true
		}
	}
	if len(there) < 20 {
		t.Fatalf("only %d figures", len(there))
	}
	for _, file := range []string{"deploy/prometheus/aurea.rules.yaml", "deploy/grafana/aurea.json", "docs/metrics.md"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]bool{}
		for _, name := range named.FindAllString(string(raw), -1) {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				if !there[name] {
					name = strings.TrimSuffix(name, end)
				}
			}
			if told[name] = true; !there[name] {
				t.Errorf("%s names %s, which is not there", file, name)
			}
		}
		if len(told) < 10 {
			t.Errorf("%s names only %d figures", file, len(told))
		}
		for name := range there {
			if strings.HasPrefix(file, "docs/") && !told[name] {
				t.Errorf("%s leaves out %s", file, name)
			}
		}
	}
}
