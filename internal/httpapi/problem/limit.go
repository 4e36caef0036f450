package problem

import "github.com/aurea-dev/aurea/internal/fault"

// asAsked names a limit as it is asked for over HTTP. Drivers and workers name it
// as they hold it, and count in their own unit, which is said along.
func asAsked(f *fault.Error) *fault.Error {
	var name, unit string
	switch f.Field {
	case "limits.milli_cpu":
		name, unit = "cpu_limit", "counted in thousandths of a processor"
	case "limits.memory_bytes":
		name, unit = "memory_limit", "counted in bytes"
	case "limits.disk_bytes":
		name, unit = "limits.disk", "counted in bytes"
	case "limits.cpu_time_ns":
		name, unit = "limits.cpu_time", "counted in nanoseconds"
	default:
		return f
	}
	asked := *f
	asked.Field, asked.Message = name, f.Message+" ("+unit+")"
	return &asked
}
