package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Soak is what thousands of runs in a row left behind.
type Soak struct {
	Runs    int `json:"runs"`
	Hostile int `json:"hostile"`
	// First and Last are the p50 of the first and the last friendly runs, Of so
	// many each.
	First time.Duration `json:"first_p50_ns"`
	Last  time.Duration `json:"last_p50_ns"`
	Of    int           `json:"of"`
	Ratio float64       `json:"ratio"`
	// Parts are the p50 of each stretch of runs, with that of a bare process that
	// was started now and then between them: when both move, it is the machine.
	Parts    []SoakPart     `json:"parts"`
	Verdicts map[string]int `json:"verdicts"`
	Before   Census         `json:"before"`
	After    Census         `json:"after"`
	Leaks    []string       `json:"leaks"`
}

// SoakPart is one stretch of a soak.
type SoakPart struct {
	Runs int           `json:"runs"` // done by its end
	P50  time.Duration `json:"p50_ns"`
	Bare time.Duration `json:"bare_p50_ns"`
}

// Census counts what can leak.
type Census struct {
	Memory      map[string]int64 `json:"memory_bytes"` // resident, by role
	Descriptors map[string]int   `json:"descriptors"`
	Processes   int              `json:"processes"`
	Groups      int              `json:"groups"`
	Files       int              `json:"files"` // of the worker
}

// SoakPlan bounds a soak.
type SoakPlan struct {
	Runs    int
	Clients int
	Every   int // one in so many is hostile
}

// attack is a program that means harm, and how long it is let.
type attack struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	Timeout  int    `json:"timeout"`
	Memory   string `json:"memory_limit,omitempty"`
}

// attacks are what one in so many runs is. Each must come to an answer.
func attacks() []attack {
	return []attack{
		{Language: "bash", Code: "bomb() { bomb | bomb & }; bomb; wait; sleep 60\n", Timeout: 1},
		{Language: "python", Code: "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n", Timeout: 1},
		{Language: "python", Code: "while True: pass\n", Timeout: 1},
		{Language: "bash", Code: "trap '' TERM INT HUP; while :; do sleep 1; done\n", Timeout: 1},
		{Language: "python", Code: "import sys\nwhile True: sys.stdout.write('x' * 65536); sys.stderr.write('y' * 65536)\n", Timeout: 1},
		{Language: "python", Code: "x = []\nwhile True: x.append(bytearray(16 << 20))\n", Timeout: 10, Memory: "128m"},
		{Language: "python", Code: "import os\nd = os.environ.get('AUREA_ARTIFACTS', '/tmp')\nfor i in range(20000): open(d + '/' + str(i), 'w').close()\n", Timeout: 5},
		{Language: "bash", Code: "head -c 20G /dev/zero >/tmp/full; kill -9 -1\n", Timeout: 5},
		{Language: "python", Code: "import os, signal\nfor p in range(1, 200):\n    try: os.kill(p, signal.SIGKILL)\n    except OSError: pass\nos.abort()\n", Timeout: 2},
		{Language: "bash", Code: "for i in $(seq 200); do sleep 600 & done; disown -a; exit 0\n", Timeout: 2},
	}
}

// Soak does runs in a row and counts before and after. A leak is in the result,
// and is not an error.
func (b *Bench) Soak(ctx context.Context, s *Server, group *Group, plan SoakPlan) (Soak, error) {
	result := Soak{Runs: plan.Runs, Verdicts: map[string]int{}}
	b.Progress("warming up")
	// What is made once and kept is made by these.
	few := max(100, plan.Runs/20)
	if _, err := s.soak(ctx, SoakPlan{Runs: few, Clients: plan.Clients, Every: plan.Every}, func(soaked) {}); err != nil {
		return result, err
	}
	var err error
	if result.Before, err = s.settled(ctx, group, nil); err != nil {
		return result, err
	}
	var ours, bare []time.Duration
	times, err := s.soak(ctx, plan, func(r soaked) {
		result.Verdicts[r.verdict]++
		if r.hostile {
			result.Hostile++
		} else {
			ours = append(ours, r.took)
		}
		if r.bare > 0 {
			bare = append(bare, r.bare)
		}
		if r.done%soakPart == 0 {
			part := SoakPart{Runs: r.done, P50: percentile(ours, 50), Bare: percentile(bare, 50)}
			result.Parts = append(result.Parts, part)
			ours, bare = nil, nil
			b.Progress("%d of %d: p50 %s, a bare process %s", r.done, plan.Runs, round(part.P50), round(part.Bare))
		}
	})
	if err != nil {
		return result, err
	}
	result.Of = min(1000, len(times)/2)
	result.First, result.Last = percentile(append([]time.Duration{}, times[:result.Of]...), 50), percentile(append([]time.Duration{}, times[len(times)-result.Of:]...), 50)
	if result.First > 0 {
		result.Ratio = float64(result.Last) / float64(result.First)
	}
	if result.After, err = s.settled(ctx, group, &result.Before); err != nil {
		return result, err
	}
	result.Leaks = result.Before.leaks(result.After)
	return result, nil
}

// soakPart is how many runs a stretch of a soak has, bareEvery after how many of
// them a bare process is started.
const soakPart, bareEvery = 1000, 25

// soaked is one run of a soak.
type soaked struct {
	done    int // so many were, with this one
	verdict string
	hostile bool
	took    time.Duration
	bare    time.Duration // how long a bare process took right after it; mostly 0
}

// soak does the runs and returns how long the friendly ones took, in order.
func (s *Server) soak(ctx context.Context, plan SoakPlan, told func(soaked)) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	friendly := attack{Language: "python", Code: "print('hello')\n", Timeout: 30}
	var next atomic.Int64
	var mu sync.Mutex
	var done int
	var times []time.Duration
	var group sync.WaitGroup
	for range plan.Clients {
		group.Go(func() {
			for n := next.Add(1); n <= int64(plan.Runs) && ctx.Err() == nil; n = next.Add(1) {
				asked, hostile := friendly, plan.Every > 0 && n%int64(plan.Every) == 0
				if hostile {
					all := attacks()
					asked = all[int(n/int64(plan.Every))%len(all)]
				}
				r := soaked{hostile: hostile}
				if err := s.soakOne(ctx, asked, &r); err != nil {
					cancel(fmt.Errorf("run %d: %w", n, err))
					return
				}
				if n%bareEvery == 0 {
					r.bare = bareHello(ctx)
				}
				mu.Lock()
				done++
				if r.done = done; !hostile {
					times = append(times, r.took)
				}
				told(r)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return times, ctx.Err()
}

// soakOne does one run. A friendly one must have said its word.
func (s *Server) soakOne(ctx context.Context, asked attack, r *soaked) error {
	begin := time.Now()
	v, err := s.run(ctx, asked)
	r.took, r.verdict = time.Since(begin), v.Verdict
	if err == nil && !r.hostile && v.Stdout != "hello\n" {
		return fmt.Errorf("ended with %d (%s): %q %q", v.Exit, v.Verdict, v.Stdout, v.Stderr)
	}
	return err
}

// bareHello is how long the friendly program takes without any sandbox; 0 where
// it cannot be run.
func bareHello(ctx context.Context) time.Duration {
	begin := time.Now()
	if exec.CommandContext(ctx, pythonPath, "-c", "print('hello')").Run() != nil {
		return 0
	}
	return time.Since(begin)
}

// settled counts when the pool is full again and, given an earlier count,
// nothing is more than it was then; or when there is no more patience.
func (s *Server) settled(ctx context.Context, group *Group, before *Census) (Census, error) {
	const patience, often = time.Minute, 250 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	for begin := time.Now(); ; {
		full, err := s.poolIsFull(ctx)
		if err != nil {
			return Census{}, err
		}
		c, err := s.census(group)
		if err != nil || time.Since(begin) > patience || full && before != nil && len(before.leaks(c)) == 0 || full && before == nil && time.Since(begin) > 2*time.Second {
			return c, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
}

func (s *Server) census(group *Group) (Census, error) {
	c := Census{Memory: map[string]int64{}, Descriptors: map[string]int{}}
	for i, role := range []string{"manager", "worker"} {
		pid := s.procs[i].cmd.Process.Pid
		fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
		if err != nil {
			return c, fmt.Errorf("the %s is gone: %w", role, err)
		}
		c.Descriptors[role] = len(fds)
		if c.Memory[role], err = resident(pid); err != nil {
			return c, err
		}
	}
	all, err := group.Memory()
	if err != nil {
		return c, err
	}
	c.Processes = len(all)
	c.Groups = s.groups()
	err = filepath.WalkDir(filepath.Join(s.Data, "sandbox"), func(string, fs.DirEntry, error) error {
		c.Files++ // one that goes while we look does no harm
		return nil
	})
	return c, err
}

// groups counts the control groups beside those of this server's sandboxes, in
// every hierarchy. Some sandbox waits in the pool whenever it is asked.
func (s *Server) groups() int {
	parents := map[string]bool{}
	for _, pid := range s.sandboxes() {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
		if err != nil {
			continue // it has just ended
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if path := fields[len(fields)-1]; strings.Contains(path, "/aurea/") {
				parents[filepath.Dir(path)] = true
			}
		}
	}
	n := 0
	for parent := range parents {
		places, _ := filepath.Glob("/sys/fs/cgroup/*" + parent)
		for _, place := range append(places, "/sys/fs/cgroup"+parent) {
			_ = filepath.WalkDir(place, func(_ string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					n++
				}
				return nil
			})
		}
	}
	return n
}

// resident is the memory of a process that is not on any disk.
func resident(pid int) (int64, error) {
	const unit = 1024
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n * unit, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// leaks says what is more than it was by more than chance.
func (c Census) leaks(after Census) []string {
	const descriptors, files, memory = 8, 16, 128 << 20
	leaks := []string{}
	for _, role := range []string{"manager", "worker"} {
		if was, is := c.Descriptors[role], after.Descriptors[role]; is > was+descriptors {
			leaks = append(leaks, fmt.Sprintf("the %s had %d descriptors and has %d", role, was, is))
		}
		if was, is := c.Memory[role], after.Memory[role]; is > was+max(was/2, memory) {
			leaks = append(leaks, fmt.Sprintf("the %s had %d MiB and has %d MiB", role, was>>20, is>>20))
		}
	}
	for _, of := range []struct {
		what          string
		was, is, some int
	}{{"processes", c.Processes, after.Processes, 0}, {"control groups", c.Groups, after.Groups, 0}, {"files of the worker", c.Files, after.Files, files}} {
		if of.is > of.was+of.some {
			leaks = append(leaks, fmt.Sprintf("there were %d %s and are %d", of.was, of.what, of.is))
		}
	}
	return leaks
}

// Print writes the result as a person reads it.
func (s Soak) Print(w io.Writer) error {
	fmt.Fprintf(w, "%d runs, %d of them hostile: %v\n", s.Runs, s.Hostile, s.Verdicts)
	fmt.Fprintf(w, "p50 of the first %d friendly runs %s, of the last %s: %.2f ×\n", s.Of, round(s.First), round(s.Last), s.Ratio)
	if n := len(s.Parts); n > 1 {
		fmt.Fprintf(w, "p50 of a bare process beside them at first %s, at last %s\n", round(s.Parts[0].Bare), round(s.Parts[n-1].Bare))
	}
	for _, role := range []string{"manager", "worker"} {
		fmt.Fprintf(w, "%s: %d MiB before, %d MiB after; %d descriptors before, %d after\n", role,
			s.Before.Memory[role]>>20, s.After.Memory[role]>>20, s.Before.Descriptors[role], s.After.Descriptors[role])
	}
	fmt.Fprintf(w, "processes %d → %d, control groups %d → %d, files of the worker %d → %d\n",
		s.Before.Processes, s.After.Processes, s.Before.Groups, s.After.Groups, s.Before.Files, s.After.Files)
	for _, l := range s.Leaks {
		fmt.Fprintf(w, "LEAK: %s\n", l)
	}
	return nil
}
