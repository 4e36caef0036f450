package app

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/manager"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/runner"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// runTerms are the terms under which a manager takes runs of code.
func runTerms(cfg *config.Config, observer runner.Observer) (manager.RunTerms, error) {
	languages, err := language.Load(cfg.Languages)
	if err != nil {
		return manager.RunTerms{}, err
	}
	hooks, err := hookTerms(cfg)
	if err != nil {
		return manager.RunTerms{}, err
	}
	return manager.RunTerms{
		Terms: run.Terms{
			Languages: languages, Timeout: time.Duration(cfg.Runs.Timeout) * time.Second, OutputCap: min(int64(cfg.Runs.Output), 64<<20),
			Most: mostLimits(cfg.Runs.MaxCPU, int64(cfg.Runs.MaxMemory), time.Hour),
		},
		Most: cfg.Runs.Queue, Patience: cfg.Runs.Patience, Hooks: hooks, Observer: observer,
	}, nil
}

// mostLimits is the most that somebody may ask for. What has no setting of its
// own is bounded by what a machine has: its kernel would refuse more.
func mostLimits(milliCPU, memory int64, cpuTime time.Duration) sandbox.Limits {
	return sandbox.Limits{MilliCPU: milliCPU, Memory: memory, Processes: 4096, Disk: 64 << 30, OpenFiles: 1 << 20, CPUTime: cpuTime}
}

// hookTerms reads what webhooks are signed with.
func hookTerms(cfg *config.Config) (webhook.Terms, error) {
	const least = 16
	t := webhook.Terms{Private: cfg.Runs.HookPrivate == "on"}
	if cfg.Runs.HookSecretFile == "" {
		return t, nil
	}
	secret, err := os.ReadFile(cfg.Runs.HookSecretFile)
	if err != nil {
		return t, fmt.Errorf("read the secret of webhooks: %w", err)
	}
	if t.Secret = bytes.TrimSpace(secret); len(t.Secret) < least {
		return t, fmt.Errorf("the secret of webhooks in %s has fewer than %d bytes", cfg.Runs.HookSecretFile, least)
	}
	return t, nil
}
