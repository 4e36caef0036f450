package worker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// A job can ask for less than its worker gives, and not for more.
func TestJobsAskForLimits(t *testing.T) {
	limits := sandbox.Limits{MilliCPU: 1000, Memory: 64 << 20}
	story(t, func(c *worker.Config) { c.Limits = limits }, func(t *testing.T, s *stand) {
		less := s.submit(payload("exec", map[string]any{"command": []string{"true"}, "cpu_limit": 0.5, "memory_limit": "32m"}))
		more := s.submit(payload("exec", map[string]any{"command": []string{"true"}, "memory_limit": "1g"}))
		synctest.Wait()
		res, _ := s.result(less)
		want := sandbox.Limits{MilliCPU: 500, Memory: 32 << 20}
		if !res.Success || res.Record.Asked != want || res.Record.Enforced != want {
			t.Errorf("less: %+v, %s", res.Record, res.Details)
		}
		res, d := s.result(more)
		if res.Success || !strings.Contains(d.Error, "memory_limit") || res.Record.Sandbox != "" {
			t.Errorf("more: %+v, %s", res.Record, res.Details)
		}
	})
}

// What ran out of memory says so, with what it used, although its sandbox is
// gone.
func TestOutOfMemoryIsAVerdict(t *testing.T) {
	story(t, func(c *worker.Config) { c.Limits = sandbox.Limits{Memory: 64 << 20} }, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"true"}, "env": map[string]string{"FAKE_MEMORY": "1GiB"}}))
		synctest.Wait()
		res, d := s.result(id)
		if res.Success || d.Verdict != "oom" || res.Record.Usage == nil || res.Record.Usage.PeakMemory != 64<<20 {
			t.Errorf("%+v, %s", res.Record, res.Details)
		}
	})
}

// Who uses up the processor time of their sandbox is ended, and the evidence
// says by which limit, and keeps the files.
func TestProcessorTimeIsALimit(t *testing.T) {
	story(t, func(c *worker.Config) { c.Limits = sandbox.Limits{CPUTime: time.Minute} }, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{
			"command": []string{"sh", "-c", "sleep 100"}, "files": map[string]string{"a": "x"},
			"cpu_time_limit": 10, "env": map[string]string{"FAKE_CPU": "11s", "FAKE_SLEEP": "90s"},
		}))
		more := s.submit(payload("exec", map[string]any{"command": []string{"true"}, "cpu_time_limit": 61}))
		time.Sleep(2 * time.Second) // of the bubble's
		synctest.Wait()
		res, d := s.result(id)
		if res.Success || d.Verdict != "limit" || !strings.HasPrefix(res.Record.Cause, "cpu_time: ") || res.Record.Usage.CPU != 11*time.Second ||
			res.Record.Asked.CPUTime != 10*time.Second || res.Record.Enforced.CPUTime != 10*time.Second || len(res.Record.Skipped) > 0 {
			t.Errorf("%+v, %s", res.Record, res.Details)
		}
		if res, d := s.result(more); res.Success || !strings.Contains(d.Error, "cpu_time_limit") {
			t.Errorf("more: %+v, %s", res.Record, res.Details)
		}
	})
}
