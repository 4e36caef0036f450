package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHostileInput sends a real server what nobody should send. Each gets a
// problem that says what is wrong, nothing is stored, and the server goes on
// as if nothing had been.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	k := loneManager(t)
	before := submit(t, k, `{"title": "Before", "tasks": [{}]}`)
	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	nested := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	long := strings.Repeat("x", 10<<20)
	prd := func(task string) string { return `{"title": "T", "tasks": [` + task + `]}` }
	claim, complete := "/jobs/"+before.Jobs[0]+"/claim", "/jobs/"+before.Jobs[0]+"/complete"
	for name, c := range map[string]struct {
		path, body string
		status     int
		names      string // the field that the answer must name
	}{
		"not JSON":             {"/prds", `{"title": `, 422, ""},
		"nothing":              {"/prds", ``, 422, ""},
		"two documents":        {"/prds", `{"title":"T","tasks":[{}]} {}`, 422, ""},
		"broken UTF-8":         {"/prds", "{\"title\":\"\xff\xfe\",\"tasks\":[{}]}", 422, ""},
		"a list":               {"/prds", `[]`, 422, ""},
		"null":                 {"/prds", `null`, 422, ""},
		"10 MB of title":       {"/prds", `{"title":"` + long + `","tasks":[{}]}`, 413, ""},
		"10 MB of payload":     {"/prds", prd(`{"payload":{"x":"` + long + `"}}`), 413, ""},
		"10 MB of claim":       {claim, `"` + long + `"`, 413, ""},
		"deep":                 {"/prds", deep, 422, ""},
		"deep payload":         {"/prds", prd(`{"payload":{"x":` + nested + `}}`), 422, ""},
		"no title":             {"/prds", `{"tasks":[{}]}`, 422, "title"},
		"title a number":       {"/prds", `{"title":1,"tasks":[{}]}`, 422, "title"},
		"title with NUL":       {"/prds", `{"title":"a\u0000b","tasks":[{}]}`, 422, "title"},
		"payload with NUL":     {"/prds", prd(`{"payload":{"x":"\u0000"}}`), 422, "payload"},
		"no tasks":             {"/prds", `{"title":"T","tasks":[]}`, 422, "tasks"},
		"tasks an object":      {"/prds", `{"title":"T","tasks":{}}`, 422, "tasks"},
		"10,000 tasks":         {"/prds", prd(strings.Repeat("{},", 9999) + "{}"), 422, "tasks"},
		"unknown field":        {"/prds", prd(`{"prio":1}`), 422, "prio"},
		"same field twice":     {"/prds", prd(`{"role":"A","role":"B"}`), 422, "role"},
		"negative timeout":     {"/prds", prd(`{"timeout_seconds":-1}`), 422, "timeout_seconds"},
		"huge timeout":         {"/prds", prd(`{"timeout_seconds":1e300}`), 422, "timeout_seconds"},
		"half a retry":         {"/prds", prd(`{"max_retries":0.5}`), 422, "max_retries"},
		"too large for 64 bit": {"/prds", `{"project_id":99999999999999999999,"title":"T","tasks":[{}]}`, 422, "project_id"},
		"negative project":     {"/prds", `{"project_id":-1,"title":"T","tasks":[{}]}`, 422, "project_id"},
		"huge priority":        {"/prds", prd(`{"priority":1000000}`), 422, "priority"},
		"unknown action":       {"/prds", prd(`{"payload":{"action":"fly"}}`), 422, "action"},
		"path outside":         {"/prds", prd(`{"payload":{"action":"create file","path":"../../etc/passwd"}}`), 422, "path"},
		"claim by nobody":      {claim, `""`, 422, "worker_id"},
		"claim by a number":    {claim, `7`, 422, ""},
		"success a string":     {complete, `{"success":"yes"}`, 422, "success"},
		"success left out":     {complete, `{}`, 422, "success"},
		"negative fence":       {complete, `{"success":true,"fence":-1}`, 422, "fence"},
		"details a list":       {complete, `{"success":true,"details":[]}`, 422, "details"},
		"claim of no id":       {"/jobs/..%2f..%2fetc/claim", `"w"`, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := k.ask(t.Context(), http.MethodPost, c.path, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if a.status != c.status {
				t.Fatalf("want %d, got %.500s", c.status, a)
			}
			if a.header.Get("Content-Type") != "application/problem+json" || a.problem() == "" || !bytes.Contains(a.body, []byte(c.names)) {
				t.Errorf("the answer does not say what is wrong: %s %.500s", a.header, a)
			}
		})
	}
	t.Cleanup(func() { // after all of the above, which are parallel
		var stats struct{ Total int }
		a, err := k.ask(context.Background(), http.MethodGet, "/api/v1/queue/stats", nil)
		if err == nil {
			err = a.into(http.StatusOK, &stats)
		}
		if err != nil || stats.Total != 1 {
			t.Errorf("something was stored, or the server is harmed: %+v, %v", stats, err)
		}
	})
}

// TestManyAtOnce throws large bodies at a server from many sides at once, and
// asks it something small in between.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	k := loneManager(t)
	large := []byte(`{"title":"` + strings.Repeat("x", 10<<20) + `","tasks":[{}]}`)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 3 {
				a, err := k.ask(t.Context(), http.MethodPost, "/prds", large)
				if err == nil && a.status != http.StatusRequestEntityTooLarge {
					t.Errorf("got %.200s", a)
				}
			}
		})
	}
	for i := range 10 {
		s := submit(t, k, fmt.Sprintf(`{"title":"small %d","tasks":[{}]}`, i))
		eventually(t, "a job is assigned meanwhile", func() (bool, string) {
			var j struct{ Status string }
			err := k.get(t.Context(), "/jobs/"+s.Jobs[0], &j)
			return err == nil && j.Status == "ASSIGNED", fmt.Sprint(j, err)
		})
	}
	all.Wait()
}

// A request that is never finished must not hold up others.
func TestHalfARequest(t *testing.T) {
	t.Parallel()
	k := loneManager(t)
	half := &slowBody{gate: make(chan struct{})}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.base+"/prds", half)
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := k.http.Do(req); err == nil {
			_ = res.Body.Close()
		}
	})
	for i := range 5 {
		submit(t, k, fmt.Sprintf(`{"title":"whole %d","tasks":[{}]}`, i))
	}
	close(half.gate)
	waiting.Wait()
}

// slowBody says half of what it has to say.
type slowBody struct {
	said bool
	gate chan struct{}
}

func (s *slowBody) Read(p []byte) (int, error) {
	if !s.said {
		s.said = true
		return copy(p, `{"title":"half`), nil
	}
	select {
	case <-s.gate:
	case <-time.After(patience):
	}
	return 0, fmt.Errorf("gone")
}
