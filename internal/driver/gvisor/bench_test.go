package gvisor_test

import (
	"archive/tar"
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// report adds the median and the best of the times, which say more than their
// mean on a machine that does other things too.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[0].Microseconds())/1000, "min-ms")
}

func measure(b *testing.B, f func()) {
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		times = append(times, time.Since(start))
	}
	report(b, times)
}

// BenchmarkCreate is from nothing to the answer of a first true.
func BenchmarkCreate(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	ctx := context.Background()
	var times, destroys []time.Duration
	for b.Loop() {
		id, err := sandbox.NewID()
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		made, err := d.Create(ctx, sandbox.Spec{ID: id}, func(sandbox.Handle) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		runTrue(b, made)
		times = append(times, time.Since(start))
		start = time.Now()
		if err := d.Destroy(ctx, made.Handle()); err != nil {
			b.Fatal(err)
		}
		destroys = append(destroys, time.Since(start))
	}
	report(b, times)
	slices.Sort(destroys)
	b.ReportMetric(float64(destroys[len(destroys)/2].Microseconds())/1000, "destroy-p50-ms")
}

// BenchmarkExec is one true in a live sandbox, with its exit.
func BenchmarkExec(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	box := drivertest.Create(b, d, sandbox.Spec{})
	runTrue(b, box)
	measure(b, func() { runTrue(b, box) })
	drivertest.Destroy(b, d, box)
}

// BenchmarkPut is one small file.
func BenchmarkPut(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	box := drivertest.Create(b, d, sandbox.Spec{})
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "a.txt", Mode: 0o644, Size: 5}); err != nil {
		b.Fatal(err)
	}
	if _, err := w.Write([]byte("hello")); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	measure(b, func() {
		if err := box.Put(context.Background(), "/workspace", bytes.NewReader(archive.Bytes())); err != nil {
			b.Fatal(err)
		}
	})
	drivertest.Destroy(b, d, box)
}

// BenchmarkOutput is how fast a command's output comes out.
func BenchmarkOutput(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	box := drivertest.Create(b, d, sandbox.Spec{})
	const size = 8 << 20
	b.SetBytes(size)
	for b.Loop() {
		out, _, _ := sh(b, box, "head -c 8388608 /dev/zero")
		if len(out) != size {
			b.Fatalf("%d bytes", len(out))
		}
	}
	drivertest.Destroy(b, d, box)
}

func runTrue(b *testing.B, box sandbox.Box) {
	b.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		b.Fatal(err)
	}
	p, err := box.Exec(context.Background(), sandbox.ExecSpec{ID: id, Command: []string{"/bin/true"}})
	if err != nil {
		b.Fatal(err)
	}
	exit, err := p.Wait(context.Background())
	if err != nil || exit.Code != 0 {
		b.Fatal(exit, err)
	}
	for {
		if _, err := p.Next(context.Background()); err != nil {
			return
		}
	}
}
