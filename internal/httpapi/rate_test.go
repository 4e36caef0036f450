package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/policy"
)

// limited is a door with bounds, and a clock that stands.
func limited(t *testing.T, cfg httpapi.Config) (ask func(method, path, from string, headers ...string) *httptest.ResponseRecorder, pass func(time.Duration)) {
	t.Helper()
	f := newFake()
	for _, k := range policy.Kinds() {
		f.keys["secret-"+string(k)] = policy.Caller{Kind: k, ID: string(k) + "-1", Key: string(k) + "-1", Sandbox: map[bool]string{true: "box1"}[k == policy.Sandbox]}
	}
	now := time.Now()
	cfg.Manager, cfg.Now = f, func() time.Time { return now }
	api, err := httpapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(method, path, from string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.RemoteAddr = from
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}, func(d time.Duration) { now = now.Add(d) }
}

const here = "192.0.2.1:1234"

// TestRateLimits counts by key and class, says what is left, and lets time heal.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	ask, pass := limited(t, httpapi.Config{Keys: true, Rates: httpapi.Rates{Read: 3, Submit: 1, Control: 1}})
	get := func(path, key string) *httptest.ResponseRecorder {
		return ask("GET", path, here, "Authorization", "Bearer secret-"+key)
	}
	for n := range 3 {
		if w := get("/jobs", "viewer"); w.Code != 200 || w.Header().Get("RateLimit-Limit") != "3" || w.Header().Get("RateLimit-Remaining") != fmt.Sprint(2-n) {
			t.Fatalf("request %d: %d %v", n, w.Code, w.Header())
		}
	}
	w := get("/jobs", "viewer")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "20" || w.Header().Get("RateLimit-Remaining") != "0" || w.Header().Get("RateLimit-Reset") != "60" {
		t.Fatalf("too many: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := get("/jobs", "auditor"); w.Code != 200 {
		t.Errorf("another key: %d", w.Code)
	}
	if w := get("/health", "viewer"); w.Code != 200 {
		t.Errorf("what is public: %d", w.Code)
	}
	pass(20 * time.Second)
	if w := get("/jobs", "viewer"); w.Code != 200 {
		t.Errorf("after the time that was named: %d", w.Code)
	}
	for range 2 { // wrong bodies count too
		w = ask("POST", "/prds", here, "X-API-Key", "secret-operator")
	}
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("submit: %d", w.Code)
	}
	if w := get("/jobs", "operator"); w.Code != 200 {
		t.Errorf("another class: %d", w.Code)
	}
	for range 10 {
		if w := get("/jobs", "worker"); w.Code != 200 {
			t.Fatalf("a worker: %d", w.Code)
		}
	}
}

// TestStoppingIsNeverLimited holds that a flood keeps nobody from the switch.
func TestStoppingIsNeverLimited(t *testing.T) {
	t.Parallel()
	ask, _ := limited(t, httpapi.Config{Keys: true, Rates: httpapi.Rates{Read: 1, Submit: 1, Exec: 1, Control: 1}})
	for range 5 {
		if w := ask("POST", "/admin/pause", here, "X-API-Key", "secret-operator"); w.Code == http.StatusTooManyRequests {
			t.Fatal("it is refused")
		}
	}
}

func TestLocalCallersAreUnlimited(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		ask, _ := limited(t, httpapi.Config{Loopback: true, Rates: httpapi.Rates{Read: 2, Local: local}})
		var last int
		for range 3 {
			last = ask("GET", "http://localhost/jobs", here).Code
		}
		if (last == http.StatusTooManyRequests) != local {
			t.Errorf("limited %v: %d", local, last)
		}
	}
}

// TestSandboxTokensHaveTheirOwnLimit is 60 in a minute where a route has no
// class of its own.
func TestSandboxTokensHaveTheirOwnLimit(t *testing.T) {
	t.Parallel()
	ask, _ := limited(t, httpapi.Config{Keys: true})
	for n := range 61 {
		w := ask("GET", "/api/v1/sandboxes/box1", here, "X-API-Key", "secret-sandbox")
		if (w.Code == http.StatusTooManyRequests) != (n == 60) {
			t.Fatalf("request %d: %d", n, w.Code)
		}
	}
}

// TestWrongKeysAreCounted by address; good keys go through all the same, and a
// director's key is not compared any more.
func TestWrongKeysAreCounted(t *testing.T) {
	t.Parallel()
	const secret = "a director's secret"
	ask, pass := limited(t, httpapi.Config{Keys: true, DirectorKey: secret, Rates: httpapi.Rates{Failures: 2}})
	want := func(what string, w *httptest.ResponseRecorder, status int) {
		t.Helper()
		if w.Code != status {
			t.Errorf("%s: %d, want %d: %s", what, w.Code, status, w.Body)
		}
	}
	want("no key", ask("GET", "/jobs", here), 401)
	want("one", ask("GET", "/jobs", here, "X-API-Key", "wrong"), 401)
	want("two", ask("GET", "/jobs", here, "X-Director-Key", "wrong"), 403)
	w := ask("GET", "/jobs", here, "X-API-Key", "wrong")
	want("three", w, 429)
	if w.Header().Get("Retry-After") != "30" {
		t.Error(w.Header())
	}
	want("a director after too many", ask("GET", "/jobs", here, "X-Director-Key", secret), 429)
	want("a good key", ask("GET", "/jobs", here, "X-API-Key", "secret-viewer"), 200)
	want("another address", ask("GET", "/jobs", "192.0.2.2:1", "X-API-Key", "wrong"), 401)
	pass(time.Minute)
	want("a director after a while", ask("GET", "/jobs", here, "X-Director-Key", secret), 200)
	for _, from := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1"} {
		want("one network", ask("GET", "/jobs", from, "X-API-Key", "wrong"), 401)
	}
	want("one network", ask("GET", "/jobs", "[2001:db8::3]:1", "X-API-Key", "wrong"), 429)
}
