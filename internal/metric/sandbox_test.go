package metric_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/metric"
)

// kept is a source with more sandboxes than anybody wants as labels.
type kept struct{}

func (kept) SandboxFigures(most int) job.SandboxFigures {
	f := job.SandboxFigures{Open: 500, Execs: 7, Spent: 1500 * time.Millisecond, Memory: 1024, Disk: 4096, Processes: 9}
	for i := range most {
		f.Busiest = append(f.Busiest, job.SandboxFigure{ID: fmt.Sprintf("b%d", i), CPU: time.Second, Memory: 5, Disk: 6, Processes: 2})
	}
	return f
}

// TestSandboxFigures: totals always, sandboxes one by one only where that was
// asked for, and within a bound.
func TestSandboxFigures(t *testing.T) {
	t.Parallel()
	for asked, want := range map[int]int{0: 0, 2: 2, 100_000: metric.MaxSandboxes} {
		m := metric.New("test")
		m.AskSandboxes(kept{}, asked)
		text := read(t, m)
		for _, line := range []string{"aurea_kept_sandboxes 500", "aurea_kept_execs 7", "aurea_kept_cpu_seconds_total 1.5", "aurea_kept_memory_bytes 1024", "aurea_kept_disk_bytes 4096", "aurea_kept_processes 9"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s is missing", line)
			}
		}
		if n := strings.Count(text, "aurea_kept_sandbox_memory_bytes{"); n != want {
			t.Errorf("with %d, %d have figures of their own, not %d", asked, n, want)
		}
	}
}
