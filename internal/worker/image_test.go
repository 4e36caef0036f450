package worker_test

import (
	"testing"
	"testing/synctest"

	"github.com/aurea-dev/aurea/internal/worker"
)

// The default image may change while the worker runs: each record names what
// its job got.
func TestRecordNamesTheDefaultImage(t *testing.T) {
	name := "host"
	story(t, func(c *worker.Config) { c.DefaultImage = func() string { return name } }, func(t *testing.T, s *stand) {
		for _, want := range []string{"host", "mine:1"} {
			name = want
			id := s.submit(payload("exec", map[string]any{"command": []string{"true"}}))
			synctest.Wait()
			if res, _ := s.result(id); res.Record.Image != want {
				t.Errorf("the record names %q, not %q", res.Record.Image, want)
			}
		}
	})
}
