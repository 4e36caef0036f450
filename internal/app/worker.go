package app

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/worker"
)

// afterDrain is how much longer than the drain a worker may take to end.
const afterDrain = 15 * time.Second

// Worker runs a worker until ctx ends and its jobs have drained.
func Worker(ctx context.Context, s cli.Start) error {
	defer outlive()()
	log, cfg := begin(s), s.Config
	if err := checkOnStop(cfg); err != nil {
		return err
	}
	key, err := cfg.LoadKey()
	if err != nil {
		return err
	}
	m, err := wire.NewClient(cfg.ManagerURL, key, wire.Options{Log: log})
	if err != nil {
		return err
	}
	drivers, closeDrivers, err := openDrivers(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer closeDrivers()
	w, err := worker.New(worker.Config{
		Manager: m, Drivers: drivers, Driver: cfg.Driver, DefaultImage: namedDefault(cfg, log), Probe: prove(cfg, log), Base: cfg.SandboxBase,
		WorkerID: cfg.WorkerID, Role: cfg.WorkerRole, Models: cfg.WorkerModels, Version: s.Version,
		Slots: cfg.Concurrency, OutputCap: int64(cfg.OutputLimit), DrainTimeout: cfg.DrainTimeout, NoSnapshot: cfg.Snapshots == "off", Logger: log,
	})
	if err != nil {
		return err
	}
	log.Info("worker starts", "worker", cfg.WorkerID, "driver", cfg.Driver, "slots", cfg.Concurrency, "base", cfg.SandboxBase, "manager", cfg.ManagerURL)
	return service.Group{Logger: log, Hurry: s.Hurry, Parts: []service.Part{{
		Name: "worker", StopWithin: cfg.DrainTimeout + afterDrain,
		Service: service.NewFunc(func(ctx context.Context, ready func()) error {
			ready()
			return w.Run(ctx)
		}),
	}}}.Run(ctx)
}

// checkOnStop refuses to keep sandboxes as long as each belongs to a job and
// ends with it: a promise that is not kept is worse than none.
func checkOnStop(cfg *config.Config) error {
	if cfg.OnStop != config.KeepSandboxes {
		return nil
	}
	return fault.Field("--keep/AUREA_ON_STOP", "sandboxes cannot be kept yet: each belongs to a job and ends with it; leave it out").WithCode("refused_setting")
}
