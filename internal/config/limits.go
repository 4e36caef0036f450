package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits bound each sandbox of a worker where a job does not ask for less. Zero
// is no limit, which only somebody who says so gets.
type Limits struct {
	MilliCPU  int64
	Memory    Bytes
	Disk      Bytes
	Processes int
	OpenFiles int
	CPUTime   time.Duration
}

func limitSettings() []setting {
	own := []Role{Up, Worker}
	return []setting{
		{
			key: "cpu_limit", env: "SANDBOX_CPU_LIMIT", flag: "cpu-limit", roles: own, init: "1.0",
			help: "how many processors a sandbox may use, such as `0.5`; 0 is no limit",
			at:   func(c *Config) value { return cpuValue{&c.Limits.MilliCPU} },
		},
		{
			key: "memory_limit", env: "SANDBOX_MEMORY_LIMIT", flag: "memory-limit", roles: own, init: "512MiB",
			help: "how much memory a sandbox may use, its own kernel and its inodes included; 0 is no limit",
			at:   func(c *Config) value { return &c.Limits.Memory },
		},
		{
			key: "process_limit", env: "AUREA_PROCESS_LIMIT", flag: "process-limit", roles: own, init: "256",
			help: "how many processes and threads a sandbox may have; 0 is no limit",
			at:   func(c *Config) value { return intValue{&c.Limits.Processes, 0, 1 << 20} },
		},
		{
			key: "disk_limit", env: "AUREA_DISK_LIMIT", flag: "disk-limit", roles: own, init: "1GiB",
			help: "how much a sandbox may write, `/workspace` and `/tmp` included; 0 is no limit",
			at:   func(c *Config) value { return &c.Limits.Disk },
		},
		{
			key: "open_files_limit", env: "AUREA_OPEN_FILES_LIMIT", flag: "open-files-limit", roles: own, init: "1024",
			help: "how many files each process of a sandbox may hold open; 0 is no limit",
			at:   func(c *Config) value { return intValue{&c.Limits.OpenFiles, 0, 1 << 20} },
		},
		{
			key: "cpu_time_limit", env: "AUREA_CPU_TIME_LIMIT", flag: "cpu-time-limit", roles: own, init: "0s",
			help: "how much processor time a sandbox may use in its life, its own kernel included, such as `90s`; 0 is no limit beside the job's timeout",
			at:   func(c *Config) value { return durationValue{&c.Limits.CPUTime, 0, 30 * 24 * time.Hour} },
		},
	}
}

// cpuValue is a number of processors, kept in thousandths.
type cpuValue struct{ to *int64 }

func (v cpuValue) String() string {
	s := strconv.FormatFloat(float64(*v.to)/1000, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func (v cpuValue) Set(text string) error {
	const most = 4096
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > most {
		return fmt.Errorf("%q is not a number of processors such as 0.5 or 2", clip(text))
	}
	milli := int64(math.Round(n * 1000))
	if n > 0 && milli == 0 {
		return errors.New("is less than a thousandth of a processor")
	}
	*v.to = milli
	return nil
}

// inUnits turns a plain number of an earlier system's unit into a size.
func inUnits(unit string) func(string) (string, error) {
	return func(text string) (string, error) {
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		size, known := map[string]float64{"MiB": 1 << 20, "GiB": 1 << 30}[unit]
		if err != nil || !known || math.IsNaN(n) || n < 0 || n > 1<<20 {
			return "", fmt.Errorf("%q is not a number of %s", clip(text), unit)
		}
		return strconv.FormatInt(int64(n*size), 10), nil
	}
}
