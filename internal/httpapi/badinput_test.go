package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/job"
)

// posts lists every route that takes a body, with a body that it accepts.
// "object" says that it takes objects only.
func posts(id string) map[string]struct{ good, object string } {
	return map[string]struct{ good, object string }{
		"/prds":                      {`{"title":"t","tasks":[{}]}`, "required"},
		"/jobs/" + id + "/claim":     {`{"worker_id":"w"}`, ""},
		"/jobs/" + id + "/heartbeat": {`{"worker_id":"w","fence":1}`, ""},
		"/jobs/" + id + "/stream":    {`{"chunk":"x","final":true}`, "required"},
		"/jobs/" + id + "/complete":  {`{"success":true,"details":{}}`, "required"},
		"/jobs/" + id + "/submit":    {`{"details":{}}`, "optional"},
		"/jobs/" + id + "/validate":  {`{"worker_id":"v","ticks":{"tests":true},"confidence":0.9}`, "required"},
		"/jobs/" + id + "/assign":    {`{"model":"m"}`, ""},
		"/jobs/" + id + "/cancel":    {`{"reason":"r"}`, "optional"},
		"/jobs/" + id + "/retry":     {`{}`, "optional"},
		"/run":                       {`{"code":"x"}`, "required"},
		"/runs":                      {`{"code":"x"}`, "required"},
		"/build-image":               {`{"dockerfile":"sandbox"}`, "optional"},
	}
}

// untouched demands that a request changed nothing.
func (d door) untouched(what string, request func()) {
	d.t.Helper()
	jobs, events, calls := fmt.Sprint(d.jobs), len(d.events), len(d.calls)
	request()
	if fmt.Sprint(d.jobs) != jobs || len(d.events) != events || len(d.calls) != calls {
		d.t.Errorf("%s: something was stored: %v", what, d.calls[calls:])
	}
}

// TestBadBodiesOnEveryRoute sends what no route takes to every route.
func TestBadBodiesOnEveryRoute(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	bad := []struct {
		name, body string
		status     int
		code       string
	}{
		{"broken", `{"title":`, 422, "malformed_json"},
		{"not JSON", `worker=1&x=2`, 422, "malformed_json"},
		{"two documents", `{} {}`, 422, "malformed_json"},
		{"a raw NUL", "{\"a\":\"\x00\"}", 422, "malformed_json"},
		{"invalid UTF-8", "{\"a\":\"\xff\xfe\"}", 422, "malformed_json"},
		{"an escaped NUL", `{"a":"x\u0000"}`, 422, "nul_character"},
		{"a NUL in a name", `{"a\u0000":1}`, 422, "nul_character"},
		{"a NUL deep inside", `{"details":{"x":["\u0000"]}}`, 422, "nul_character"},
		{"a key twice", `{"worker_id":"a","worker_id":"b"}`, 422, "duplicate_key"},
		{"a key twice, written differently", `{"worker_id":"a","worker\u005fid":"b"}`, 422, "duplicate_key"},
		{"a key twice inside", `{"details":{"x":[{"y":1,"y":2}]}}`, 422, "duplicate_key"},
		{"deep", deep(65), 422, "too_deep"},
		{"deeper than any reader goes", deep(20000), 422, "too_deep"},
		{"a list", `[1,2]`, 422, "invalid"},
		{"a number", `-1e999`, 422, "invalid"},
		{"null", `null`, 422, "invalid"},
		{"too large", `{"x":"` + strings.Repeat("x", 10<<20) + `"}`, 413, "too_large"},
	}
	d := open(t)
	id := d.submit(1)[0]
	for path := range posts(id) {
		for _, c := range bad {
			for _, prefix := range []string{"", "/api/v1"} {
				d.untouched(path+" "+c.name, func() {
					if p := d.ask("POST", prefix+path, c.body).problem(c.status); p.Code != c.code {
						t.Errorf("%s, %s: code %q, want %q", path, c.name, p.Code, c.code)
					}
				})
			}
		}
	}
}

func TestUnknownFieldsAndStringsOnEveryRoute(t *testing.T) {
	t.Parallel()
	d := open(t)
	id := d.submit(1)[0]
	for path, c := range posts(id) {
		if c.object != "" {
			d.untouched(path, func() { d.ask("POST", path, `"text"`).problem(422) })
		}
		if path != "/prds" {
			extra := strings.Replace(c.good, "{", `{"surprise":1,`, 1)
			extra = strings.Replace(extra, ",}", "}", 1)
			d.untouched(path, func() {
				if p := d.ask("POST", path, extra).problem(422); p.Errors[0].Location != "surprise" {
					t.Errorf("%s: %+v", path, p)
				}
			})
		}
		if c.object == "required" {
			d.untouched(path, func() {
				if p := d.ask("POST", path, " \n").problem(422); p.Code != "no_body" {
					t.Errorf("%s: %+v", path, p)
				}
			})
		}
		if strings.Contains(path, id) {
			wrong := strings.Replace(path, id, "0198e1a4-0000-7000-8000-000000000000", 1)
			d.untouched(path, func() { d.ask("POST", wrong, c.good).problem(404) })
		}
	}
}

func TestGoodBodiesOnEveryRoute(t *testing.T) {
	t.Parallel()
	for path := range posts("ID") {
		d := open(t)
		id := d.submit(1)[0]
		if strings.HasSuffix(path, "/retry") {
			d.jobs[1].State = job.Failed
		}
		path = strings.Replace(path, "ID", id, 1)
		if a := d.ask("POST", path, posts(id)[path].good); a.Code/100 != 2 {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
}

// TestMissingFieldsAreListed leaves out more than one, beside something else that
// is wrong.
func TestMissingFieldsAreListed(t *testing.T) {
	t.Parallel()
	p := open(t).ask("POST", "/prds", `{"project_id":-1}`).problem(422)
	if p.Code != "MISSING_FIELDS" {
		t.Errorf("%+v", p)
	}
	var missing []string
	for _, f := range p.Errors {
		if f.Message == "is missing" {
			missing = append(missing, f.Location)
		}
	}
	if !slices.Equal(missing, []string{"title", "tasks"}) {
		t.Errorf("missing are %q: %+v", missing, p)
	}
}

// TestBadFieldsAreNamed sends one wrong field at a time.
func TestBadFieldsAreNamed(t *testing.T) {
	t.Parallel()
	task := func(fields string) string { return `{"title":"t","tasks":[{},{` + fields + `}]}` }
	word := strings.Repeat("x", 101)
	d := open(t)
	id := d.submit(1)[0]
	for _, c := range []struct{ route, body, where string }{
		{"/prds", `{"tasks":[{}]}`, "title"},
		{"/prds", `{"title":null,"tasks":[{}]}`, "title"},
		{"/prds", `{"title":7,"tasks":[{}]}`, "title"},
		{"/prds", `{"title":"  ","tasks":[{}]}`, "title"},
		{"/prds", `{"title":"` + strings.Repeat("x", 501) + `","tasks":[{}]}`, "title"},
		{"/prds", `{"Title":"t","tasks":[{}]}`, "title"},
		{"/prds", `{"title":"t"}`, "tasks"},
		{"/prds", `{"title":"t","tasks":[]}`, "tasks"},
		{"/prds", `{"title":"t","tasks":{}}`, "tasks"},
		{"/prds", `{"title":"t","tasks":[1]}`, "tasks[0]"},
		{"/prds", `{"title":"t","tasks":[null]}`, "tasks[0]"},
		{"/prds", `{"title":"t","tasks":[` + strings.Repeat("{},", 1000) + `{}]}`, "tasks"},
		{"/prds", `{"title":"t","project_id":-1,"tasks":[{}]}`, "project_id"},
		{"/prds", `{"title":"t","project_id":"1","tasks":[{}]}`, "project_id"},
		{"/prds", `{"title":"t","project_id":1.5,"tasks":[{}]}`, "project_id"},
		{"/prds", `{"title":"t","project_id":1e2,"tasks":[{}]}`, "project_id"},
		{"/prds", `{"title":"t","project_id":99999999999999999999,"tasks":[{}]}`, "project_id"},
		{"/prds", task(`"rolle":"x"`), "tasks[1].rolle"},
		{"/prds", task(`"role":["x"]`), "tasks[1].role"},
		{"/prds", task(`"role":"` + word + `"`), "tasks[1].role"},
		{"/prds", task(`"payload":"x"`), "tasks[1].payload"},
		{"/prds", task(`"payload":[]`), "tasks[1].payload"},
		{"/prds", task(`"payload":{"action":"explode"}`), "tasks[1].payload.action"},
		{"/prds", task(`"payload":{"action":"exec"}`), "tasks[1].payload.command"},
		{"/prds", task(`"payload":{"action":"create file","path":"../x"}`), "tasks[1].payload.path"},
		{"/prds", task(`"priority":1.5`), "tasks[1].priority"},
		{"/prds", task(`"priority":1001`), "tasks[1].priority"},
		{"/prds", task(`"timeout_seconds":0`), "tasks[1].timeout_seconds"},
		{"/prds", task(`"timeout_seconds":-1`), "tasks[1].timeout_seconds"},
		{"/prds", task(`"timeout_seconds":18446744074`), "tasks[1].timeout_seconds"},
		{"/prds", task(`"timeout_seconds":9223372036854775807`), "tasks[1].timeout_seconds"},
		{"/prds", task(`"max_retries":-1`), "tasks[1].max_retries"},
		{"/prds", task(`"max_retries":101`), "tasks[1].max_retries"},
		{"/prds", task(`"validate":"yes"`), "tasks[1].validate"},
		{"/prds", task(`"depends_on":"a"`), "tasks[1].depends_on"},
		{"/prds", task(`"depends_on":[1]`), "tasks[1].depends_on[0]"},
		{"/prds", task(`"depends_on":["nobody"]`), "tasks[1].depends_on"},
		{"/prds", task(`"key":"a","depends_on":["a"]`), "tasks[1].depends_on"},
		{"claim", `{}`, "worker_id"},
		{"claim", `""`, "worker_id"},
		{"claim", `" "`, "worker_id"},
		{"claim", `{"worker_id":7}`, "worker_id"},
		{"claim", `{"worker_id":"a\nb"}`, "worker_id"},
		{"claim", `"` + word + `"`, "worker_id"},
		{"claim?worker_id=a", `"b"`, "worker_id"},
		{"claim?worker=a", ``, "query.worker"},
		{"heartbeat", ``, "worker_id"},
		{"heartbeat", `{"worker_id":"w","fence":-1}`, "fence"},
		{"heartbeat", `{"worker_id":"w","fence":"1"}`, "fence"},
		{"stream", `{"final":true}`, "chunk"},
		{"stream", `{"chunk":1}`, "chunk"},
		{"stream", `{"chunk":"` + strings.Repeat("x", 64<<10+1) + `"}`, "chunk"},
		{"stream", `{"chunk":"x","final":1}`, "final"},
		{"complete", `{}`, "success"},
		{"complete", `{"success":null}`, "success"},
		{"complete", `{"success":"true"}`, "success"},
		{"complete", `{"success":1}`, "success"},
		{"complete", `{"success":true,"details":"x"}`, "details"},
		{"complete", `{"success":true,"details":[]}`, "details"},
		{"complete", `{"success":true,"details":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`, "details"},
		{"complete", `{"success":true,"fence":1.0}`, "fence"},
		{"complete", `{"success":true,"fence":-5}`, "fence"},
		{"complete", `{"success":true,"fence":1e30}`, "fence"},
		{"complete", `{"success":true,"worker_id":{}}`, "worker_id"},
		{"submit", `{"details":7}`, "details"},
		{"validate", `{"ticks":{"a":true},"confidence":1}`, "worker_id"},
		{"validate", `{"worker_id":"v","confidence":1}`, "ticks"},
		{"validate", `{"worker_id":"v","ticks":[],"confidence":1}`, "ticks"},
		{"validate", `{"worker_id":"v","ticks":"pass","confidence":1}`, "ticks"},
		{"validate", `{"worker_id":"v","ticks":{"a":"maybe"},"confidence":1}`, "ticks.a"},
		{"validate", `{"worker_id":"v","ticks":[{"type":"a"}],"confidence":1}`, "ticks[0].result"},
		{"validate", `{"worker_id":"v","ticks":[{"type":"a","result":true,"passed":true}],"confidence":1}`, "ticks[0].result"},
		{"validate", `{"worker_id":"v","ticks":[{"type":"a","tick_type":"b","result":true}],"confidence":1}`, "ticks[0].tick_type"},
		{"validate", `{"worker_id":"v","ticks":[{"result":true}],"confidence":1}`, "ticks[0].tick_type"},
		{"validate", `{"worker_id":"v","ticks":[{"type":"a","result":true,"x":1}],"confidence":1}`, "ticks[0].x"},
		{"validate", `{"worker_id":"v","ticks":{"a":true}}`, "confidence"},
		{"validate", `{"worker_id":"v","ticks":{"a":true},"confidence":"1"}`, "confidence"},
		{"validate", `{"worker_id":"v","ticks":{"a":true},"confidence":1.01}`, "confidence"},
		{"validate", `{"worker_id":"v","ticks":{"a":true},"confidence":-0.1}`, "confidence"},
		{"validate", `{"worker_id":"v","ticks":{"a":true},"confidence":1e400}`, "confidence"},
		{"assign", `{"model":1}`, "model"},
		{"assign?model=a", `{"model":"b"}`, "model"},
		{"assign", `"` + word + `"`, "model"},
		{"cancel", `{"reason":1}`, "reason"},
		{"cancel", `{"reason":"` + strings.Repeat("x", 1001) + `"}`, "reason"},
	} {
		path := c.route
		if path != "/prds" {
			path = "/jobs/" + id + "/" + path
		}
		d.untouched(c.body, func() {
			p := d.ask("POST", path, c.body).problem(422)
			if len(p.Errors) == 0 || p.Errors[0].Location != c.where || !strings.Contains(p.Detail, c.where) {
				t.Errorf("%s %.80s names %+v, want %s", c.route, c.body, p.Errors, c.where)
			}
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	d := open(t)
	p := d.ask("POST", "/prds", `{"title":1,"tasks":[{"role":2},{"x":3}]}`).problem(422)
	var where []string
	for _, e := range p.Errors {
		where = append(where, e.Location)
	}
	if diff := cmp.Diff([]string{"title", "tasks[0].role", "tasks[1].x"}, where); diff != "" {
		t.Fatal(diff)
	}
	if p := d.ask("POST", "/prds", `{"title":"t","tasks":[`+strings.Repeat(`{"x":1},`, 500)+`{}]}`).problem(422); len(p.Errors) != 20 {
		t.Fatalf("%d faults are listed", len(p.Errors))
	}
}

func TestFormsOfTheSameThing(t *testing.T) {
	t.Parallel()
	two := int64(2)
	for _, c := range []struct {
		path, body string
		want       any
	}{
		{"claim?worker_id=w", "", "w"},
		{"claim", `"w"`, "w"},
		{"claim", ` { "worker_id" : "w" } `, "w"},
		{"claim?worker_id=w", `"w"`, "w"},
		{"heartbeat", `"w"`, result{Worker: "w"}},
		{"heartbeat?worker_id=w", `{"fence":2}`, result{Worker: "w", Fence: &two}},
		{"stream", `{"chunk":""}`, []any{"", "", false}},
		{"complete?worker_id=w", `{"success":false,"fence":null}`, result{Worker: "w"}},
		{"submit", "", result{}},
		{"assign?model=m", "", "m"},
		{"assign", `"m"`, "m"},
		{"assign", ``, ""},
		{"cancel", ``, ""},
		{
			"validate", `{"worker_id":"v","confidence":0.7,"ticks":[{"tick_type":"a","result":"pass"},{"type":"b","passed":true,"note":"n"},{"type":"c","passed":"FAILED"}]}`,
			job.Validation{WorkerID: "v", Confidence: 0.7, Ticks: []job.Tick{{Type: "a", Passed: true}, {Type: "b", Passed: true, Note: "n"}, {Type: "c"}}},
		},
		{
			"validate?worker_id=v", `{"confidence":1,"ticks":{"b":"fail","a":true}}`,
			job.Validation{WorkerID: "v", Confidence: 1, Ticks: []job.Tick{{Type: "a", Passed: true}, {Type: "b"}}},
		},
	} {
		d := open(t)
		id := d.submit(1)[0]
		d.ask("POST", "/jobs/"+id+"/"+c.path, c.body).into(200, &struct{}{})
		if diff := cmp.Diff(c.want, d.last); diff != "" {
			t.Errorf("%s %s:\n%s", c.path, c.body, diff)
		}
	}
}

// TestLargeBodyOverTheNetwork checks that a client which is still sending gets
// to read why it was refused.
func TestLargeBodyOverTheNetwork(t *testing.T) {
	t.Parallel()
	api, err := httpapi.New(httpapi.Config{Manager: newFake(), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api)
	defer s.Close()
	client := s.Client()
	client.Timeout = time.Minute
	for _, chunked := range []bool{false, true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/prds", strings.NewReader(strings.Repeat("x", 10<<20)))
		if err != nil {
			t.Fatal(err)
		}
		if chunked {
			r.ContentLength = -1
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 413 {
			t.Fatalf("answers %d", res.StatusCode)
		}
	}
	client.CloseIdleConnections()
}
