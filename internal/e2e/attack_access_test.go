package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// service is a server in a sandbox that answers whatever it is asked, and tells
// what it was told.
const service = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        n = int(self.headers.get("Content-Length") or 0)
        body = ("%s %s\n%s" % (self.command, self.path, self.headers)).encode() + self.rfile.read(n)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/html")
        self.send_header("Set-Cookie", "mine=1; Domain=localhost; Path=/")
        self.send_header("Set-Cookie", "aurea_port=forged; Path=/")
        self.send_header("Service-Worker-Allowed", "/")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = answer
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`

// serve starts the service in a sandbox and waits until it answers.
func (f *fort) serve(x box, ports ...int) {
	f.t.Helper()
	for _, port := range ports {
		f.begin(x, map[string]any{"command": []string{"python3", "-c", service, fmt.Sprint(port)}})
		eventually(f.t, "the service answers", func() (bool, string) {
			a, err := f.patient(http.MethodGet, fmt.Sprintf("%s/ports/%d/", x.path(), port), nil, f.own()...)
			return err == nil && a.status == http.StatusOK, fmt.Sprintf("%s, %v", a, err)
		})
	}
}

// TestKeysOpenSandboxes tries every route of sandboxes without a key, with wrong
// ones, with one of another owner, and with links that are not for it.
func TestKeysOpenSandboxes(t *testing.T) {
	t.Parallel()
	f := newFort(t, true)
	x := f.sandbox(map[string]any{"name": "mine", "files": map[string]string{"a": "secret text"}})
	e := f.begin(x, map[string]any{"command": []string{"cat"}, "keep_stdin": true})
	ids := map[string]string{"sandbox": x.ID, "exec": e.ID, "snapshot": x.ID, "port": "8080", "id": uuid.NewString(), "name": "a"}
	routes := f.operations(ids, "/api/v1/sandboxes", "/api/v1/snapshots", "/api/v1/usage")
	t.Run("F75 no key, a wrong key", func(t *testing.T) {
		for _, o := range routes {
			for what, header := range map[string][]string{
				"no key": nil, "a forged key": bearer("aurea_admin_" + strings.Repeat("A", 43)), "half a key": bearer(f.admin[:len(f.admin)-1]),
				"a key and more": bearer(f.admin + "A"), "an empty key": {"Authorization", "Bearer "}, "basic": {"Authorization", "Basic " + f.admin}, "long": bearer(strings.Repeat("x", 5000)),
				"in a cookie": {"Cookie", "token=" + f.admin + "; Authorization=" + f.admin}, "another name": {"X-Forwarded-User", "admin"},
			} {
				f.demand(t, fmt.Sprint(o, " with ", what), []int{http.StatusUnauthorized}, o.method, o.path+o.query(), o.body(), header...)
			}
		}
	})
	t.Run("F75 another's", func(t *testing.T) {
		for _, o := range routes {
			if o.path == "/api/v1/sandboxes" || o.path == "/api/v1/usage" { // its own, and there are none
				if o.method == http.MethodGet {
					if a := f.demand(t, fmt.Sprint(o), []int{200}, o.method, o.path, "", bearer(f.bridge)...); strings.TrimSpace(string(a.body)) != "[]" {
						t.Errorf("%v shows another's: %s", o, a)
					}
				}
				continue
			}
			a := f.demand(t, fmt.Sprint(o, " of another"), []int{http.StatusNotFound, http.StatusForbidden}, o.method, o.path+o.query(), o.body(), bearer(f.bridge)...)
			if strings.Contains(string(a.body), "secret") || strings.Contains(string(a.body), "mine") {
				t.Errorf("%v tells of another's: %s", o, a)
			}
		}
		attach := x.path() + "/execs/" + e.ID + "/attach"
		for what, c := range map[string]struct {
			query string
			want  []int
		}{"no key": {"", []int{4401}}, "a wrong one": {"?token=aurea_admin_x", []int{4401}}, "another's": {"?token=" + f.bridge, []int{4403, 4404}}} {
			if got := f.socket(attach+c.query, nil, ""); got != c.want[0] && got != c.want[len(c.want)-1] {
				t.Errorf("the terminal with %s: %d", what, got)
			}
		}
	})
	var now box
	a, err := f.patient(http.MethodGet, x.path(), nil, f.own()...)
	if err == nil {
		err = a.into(http.StatusOK, &now)
	}
	if err != nil || now.State != "RUNNING" || now.Name != "mine" {
		t.Errorf("it is %+v, %v", now, err)
	}
	if got := f.run(x, "ls -A; cat a"); got != "a\nsecret text" {
		t.Errorf("its files are %q", got)
	}
	f.demand(t, "its command", []int{200}, http.MethodGet, x.path()+"/execs/"+e.ID, "", f.own()...)
	t.Run("F75 links", func(t *testing.T) { f.links(t, x) })
}

// links tries tokens that are not for the port at hand.
func (f *fort) links(t *testing.T, x box) {
	y := f.sandbox(nil)
	f.serve(x, 8080, 8081)
	f.serve(y, 8080)
	link := func(z box, port int, body string) (token string) {
		var l struct{ Token string }
		a := f.demand(t, "a link", []int{201}, http.MethodPost, fmt.Sprintf("%s/ports/%d/links", z.path(), port), body, f.own()...)
		if err := a.into(http.StatusCreated, &l); err != nil {
			t.Fatal(err)
		}
		return l.Token
	}
	good, short := link(x, 8080, `{"ttl":600}`), link(x, 8080, `{"ttl":1}`)
	flipped := "A" + good[1:]
	if flipped == good {
		flipped = "B" + good[1:]
	}
	for _, z := range []struct {
		what, token string
		want        int
	}{
		{"its own", good, 200},
		{"of another sandbox", link(y, 8080, ""), 401},
		{"of another port", link(x, 8081, ""), 401},
		{"changed", flipped, 401},
		{"cut", good[:len(good)-2], 401},
		{"longer", good + "AA", 401},
		{"nothing", "AAAA", 401},
		{"not base64", "%00%ff", 401},
	} {
		for how, try := range map[string]func() answer{
			"by path": func() answer {
				return f.demand(t, z.what, []int{z.want}, http.MethodGet, x.path()+"/ports/8080/a?aurea_token="+z.token, "")
			},
			"by header": func() answer {
				return f.demand(t, z.what, []int{z.want}, http.MethodGet, x.path()+"/ports/8080/a", "", bearer(strings.ReplaceAll(z.token, "%", "x"))...)
			},
			"by cookie": func() answer {
				return f.demand(t, z.what, []int{z.want}, http.MethodGet, x.path()+"/ports/8080/a", "", "Cookie", "aurea_port=tossed; aurea_port="+z.token)
			},
			"by host name": func() answer {
				return f.demand(t, z.what, []int{z.want}, http.MethodGet, "/a?aurea_token="+z.token, "", "Host", "8080-"+x.ID+".localhost")
			},
		} {
			if a := try(); strings.Contains(string(a.body), good) || strings.Contains(strings.ToLower(string(a.body)), "authorization") {
				t.Errorf("%s %s: the service was told of our keys: %s", z.what, how, a)
			}
		}
		if got := f.socket(x.path()+"/ports/8080/a?aurea_token="+z.token, nil, ""); z.want == 401 && got != 401 {
			t.Errorf("%s by WebSocket: %d", z.what, got)
		}
	}
	eventually(t, "a link expires", func() (bool, string) {
		a, err := f.patient(http.MethodGet, x.path()+"/ports/8080/?aurea_token="+short, nil)
		return err == nil && a.status == http.StatusUnauthorized, fmt.Sprintf("%s, %v", a, err)
	})
	// A link is no key.
	f.demand(t, "a link as a key", []int{401}, http.MethodGet, x.path(), "", bearer(good)...)
	f.demand(t, "a link as a key", []int{401}, http.MethodPost, x.path()+"/execs", `{"command":["true"]}`, bearer(good)...)
	f.demand(t, "our own key is not handed on", []int{200}, http.MethodGet, x.path()+"/ports/8080/", "", f.own()...)
	f.demand(t, "no key by host name", []int{401}, http.MethodGet, "/", "", "Host", "8080-"+x.ID+".localhost")
	f.demand(t, "another's key by host name", []int{403, 404}, http.MethodGet, "/", "", append(bearer(f.bridge), "Host", "8080-"+x.ID+".localhost")...)
	f.demand(t, "the end", []int{200}, http.MethodDelete, x.path(), "", f.own()...)
	f.demand(t, "a link after the end", []int{401}, http.MethodGet, x.path()+"/ports/8080/?aurea_token="+good, "")
}

// TestPagesCannotAct has pages of other sites, and pages that sandboxes serve,
// use a browser whose user needs no key.
func TestPagesCannotAct(t *testing.T) {
	t.Parallel()
	f := newFort(t, false)
	x, y := f.sandbox(nil), f.sandbox(nil)
	f.serve(x, 8080)
	f.serve(y, 8080)
	e := f.begin(x, map[string]any{"command": []string{"cat"}, "tty": true})
	host := strings.TrimPrefix(f.base, "http://")
	_, port, _ := strings.Cut(host, ":")
	theirs := fmt.Sprintf("8080-%s.localhost:%s", y.ID, port)
	pages := map[string][]string{
		"another site": {"Origin", "https://evil.example"}, "a page without an origin": {"Origin", "null"}, "a page of a sandbox": {"Origin", "http://" + theirs},
		"the same site": {"Sec-Fetch-Site", "same-site", "Origin", "http://" + theirs}, "an old form": {"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"},
	}
	ids := map[string]string{"sandbox": x.ID, "exec": e.ID, "snapshot": x.ID, "port": "8080", "id": uuid.NewString(), "name": "a"}
	for what, header := range pages {
		for _, o := range f.operations(ids, "/api/v1/sandboxes", "/api/v1/snapshots") {
			if o.method != http.MethodGet {
				f.demand(t, fmt.Sprint(o, " from ", what), []int{http.StatusForbidden}, o.method, o.path+o.query(), o.body(), header...)
			}
		}
		for _, h := range []string{"", fmt.Sprintf("8080-%s.localhost:%s", x.ID, port)} {
			path := x.path() + "/ports/8080/"
			if h != "" {
				path = "/"
			}
			f.demand(t, fmt.Sprint("a port at ", h, " from ", what), []int{http.StatusForbidden}, http.MethodPost, path, "x", append([]string{"Host", h}, header...)...)
			if last := len(header) - 2; header[last] == "Origin" {
				if got := f.socket(path, http.Header{"Origin": {header[last+1]}}, h); got != http.StatusForbidden {
					t.Errorf("a socket to a port at %q from %s: %d", h, what, got)
				}
			}
		}
		if header[0] == "Origin" {
			if got := f.socket(x.path()+"/execs/"+e.ID+"/attach", http.Header{"Origin": {header[1]}}, ""); got != http.StatusForbidden {
				t.Errorf("a terminal from %s: %d", what, got)
			}
		}
	}
	own := fmt.Sprintf("8080-%s.localhost:%s", x.ID, port)
	f.demand(t, "a page to its own port", []int{200}, http.MethodPost, "/", "x", "Host", own, "Origin", "http://"+own, "Sec-Fetch-Site", "same-origin")
	f.demand(t, "our own page", []int{204}, http.MethodPost, x.path()+"/files/mkdir", `{"path":"/workspace/d"}`, "Origin", "http://"+host)

	a := f.demand(t, "a page by path", []int{200}, http.MethodGet, x.path()+"/ports/8080/", "")
	h := a.header
	if !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || strings.Contains(h.Get("Content-Security-Policy"), "allow-same-origin") || h.Get("Service-Worker-Allowed") != "" {
		t.Errorf("a page by path has our origin: %v", h)
	}
	for _, c := range h.Values("Set-Cookie") {
		if strings.Contains(strings.ToLower(c), "domain") || strings.HasPrefix(c, "aurea_port") || !strings.Contains(c, "Path="+x.path()+"/ports/8080/") {
			t.Errorf("it sets a cookie for others: %s", c)
		}
	}
	// Names that are like those of ports, and are none of ours.
	for _, name := range []string{"8080-" + x.ID + ".evil.example", "0-" + x.ID + ".localhost", "65536-" + x.ID + ".localhost", "8080-" + x.ID, "evil.example", "8080-" + x.ID + ".localhost.evil.example", "8080-..localhost"} {
		f.demand(t, name, []int{http.StatusMisdirectedRequest, http.StatusBadRequest}, http.MethodGet, "/", "", "Host", name)
	}
}
