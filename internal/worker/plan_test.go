package worker

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/aurea-dev/aurea/internal/job"
)

func TestLanguages(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string][]string{
		`{"action":"run","language":"python","code":"x"}`:              {"python3", "main.py"},
		`{"action":"run","language":" Python ","code":"x"}`:            {"python3", "main.py"},
		`{"action":"run","language":"node","code":"x","args":["1"]}`:   {"node", "main.js", "1"},
		`{"action":"run","language":"javascript","code":"x"}`:          {"node", "main.js"},
		`{"action":"run","language":"bash","code":"x"}`:                {"bash", "main.sh"},
		`{"action":"exec","command":["ls","-l"],"files":{"a":"text"}}`: {"ls", "-l"},
	} {
		p, err := planFor([]byte(payload), Languages())
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
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := planFor(payload, Languages())
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
