package app

import (
	"time"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/manager"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// runTerms are the terms under which a manager takes runs of code.
func runTerms(cfg *config.Config) (manager.RunTerms, error) {
	languages, err := language.Load(cfg.Languages)
	if err != nil {
		return manager.RunTerms{}, err
	}
	return manager.RunTerms{
		Terms: run.Terms{
			Languages: languages, Timeout: time.Duration(cfg.Runs.Timeout) * time.Second, OutputCap: min(int64(cfg.Runs.Output), 64<<20),
			// What has no setting of its own is bounded by what a machine has.
			Most: sandbox.Limits{
				MilliCPU: cfg.Runs.MaxCPU, Memory: int64(cfg.Runs.MaxMemory), Processes: 4096, Disk: 64 << 30, OpenFiles: 1 << 20, CPUTime: time.Hour,
			},
		},
		Most: cfg.Runs.Queue, Patience: cfg.Runs.Patience,
	}, nil
}
