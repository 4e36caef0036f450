package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHostileSandboxRequests sends the routes of sandboxes what nobody should
// send. Each gets a problem, and nothing is made.
func TestHostileSandboxRequests(t *testing.T) {
	t.Parallel()
	f := newFort(t, false)
	x := f.neighbour()
	execs, files := x.path()+"/execs", x.path()+"/files"
	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	type try struct{ method, path, body string }
	create := func(body string) try { return try{http.MethodPost, "/api/v1/sandboxes", body} }
	exec := func(body string) try { return try{http.MethodPost, execs, body} }
	tries := map[string]try{
		"F78 deep": create(deep), "F78 twice": create(`{"ttl":5,"ttl":50}`), "F78 two": create(`{} {}`), "F78 list": create(`[]`), "F78 broken": create(`{"name":"\ud800`),
		"F78 deep exec": exec(deep), "F78 no body": exec(""), "F78 exec twice": exec(`{"command":["true"],"command":["false"]}`), "F78 BOM": create("\ufeff{}"),
	}
	for _, field := range []string{"privileged", "host_mounts", "mounts", "binds", "runtime", "owner", "worker_id", "id", "state", "link_key", "LinkKey", "generation", "parent", "restore", "snapshot", "session_id", "app", "Session", "cap_add", "security_opt", "made", "Spec", "TTL", "Env"} {
		tries["F76 "+field] = create(fmt.Sprintf(`{%q:"x"}`, field))
		tries["F76 exec "+field] = exec(fmt.Sprintf(`{"command":["true"],%q:"x"}`, field))
		tries["F76 update "+field] = try{http.MethodPatch, x.path(), fmt.Sprintf(`{%q:"x"}`, field)}
	}
	for _, n := range []string{"-1", "NaN", "Infinity", "-Infinity", "1e300", "9223372036854775808", "18446744073709551616", `"1"`, `"abc"`, "[]", "{}", "true", "-0.001"} {
		for _, field := range []string{"ttl", "idle_timeout", "cpu_limit"} {
			tries["F77 "+field+" "+n] = create(fmt.Sprintf(`{%q:%s}`, field, n))
			tries["F77 update "+field+" "+n] = try{http.MethodPatch, x.path(), fmt.Sprintf(`{%q:%s}`, field, n)}
		}
		for _, field := range []string{"processes", "disk", "open_files", "cpu_time"} {
			if field != "disk" || !strings.Contains(n, `"1"`) { // a size may be said as text
				tries["F77 limits "+field+" "+n] = create(fmt.Sprintf(`{"limits":{%q:%s}}`, field, n))
			}
		}
		for _, field := range []string{"timeout", "cols", "rows"} {
			tries["F77 exec "+field+" "+n] = exec(fmt.Sprintf(`{"command":["true"],%q:%s}`, field, n))
		}
		tries["F77 link "+n] = try{http.MethodPost, x.path() + "/ports/80/links", fmt.Sprintf(`{"ttl":%s}`, n)}
		tries["F77 fork "+n] = try{http.MethodPost, x.path() + "/fork", fmt.Sprintf(`{"count":%s}`, n)}
	}
	for _, n := range []string{`"-1"`, `"1x"`, `"99999999999999999999g"`, "-1", "1e300", "NaN", "[]", `"9223372036854775807g"`} {
		tries["F77 memory "+n] = create(fmt.Sprintf(`{"memory_limit":%s}`, n))
	}
	for _, name := range []string{`a\u0000b`, `a\nb`, `\u001b[2J`, strings.Repeat("n", 129), `\u202e`} {
		tries["F81 name "+name] = create(fmt.Sprintf(`{"name":"%s"}`, name))
		tries["F81 label "+name] = create(fmt.Sprintf(`{"labels":{"%s":"x"}}`, name))
		tries["F81 driver "+name] = create(fmt.Sprintf(`{"driver":"%s"}`, name))
		tries["F81 user "+name] = exec(fmt.Sprintf(`{"command":["true"],"user":"%s"}`, name))
	}
	for _, name := range []string{"", "A=B", "A B", `A\u0000`, `A\n`, "é"} {
		tries["F81 env "+name] = create(fmt.Sprintf(`{"env":{"%s":"x"}}`, name))
		tries["F81 exec env "+name] = exec(fmt.Sprintf(`{"command":["true"],"env":{"%s":"x"}}`, name))
	}
	for _, name := range []string{"../x", "/x", "a/../../x", "a/..", ".", "..", "", "a//b", "./a", "a/", `a\u0000b`, strings.Repeat("a/", 3000) + "a"} {
		tries["C32 create "+name] = create(fmt.Sprintf(`{"files":{"%s":"x"}}`, name))
	}
	for _, p := range []string{"", "x", "../x", "%00", "/workspace/%00", strings.Repeat("/a", 3000), "workspace", "-rf", "~", "C:%5Cx"} {
		for _, route := range []string{"", "/stat", "/content", "/watch"} {
			tries["C32 get "+route+p] = try{http.MethodGet, files + route + "?path=" + p, ""}
		}
		tries["C32 put "+p] = try{http.MethodPut, files + "/content?path=" + p, "x"}
		tries["C32 delete "+p] = try{http.MethodDelete, files + "?path=" + p, ""}
		if p != "" {
			tries["C32 tar "+p] = try{http.MethodGet, x.path() + "/tar?path=" + p, ""}
			tries["C32 untar "+p] = try{http.MethodPut, x.path() + "/tar?path=" + p, "x"}
		}
	}
	for what, c := range tries {
		a := f.demand(t, what, []int{400, 422}, c.method, c.path, c.body)
		if a.problem() == "" && a.status >= 400 && a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: no problem: %s", what, a)
		}
	}
	t.Run("F78 large", func(t *testing.T) {
		large := `{"name":"` + strings.Repeat("x", 9<<20) + `"}`
		f.demand(t, "create", []int{413}, http.MethodPost, "/api/v1/sandboxes", large)
		f.demand(t, "exec", []int{413}, http.MethodPost, execs, large)
		f.demand(t, "patch", []int{413}, http.MethodPost, files+"/patch", strings.Repeat("x", 17<<20))
		f.demand(t, "modes", []int{422}, http.MethodPut, files+"/content?path=/workspace/m&mode=7777", "x")
		f.demand(t, "modes", []int{422}, http.MethodPut, files+"/content?path=/workspace/m&mode=-644", "x")
		for _, r := range []string{"bytes=-0", "bytes=5-1", "bytes=a-b", "bytes=0-1,3-4", "bytes=-9223372036854775808", "bytes=99999999999999999999-", "items=0-1"} {
			f.demand(t, r, []int{422}, http.MethodGet, files+"/content?path=/workspace/mine", "", "Range", r)
		}
		for _, r := range []string{"bytes=0-9223372036854775807", "bytes=9223372036854775807-", "bytes=9223372036854775806-9223372036854775807", "bytes=-9223372036854775807"} {
			f.demand(t, r, []int{206, 416, 422}, http.MethodGet, files+"/content?path=/workspace/mine", "", "Range", r)
		}
	})
	t.Run("F80 ids in paths", func(t *testing.T) {
		for _, id := range []string{"%2e%2e", "%2e%2e%2f%2e%2e%2fetc", "..%2f..", "%00", "a%2fb", "A", "-a", strings.Repeat("a", 41), "%F0%9F%92%A9", "a%0d%0aX: y", "*", "'%20or%20'1'='1"} {
			for _, route := range []string{"", "/execs", "/files?path=/", "/tar", "/stats", "/ports/80/", "/snapshots"} {
				f.demand(t, id+route, []int{404, 400, 405}, http.MethodGet, "/api/v1/sandboxes/"+id+route, "")
			}
			f.demand(t, id, []int{404, 400}, http.MethodGet, execs+"/"+id, "")
			f.demand(t, id, []int{404, 400, 405}, http.MethodGet, "/api/v1/snapshots/"+id, "")
		}
		for _, port := range []string{"0", "65536", "-1", "99999999999", "8o", "%2e%2e", "8080%2f.."} {
			f.demand(t, port, []int{404, 400}, http.MethodGet, x.path()+"/ports/"+port+"/", "")
		}
	})
	t.Run("F79 idempotency", func(t *testing.T) {
		first := f.demand(t, "first", []int{201}, http.MethodPost, execs, `{"command":["true"]}`, "Idempotency-Key", "k")
		again := f.demand(t, "again", []int{200}, http.MethodPost, execs, `{"command":["true"]}`, "Idempotency-Key", "k")
		if a, b := idOf(t, first), idOf(t, again); a != b {
			t.Errorf("started twice: %s, %s", a, b)
		}
		f.demand(t, "another body", []int{409}, http.MethodPost, execs, `{"command":["false"]}`, "Idempotency-Key", "k")
		y := f.sandbox(nil)
		f.demand(t, "another sandbox", []int{409}, http.MethodPost, y.path()+"/execs", `{"command":["true"]}`, "Idempotency-Key", "k")
		f.demand(t, "another route", []int{409}, http.MethodPost, "/api/v1/runs", `{"code":"1"}`, "Idempotency-Key", "k")
		f.demand(t, "a bad key", []int{422}, http.MethodPost, execs, `{"command":["true"]}`, "Idempotency-Key", strings.Repeat("k", 201))
	})
	t.Run("F81 words that begin with a dash", func(t *testing.T) {
		for _, name := range []string{"-rf", "--privileged", "'; drop table sandboxes; --", "$(touch /tmp/x)", "`id`", "%s%n", "../../x"} {
			text := fmt.Sprintf(`{"name":%q,"labels":{%q:%q}}`, name, name, name)
			a := f.demand(t, name, []int{201}, http.MethodPost, "/api/v1/sandboxes", text)
			f.demand(t, "end", []int{200}, http.MethodDelete, "/api/v1/sandboxes/"+idOf(t, a), "")
			f.demand(t, "image "+name, []int{400, 404, 409, 422}, http.MethodPost, "/api/v1/sandboxes", fmt.Sprintf(`{"image":%q}`, name))
			f.demand(t, "driver "+name, []int{400, 404, 422, 503}, http.MethodPost, "/api/v1/sandboxes", fmt.Sprintf(`{"driver":%q}`, name))
			f.demand(t, "user "+name, []int{400, 404, 409, 422}, http.MethodPost, execs, fmt.Sprintf(`{"command":["true"],"user":%q}`, name))
			f.demand(t, "state "+name, []int{422}, http.MethodGet, "/api/v1/sandboxes?state=dropped", "")
		}
		for _, image := range []string{"/etc/passwd", "file:///etc/passwd", "host/../../x", "http://169.254.169.254/x", "a\nb"} {
			f.demand(t, "image "+image, []int{400, 404, 409, 422}, http.MethodPost, "/api/v1/sandboxes", fmt.Sprintf(`{"image":%q}`, image))
		}
	})
	t.Run("F78 half a request", func(t *testing.T) { f.halves(t, x) })
	var open []box
	if err := f.get(t.Context(), "/api/v1/sandboxes?open=true", &open); err != nil || len(open) != 2 {
		t.Errorf("%d are open, %v", len(open), err)
	}
	f.well(t, x)
	f.bounded(t, "after hostile requests")
}

func idOf(t *testing.T, a answer) string {
	t.Helper()
	var x struct{ ID string }
	if err := a.into(a.status, &x); err != nil || x.ID == "" {
		t.Fatalf("%s: %v", a, err)
	}
	return x.ID
}

// halves begins many requests on the routes that take streams and does not go
// on. Others are served meanwhile, and what was begun leaves nothing.
func (f *fort) halves(t *testing.T, x box) {
	e := f.begin(x, map[string]any{"command": []string{"sleep", "1000"}, "keep_stdin": true})
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	host := strings.TrimPrefix(f.base, "http://")
	for i := range 40 {
		for _, head := range []string{
			"PUT " + x.path() + "/files/content?path=/workspace/half HTTP/1.1\r\nContent-Length: 1000000\r\n",
			"PUT " + x.path() + "/tar?path=/workspace/half HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
			"POST " + x.path() + "/execs/" + e.ID + "/input HTTP/1.1\r\nContent-Length: 1000000\r\n",
			"POST " + x.path() + "/files/patch HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
			"POST " + x.path() + "/execs HTTP/1.1\r\nContent-Length: 100000\r\n",
		} {
			c, err := net.DialTimeout("tcp", host, patience)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
			body := "4\r\nhalf\r\n"
			if i%2 == 0 {
				body = ""
			}
			_ = c.SetWriteDeadline(time.Now().Add(patience))
			if _, err := fmt.Fprintf(c, "%sHost: localhost\r\n\r\n%s", head, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.well(t, x)
	for _, c := range held {
		_ = c.Close()
	}
	f.demand(t, "end the command", []int{200}, http.MethodPost, x.path()+"/execs/"+e.ID+"/kill", "")
	f.demand(t, "a file that was half sent", []int{404}, http.MethodGet, x.path()+"/files/stat?path=/workspace/half/x", "")
	eventually(t, "nothing of it is left", func() (bool, string) {
		left := f.run(x, "ls -A | grep -v '^mine$' | grep -v '^half$' || true")
		return left == "", left
	})
}
