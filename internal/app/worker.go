package app

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/trace"
	"github.com/aurea-dev/aurea/internal/worker"
)

// afterDrain is how much longer than the drain a worker may take to end.
const afterDrain = 15 * time.Second

// Worker runs a worker until ctx ends and its jobs have drained.
func Worker(ctx context.Context, s cli.Start) error {
	defer outlive()()
	log, cfg := begin(s), s.Config
	key, err := cfg.LoadKey()
	if err != nil {
		return err
	}
	m, err := wire.NewFailover(cfg.ManagerURLs, key, wire.Options{Log: log})
	if err != nil {
		return err
	}
	drivers, closeDrivers, err := openDrivers(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer closeDrivers()
	limits, err := defaultLimits(cfg, drivers[cfg.Driver])
	if err != nil {
		return err
	}
	languages, err := language.Load(cfg.Languages)
	if err != nil {
		return err
	}
	tracer := trace.New(trace.Config{Endpoint: cfg.TraceEndpoint, Service: "aurea-worker", Version: s.Version, Logger: log}) //nolint:contextcheck // it sends until it is closed
	defer tracer.Close()
	trip, untrip := tripSignal()
	defer untrip()
	w, err := worker.New(worker.Config{
		Trip: trip, PartitionLimit: cfg.PartitionLimit,
		Tracer: tracer, Languages: languages, Survey: survey, Pool: cfg.Pool, PoolMax: cfg.PoolMax, Digest: imageDigest(cfg, log),
		Builder: workerBuilder(cfg, log),
		Manager: m, Drivers: drivers, Driver: cfg.Driver, DefaultImage: namedDefault(cfg, log), Probe: prove(cfg, log), Base: cfg.SandboxBase,
		WorkerID: cfg.WorkerID, Role: cfg.WorkerRole, Models: cfg.WorkerModels, Version: s.Version,
		Limits: limits, Slots: cfg.Concurrency, Memory: int64(cfg.Memory), MinDisk: int64(cfg.MinDisk), KeepSnapshots: cfg.Keep.Snapshots, KeepWorkspaces: cfg.Keep.Workspaces, OutputCap: int64(cfg.OutputLimit), DrainTimeout: cfg.DrainTimeout, Keep: keep(cfg), NoSnapshot: cfg.Snapshots == "off", Logger: log,
	})
	if err != nil {
		return err
	}
	log.Info("worker starts", "worker", cfg.WorkerID, "driver", cfg.Driver, "slots", cfg.Concurrency, "base", cfg.SandboxBase, "manager", strings.Join(cfg.ManagerURLs, ","))
	return service.Group{Logger: log, Hurry: s.Hurry, Parts: []service.Part{{
		Name: "worker", StopWithin: cfg.DrainTimeout + afterDrain,
		Service: service.NewFunc(func(ctx context.Context, ready func()) error {
			ready()
			return w.Run(ctx)
		}),
	}}}.Run(ctx)
}

// tripSignal tells of the signal that pulls this machine's kill switch.
func tripSignal() (trip <-chan struct{}, stop func()) {
	signals, told, done := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for {
			select {
			case <-signals:
				select {
				case told <- struct{}{}:
				default: // it is about to be pulled
				}
			case <-done:
				return
			}
		}
	}()
	return told, func() { signal.Stop(signals); close(done) }
}

// defaultLimits are those of jobs that ask for none. A driver that cannot keep
// one of them on this machine stops the start: only who says so runs without.
func defaultLimits(cfg *config.Config, d sandbox.Driver) (sandbox.Limits, error) {
	l := sandbox.Limits{
		MilliCPU: cfg.Limits.MilliCPU, Memory: int64(cfg.Limits.Memory), Disk: int64(cfg.Limits.Disk),
		Processes: int64(cfg.Limits.Processes), OpenFiles: int64(cfg.Limits.OpenFiles), CPUTime: cfg.Limits.CPUTime,
	}
	why := map[string]string{}
	if g, ok := d.(*gvisor.Driver); ok {
		why = g.Lacks()
	}
	for _, need := range []struct {
		asked  int64
		has    bool
		name   string
		naming string
	}{
		{l.MilliCPU, d.Capabilities().CPU, "cpu", "--cpu-limit/SANDBOX_CPU_LIMIT"},
		{l.Memory, d.Capabilities().Memory, "memory", "--memory-limit/SANDBOX_MEMORY_LIMIT"},
		{l.Processes, d.Capabilities().Processes, "processes", "--process-limit/AUREA_PROCESS_LIMIT"},
		{l.Disk, d.Capabilities().Disk, "disk", "--disk-limit/AUREA_DISK_LIMIT"},
		{l.OpenFiles, d.Capabilities().OpenFiles, "open files", "--open-files-limit/AUREA_OPEN_FILES_LIMIT"},
		{int64(l.CPUTime), d.Capabilities().CPUTime, "cpu time", "--cpu-time-limit/AUREA_CPU_TIME_LIMIT"},
	} {
		if need.asked > 0 && !need.has {
			return sandbox.Limits{}, fault.Field(need.naming, "the driver %s cannot keep it on this machine (%s); set it to 0 to run without",
				d.Name(), cmp.Or(why[need.name], "see aurea doctor")).WithCode("limit_unenforceable")
		}
	}
	return l, nil
}

// keep is how a worker stops that leaves its sandboxes to the next one. Every
// step that it takes is written down first, so the way to touch nothing is to be
// gone.
func keep(cfg *config.Config) func() {
	if cfg.OnStop != config.KeepSandboxes {
		return nil
	}
	return func() { os.Exit(cli.ExitOK) }
}
