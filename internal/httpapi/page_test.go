package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// bulk is a JSON value of which three fill a page.
func bulk() json.RawMessage {
	return json.RawMessage(`{"x":"` + strings.Repeat("x", store.PageBytes/3) + `"}`)
}

// pages follows the Link headers and returns how many elements each page had.
func (d door) pages(path string) (lengths []int) {
	d.t.Helper()
	for path != "" {
		a := d.ask(http.MethodGet, path, "", "Accept", "application/json")
		if a.Code != http.StatusOK {
			d.t.Fatalf("%s answers %d", path, a.Code)
		}
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
			d.t.Fatal(err)
		}
		lengths = append(lengths, len(list))
		path, _, _ = strings.Cut(strings.TrimPrefix(a.Header.Get("Link"), "<"), ">")
	}
	return lengths
}

// What clients send can be large. A list of it is cut into pages by bytes, and
// whoever follows the links, or the stream, misses nothing.
func TestLargePagesAreCut(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	const all = 7
	for n := range all {
		e := happened(n, event.JobStream)
		e.Data = bulk()
		d.say(e)
		outcome := job.OutcomeFailed
		if n%2 == 0 {
			outcome = job.OutcomeLost
		}
		d.jobs = append(d.jobs, job.Job{ID: job.NewID(), RootID: "r", Seq: int64(n + 1), State: job.Failed, Outcome: outcome, Payload: bulk()})
	}
	for _, path := range []string{"/events?after=0&limit=100", "/jobs?limit=100", "/api/v1/queue/dead?limit=100"} {
		sum := 0
		lengths := d.pages(path)
		for _, n := range lengths {
			sum += n
		}
		if sum != all || len(lengths) < 2 {
			t.Errorf("%s comes in pages of %v", path, lengths)
		}
	}
	r := follow(t, s, "/events?after=0")
	r.lines.Buffer(nil, 2*store.PageBytes)
	for n := range all {
		if e := r.next(); e.Seq != int64(n+1) {
			t.Fatalf("event %d is number %d", n, e.Seq)
		}
	}
}
