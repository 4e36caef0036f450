// Package governortest is the suite for whoever launches workers of the fleet:
// the simulated orchestrator and the real governor pass it.
package governortest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/aurea-dev/aurea/internal/manifest"
)

// Orchestrator launches workers.
type Orchestrator interface {
	Launch(ctx context.Context, m manifest.Manifest) (manifest.Container, error)
	Kill(ctx context.Context, id, reason string) (killed bool, err error)
	KillAll(ctx context.Context, reason string) (int, error)
	Enforce(ctx context.Context, id string) (e manifest.Enforcement, ok bool, err error)
	// Containers are those that run, History those that ended.
	Containers(ctx context.Context) ([]manifest.Container, error)
	History(ctx context.Context) ([]manifest.Container, error)
}

// Run tests an orchestrator. fresh makes one that logs to log; paper makes a
// manifest that it launches.
func Run(t *testing.T, fresh func(t *testing.T, log *slog.Logger) Orchestrator, paper func(t *testing.T, o Orchestrator, r manifest.Resources) manifest.Manifest) {
	t.Helper()
	for name, test := range map[string]func(*bench){
		"a launch is recorded and logged":                testLaunch,
		"a kill ends it, keeps the reason and is logged": testKill,
		"a kill of nobody is logged as skipped":          testSkipped,
		"all are killed, each with its line":             testKillAll,
		"enforcing emits the metric":                     testEnforce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{T: t, log: &Book{}, resources: manifest.Resources{CPULimit: 0.5, MemoryLimitMB: 64, Network: manifest.DefaultNetwork()}}
			b.Orchestrator = fresh(t, slog.New(slog.NewJSONHandler(b.log, nil)))
			b.paper = func() manifest.Manifest { return paper(t, b.Orchestrator, b.resources) }
			test(b)
		})
	}
}

type bench struct {
	*testing.T
	Orchestrator
	log       *Book
	resources manifest.Resources
	paper     func() manifest.Manifest
}

func (b *bench) launch() manifest.Container {
	b.Helper()
	c, err := b.Launch(b.Context(), b.paper())
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func (b *bench) want(running, ended int) {
	b.Helper()
	now, err := b.Containers(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	past, err := b.History(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if len(now) != running || len(past) != ended {
		b.Errorf("%d run and %d have ended, want %d and %d", len(now), len(past), running, ended)
	}
}

func testLaunch(b *bench) {
	c := b.launch()
	if c.Status != "running" || c.StartedAt == nil || c.Reason != nil || c.Resources != b.resources || c.Manifest.Resources != b.resources {
		b.Errorf("the record is %+v", c)
	}
	b.want(1, 0)
	lines := b.log.Lines("container_launched")
	if len(lines) != 1 {
		b.Fatalf("logged %v", lines)
	}
	for field, want := range map[string]any{"worker_id": c.Manifest.WorkerID, "parent_id": "", "cpu_limit": 0.5, "memory_limit_mb": 64.0, "allow_external": false} {
		if lines[0][field] != want {
			b.Errorf("%s is logged as %v, want %v", field, lines[0][field], want)
		}
	}
}

func testKill(b *bench) {
	c := b.launch()
	if killed, err := b.Kill(b.Context(), c.Manifest.WorkerID, "why"); err != nil || !killed {
		b.Fatalf("killed %t: %v", killed, err)
	}
	b.want(0, 1)
	past, err := b.History(b.Context())
	if err != nil || len(past) != 1 || past[0].Reason == nil || *past[0].Reason != "why" || past[0].Status == "running" {
		b.Errorf("the record is %+v: %v", past, err)
	}
	lines := b.log.Lines("container_killed")
	if len(lines) != 1 || lines[0]["worker_id"] != c.Manifest.WorkerID || lines[0]["reason"] != "why" {
		b.Errorf("logged %v", lines)
	}
	if killed, err := b.Kill(b.Context(), c.Manifest.WorkerID, "again"); err != nil || killed {
		b.Errorf("killed again %t: %v", killed, err)
	}
	b.want(0, 1)
}

func testSkipped(b *bench) {
	if killed, err := b.Kill(b.Context(), "w1", "why"); err != nil || killed {
		b.Errorf("killed %t: %v", killed, err)
	}
	lines := b.log.Lines("container_kill_skipped")
	if len(lines) != 1 || lines[0]["worker_id"] != "w1" || lines[0]["reason"] != "why" || len(b.log.Lines("container_killed")) != 0 {
		b.Errorf("logged %v", lines)
	}
}

func testKillAll(b *bench) {
	const some = 5
	for range some {
		b.launch()
	}
	b.want(some, 0)
	n, err := b.KillAll(b.Context(), "enough")
	if err != nil || n != some || len(b.log.Lines("container_killed")) != some {
		b.Errorf("killed %d, logged %d: %v", n, len(b.log.Lines("container_killed")), err)
	}
	b.want(0, some)
	if n, err := b.KillAll(b.Context(), "again"); err != nil || n != 0 {
		b.Errorf("killed %d more: %v", n, err)
	}
}

func testEnforce(b *bench) {
	c := b.launch()
	e, ok, err := b.Enforce(b.Context(), c.Manifest.WorkerID)
	if err != nil || !ok || e.Name != "resource_enforced" || e.Value != 1 || e.Labels["worker_id"] != c.Manifest.WorkerID || e.Labels["cpu"] != "0.5" || e.Labels["memory"] != "64" || e.Breach != "" {
		b.Errorf("the metric is %+v, %t: %v", e, ok, err)
	}
	if _, measured := e.Labels["measured_memory"]; !measured {
		b.Error("what was measured is not said")
	}
	if _, ok, err := b.Enforce(b.Context(), "w1"); err != nil || ok {
		b.Errorf("nobody was measured %t: %v", ok, err)
	}
	b.want(1, 0)
}
