package worker_test

import (
	"strings"
	"testing"
	"testing/synctest"

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
