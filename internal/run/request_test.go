package run

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// words are languages for tests.
type words map[string]language.Language

func (w words) Lookup(name string) (language.Language, bool) {
	l, ok := w[strings.ToLower(name)]
	return l, ok
}

func (w words) Names() []string { return []string{"python", "bash"} }

func terms() Terms {
	python := language.Language{Name: "python", File: "main.py"}
	return Terms{
		Languages: words{"python": python, "py": python, "bash": {Name: "bash", File: "main.sh"}},
		Timeout:   30 * time.Second, OutputCap: 1 << 20,
		Most: sandbox.Limits{MilliCPU: 2000, Memory: 1 << 30, Processes: 100},
	}
}

func TestARequestGetsTheDefaultsOfItsSource(t *testing.T) {
	t.Parallel()
	o, err := (&Request{Code: "print(1)"}).Order(terms())
	if err != nil {
		t.Fatal(err)
	}
	if o.Language != "python" || o.Timeout != 30*time.Second || !o.ReadOnly || !o.Artifacts || o.Network != sandbox.NetworkNone || o.Limits != (sandbox.Limits{}) {
		t.Errorf("the order is %+v", o)
	}
}

func TestARequestSaysAllThatItAsksFor(t *testing.T) {
	t.Parallel()
	no, long, cpu, memory := false, int64(300), 0.5, int64(512<<20)
	r := Request{
		Code: "echo", Language: "BASH", Timeout: &long, ReadOnly: &no, CaptureArtifacts: &no, Processors: &cpu, Memory: &memory, Network: "none",
		Files: map[string]string{"a.txt": "x", "main.py": "not the code's name in bash"}, Env: map[string]string{"A_1": "b"}, Args: []string{"-x", ""},
		Stdin: "in", Driver: "gvisor", Image: "registry.example/thing:latest", Limits: sandbox.Limits{Processes: 7},
	}
	o, err := r.Order(terms())
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.Limits{MilliCPU: 500, Memory: 512 << 20, Processes: 7}
	if o.Language != "bash" || o.Timeout != 5*time.Minute || o.ReadOnly || o.Artifacts || o.Limits != want || o.Stdin != "in" || len(o.Files) != 2 {
		t.Errorf("the order is %+v", o)
	}
}

func TestABadRequestIsRefusedByName(t *testing.T) {
	t.Parallel()
	num := func(n int64) *int64 { return &n }
	float := func(n float64) *float64 { return &n }
	files := func(names ...string) *Request {
		r := &Request{Code: "x", Files: map[string]string{}}
		for _, n := range names {
			r.Files[n] = ""
		}
		return r
	}
	many := map[string]string{}
	for i := range MaxFiles + 1 {
		many["f"+formatInt(int64(i))] = ""
	}
	for _, c := range []struct {
		what, field, says string
		r                 *Request
	}{
		{"no code", "code", "empty", &Request{}},
		{"a NUL in the code", "code", "NUL", &Request{Code: "a\x00"}},
		{"no text", "code", "UTF-8", &Request{Code: "a\xff"}},
		{"an unknown language", "language", "python, bash", &Request{Code: "x", Language: "cobol"}},
		{"a long language", "language", "python, bash", &Request{Code: "x", Language: strings.Repeat("a", 1000)}},
		{"no time", "timeout", "1 to 300", &Request{Code: "x", Timeout: num(0)}},
		{"too much time", "timeout", "1 to 300", &Request{Code: "x", Timeout: num(301)}},
		{"time that wraps", "timeout", "1 to 300", &Request{Code: "x", Timeout: num(math.MaxInt64)}},
		{"a path", "files[../etc/passwd]", "../etc/passwd", files("../etc/passwd")},
		{"a backslash", `files[a\b]`, "separator", files(`a\b`)},
		{"a hidden file", "files[.hidden]", ".hidden", files(".hidden")},
		{"dots", "files[..]", "dot", files("..")},
		{"no name", "files[]", "empty", files("")},
		{"a NUL in a name", "files[a\x00]", "printable", files("a\x00")},
		{"a line break", "files[a\n]", "printable", files("a\n")},
		{"a hidden direction", "files[a\u202eb]", "printable", files("a\u202eb")},
		{"no text in a name", "files[\xff]", "UTF-8", files("\xff")},
		{"a long name", "files[" + strings.Repeat("a", 60) + "…]", "255", files(strings.Repeat("a", 256))},
		{"the code's own file", "files[main.py]", "own file", files("main.py")},
		{"the code's own file in capitals", "files[MAIN.PY]", "own file", files("MAIN.PY")},
		{"the folder of artifacts", "files[Artifacts]", "artifacts", files("Artifacts")},
		{"two in other case", "files[a.txt]", "case", files("A.txt", "a.txt")},
		{"two composed differently", "files[é]", "composed", files("e\u0301", "\u00e9")},
		{"too many", "files", "100", &Request{Code: "x", Files: many}},
		{"no text in a file", "files[a]", "UTF-8", &Request{Code: "x", Files: map[string]string{"a": "\xff"}}},
		{"too many arguments", "args", "256", &Request{Code: "x", Args: make([]string, MaxArgs+1)}},
		{"a NUL in an argument", "args", "NUL", &Request{Code: "x", Args: []string{"\x00"}}},
		{"a long argument", "args", "bytes", &Request{Code: "x", Args: []string{strings.Repeat("a", maxArg+1)}}},
		{"no text on stdin", "stdin", "UTF-8", &Request{Code: "x", Stdin: "\xff"}},
		{"no variable", "env", "variable", &Request{Code: "x", Env: map[string]string{"A=B": ""}}},
		{"an empty variable", "env", "variable", &Request{Code: "x", Env: map[string]string{"": ""}}},
		{"our variable", "env", "AUREA_", &Request{Code: "x", Env: map[string]string{"AUREA_KEY": ""}}},
		{"a network", "network", "not yet", &Request{Code: "x", Network: "full"}},
		{"an unknown network", "network", "none", &Request{Code: "x", Network: "wifi"}},
		{"a driver's path", "driver", "driver", &Request{Code: "x", Driver: "../x"}},
		{"an image with a space", "image", "image", &Request{Code: "x", Image: "a b"}},
		{"no processors", "cpu_limit", "0.001", &Request{Code: "x", Processors: float(0)}},
		{"no number of processors", "cpu_limit", "0.001", &Request{Code: "x", Processors: float(math.NaN())}},
		{"too many processors", "cpu_limit", "2 processors", &Request{Code: "x", Processors: float(3)}},
		{"no memory", "memory_limit", "512m", &Request{Code: "x", Memory: num(0)}},
		{"too much memory", "memory_limit", "1g", &Request{Code: "x", Memory: num(1<<30 + 1)}},
		{"too many processes", "limits.processes", "100", &Request{Code: "x", Limits: sandbox.Limits{Processes: 101}}},
		{"fewer than none", "limits.disk", "negative", &Request{Code: "x", Limits: sandbox.Limits{Disk: -1}}},
	} {
		_, err := c.r.Order(terms())
		f, ok := err.(*fault.Error) //nolint:errorlint // Order returns it as it is
		if !ok || f.Kind != fault.Invalid || f.Field != c.field || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %v of field %q", c.what, err, fieldOf(f))
		}
	}
}

func fieldOf(f *fault.Error) string {
	if f == nil {
		return ""
	}
	return f.Field
}

func TestSizesAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"512m": 512 << 20, "1g": 1 << 30, "1.5G": 3 << 29, "64 MiB": 64 << 20, "1048576": 1 << 20, "10kb": 10 << 10, "1": 1, "7b": 7,
		"": 0, "m": 0, "0": 0, "-1m": 0, "1e3": 0, "0x10": 0, "inf": 0, "nan": 0, "1mm": 0, "99999999t": 0, "512mx": 0, "1_0": 0,
	} {
		got, err := ParseSize(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for n, want := range map[int64]string{512 << 20: "512m", 1 << 30: "1g", 1023: "1023", 0: "0", 3 << 10: "3k"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d is written %q", n, got)
		}
	}
}

func FuzzFileNames(f *testing.F) {
	for _, seed := range []string{"a.txt", "../x", ".", "main.py", "é", "e\u0301", "a\x00b", "Ａ.txt", strings.Repeat("x", 256)} {
		f.Add(seed, "b")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		o, err := (&Request{Code: "x", Files: map[string]string{a: "", b: ""}}).Order(terms())
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%q, %q: %v", a, b, err)
			}
			return
		}
		seen := map[string]bool{}
		for name := range o.Files {
			folded := strings.ToLower(name)
			if name == "" || len(name) > 255 || strings.ContainsAny(name, "/\\\x00\n") || name[0] == '.' || folded == "main.py" || seen[folded] {
				t.Fatalf("%q was let through", name)
			}
			seen[folded] = true
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"512m", "1g", "1e9", "0x1p4", "-0", " 5 k "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseSize(text); err == nil && (n < 1 || n > maxMemory) {
			t.Fatalf("%q is %d", text, n)
		}
	})
}

func TestARunMovesAsItsTableSays(t *testing.T) {
	t.Parallel()
	moves := 0
	for _, from := range States() {
		for _, to := range States() {
			r := Run{ID: "r", State: from}
			err := r.To(to)
			if err == nil {
				moves++
			}
			if (err == nil) != (r.State == to && from != to) || err != nil && !fault.Is(err, fault.Conflict) {
				t.Errorf("%s to %s: %v, and it is %s", from, to, err, r.State)
			}
		}
	}
	if moves != 7 || !Completed.Ended() || Running.Ended() {
		t.Errorf("%d moves", moves)
	}
}
