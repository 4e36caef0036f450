package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestQueriesThatAreNone refuses what looks like a number or a cursor and is none,
// before anything is asked of the keeper: echoing has no such sandbox.
func TestQueriesThatAreNone(t *testing.T) {
	t.Parallel()
	s := serveSessions(t, &talks{})
	const base = "/api/v1/sandboxes"
	for _, x := range []struct{ method, path, body, field string }{
		{"GET", base + "?cursor=zzz", "", "query.cursor"},
		{"GET", base + "?cursor=abc", "", "query.cursor"},
		{"GET", base + "?cursor=zzzzzzzzzzzzzzzzzzzzzzzzzz", "", "query.cursor"},
		{"POST", base + "/b1/execs?wait=NaN", `{"command":["true"]}`, "query.wait"},
		{"GET", base + "/b1/execs/" + anExec + "?wait=nan", "", "query.wait"},
		{"GET", base + "/b1/stats?interval=NaN", "", "query.interval"},
		{"POST", "/api/v1/sessions/s1/exec?wait=NaN", `{"command":["true"]}`, "query.wait"},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), x.method, s.URL+x.path, strings.NewReader(x.body))
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 422 || !strings.Contains(string(body), x.field) {
			t.Errorf("%s %s: %d, %s", x.method, x.path, resp.StatusCode, body)
		}
	}
}
