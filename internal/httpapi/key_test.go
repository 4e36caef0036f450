package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/policy"
)

// TestKeys tries every route with every kind of key: the policy's table, and
// nothing else, says who gets in.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFake()
	for _, k := range policy.Kinds() {
		f.keys["secret-"+string(k)] = policy.Caller{Kind: k, ID: string(k) + "-1"}
	}
	api, err := httpapi.New(httpapi.Config{Manager: f, Keys: true})
	if err != nil {
		t.Fatal(err)
	}
	api.Mount("/wire/", policy.Host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := policy.From(r.Context())
		_, _ = io.WriteString(w, c.ID)
	}))
	api.EndStreams() // so that streams answer and end
	d := door{t, f, api}
	for _, r := range api.Routes() {
		path := strings.NewReplacer("{id}", "0198e1a4-0000-7000-8000-000000000000", "{name}", "x", "{$}", "").Replace(r.Path)
		method := strings.Replace(r.Method, "*", "GET", 1)
		for _, k := range policy.Kinds() {
			a := d.ask(method, path, "", "Authorization", "Bearer secret-"+string(k))
			refused := a.Code == 401 || a.Code == 403
			if may := r.Action == "" || (policy.Caller{Kind: k}).May(r.Action); refused == may {
				t.Errorf("%s %s as %s: %d", method, r.Path, k, a.Code)
			}
		}
		for _, headers := range [][]string{nil, {"X-API-Key", "wrong"}, {"Authorization", "Basic secret-admin"}, {"X-API-Key", strings.Repeat("x", 600)}} {
			a := d.ask(method, path, "", headers...)
			if (a.Code == 401) != (r.Action != "") {
				t.Errorf("%s %s with %v: %d", method, r.Path, headers, a.Code)
			}
			if a.Code == 401 && a.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s does not say how to authenticate", method, r.Path)
			}
		}
	}
	if a := d.ask("GET", "/wire/x", "", "X-API-Key", "secret-worker"); a.Body != "worker-1" {
		t.Errorf("a mounted handler sees %q", a.Body)
	}
	d.ask("POST", "/prds", `{"title":"x","tasks":[{}]}`, "X-API-Key", "secret-bridge").into(201, &struct{}{})
	if last := f.callers[len(f.callers)-1]; last.ID != "bridge-1" || f.jobs[0].Owner != "bridge-1" {
		t.Errorf("the manager sees %v", f.callers)
	}
}

func TestNoKeysOnlyOnLoopback(t *testing.T) {
	t.Parallel()
	if _, err := httpapi.New(httpapi.Config{Manager: newFake()}); err == nil {
		t.Fatal("a door to the world without keys")
	}
	if _, err := httpapi.New(httpapi.Config{Manager: newFake(), Loopback: true, Origins: []string{"nonsense"}}); err == nil {
		t.Fatal("a bad origin is accepted")
	}
	d := open(t)
	d.submit(1)
	if d.callers[0] != policy.LocalCaller() {
		t.Fatalf("the caller is %v", d.callers[0])
	}
	r := httptest.NewRequest(http.MethodGet, "http://evil.example/jobs", nil)
	w := httptest.NewRecorder()
	d.api.ServeHTTP(w, r)
	if w.Code != http.StatusMisdirectedRequest {
		t.Fatalf("a foreign host gets %d", w.Code)
	}
	d.ask("POST", "/prds", `{}`, "Origin", "https://evil.example").problem(403)
}
