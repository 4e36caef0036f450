package mcpapi

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const command = `{ "project_id": 1, "title": "Test PRD", "tasks": [ {"role":"Employee","payload":{"action":"create file"}} ] }`

// manager is a transport that plays the manager.
type manager func(r *http.Request) (*http.Response, error)

func (m manager) RoundTrip(r *http.Request) (*http.Response, error) { return m(r) }

func says(status int, kind, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}
}

func open(t *testing.T, m manager, edit func(*Config)) http.Handler {
	t.Helper()
	cfg := Config{ManagerURLs: []string{"http://user:pass@manager:8000/"}, Key: "bridge-key", Loopback: true, Client: &http.Client{Transport: m}}
	if edit != nil {
		edit(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:9000"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func demand(t *testing.T, w *httptest.ResponseRecorder, status int, code string) problem.Problem {
	t.Helper()
	var p problem.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Code != code || p.Detail == "" {
		t.Fatalf("answers %d %s (%v), want %d %s", w.Code, w.Body, err, status, code)
	}
	if strings.Contains(p.Detail, "pass@") {
		t.Fatalf("shows a password: %s", p.Detail)
	}
	return p
}

func TestForwardsUnchanged(t *testing.T) {
	t.Parallel()
	h := open(t, func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != "POST" || r.URL.Path != "/prds" || string(body) != command || r.Header.Get("Idempotency-Key") != "once" ||
			r.Header.Get("Authorization") != "Bearer bridge-key" || r.Header.Get("X-Request-ID") == "" {
			t.Errorf("the manager gets %s %s %v %s", r.Method, r.URL, r.Header, body)
		}
		return says(201, "application/json", `{"root_job_id":"r"}`), nil
	}, nil)
	w := ask(h, "POST", "/mcp/command", command, "Idempotency-Key", "once")
	if w.Code != 201 || w.Body.String() != `{"root_job_id":"r"}` || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s %v", w.Code, w.Body, w.Header())
	}
}

func TestPassesTheManagersRefusalOn(t *testing.T) {
	t.Parallel()
	h := open(t, func(*http.Request) (*http.Response, error) {
		res := says(422, problem.ContentType, `{"code":"unknown_action"}`)
		res.Header.Set("Retry-After", "7")
		return res, nil
	}, nil)
	w := ask(h, "POST", "/mcp/command", command)
	if w.Code != 422 || w.Header().Get("Content-Type") != problem.ContentType || w.Body.String() != `{"code":"unknown_action"}` || w.Header().Get("Retry-After") != "7" {
		t.Fatalf("%d %s %v", w.Code, w.Body, w.Header())
	}
}

func TestManagerAway(t *testing.T) {
	t.Parallel()
	// A port that nobody listens on.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	h := open(t, nil, func(c *Config) { c.ManagerURLs, c.Client = []string{"http://" + addr}, &http.Client{Transport: tr} })
	if p := demand(t, ask(h, "POST", "/mcp/command", command), 502, "manager_away"); !strings.Contains(p.Detail, "connection refused") || !strings.Contains(p.Detail, addr) {
		t.Fatal(p.Detail)
	}
	for name, m := range map[string]manager{
		"redirect": func(*http.Request) (*http.Response, error) {
			res := says(302, "application/json", `{}`)
			res.Header.Set("Location", "http://elsewhere/")
			return res, nil
		},
		"a web page": func(*http.Request) (*http.Response, error) { return says(200, "text/html", `<html>`), nil },
		"endless": func(*http.Request) (*http.Response, error) {
			return says(200, "application/json", strings.Repeat(" ", maxAnswer+1)), nil
		},
	} {
		if w := ask(open(t, m, nil), "POST", "/mcp/command", command); w.Code != 502 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	broken := open(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") }, nil)
	demand(t, ask(broken, "POST", "/mcp/command", command), 502, "manager_away")
}

func TestManagerTooSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := open(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, nil)
		began := time.Now()
		demand(t, ask(h, "POST", "/mcp/command", command), 504, "manager_timeout")
		if time.Since(began) != 30*time.Second {
			t.Errorf("gave up after %s", time.Since(began))
		}
	})
}

func TestBadCommands(t *testing.T) {
	t.Parallel()
	h := open(t, func(*http.Request) (*http.Response, error) {
		t.Error("a bad command was forwarded")
		return nil, io.EOF
	}, nil)
	for _, body := range []string{"", " ", "[]", `"x"`, "{", "nonsense", "{} {}", "null", "\x00"} {
		demand(t, ask(h, "POST", "/mcp/command", body), 422, "malformed_json")
	}
	demand(t, ask(h, "POST", "/mcp/command", `{"x":"`+strings.Repeat("x", 10<<20)+`"}`), 413, "too_large")
	demand(t, ask(h, "GET", "/mcp/command", ""), 405, "method_not_allowed")
	demand(t, ask(h, "GET", "/prds", ""), 404, "no_such_path")
	demand(t, ask(h, "POST", "/mcp/command", command, "Origin", "https://evil.example"), 403, "foreign_origin")
	r := httptest.NewRequest("POST", "http://evil.example/mcp/command", strings.NewReader(command))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	demand(t, w, 421, "unknown_host")
}

func TestKeysOfClients(t *testing.T) {
	t.Parallel()
	seen := ""
	m := manager(func(r *http.Request) (*http.Response, error) {
		seen = r.Header.Get("Authorization")
		return says(201, "application/json", `{}`), nil
	})
	for _, loopback := range []bool{true, false} {
		h := open(t, m, func(c *Config) { c.Loopback = loopback })
		for _, headers := range [][]string{{"Authorization", "bearer own"}, {"X-API-Key", "own"}} {
			if w := ask(h, "POST", "/mcp/command", command, headers...); w.Code != 201 || seen != "Bearer own" {
				t.Errorf("%v: %d, the manager sees %q", headers, w.Code, seen)
			}
		}
	}
	seen = ""
	h := open(t, m, func(c *Config) { c.Loopback = false })
	demand(t, ask(h, "POST", "/mcp/command", command), 401, "no_key")
	if seen != "" {
		t.Error("the bridge lends its key to strangers")
	}
}

func TestHealthAndConfig(t *testing.T) {
	t.Parallel()
	if w := ask(open(t, nil, nil), "GET", "/health", ""); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"status":"ok"}` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, u := range []string{"", "manager:8000", "ftp://x", "http://", "://"} {
		if _, err := New(Config{ManagerURLs: []string{u}}); err == nil {
			t.Errorf("%q is taken for a manager", u)
		}
	}
	if _, err := New(Config{ManagerURLs: []string{"http://m"}, Origins: []string{"nonsense"}}); err == nil {
		t.Error("a bad origin is accepted")
	}
}

func FuzzCommand(f *testing.F) {
	for _, s := range []string{command, "", "{}", " {}\n", "[]", "{", "{}{}", "\xef\xbb\xbf{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var fields map[string]json.RawMessage
		isObject := json.Unmarshal(body, &fields) == nil && fields != nil
		if (checkCommand(body) == nil) != isObject {
			t.Fatalf("%q: object is %v", body, isObject)
		}
	})
}

// One that cannot be reached is passed over; one that may have taken the
// command is not.
func TestTheNextManagerIsAsked(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		first error
		want  []string
		code  int
	}{
		"refused": {refused, []string{"a", "b"}, 201},
		"reset":   {&net.OpError{Op: "read", Err: errors.New("reset by peer")}, []string{"a"}, 502},
	} {
		var asked []string
		h := open(t, func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Hostname())
			if r.URL.Hostname() == "a" {
				return nil, c.first
			}
			return says(201, "application/json", `{}`), nil
		}, func(cfg *Config) { cfg.ManagerURLs = []string{"http://a:1", "http://b:1"} })
		if w := ask(h, "POST", "/mcp/command", command); w.Code != c.code || !slices.Equal(asked, c.want) {
			t.Errorf("%s: got %d after asking %v", name, w.Code, asked)
		}
	}
}
