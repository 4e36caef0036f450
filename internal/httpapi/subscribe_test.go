package httpapi

import (
	"net/url"
	"testing"
)

// FuzzMessage looks for a message or a query that gets past its bounds.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"type":"subscribe","event_types":["job.created"],"entity_ids":"a,b","after":5}`, `{"type":"ping"}`, `{"type":null}`, `[]`, `"x"`, `{`,
		`{"type":"subscribe","after":9223372036854775807,"job_id":"` + "\u202e" + `"}`, `event_types=a,b&after=1&token=x`, `after=&after=`, `%zz`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		kind, s, err := decodeMessage(raw)
		if err == nil && (s != nil) != (kind == "subscribe") {
			t.Fatalf("%q is %q, with %v", raw, kind, s)
		}
		if q, err := url.ParseQuery(string(raw)); err == nil && s == nil {
			s, _ = querySubscription(q)
		}
		if s == nil {
			return
		}
		filter, err := s.filter(0)
		if err != nil {
			return
		}
		if filter.After < 0 || filter.ProjectID < 0 || len(filter.Types) > maxWords || len(filter.Entities) > maxWords || len(filter.EntityIDs) > maxWords {
			t.Fatalf("%q lets through %+v", raw, filter)
		}
		for _, w := range append(append([]string{filter.JobID, filter.RootID}, filter.Entities...), filter.EntityIDs...) {
			if checkWord("x", w) != nil {
				t.Fatalf("%q lets through the word %q", raw, w)
			}
		}
	})
}
