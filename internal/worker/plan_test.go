package worker

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/language"
)

func shipped(t testing.TB) *language.Registry {
	t.Helper()
	r, err := language.Default()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLanguages(t *testing.T) {
	t.Parallel()
	languages := shipped(t)
	for payload, want := range map[string][]string{
		`{"action":"run","language":"python","code":"x"}`:            {"python3", "main.py"},
		`{"action":"run","language":" Python ","code":"x"}`:          {"python3", "main.py"},
		`{"action":"run","language":"node","code":"x","args":["1"]}`: {"node", "main.js", "1"},
		`{"action":"run","language":"javascript","code":"x"}`:        {"node", "main.js"},
		`{"action":"run","language":"bash","code":"x"}`:              {"bash", "main.sh"},
		`{"action":"run","language":"c","code":"x","args":["$(x)"]}`: {
			"sh", "-c", `'cc' '-O2' '-o' '/tmp/main' 'main.c' '-lm' && exec '/tmp/main' "$@"`, "sh", "$(x)",
		},
		`{"action":"exec","command":["ls","-l"],"files":{"a":"text"}}`: {"ls", "-l"},
	} {
		p, err := planFor([]byte(payload), languages)
		if err != nil || !slices.Equal(p.command, want) || len(p.before) != 1 {
			t.Errorf("%s gave %q, %v", payload, p.command, err)
		}
	}
}

// Whatever payload a manager hands over, the plan is refused, or stays below
// the workspace and can be packed.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"action":"create file","path":"../x"}`))
	f.Add([]byte(`{"action":"write files","files":{"a/b":"x","c":""}}`))
	f.Add([]byte(`{"action":"run","language":"sh","code":"x","files":{"main.sh":""}}`))
	f.Add([]byte(`{"action":"exec","command":["x"],"env":{"A":"b"},"stdin":"y"}`))
	languages := shipped(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := planFor(payload, languages)
		if err != nil {
			return
		}
		files, err := p.archive()
		if err != nil {
			t.Fatalf("cannot be packed: %v", err)
		}
		for r := tar.NewReader(files); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := job.CheckPath("files", h.Name); err != nil {
				t.Errorf("%q: %v", h.Name, err)
			}
		}
	})
}
