package job

import (
	"math"
	"strconv"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Limits returns what the work asks for, in thousandths of a processor and in
// bytes; 0 is nothing.
func (w Work) Limits() (milliCPU, memory int64, err error) {
	if w.CPULimit != nil {
		const most = 4096
		milliCPU = int64(math.Round(*w.CPULimit * 1000))
		if *w.CPULimit > most || milliCPU < 1 {
			return 0, 0, fault.Field("cpu_limit", "%v is not a number of processors such as 0.5 or 2", *w.CPULimit)
		}
	}
	if w.MemoryLimit != "" {
		if memory, err = parseSize(w.MemoryLimit); err != nil {
			return 0, 0, err
		}
	}
	return milliCPU, memory, nil
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
