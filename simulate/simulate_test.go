package simulate_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/governor/governortest"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/simulate"
)

// simulated is the orchestrator as the suite sees one.
type simulated struct{ *simulate.Orchestrator }

func (s simulated) Launch(_ context.Context, m manifest.Manifest) (manifest.Container, error) {
	return s.LaunchWorker(m), nil
}

func (s simulated) Kill(_ context.Context, id, reason string) (bool, error) {
	return s.KillWorker(id, reason), nil
}

func (s simulated) KillAll(_ context.Context, reason string) (int, error) {
	return s.Orchestrator.KillAll(reason), nil
}

func (s simulated) Enforce(_ context.Context, id string) (manifest.Enforcement, bool, error) {
	m, ok := s.EnforceResourceBounds(id)
	return m, ok, nil
}

func (s simulated) Containers(context.Context) ([]manifest.Container, error) {
	return slices.Collect(maps.Values(s.Orchestrator.Containers())), nil
}

func (s simulated) History(context.Context) ([]manifest.Container, error) {
	return s.Orchestrator.History(), nil
}

func TestTheSimulatedOrchestratorIsOne(t *testing.T) {
	t.Parallel()
	governortest.Run(t, func(t *testing.T, log *slog.Logger) governortest.Orchestrator {
		t.Helper()
		return simulated{simulate.New(log)}
	}, func(_ *testing.T, _ governortest.Orchestrator, r manifest.Resources) manifest.Manifest {
		return manifest.Manifest{WorkerID: manifest.NewID(), State: json.RawMessage("{}"), IssuedAt: time.Now(), Resources: r, Signature: "signed"}
	})
}

// TestTheExampleOfTheSource launches and kills the literal manifest.
func TestTheExampleOfTheSource(t *testing.T) {
	t.Parallel()
	o := simulate.New(nil)
	o.LaunchWorker(simulate.Manifest{
		WorkerID: "w1", State: json.RawMessage("{}"), IssuedAt: time.Now().UTC(), Signature: "signed",
		Resources: simulate.Resources{CPULimit: 0.5, MemoryLimitMB: 256, Network: simulate.NetworkPolicy{AllowController: true}},
	})
	if n := len(o.Containers()); n != 1 {
		t.Errorf("%d run after the launch", n)
	}
	o.KillWorker("w1", "done")
	if n := len(o.Containers()); n != 0 {
		t.Errorf("%d run after the kill", n)
	}
}

func TestALaunchTakesThePlaceOfTheOneBefore(t *testing.T) {
	t.Parallel()
	o := simulate.New(slog.New(slog.DiscardHandler))
	for _, memory := range []int64{1, 2} {
		o.LaunchWorker(simulate.Manifest{WorkerID: "w", Resources: simulate.Resources{CPULimit: 1, MemoryLimitMB: memory}})
	}
	if c := o.Containers(); len(c) != 1 || c["w"].Resources.MemoryLimitMB != 2 {
		t.Errorf("there are %v", c)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	o := simulate.New(slog.New(slog.DiscardHandler))
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			m := simulate.Manifest{WorkerID: manifest.NewID(), Resources: simulate.Resources{CPULimit: 1, MemoryLimitMB: 1}}
			o.LaunchWorker(m)
			o.EnforceResourceBounds(m.WorkerID)
			o.KillAll("all")
		})
	}
	group.Wait()
	if o.KillAll(""); len(o.Containers()) != 0 || len(o.History()) != 50 {
		t.Errorf("%d are left and %d ended", len(o.Containers()), len(o.History()))
	}
}
