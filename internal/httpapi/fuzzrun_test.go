package httpapi

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/run"
)

// FuzzRuns reads what anybody may send to both doors of runs: it is refused in
// words, or becomes orders that hold their bounds.
func FuzzRuns(f *testing.F) {
	seeds(f, `{"code":"x"}`, `{"code":"x","files":{"a.txt":"1"},"memory_limit":"512m","limits":{"disk":1}}`, `{"runs":[{"code":"x"},{"code":"y","timeout":3}]}`,
		`{"runs":null}`, `{"runs":{}}`, `{"code":"x","memory_limit":1e99,"cpu_limit":-0}`, `{"code":"x","timeout":9223372036854775807,"env":{"A":"b"}}`)
	languages, err := language.Default()
	if err != nil {
		f.Fatal(err)
	}
	terms := run.Terms{Languages: languages, Timeout: time.Second, OutputCap: 1}
	f.Fuzz(func(t *testing.T, body []byte) {
		reqs, several, err := decodeRuns(body)
		if err != nil {
			demandInvalid(t, err)
			return
		}
		if len(reqs) > run.MaxBatch || !several && len(reqs) != 1 {
			t.Fatalf("%d requests", len(reqs))
		}
		for i := range reqs {
			o, err := reqs[i].Order(terms)
			if err != nil {
				demandInvalid(t, err)
				continue
			}
			if o.Code == "" || !utf8.ValidString(o.Code) || o.Timeout < time.Second || o.Timeout > run.MaxTimeout || o.Limits.Memory < 0 || o.Limits.MilliCPU < 0 {
				t.Fatalf("the order is %+v", o)
			}
		}
	})
}
