package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/machinesapi"
	"github.com/aurea-dev/aurea/internal/manager"
	"github.com/aurea-dev/aurea/internal/metric"
	"github.com/aurea-dev/aurea/internal/notary"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/service/supervise"
	"github.com/aurea-dev/aurea/internal/session"
	"github.com/aurea-dev/aurea/internal/trace"
)

// Manager runs a manager until ctx ends.
func Manager(ctx context.Context, s cli.Start) error {
	defer outlive()()
	log, cfg := begin(s), s.Config
	if err := makeManagerDirs(cfg); err != nil {
		return err
	}
	lock, err := supervise.TakeLock(filepath.Join(cfg.ManagerDir(), "manager.lock"), "the manager's folder "+cfg.ManagerDir())
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()

	parts, err := managerParts(ctx, s, log)
	if err != nil {
		return err
	}
	return service.Group{
		Parts: parts, Logger: log, Hurry: s.Hurry,
		Ready: func() {
			log.Info("manager serves", "address", cfg.Address(), "data", cfg.ManagerDir(), "keys", !cfg.Loopback(), "version", s.Version)
		},
	}.Run(ctx)
}

func makeManagerDirs(cfg *config.Config) error {
	for _, dir := range []string{cfg.ManagerDir(), cfg.BlobDir(), cfg.OutputDir(), cfg.KeyDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the manager's folder: %w", err)
		}
	}
	return nil
}

// managing is a manager and what it is made of.
type managing struct {
	kept    *kept
	manager *manager.Manager
	figures *metric.Metrics
	tracer  *trace.Tracer
	notary  *notary.Notary
}

// managerParts makes the parts of a manager, in the order in which they start.
func managerParts(ctx context.Context, s cli.Start, log *slog.Logger) (parts []service.Part, err error) {
	mg, err := newManaging(ctx, s, log)
	if err != nil {
		return nil, err
	}
	parts = append(parts, closing("database", log, mg.kept.Close), closing("traces", log, func() error { mg.tracer.Close(); return nil }))
	defer func() {
		if err != nil { // the parts were never started, so nobody else closes it
			_ = mg.kept.Close()
		}
	}()
	if !s.Config.Loopback() {
		if err := makeKeys(ctx, mg.manager, s.Config, s.Stdout, log); err != nil {
			return nil, err
		}
	}
	doors, err := managerDoors(s, mg, log) //nolint:contextcheck // each request brings its own
	if err != nil {
		return nil, err
	}
	return append(append(parts, managerPart(mg.manager), notaryPart(mg.notary)), doors...), nil
}

// newManaging makes a manager over what it keeps, and starts nothing.
func newManaging(ctx context.Context, s cli.Start, log *slog.Logger) (_ *managing, err error) {
	cfg := s.Config
	kept, err := openKept(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = kept.Close()
		}
	}()
	id, err := managerID(cfg)
	if err != nil {
		return nil, err
	}
	tracer := trace.New(trace.Config{Endpoint: cfg.TraceEndpoint, Service: "aurea-manager", Version: s.Version, Logger: log}) //nolint:contextcheck // it sends until it is closed
	figures := metric.New(s.Version)
	observed := figures.Store(kept.store)
	q, err := queue.New(queue.Config{
		Store: observed, Logger: log, Roles: cfg.Roles, Fallback: cfg.RoleFallback, ProjectCap: cfg.ProjectCap, LeaseTerm: cfg.LeaseTerm,
	})
	if err != nil {
		return nil, err
	}
	runs, err := runTerms(cfg, figures)
	if err != nil {
		return nil, err
	}
	fleet, err := fleetTerms(cfg, figures)
	if err != nil {
		return nil, err
	}
	m, err := manager.New(manager.Config{
		Store: observed, Queue: q, Blobs: kept.blobs, Outputs: kept.outputs, Logger: log, ID: id, Alone: !cfg.Shared(), LeaseTerm: cfg.LeaseTerm,
		Data: cfg.ManagerDir(), MinDisk: int64(cfg.MinDisk), Observer: figures, Tracer: tracer, RunTerms: runs, SandboxTerms: sandboxTerms(cfg), FleetTerms: fleet,
		SessionTerms: manager.SessionTerms{Age: cfg.Sandboxes.SessionAge, Idle: cfg.Sandboxes.SessionIdle, OnStop: session.OnStop(cfg.Sandboxes.SessionsOnStop)},
		Retention: manager.Retention{
			Jobs: cfg.Keep.Jobs, Events: cfg.Keep.Events, Output: cfg.Keep.Output, Snapshots: cfg.Keep.Snapshots,
			Workers: awayFor, Unreferenced: unreferencedFor,
		},
	})
	if err != nil {
		return nil, err
	}
	figures.Ask(m)
	figures.AskRuns(m)
	figures.AskSandboxes(m, cfg.Sandboxes.Measured)
	signs, err := notary.Open(notary.Config{Store: observed, Keys: cfg.KeyDir(), Dir: cfg.ManagerDir(), Keep: cfg.Keep.Audit, Logger: log})
	if err != nil {
		return nil, err
	}
	return &managing{kept: kept, manager: m, figures: figures, tracer: tracer, notary: signs}, nil
}

// What is kept without a setting: workers that are away, so that they can come
// back under their name, and blobs of results that are on their way.
const (
	awayFor         = 30 * 24 * time.Hour
	unreferencedFor = 24 * time.Hour
)

func managerPart(m *manager.Manager) service.Part {
	return service.Part{Name: "manager", Service: service.NewFunc(func(ctx context.Context, ready func()) error {
		if err := m.Start(ctx); err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		m.Stop() //nolint:contextcheck // ctx has ended by then
		return context.Cause(ctx)
	})}
}

// notaryPart signs checkpoints of the audit.
func notaryPart(n *notary.Notary) service.Part {
	return service.Part{Name: "notary", Service: service.NewFunc(func(ctx context.Context, ready func()) error {
		ready()
		n.Run(ctx)
		<-ctx.Done() // Run ends early where the store does
		return context.Cause(ctx)
	})}
}

// managerDoors are the doors of the manager: HTTP for everybody, and the wire
// for workers behind the same guard.
func managerDoors(s cli.Start, mg *managing, log *slog.Logger) ([]service.Part, error) {
	api, door, err := managerDoor(s, mg, log)
	if err != nil {
		return nil, err
	}
	cert, err := loadCertificate(s.Config, log)
	if err != nil {
		return nil, err
	}
	server := newServer(api, log)
	server.RegisterOnShutdown(api.EndStreams)
	server.RegisterOnShutdown(door.Close)
	return []service.Part{
		closing("sockets", log, func() error { api.Close(); return nil }),
		closing("wire", log, func() error { door.Close(); return nil }),
		{Name: "http", Service: service.NewHTTP(server, secured(cert, listener(s.Config.ListenFD, s.Config.Address())))},
	}, nil
}

// managerDoor puts the doors together behind one guard.
func managerDoor(s cli.Start, mg *managing, log *slog.Logger) (*httpapi.API, *wire.Door, error) {
	cfg, m := s.Config, mg.manager
	director, err := cfg.LoadDirectorKey()
	if err != nil {
		return nil, nil, err
	}
	api, err := httpapi.New(httpapi.Config{
		Manager: m, Access: m, DirectorKey: director, Rates: ratesOf(cfg), Keeper: m, Sessions: m.Sessions, Audit: mg.notary, Fleet: m.Fleet, Triggers: m.Triggers, KillSwitch: m, Version: s.Version, Loopback: cfg.Loopback(), Keys: !cfg.Loopback(), Hosts: cfg.HostNames, Origins: cfg.Origins, Logger: log, Observe: mg.figures.Request, Tracer: mg.tracer,
	})
	if err != nil {
		return nil, nil, err
	}
	door := wire.Handler(m, log)
	api.Mount("/wire/", policy.Host, door)
	api.Join("/v1/", machinesapi.New(machinesapi.Config{Machinist: m.Machines, Caller: api.Caller, Limit: api.Limit, Demand: m.DemandIntake, Logger: log}))
	api.Oversee("GET /metrics", mg.figures.Handler())
	return api, door, nil
}

func ratesOf(cfg *config.Config) httpapi.Rates {
	r := cfg.Access.Rates
	return httpapi.Rates{Read: r.Read, Submit: r.Submit, Exec: r.Exec, Control: r.Control, Failures: r.Failures, Local: r.Local == "on"}
}

// makeKeys makes the keys that a manager needs which others can reach. Each
// goes into a file that only its owner reads. The admin's is shown once, to a
// person at a terminal: anything else that reads our output keeps it, as a log
// that others read.
func makeKeys(ctx context.Context, m *manager.Manager, cfg *config.Config, show io.Writer, log *slog.Logger) error {
	kinds := []policy.Kind{policy.Admin, policy.Worker, policy.Bridge}
	err := m.MakeKeys(ctx, kinds, func(k policy.Key, secret string) error {
		path := keyFile(cfg, k.Kind)
		if err := writeSecret(path, secret); err != nil {
			return err
		}
		log.Info("made a key", "kind", k.Kind, "id", k.ID, "file", path)
		if f, ok := show.(*os.File); ok && k.Kind == policy.Admin && term.IsTerminal(int(f.Fd())) {
			_, _ = fmt.Fprintf(show, "admin key, shown this once: %s\n", secret) // the file has it too
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	return nil
}

func keyFile(cfg *config.Config, kind policy.Kind) string {
	if kind == policy.Worker && cfg.WorkerKeyFile != "" {
		return cfg.WorkerKeyFile
	}
	return filepath.Join(cfg.KeyDir(), string(kind)+".key")
}

// writeSecret writes a file of mode 0600, whole or not at all.
func writeSecret(path, secret string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(secret + "\n")
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return nil
}
