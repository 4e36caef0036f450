package job

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Ask is what a job asks for of a sandbox; zero is nothing.
type Ask struct {
	MilliCPU int64 // thousandths of a processor
	Memory   int64 // bytes
	CPUTime  time.Duration
}

// Limits returns what the work asks for.
func (w Work) Limits() (Ask, error) {
	var ask Ask
	if w.CPULimit != nil {
		const most = 4096
		ask.MilliCPU = int64(math.Round(*w.CPULimit * 1000))
		if *w.CPULimit > most || ask.MilliCPU < 1 {
			return Ask{}, fault.Field("cpu_limit", "%v is not a number of processors such as 0.5 or 2", *w.CPULimit)
		}
	}
	if w.CPUTimeLimit != nil {
		seconds, most := *w.CPUTimeLimit, (30 * 24 * time.Hour).Seconds()
		if !(seconds >= 0.001 && seconds <= most) { // also what is no number
			return Ask{}, fault.Field("cpu_time_limit", "%v is not a number of seconds such as 10 or 0.5", seconds)
		}
		ask.CPUTime = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	}
	if w.MemoryLimit != "" {
		var err error
		if ask.Memory, err = parseSize(w.MemoryLimit); err != nil {
			return Ask{}, err
		}
	}
	return ask, nil
}

// parseSize reads a size as settings have it: a whole number with k, m or g
// behind it, in powers of 1024, or of plain bytes.
func parseSize(text string) (int64, error) {
	s := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text)), "b"), "i")
	unit := int64(1)
	for suffix, size := range map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30} {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = digits, size
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/unit {
		return 0, fault.Field("memory_limit", "%q is not a size such as \"256m\" or \"1g\"", clip(text))
	}
	return n * unit, nil
}
