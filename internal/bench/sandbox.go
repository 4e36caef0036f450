package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Contender is one way to run a command apart from others. All contenders of a
// run take turns, so that whatever else the machine does meets each of them.
type Contender struct {
	Name string
	// Missing says why it cannot be measured here; "" is no reason.
	Missing string
	// Run does the whole of it: a sandbox for this one command, and its end.
	Run func(ctx context.Context, command ...string) error
	// Create makes a sandbox that waits for commands; nil where there is no
	// such thing.
	Create func(ctx context.Context) (Live, error)
}

// Live is a sandbox that waits for commands.
type Live interface {
	Exec(ctx context.Context, command ...string) error
	Destroy(ctx context.Context) error
}

// Meter measures everything that a run starts.
type Meter interface {
	// CPU is the processor time of all processes so far, also of those that
	// have ended.
	CPU() (time.Duration, error)
	// Memory is the proportional memory of each process that lives.
	Memory() (map[int]int64, error)
}

// Sandboxes is what `aurea bench sandbox` found.
type Sandboxes struct {
	Against string `json:"against"` // what the ratios are of
	Cores   int    `json:"cores"`
	Rows    []Row  `json:"contenders"`
}

// Row is one contender's part.
type Row struct {
	Name    string  `json:"name"`
	Missing string  `json:"left_out,omitempty"`
	Stages  []Stage `json:"stages,omitempty"`
	// Idle is the proportional memory of one sandbox that waits, after one
	// command; 0 is not measured.
	Idle int64 `json:"idle_bytes,omitempty"`
	// PerSecond is how many whole lives this machine gets through.
	PerSecond float64 `json:"lives_per_second,omitempty"`
}

// Stage is a step in the life of a sandbox.
type Stage struct {
	Name string        `json:"stage"`
	P50  time.Duration `json:"p50_ns"`
	P95  time.Duration `json:"p95_ns"`
	CPU  time.Duration `json:"cpu_ns"` // mean, of all processes that take part
	// Ratio and CPURatio are against one whole life of true in what the run
	// compares with.
	Ratio    float64 `json:"ratio,omitempty"`
	CPURatio float64 `json:"cpu_ratio,omitempty"`
}

// The stages. A life is a fresh sandbox, one true in it, and its end.
const (
	stageLife    = "life"
	stageCreate  = "create"
	stageFirst   = "first true"
	stageTrue    = "true"
	stagePython  = "python"
	stageDestroy = "destroy"
)

func stageNames() []string {
	return []string{stageLife, stageCreate, stageFirst, stageTrue, stagePython, stageDestroy}
}

// Lives bounds a run.
type Lives struct {
	Rounds int // lives of each contender, one after the other
	Idle   int // sandboxes that wait at once
	Rate   int // lives for the rate
}

// The commands that are run, as every Debian has them.
const truePath, pythonPath = "/usr/bin/true", "/usr/bin/python3"

// samples are the measurements of one contender, by stage.
type samples struct {
	times map[string][]time.Duration
	cpu   map[string]time.Duration
}

// Sandboxes measures the contenders side by side. The one named against is
// what the others are compared with.
func (b *Bench) Sandboxes(ctx context.Context, meter Meter, contenders []Contender, against string, n Lives) (Sandboxes, error) {
	result := Sandboxes{Against: against, Cores: runtime.NumCPU()}
	taken := make([]samples, len(contenders))
	for i := range taken {
		taken[i] = samples{times: map[string][]time.Duration{}, cpu: map[string]time.Duration{}}
	}
	for round := range n.Rounds + 1 {
		b.Progress("round %d of %d", round, n.Rounds)
		for i, c := range contenders {
			if c.Missing != "" {
				continue
			}
			into := &taken[i]
			if round == 0 {
				into = &samples{times: map[string][]time.Duration{}, cpu: map[string]time.Duration{}} // the first pays for caches
			}
			if err := c.live(ctx, meter, into); err != nil {
				return result, fmt.Errorf("measure %s: %w", c.Name, err)
			}
		}
	}
	for i, c := range contenders {
		row := Row{Name: c.Name, Missing: c.Missing, Stages: taken[i].stages()}
		if c.Missing == "" {
			b.Progress("idle memory and rate of %s", c.Name)
			var err error
			if row.Idle, err = c.idle(ctx, meter, n.Idle); err != nil {
				return result, fmt.Errorf("measure idle %s: %w", c.Name, err)
			}
			if row.PerSecond, err = c.rate(ctx, n.Rate); err != nil {
				return result, fmt.Errorf("measure the rate of %s: %w", c.Name, err)
			}
		}
		result.Rows = append(result.Rows, row)
	}
	result.compare()
	return result, nil
}

// live measures one whole life, and then one in its stages.
func (c Contender) live(ctx context.Context, meter Meter, s *samples) error {
	if err := s.measure(meter, stageLife, func() error { return c.Run(ctx, truePath) }); err != nil {
		return err
	}
	if c.Create == nil {
		return s.measure(meter, stagePython, func() error { return c.Run(ctx, pythonPath, "-c", "print(1)") })
	}
	var live Live
	if err := s.measure(meter, stageCreate, func() (err error) { live, err = c.Create(ctx); return err }); err != nil {
		return err
	}
	const several = 10
	for i := range several {
		stage := stageTrue
		if i == 0 { // it finds nothing in any cache of its sandbox
			stage = stageFirst
		}
		if err := s.measure(meter, stage, func() error { return live.Exec(ctx, truePath) }); err != nil {
			return err
		}
	}
	if err := s.measure(meter, stagePython, func() error { return live.Exec(ctx, pythonPath, "-c", "print(1)") }); err != nil {
		return err
	}
	return s.measure(meter, stageDestroy, func() error { return live.Destroy(ctx) })
}

func (s *samples) measure(meter Meter, stage string, do func() error) error {
	before, err := meter.CPU()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", stage, err)
	}
	s.times[stage] = append(s.times[stage], time.Since(begin))
	after, err := meter.CPU()
	s.cpu[stage] += after - before
	return err
}

func (s *samples) stages() []Stage {
	var all []Stage
	for _, name := range stageNames() {
		times := s.times[name]
		if n := len(times); n > 0 {
			all = append(all, Stage{Name: name, P50: percentile(times, 50), P95: percentile(times, 95), CPU: s.cpu[name] / time.Duration(n)})
		}
	}
	return all
}

// idleAfter is how long a sandbox has been let alone when it counts as idle.
const idleAfter = 2 * time.Second

// idle has n sandboxes wait at once, each after one command, and returns the
// proportional memory of one: that of the processes that came with them.
func (c Contender) idle(ctx context.Context, meter Meter, n int) (_ int64, err error) {
	if c.Create == nil || n == 0 {
		return 0, nil
	}
	before, err := meter.Memory()
	if err != nil {
		return 0, err
	}
	var waiting []Live
	defer func() {
		for _, live := range waiting {
			if e := live.Destroy(context.WithoutCancel(ctx)); err == nil {
				err = e
			}
		}
	}()
	for range n {
		live, err := c.Create(ctx)
		if err != nil {
			return 0, err
		}
		waiting = append(waiting, live)
		if err := live.Exec(ctx, truePath); err != nil {
			return 0, err
		}
	}
	select {
	case <-time.After(idleAfter):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	after, err := meter.Memory()
	if err != nil {
		return 0, err
	}
	var sum int64
	for pid, bytes := range after {
		if _, old := before[pid]; !old {
			sum += bytes
		}
	}
	return sum / int64(n), nil
}

// rate is how many lives a second this machine gets through, with twice as
// many in the making as there are cores.
func (c Contender) rate(ctx context.Context, lives int) (float64, error) {
	const each = 2
	workers := each * runtime.NumCPU()
	var next atomic.Int64
	begin := time.Now()
	err := together(workers, func() error {
		for next.Add(1) <= int64(lives) {
			if err := c.Run(ctx, truePath); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return float64(lives) / time.Since(begin).Seconds(), nil
}

// compare fills the ratios in.
func (s *Sandboxes) compare() {
	var base Stage
	for _, row := range s.Rows {
		if row.Name == s.Against && len(row.Stages) > 0 {
			base = row.Stages[0]
		}
	}
	if base.P50 == 0 {
		return
	}
	for _, row := range s.Rows {
		for i := range row.Stages {
			at := &row.Stages[i]
			at.Ratio = float64(at.P50) / float64(base.P50)
			at.CPURatio = float64(at.CPU) / float64(max(base.CPU, 1))
		}
	}
}
