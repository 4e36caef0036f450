package job

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

func TestWorkLimits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Ask{
		`{"action":"exec","command":["x"]}`:                                                   {},
		`{"action":"exec","command":["x"],"cpu_limit":0.5,"memory_limit":"256m"}`:             {MilliCPU: 500, Memory: 256 << 20},
		`{"action":"run","language":"python","code":"1","cpu_limit":2,"memory_limit":"1GiB"}`: {MilliCPU: 2000, Memory: 1 << 30},
		`{"action":"run","language":"python","code":"1","memory_limit":"1048576"}`:            {Memory: 1 << 20},
		`{"action":"run","language":"python","code":"1","memory_limit":" 64 KB "}`:            {Memory: 64 << 10},
		`{"action":"exec","command":["x"],"cpu_time_limit":1.5}`:                              {CPUTime: 1500 * time.Millisecond},
	} {
		w, err := ParseWork(json.RawMessage(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := w.Limits(); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		`{"action":"exec","command":["x"],"cpu_limit":0}`,
		`{"action":"exec","command":["x"],"cpu_limit":-1}`,
		`{"action":"exec","command":["x"],"cpu_limit":1e300}`,
		`{"action":"exec","command":["x"],"cpu_limit":"1"}`,
		`{"action":"exec","command":["x"],"memory_limit":"-1m"}`,
		`{"action":"exec","command":["x"],"memory_limit":"0"}`,
		`{"action":"exec","command":["x"],"memory_limit":"9223372036854775807g"}`,
		`{"action":"exec","command":["x"],"memory_limit":"lots"}`,
		`{"action":"exec","command":["x"],"memory_limit":5}`,
		`{"action":"create file","memory_limit":"1g"}`,
		`{"action":"exec","command":["x"],"cpu_time_limit":0}`,
		`{"action":"exec","command":["x"],"cpu_time_limit":1e300}`,
		`{"action":"exec","command":["x"],"cpu_time_limit":"1s"}`,
	} {
		if _, err := ParseWork(json.RawMessage(text)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1", "256m", "1GiB", "-3k", "gib", "9223372036854775807g", " 5 kb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil && n < 1 {
			t.Errorf("%q is %d", s, n)
		}
	})
}
