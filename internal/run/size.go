package run

import (
	"math"
	"strconv"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// ParseSize reads a size as people write limits: "512m", "1g", "1.5g",
// "256MiB", "1048576". Units are powers of 1024.
func ParseSize(text string) (int64, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	number := strings.TrimRight(s, "bikmgt")
	unit := s[len(number):]
	shift, known := map[string]uint{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40}[unit]
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	plain := !strings.ContainsAny(number, "xpen_+-") // what ParseFloat takes beside numbers as people write them
	if size := n * float64(int64(1)<<shift); err == nil && known && plain && size >= 1 && size <= maxMemory {
		return int64(math.Floor(size)), nil
	}
	return 0, fault.New(fault.Invalid, "%q is not a size such as \"512m\", \"1g\" or \"1048576\"", clip(text))
}

// FormatSize writes a size with the largest unit that divides it.
func FormatSize(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}} {
		if n != 0 && n%u.size == 0 {
			return formatInt(n/u.size) + u.name
		}
	}
	return formatInt(n)
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

func formatMilli(n int64) string { return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) }
