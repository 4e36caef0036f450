package config

import (
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		environ []string
		want    Limits
	}{
		{"by default", nil, Limits{MilliCPU: 1000, Memory: 512 << 20, Disk: 1 << 30, Processes: 256, OpenFiles: 1024}},
		{
			"as the sources write them",
			[]string{"SANDBOX_CPU_LIMIT=0.25", "SANDBOX_MEMORY_LIMIT=1g", "AUREA_DISK_LIMIT=64MiB", "AUREA_PROCESS_LIMIT=8", "AUREA_OPEN_FILES_LIMIT=99", "AUREA_CPU_TIME_LIMIT=90s"},
			Limits{MilliCPU: 250, Memory: 1 << 30, Disk: 64 << 20, Processes: 8, OpenFiles: 99, CPUTime: 90 * time.Second},
		},
		{
			"in earlier systems' units",
			[]string{"SANDBOX_CPUS=2", "SANDBOX_MEMORY_MB=768", "SANDBOX_DISK_GB=0.5"},
			Limits{MilliCPU: 2000, Memory: 768 << 20, Disk: 512 << 20, Processes: 256, OpenFiles: 1024},
		},
		{
			"none, because somebody says so",
			[]string{"SANDBOX_CPU_LIMIT=0", "SANDBOX_MEMORY_LIMIT=0", "AUREA_DISK_LIMIT=0", "AUREA_PROCESS_LIMIT=0", "AUREA_OPEN_FILES_LIMIT=0"},
			Limits{},
		},
	} {
		got, err := Load(Sources{Role: Worker, Environ: append(c.environ, "AUREA_DATA=/d")})
		if err != nil || got.Limits != c.want {
			t.Errorf("%s: %+v, %v", c.name, got.Limits, err)
		}
	}
	for _, bad := range []string{
		"SANDBOX_CPU_LIMIT=-1", "SANDBOX_CPU_LIMIT=NaN", "SANDBOX_CPU_LIMIT=1e9", "SANDBOX_CPU_LIMIT=0.0001", "SANDBOX_CPU_LIMIT=half",
		"SANDBOX_MEMORY_LIMIT=-5", "SANDBOX_MEMORY_MB=much", "SANDBOX_MEMORY_GB=-1", "SANDBOX_DISK_GB=NaN", "AUREA_PROCESS_LIMIT=1.5", "AUREA_CPU_TIME_LIMIT=-1s", "AUREA_CPU_TIME_LIMIT=3",
	} {
		if _, err := Load(Sources{Role: Worker, Environ: []string{"AUREA_DATA=/d", bad}}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
