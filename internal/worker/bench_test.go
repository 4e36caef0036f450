package worker_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

func BenchmarkJobs(b *testing.B) {
	for _, tc := range []struct {
		name       string
		noSnapshot bool
		payload    string
		recovers   bool
	}{
		{"file/snapshot", false, `{}`, false},
		{"file/none", true, `{}`, false},
		{"exec/snapshot", false, payload("exec", map[string]any{"command": []string{"echo", "x"}}), false},
		{"exec/snapshot/recovers", false, payload("exec", map[string]any{"command": []string{"echo", "x"}}), true},
		{"exec/none", true, payload("exec", map[string]any{"command": []string{"echo", "x"}}), false},
		{"exec/none/recovers", true, payload("exec", map[string]any{"command": []string{"echo", "x"}}), true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var opts fake.Options
			if tc.recovers {
				opts.StateDir = b.TempDir()
			}
			driver, err := fake.New(opts)
			if err != nil {
				b.Fatal(err)
			}
			ref := dispatchtest.NewReference()
			left := atomic.Int64{}
			left.Store(int64(b.N))
			done := make(chan struct{})
			l := &line{Manager: ref, spoils: func(r dispatch.FinishRequest) error {
				if left.Add(-int64(len(r.Results))) == 0 {
					close(done)
				}
				return nil
			}}
			w, err := worker.New(worker.Config{
				Manager: l, Drivers: map[string]sandbox.Driver{"fake": driver}, Driver: "fake", Base: b.TempDir(),
				WorkerID: "w", NoSnapshot: tc.noSnapshot,
			})
			if err != nil {
				b.Fatal(err)
			}
			for range b.N {
				ref.Submit(json.RawMessage(tc.payload))
			}
			ctx, stop := context.WithCancelCause(b.Context())
			ran := make(chan error, 1)
			b.ResetTimer()
			go func() { ran <- w.Run(ctx) }()
			<-done
			b.StopTimer()
			stop(nil)
			if err := <-ran; err != nil {
				b.Error(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
