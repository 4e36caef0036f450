package guard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wrap(t *testing.T, h http.HandlerFunc, cfg guard.Config) http.Handler {
	t.Helper()
	g, err := guard.Wrap(h, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

func TestHost(t *testing.T) {
	t.Parallel()
	loop := guard.Config{Loopback: true, Hosts: []string{"aurea.internal"}}
	open := guard.Config{}
	named := guard.Config{Hosts: []string{"Example.org:443"}}
	for _, c := range []struct {
		host string
		cfg  guard.Config
		want int
	}{
		{"localhost", loop, 204},
		{"localhost:8000", loop, 204},
		{"LOCALHOST.", loop, 204},
		{"127.0.0.1:8000", loop, 204},
		{"127.8.9.1", loop, 204},
		{"[::1]:8000", loop, 204},
		{"[::1]", loop, 204},
		{"[::ffff:127.0.0.1]:80", loop, 204},
		{"aurea.internal:8000", loop, 204},
		{"AUREA.internal", loop, 204},
		{"evil.example", loop, 421},
		{"127.0.0.1.evil.example", loop, 421},
		{"localhost.evil.example", loop, 421},
		{"192.168.1.1", loop, 421},
		{"", loop, 421},
		{"0.0.0.0", loop, 421},
		{"[fe80::1%lo]", loop, 421},
		{"anything", open, 204},
		{"example.org", named, 204},
		{"localhost", named, 204}, // whoever calls it so is on this machine, as health checks are
		{"evil.example", named, 421},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		wrap(t, ok, c.cfg).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("Host %q: %d, want %d", c.host, w.Code, c.want)
		}
		if w.Code != 204 && w.Header().Get("Content-Type") != problem.ContentType {
			t.Errorf("Host %q: not a problem", c.host)
		}
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	cfg := guard.Config{Loopback: true, Origins: []string{"https://ui.example"}}
	for _, c := range []struct {
		name, method string
		headers      map[string]string
		want         int
	}{
		{"curl", "POST", nil, 204},
		{"own page", "POST", map[string]string{"Origin": "http://localhost"}, 204},
		{"foreign page", "POST", map[string]string{"Origin": "http://evil.example"}, 403},
		{"opaque origin", "POST", map[string]string{"Origin": "null"}, 403},
		{"fetch metadata", "DELETE", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"sibling site", "PUT", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"trusted page", "POST", map[string]string{"Origin": "https://ui.example", "Sec-Fetch-Site": "cross-site"}, 204},
		{"reading", "GET", map[string]string{"Origin": "http://evil.example"}, 204},
	} {
		r := httptest.NewRequest(c.method, "http://localhost/x", nil)
		for k, v := range c.headers {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		wrap(t, ok, cfg).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", c.name, w.Code, c.want)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: opened to other origins", c.name)
		}
	}
	if _, err := guard.Wrap(http.NotFoundHandler(), guard.Config{Origins: []string{"not an origin"}}); err == nil {
		t.Error("a bad origin is accepted")
	}
}

func TestHeadersAndRequestID(t *testing.T) {
	t.Parallel()
	for given, kept := range map[string]bool{"abcdef-123": true, "short": false, "new\nline-12345": false, strings.Repeat("x", 65): false} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		r.Header["X-Request-Id"] = []string{given}
		w := httptest.NewRecorder()
		wrap(t, ok, guard.Config{Loopback: true}).ServeHTTP(w, r)
		if got := w.Header().Get("X-Request-ID"); (got == given) != kept || len(got) < 8 {
			t.Errorf("%q became %q", given, got)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("headers are missing: %v", w.Header())
		}
	}
}

func TestPanicBecomesAProblemAndALogLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := wrap(t, func(_ http.ResponseWriter, r *http.Request) {
		guard.NoteCaller(r.Context(), "admin-1")
		panic("the roof is on fire")
	}, guard.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/x", nil))
	if w.Code != 500 || strings.Contains(w.Body.String(), "roof") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, want := range []string{"roof is on fire", "admin-1", "status=500", w.Header().Get("X-Request-ID")} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, out.String())
		}
	}
}

func TestPanicInMidAnswerBreaksTheConnection(t *testing.T) {
	t.Parallel()
	h := wrap(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic(&net.OpError{Op: "write", Err: errors.New("broken pipe")})
	}, guard.Config{})
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the very value is what net/http looks for
			t.Fatalf("recovered %v", p)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
}

func TestNotesOutsideARequestAreIgnored(t *testing.T) {
	t.Parallel()
	guard.NoteCaller(context.Background(), "x")
	guard.NoteError(context.Background(), errors.New("x"))
}
