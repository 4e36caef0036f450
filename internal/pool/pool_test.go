package pool_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const curious = `import os, sys
print(sys.argv, __name__, __file__, sys.path[0], sorted(os.environ.items()), os.getcwd(), sorted(os.listdir(".")))
print(sorted(sys.modules), list(globals()), sys.orig_argv)
print(sys.stdin.read())
open(os.environ["AUREA_ARTIFACTS"] + "/left.txt", "w").write("made")
try:
    open("main.py", "a")
except OSError as e:
    print(e)
print(os.listdir("/tmp"))
os.system("env; ls -l /proc/self/fd | wc -l")
def f():
    raise ValueError("here")
f()
`

// A program cannot tell whether its interpreter was started for it.
func TestWarmIsAsCold(t *testing.T) {
	t.Parallel()
	s := start(t, map[string]int{"python": 1, "bash": 1})
	o := run.Order{
		Language: "python", Code: curious, Args: []string{"a", "b c", ""}, Env: map[string]string{"ZED": "1", "AB": "x=y"},
		Stdin: "typed", Files: map[string]string{"in.txt": "x"}, ReadOnly: true, Artifacts: true,
	}
	s.waits("python", 1)
	warm := s.run(o)
	o.Limits.OpenFiles = limits().OpenFiles - 1 // none waits that is like it
	cold := s.run(o)
	if !warm.Warm || cold.Warm {
		t.Fatalf("warm %v, cold %v", warm.Warm, cold.Warm)
	}
	if warm.stdout != cold.stdout || warm.stderr != cold.stderr || warm.ExitCode != cold.ExitCode || warm.Verdict != cold.Verdict {
		t.Errorf("warm:\n%s%s\ncold:\n%s%s", warm.stdout, warm.stderr, cold.stdout, cold.stderr)
	}
	if string(warm.Artifacts["left.txt"].Data) != "made" || warm.ExitCode != 1 || warm.Stderr.Kept == 0 {
		t.Errorf("%+v", warm.Result)
	}
	s.waits("bash", 1)
	o = run.Order{
		Language: "bash", Code: `echo $0 "$@" $X; ls -lAR . /tmp | sed 's/[A-Z][a-z][a-z] .*:.. //'; ls /proc | grep -c '^[0-9]'; exit 7`,
		Args: []string{"y"}, Env: map[string]string{"X": "z"},
	}
	warm = s.run(o)
	o.Limits.OpenFiles = limits().OpenFiles - 1
	cold = s.run(o)
	if !warm.Warm || cold.Warm || !strings.HasPrefix(warm.stdout, "main.sh y z\n") || warm.ExitCode != 7 {
		t.Errorf("%+v", warm)
	}
	if warm.stdout != cold.stdout || warm.stderr != cold.stderr {
		t.Errorf("what was rehearsed shows; warm:\n%s%s\ncold:\n%s%s", warm.stdout, warm.stderr, cold.stdout, cold.stderr)
	}
}

// Each sandbox is used once, and nothing of one occupant reaches the next.
func TestNothingReachesTheNext(t *testing.T) {
	t.Parallel()
	s := start(t, map[string]int{"python": 1})
	const leave = `import os, random, tempfile
print(sorted(os.listdir("/tmp")), os.path.exists("/workspace/old"))
open("/workspace/old", "w").write("x"); open("/tmp/old", "w").write("x")
print(hash("x"), random.random(), tempfile.mktemp())
`
	seen := map[string]bool{}
	for range 3 {
		s.waits("python", 1)
		got := s.run(run.Order{Language: "python", Code: leave})
		if !got.Warm || got.Verdict != sandbox.OK {
			t.Fatalf("%+v", got)
		}
		if first := got.stdout[:len("[] False\n")]; first != "[] False\n" {
			t.Errorf("found %q", got.stdout)
		}
		if seen[got.stdout] || seen[got.Sandbox] {
			t.Errorf("said again: %q", got.stdout)
		}
		seen[got.stdout], seen[got.Sandbox] = true, true
	}
	if k := s.class("python"); k.Hits != 3 || k.Misses != 0 {
		t.Errorf("%+v", k)
	}
}

// A sandbox that died while it waited is not handed out.
func TestDeadOnesAreDiscarded(t *testing.T) {
	t.Parallel()
	s := start(t, map[string]int{"python": 1})
	s.waits("python", 1)
	handles, err := s.driver.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range handles {
		if err := s.driver.Destroy(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.run(run.Order{Language: "python", Code: "print(1)"}); got.stdout != "1\n" {
		t.Errorf("%+v", got)
	}
	s.eventually("the dead one was counted", func() bool { return s.class("python").Discards >= 1 })
}

// What an interpreter reads as it starts cannot be handed over later.
func TestVariablesOfTheStartGoCold(t *testing.T) {
	t.Parallel()
	s := start(t, map[string]int{"python": 1})
	s.waits("python", 1)
	got := s.run(run.Order{Language: "python", Code: "import sys; print(hash('x') == hash('x'), sys.flags.hash_randomization)", Env: map[string]string{"PYTHONHASHSEED": "0"}})
	if got.Warm || got.stdout != "True 0\n" {
		t.Errorf("%+v", got)
	}
}

// A sandbox that waited gets the limits that are asked for.
func TestLimitsOfAWarmRun(t *testing.T) {
	t.Parallel()
	s := start(t, map[string]int{"python": 1})
	s.waits("python", 1)
	o := run.Order{Language: "python", Code: "x = bytearray(200 << 20)\nprint(len(x))", Limits: sandbox.Limits{Memory: 128 << 20, MilliCPU: 1500}}
	got := s.run(o)
	if !got.Warm || got.Verdict != sandbox.OOM || got.Enforced.Memory != 128<<20 || got.Enforced.MilliCPU != 1500 {
		t.Errorf("%+v", got)
	}
	s.waits("python", 1)
	o.Limits.Memory = 512 << 20
	if got := s.run(o); !got.Warm || got.Verdict != sandbox.OK || got.Enforced.Memory != 512<<20 {
		t.Errorf("%+v", got)
	}
	s.waits("python", 1)
	o.Limits.MilliCPU = 500 // it would see another number of processors
	if got := s.run(o); got.Warm || got.Verdict != sandbox.OK {
		t.Errorf("%+v", got)
	}
}

func TestTimeOfAWarmRun(t *testing.T) {
	t.Parallel()
	s := start(t, map[string]int{"python": 1})
	s.waits("python", 1)
	got := s.run(run.Order{Language: "python", Code: "print('before', flush=True)\nwhile True: pass", Timeout: 300 * time.Millisecond})
	if !got.Warm || got.Verdict != sandbox.Timeout || got.ExitCode != -1 || got.stdout != "before\n" {
		t.Errorf("%+v", got)
	}
}

// BenchmarkWarmPython prints the stages at their fastest: what they cost when
// nobody else is at work.
func BenchmarkWarmPython(b *testing.B) {
	s := start(b, map[string]int{"python": 4})
	fastest := map[string]time.Duration{}
	for b.Loop() {
		b.StopTimer()
		s.waits("python", 4)
		b.StartTimer()
		got := s.run(run.Order{Language: "python", Code: "print(1)", ReadOnly: true, Artifacts: true})
		if got.stdout != "1\n" || !got.Warm {
			b.Fatalf("%+v", got)
		}
		for _, st := range got.Stages {
			if old, ok := fastest[st.Name]; !ok || st.Took < old {
				fastest[st.Name] = st.Took
			}
		}
	}
	for name, took := range fastest {
		b.ReportMetric(float64(took.Microseconds()), name+"-us")
	}
}
