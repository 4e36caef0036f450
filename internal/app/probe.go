package app

import (
	"context"
	"log/slog"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/probe"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// prove returns the proof that each driver of a worker has to pass. The fake
// driver alone is exempt: what executes nothing cannot get out.
func prove(cfg *config.Config, log *slog.Logger) func(context.Context, sandbox.Driver) probe.Report {
	return func(ctx context.Context, d sandbox.Driver) probe.Report {
		if _, ok := d.(*fake.Driver); ok {
			return probe.Report{Driver: d.Name(), Exempt: d.Capabilities().Isolation}
		}
		return probe.Run(ctx, d, probe.Options{Folder: cfg.SandboxBase, Logger: log})
	}
}

// survey looks which programs an image has. The driver that executes nothing
// has all of them.
func survey(ctx context.Context, d sandbox.Driver, image string, limits sandbox.Limits, programs []string) (worker.Found, error) {
	if _, ok := d.(*fake.Driver); !ok {
		return worker.Survey(ctx, d, image, limits, programs)
	}
	found := worker.Found{Programs: map[string]bool{}}
	for _, p := range programs {
		found.Programs[p] = true
	}
	return found, nil
}
