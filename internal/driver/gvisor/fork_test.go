package gvisor_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// What must be a sandbox's own is its own in every fork, and its clock is right.
func TestForksDiffer(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	python := `
import os, random, socket, sys, time
print("up", flush=True)
sys.stdin.readline()
print(socket.gethostname(), os.urandom(16).hex(), int(time.time()), flush=True)
`
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", python}, Stdin: true})
	at := sandbox.Offsets{Stdout: int64(len(until(t, p, "up\n")))}
	where, _ := snapshot(t, b, sandbox.SnapshotOptions{})
	seen := map[string]bool{}
	began := time.Now()
	for range 3 {
		f := restore(t, d, sandbox.Spec{Restore: where})
		q := attach(t, f, p.ID(), at)
		if err := q.Write(t.Context(), []byte("go\n")); err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(until(t, q, "\n"))
		if len(fields) != 3 || fields[0] != f.Handle().ID || seen[fields[1]] {
			t.Errorf("%q, of %s", fields, f.Handle().ID)
			continue
		}
		seen[fields[1]] = true
		var now int64
		if _, err := fmt.Sscan(fields[2], &now); err != nil || now < began.Unix() || now > time.Now().Unix() {
			t.Errorf("its clock says %s, %v", fields[2], err)
		}
	}
}

// Limits are the new sandbox's own: memory runs out for the one that takes it,
// and what one uses is not counted for another.
func TestLimitsOfForks(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	limits := sandbox.Limits{Memory: 256 << 20, Processes: 50, Disk: 64 << 20}
	b := restore(t, d, sandbox.Spec{Limits: limits})
	say(t, b, "head -c 20000000 /dev/zero > full; for i in $(seq 1 20000); do :; done")
	where, _ := snapshot(t, b, sandbox.SnapshotOptions{})
	less := limits
	less.Memory = 160 << 20
	f := restore(t, d, sandbox.Spec{Limits: less, Restore: where})
	g := restore(t, d, sandbox.Spec{Limits: limits, Restore: where})
	if f.Enforced() != less || g.Enforced() != limits {
		t.Errorf("%+v, %+v", f.Enforced(), g.Enforced())
	}
	out, _, exit := sh(t, g, "wc -c < full; head -c 60000000 /dev/zero > more")
	if strings.TrimSpace(out) != "20000000" || exit.Code == 0 {
		t.Errorf("the disk: %q, %+v", out, exit)
	}
	p := begin(t, f, hungry(200))
	<-f.Done()
	if exit, err := p.Wait(t.Context()); err != nil || !exit.OOM {
		t.Errorf("%+v, %v", exit, err)
	}
	if got := say(t, g, "rm more; echo fine"); got != "fine" {
		t.Errorf("%q", got)
	}
	of, err := f.Usage(t.Context())
	if err != nil || of.CPU <= 0 || of.PeakMemory > less.Memory {
		t.Errorf("%+v, %v", of, err)
	}
}

// BenchmarkFork is ten forks of one snapshot, one after the other, up to the first
// answer of each; and what memory of the host's they take together.
func BenchmarkFork(b *testing.B) {
	const forks = 10
	d := open(b, stateDir(b))
	defer d.Close()
	box := drivertest.Create(b, d, sandbox.Spec{})
	defer drivertest.Destroy(b, d, box)
	p := begin(b, box, sandbox.ExecSpec{Command: []string{"python3", "-c", "import json, random; print('up', flush=True); input()"}, Stdin: true})
	until(b, p, "up")
	where := filepath.Join(b.TempDir(), "snapshot")
	if _, err := box.(sandbox.Snapshotter).Snapshot(b.Context(), where, sandbox.SnapshotOptions{}); err != nil {
		b.Fatal(err)
	}
	var times []time.Duration
	var memory int64
	for b.Loop() {
		began := time.Now()
		var made []sandbox.Box
		for range forks {
			f := drivertest.Create(b, d, sandbox.Spec{Restore: where})
			runTrue(b, f)
			made = append(made, f)
		}
		times = append(times, time.Since(began))
		memory = 0
		for _, f := range made {
			u, err := f.Usage(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			memory += u.PeakMemory
			drivertest.Destroy(b, d, f)
		}
	}
	report(b, times)
	b.ReportMetric(float64(memory)/forks/(1<<20), "peak-MiB/fork")
}
