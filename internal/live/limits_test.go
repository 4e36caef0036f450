package live_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// TestLimitsAreNamedAsAskedFor names the field of the request, and the most in
// the words in which it is asked for.
func TestLimitsAreNamedAsAskedFor(t *testing.T) {
	t.Parallel()
	most := sandbox.Limits{MilliCPU: 1500, Memory: 8 << 30, Processes: 4096, Disk: 64 << 30, OpenFiles: 100, CPUTime: time.Hour}
	for _, x := range []struct {
		field, most string
		asked       sandbox.Limits
	}{
		{"cpu_limit", "at most 1.5 ", sandbox.Limits{MilliCPU: 1501}},
		{"memory_limit", "at most 8g ", sandbox.Limits{Memory: 9 << 30}},
		{"limits.processes", "at most 4096 ", sandbox.Limits{Processes: 4194304}},
		{"limits.disk", "at most 64g ", sandbox.Limits{Disk: math.MaxInt64}},
		{"limits.open_files", "at most 100 ", sandbox.Limits{OpenFiles: 101}},
		{"limits.cpu_time", "at most 1h0m0s ", sandbox.Limits{CPUTime: 2 * time.Hour}},
		{"limits.disk", "negative", sandbox.Limits{Disk: -1}},
	} {
		var f *fault.Error
		if err := live.CheckLimits(x.asked, most); !errors.As(err, &f) || f.Field != x.field || !strings.Contains(f.Message, x.most) {
			t.Errorf("%s: %v", x.field, err)
		}
	}
}
