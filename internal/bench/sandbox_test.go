package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/bench"
	"github.com/aurea-dev/aurea/internal/driver/fake"
)

// steady is a meter by which everything costs the same.
type steady struct{ reads int }

func (s *steady) CPU() (time.Duration, error) {
	s.reads++
	return time.Duration(s.reads) * time.Millisecond, nil
}

func (s *steady) Memory() (map[int]int64, error) { return map[int]int64{1: 10}, nil }

// nothing is a sandbox that does nothing.
type nothing struct{ err error }

func (n nothing) Exec(context.Context, ...string) error { return n.err }
func (n nothing) Destroy(context.Context) error         { return nil }

func newBench() *bench.Bench { return &bench.Bench{Progress: func(string, ...any) {}} }

func TestSandboxesComparesEveryStage(t *testing.T) {
	t.Parallel()
	d, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	base := bench.Contender{Name: "base", Run: func(context.Context, ...string) error { return nil }}
	all := []bench.Contender{base, bench.Driver(d, ""), bench.Left("gone", "it is not installed")}
	got, err := newBench().Sandboxes(t.Context(), &steady{}, all, "base", bench.Lives{Rounds: 3, Rate: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 3 || got.Rows[2].Missing == "" || len(got.Rows[2].Stages) != 0 {
		t.Fatalf("%+v", got.Rows)
	}
	var names []string
	for _, s := range got.Rows[1].Stages {
		names = append(names, s.Name)
		if s.CPU != time.Millisecond || s.CPURatio != 1 || s.Ratio <= 0 {
			t.Errorf("%+v", s)
		}
	}
	if strings.Join(names, ", ") != "life, create, first true, true, python, destroy" {
		t.Errorf("stages %q", names)
	}
	var out bytes.Buffer
	if err := got.Print(&out); err != nil || !strings.Contains(out.String(), "aurea fake") || !strings.Contains(out.String(), "left out: gone: it is not installed") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

func TestSandboxesSaysWhoFailedAtWhat(t *testing.T) {
	t.Parallel()
	broken := errors.New("it broke")
	c := bench.Contender{
		Name: "weak", Run: func(context.Context, ...string) error { return nil },
		Create: func(context.Context) (bench.Live, error) { return nothing{broken}, nil },
	}
	_, err := newBench().Sandboxes(t.Context(), &steady{}, []bench.Contender{c}, "weak", bench.Lives{Rounds: 1})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "weak") || !strings.Contains(err.Error(), "true") {
		t.Fatal(err)
	}
}

// TestGroupCountsWhatItHolds is not parallel: it moves this process.
func TestGroupCountsWhatItHolds(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("a group to measure with needs root")
		}
		t.Skip("a group to measure with needs root; this run leaves it out")
	}
	g, err := bench.OpenGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	before, err := g.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if err := bench.Bare().Run(t.Context(), "/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"); err != nil {
		t.Fatal(err)
	}
	if after, err := g.CPU(); err != nil || after <= before {
		t.Errorf("the time went from %v to %v: %v", before, after, err)
	}
	memory, err := g.Memory()
	if err != nil || memory[os.Getpid()] < 1<<20 {
		t.Errorf("%v, of %d: %v", memory, os.Getpid(), err)
	}
}
