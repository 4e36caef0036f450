package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// A program that never calls the kernel is stopped too, and uses nothing.
func TestPausedUsesNoProcessor(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	if !d.Capabilities().Pause {
		t.Fatal("this host cannot pause")
	}
	b := box(t, d)
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", "print('up', flush=True)\nwhile True: pass"}})
	until(t, p, "up")
	cpu := func() time.Duration {
		u, err := b.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}
	for range 3 {
		if err := b.(sandbox.Pauser).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		const long = 200 * time.Millisecond
		before := cpu()
		time.Sleep(long) //nolint:forbidigo // the longer, the less of it is the sentry's own
		if used := cpu() - before; used > long/5 {
			t.Errorf("it used %v in %v while it was paused", used, long)
		}
		if err := b.(sandbox.Pauser).Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it goes on", func() bool { return cpu() > before })
	}
}

// Whoever pauses or resumes may be killed before it has written down what came of
// it. The next finds out.
func TestPauseThatWasNotWrittenDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word   string
		paused bool
	}{{"pausing", false}, {"resuming", false}, {"pausing", true}} {
		t.Run(fmt.Sprintf("%s, paused %v", c.word, c.paused), func(t *testing.T) {
			t.Parallel()
			folder := stateDir(t)
			first := open(t, folder)
			b := drivertest.Create(t, first, sandbox.Spec{})
			if c.paused {
				if err := b.(sandbox.Pauser).Pause(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, "box", b.Handle().ID, "pause"), []byte(c.word), 0o600); err != nil {
				t.Fatal(err)
			}
			second := open(t, folder)
			t.Cleanup(func() { second.Close() })
			b, err := second.Recover(t.Context(), b.Handle())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { drivertest.Destroy(t, second, b) })
			_, err = b.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}})
			if paused := fault.CodeOf(err) == sandbox.CodePaused; paused != c.paused {
				t.Errorf("exec: %v", err)
			}
			if err := b.(sandbox.Pauser).Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := say(t, b, "echo on"); got != "on" {
				t.Errorf("%q", got)
			}
		})
	}
}

func BenchmarkPause(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	box := drivertest.Create(b, d, sandbox.Spec{})
	defer drivertest.Destroy(b, d, box)
	var pauses, resumes []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := box.(sandbox.Pauser).Pause(b.Context()); err != nil {
			b.Fatal(err)
		}
		paused := time.Now()
		if err := box.(sandbox.Pauser).Resume(b.Context()); err != nil {
			b.Fatal(err)
		}
		pauses, resumes = append(pauses, paused.Sub(began)), append(resumes, time.Since(paused))
		runTrue(b, box)
	}
	report(b, pauses)
	slices.Sort(resumes)
	b.ReportMetric(float64(resumes[len(resumes)/2].Microseconds())/1000, "resume-p50-ms")
}
