package corpustest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// samples are programs that say their argument and their input, and end with 7.
var samples = map[string]string{
	"bash":       `read -r line; printf '%s %s %s\n' "bash ${BASH_VERSINFO[0]:+is}" "$1" "$line"; exit 7`,
	"c":          "#include <stdio.h>\n#include <math.h>\nint main(int n, char **v) { char b[64]; if (n < 2 || !fgets(b, sizeof b, stdin)) return 1; volatile double four = 4; printf(\"c is%.0f %s %s\\n\", sqrt(four), v[1], b); return 7; }\n",
	"javascript": "const line = require('fs').readFileSync(0, 'utf8'); console.log('javascript is', process.argv[2], line); process.exit(7)",
	"perl":       "my $line = <STDIN>; print \"perl is $ARGV[0] $line\\n\"; exit 7;",
	"python":     "import sys\nprint('python is', sys.argv[1], sys.stdin.read())\nsys.exit(7)",
	"ruby":       "puts \"ruby is #{ARGV[0]} #{$stdin.read}\"; exit 7",
	"shell":      `read -r line; printf '%s %s %s\n' "shell is" "$1" "$line"; exit 7`,
}

func says(language string) string {
	if language == "c" {
		return "c is2 $(one) two\n"
	}
	return language + " is $(one) two\n"
}

// Every language that comes with Aurea is active in an image with its runtime,
// and runs there.
func TestEveryLanguageRuns(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for _, l := range <-s.said {
		if !l.Active {
			t.Errorf("%s is not active: %s", l.Name, l.Reason)
		}
		if samples[l.Name] == "" {
			t.Errorf("there is no program in %s", l.Name)
		}
	}
	s.runAll(samples)
}

// runAll runs a program of each language as a job.
func (s *stand) runAll(programs map[string]string) {
	s.t.Helper()
	jobs := map[string]string{}
	for lang, code := range programs {
		payload, err := json.Marshal(map[string]any{"action": "run", "language": lang, "code": code, "args": []string{"$(one)"}, "stdin": "two"})
		if err != nil {
			s.t.Fatal(err)
		}
		jobs[s.Submit(payload)] = lang
	}
	for range jobs {
		id := <-s.finished
		var said struct {
			Verdict  sandbox.Verdict `json:"verdict"`
			ExitCode int             `json:"exit_code"`
			Error    string          `json:"error"`
		}
		res := s.Accepted(id)
		if len(res) != 1 || json.Unmarshal(res[0].Details, &said) != nil {
			s.t.Errorf("%s: %v", jobs[id], res)
			continue
		}
		if out := s.stream(res[0], "stdout"); said.ExitCode != 7 || out != says(jobs[id]) {
			s.t.Errorf("%s: %s, exit code %d, %q, %q, %s", jobs[id], said.Verdict, said.ExitCode, out, s.stream(res[0], "stderr"), said.Error)
		}
	}
}

func (s *stand) stream(r dispatch.Result, name string) string {
	for _, a := range r.Artifacts {
		if a.Name == name+".log" {
			return string(r.Inline[a.SHA256])
		}
	}
	return ""
}

// A language is an entry of a file and nothing else: this one is known to no
// code of ours.
func TestALanguageAddedByFileOnly(t *testing.T) {
	t.Parallel()
	needImage(t)
	file := filepath.Join(t.TempDir(), "languages.json")
	const entries = `{"languages": [
		{"name": "awk", "aliases": ["mawk"], "file": "main.awk", "extensions": [".awk"], "command": ["awk", "-f", "{file}"]},
		{"name": "cobol", "file": "main.cob", "command": ["{out}"], "compile": {"command": ["cobc", "-x", "-o", "{out}", "{file}"]}}
	]}`
	if err := os.WriteFile(file, []byte(entries), 0o600); err != nil {
		t.Fatal(err)
	}
	registry, err := language.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *worker.Config) { c.Languages = registry })
	inactive := map[string]string{}
	for _, l := range <-s.said {
		if !l.Active {
			inactive[l.Name] = l.Reason
		}
	}
	if d := cmp.Diff(map[string]string{"cobol": "the image " + images.DefaultName() + " has no cobc"}, inactive); d != "" {
		t.Error(d)
	}
	s.runAll(map[string]string{"awk": `BEGIN { one = ARGV[1]; ARGC = 1; getline; print "awk is " one " " $0; exit 7 }`})
}
