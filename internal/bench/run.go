package bench

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Hello is the smallest program of a language: as a command for those who run
// commands, and as code for those who take code.
type Hello struct {
	Language string
	Command  []string
	Code     string
}

// Hellos are the programs that `aurea bench run` runs.
func Hellos() []Hello {
	return []Hello{
		{"python", []string{pythonPath, "-c", "print('hello')"}, "print('hello')\n"},
		{"javascript", []string{"/usr/bin/node", "-e", "console.log('hello')"}, "console.log('hello')\n"},
		{"bash", []string{"/usr/bin/bash", "-c", "echo hello"}, "echo hello\n"},
	}
}

// Runner is one way to run a program and get its output.
type Runner struct {
	Name string
	// Missing says why it cannot be measured here; Lacks why one language cannot.
	Missing string
	Lacks   map[string]string
	Do      func(ctx context.Context, h Hello) (Ran, error)
	// Settle waits until what a run left to be done after its answer is done:
	// it would meet whoever comes next. Its processor time is the run's. nil is
	// nothing.
	Settle func(ctx context.Context) error
	// CPUs says what the parts of it have used so far, for those that have
	// parts; nil is none.
	CPUs func() map[string]time.Duration
}

// Ran is what a runner says of one run.
type Ran struct {
	Warm   bool
	Stages []Took
}

// Took is one stage of a run.
type Took struct {
	Name string
	Took time.Duration
}

// Plain makes a runner of a contender.
func Plain(c Contender) Runner {
	return Runner{Name: c.Name, Missing: c.Missing, Do: func(ctx context.Context, h Hello) (Ran, error) {
		return Ran{}, c.Run(ctx, h.Command...)
	}}
}

// Runs is what `aurea bench run` found.
type Runs struct {
	Cores  int        `json:"cores"`
	Rows   []RunRow   `json:"latency"`
	Rates  []RunRate  `json:"sustained"`
	Stages []RunStage `json:"stages"`
	Left   []RunLeft  `json:"left_out"`
}

// RunRow is how long a run takes, from asking to the answer.
type RunRow struct {
	Name     string        `json:"name"`
	Language string        `json:"language"`
	Clients  int           `json:"clients"`
	Runs     int           `json:"runs"`
	P50      time.Duration `json:"p50_ns"`
	P95      time.Duration `json:"p95_ns"`
	P99      time.Duration `json:"p99_ns"`
	// CPU is the mean of all processes that take part, what goes on after the
	// answer too.
	CPU time.Duration `json:"cpu_ns"`
	// Ratio is of the p50 against the bare process with as many clients.
	Ratio float64 `json:"ratio_to_bare,omitempty"`
	// Warm is the share of runs that came from the pool.
	Warm float64 `json:"warm"`
}

// RunRate is how many runs a second go through for a while.
type RunRate struct {
	Name      string        `json:"name"`
	Language  string        `json:"language"`
	Clients   int           `json:"clients"`
	Took      time.Duration `json:"took_ns"`
	Runs      int64         `json:"runs"`
	PerSecond float64       `json:"runs_per_second"`
	Warm      float64       `json:"warm"`
	CPU       time.Duration `json:"cpu_ns_per_run"`
	// Parts are what a run costs each part of it.
	Parts map[string]time.Duration `json:"cpu_ns_per_run_by_part,omitempty"`
	// Ratio is against runsc run.
	Ratio float64 `json:"ratio_to_runsc,omitempty"`
}

// RunStage is where the time of a run goes, as its answer says.
type RunStage struct {
	Name     string        `json:"name"`
	Language string        `json:"language"`
	Stage    string        `json:"stage"`
	P50      time.Duration `json:"p50_ns"`
}

// RunLeft is what was not measured, and why.
type RunLeft struct {
	Name     string `json:"name"`
	Language string `json:"language,omitempty"`
	Why      string `json:"why"`
}

// RunPlan bounds a run of the bench.
type RunPlan struct {
	Rounds  int           // runs of each, per language and number of clients
	Clients []int         // at once
	Sustain time.Duration // of each, for the rate; 0 is none
}

// runTaken are the measurements of one row.
type runTaken struct {
	times  []time.Duration
	cpu    time.Duration
	warm   int
	stages map[string][]time.Duration
	order  []string // of stages
}

// Runs measures the runners side by side: for each language and number of
// clients they take turns, so that whatever else the machine does meets each.
func (b *Bench) Runs(ctx context.Context, meter Meter, runners []Runner, plan RunPlan) (Runs, error) {
	result := Runs{Cores: runtime.NumCPU()}
	for _, r := range runners {
		if r.Missing != "" {
			result.Left = append(result.Left, RunLeft{Name: r.Name, Why: r.Missing})
		}
	}
	for _, h := range Hellos() {
		able := result.able(runners, h)
		for _, clients := range plan.Clients {
			b.Progress("%s, %d clients, %d runs of each", h.Language, clients, plan.Rounds)
			taken, err := measureRuns(ctx, meter, able, h, clients, plan.Rounds)
			if err != nil {
				return result, err
			}
			result.add(able, h, clients, taken)
		}
	}
	if plan.Sustain > 0 {
		if err := b.sustain(ctx, meter, runners, plan.Sustain, &result); err != nil {
			return result, err
		}
	}
	return result, nil
}

// able are those who can run the program here.
func (s *Runs) able(runners []Runner, h Hello) []Runner {
	var able []Runner
	for _, r := range runners {
		if why := r.Lacks[h.Language]; why != "" {
			s.Left = append(s.Left, RunLeft{Name: r.Name, Language: h.Language, Why: why})
		} else if r.Missing == "" {
			able = append(able, r)
		}
	}
	return able
}

// measureRuns lets each take a turn of one run per client, again and again. The
// first turn pays for caches and does not count.
func measureRuns(ctx context.Context, meter Meter, runners []Runner, h Hello, clients, runs int) ([]runTaken, error) {
	taken := make([]runTaken, len(runners))
	turns := max((runs+clients-1)/clients, 1)
	for turn := range turns + 1 {
		for i, r := range runners {
			into := &taken[i]
			if turn == 0 {
				into = &runTaken{}
			}
			if err := r.turn(ctx, meter, h, clients, into); err != nil {
				return nil, fmt.Errorf("measure %s, %s: %w", r.Name, h.Language, err)
			}
		}
	}
	return taken, nil
}

// turn does one run per client at once.
func (r Runner) turn(ctx context.Context, meter Meter, h Hello, clients int, into *runTaken) error {
	before, err := meter.CPU()
	if err != nil {
		return err
	}
	type one struct {
		ran  Ran
		took time.Duration
		err  error
	}
	all := make([]one, clients)
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			begin := time.Now()
			all[c].ran, all[c].err = r.Do(ctx, h)
			all[c].took = time.Since(begin)
		})
	}
	group.Wait()
	if err := r.settle(ctx); err != nil {
		return err
	}
	after, err := meter.CPU()
	if err != nil {
		return err
	}
	into.cpu += after - before
	for _, o := range all {
		if o.err != nil {
			return o.err
		}
		into.note(o.ran, o.took)
	}
	return nil
}

func (r Runner) settle(ctx context.Context) error {
	if r.Settle == nil {
		return nil
	}
	return r.Settle(ctx)
}

func (t *runTaken) note(ran Ran, took time.Duration) {
	t.times = append(t.times, took)
	if ran.Warm {
		t.warm++
	}
	if t.stages == nil {
		t.stages = map[string][]time.Duration{}
	}
	for _, s := range ran.Stages {
		if _, known := t.stages[s.Name]; !known {
			t.order = append(t.order, s.Name)
		}
		t.stages[s.Name] = append(t.stages[s.Name], s.Took)
	}
}

// add makes rows of what was taken; the first runner is what ratios are of
// where it is the bare process.
func (s *Runs) add(runners []Runner, h Hello, clients int, taken []runTaken) {
	var bare time.Duration
	for i, r := range runners {
		t := taken[i]
		n := len(t.times)
		if n == 0 {
			continue
		}
		row := RunRow{
			Name: r.Name, Language: h.Language, Clients: clients, Runs: n, CPU: t.cpu / time.Duration(n), Warm: float64(t.warm) / float64(n),
			P50: percentile(t.times, 50), P95: percentile(t.times, 95), P99: percentile(t.times, 99),
		}
		if r.Name == bareName {
			bare = row.P50
		}
		if bare > 0 {
			row.Ratio = float64(row.P50) / float64(bare)
		}
		s.Rows = append(s.Rows, row)
		if clients != 1 {
			continue
		}
		for _, stage := range t.order {
			s.Stages = append(s.Stages, RunStage{Name: r.Name, Language: h.Language, Stage: stage, P50: percentile(t.stages[stage], 50)})
		}
	}
}

// sustain measures how many runs of Python each gets through, one runner after
// the other, with as many clients as keep all cores busy.
func (b *Bench) sustain(ctx context.Context, meter Meter, runners []Runner, during time.Duration, into *Runs) error {
	h := Hellos()[0]
	var against float64
	for _, r := range runners {
		if r.Missing != "" || r.Lacks[h.Language] != "" {
			continue
		}
		b.Progress("%s for %s", r.Name, during)
		rate, err := r.rate(ctx, meter, h, 2*into.Cores, during)
		if err != nil {
			return fmt.Errorf("measure the rate of %s: %w", r.Name, err)
		}
		if r.Name == runscName {
			against = rate.PerSecond
		}
		into.Rates = append(into.Rates, rate)
	}
	for i := range into.Rates {
		if against > 0 {
			into.Rates[i].Ratio = into.Rates[i].PerSecond / against
		}
	}
	return nil
}

func (r Runner) rate(ctx context.Context, meter Meter, h Hello, clients int, during time.Duration) (RunRate, error) {
	rate := RunRate{Name: r.Name, Language: h.Language, Clients: clients}
	var runs, warm atomic.Int64
	parts := r.parts()
	before, err := meter.CPU()
	if err != nil {
		return rate, err
	}
	begin := time.Now()
	failed := together(clients, func() error {
		for { // once in any case: a rate of nothing says nothing
			ran, err := r.Do(ctx, h)
			if err != nil {
				return err
			}
			runs.Add(1)
			if ran.Warm {
				warm.Add(1)
			}
			if time.Since(begin) >= during {
				return nil
			}
		}
	})
	rate.Took = time.Since(begin)
	if err := cmp.Or(failed, r.settle(ctx)); err != nil {
		return rate, err
	}
	after, err := meter.CPU()
	if rate.Runs = runs.Load(); err != nil || rate.Runs == 0 {
		return rate, err
	}
	n := time.Duration(rate.Runs)
	rate.PerSecond, rate.Warm, rate.CPU = float64(rate.Runs)/rate.Took.Seconds(), float64(warm.Load())/float64(rate.Runs), (after-before)/n
	for part, used := range r.parts() {
		if rate.Parts == nil {
			rate.Parts = map[string]time.Duration{}
		}
		rate.Parts[part] = (used - parts[part]) / n
	}
	return rate, nil
}

func (r Runner) parts() map[string]time.Duration {
	if r.CPUs == nil {
		return nil
	}
	return r.CPUs()
}
