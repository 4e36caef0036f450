package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

// scripted is a manager of which a test writes the calls that it needs.
type scripted struct {
	dispatch.Manager
	register func(context.Context, dispatch.Registration) (dispatch.Welcome, error)
	lease    func(context.Context, dispatch.LeaseRequest) ([]dispatch.Lease, error)
	leave    func(context.Context, string) error
	putBlob  func(context.Context, io.Reader) error
	attend   func(context.Context, dispatch.Receiver) error
}

func (s scripted) Register(ctx context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	return s.register(ctx, r)
}

func (s scripted) Lease(ctx context.Context, r dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	return s.lease(ctx, r)
}
func (s scripted) Leave(ctx context.Context, session string) error { return s.leave(ctx, session) }

func (s scripted) PutBlob(ctx context.Context, _, _ string, _ int64, r io.Reader) error {
	return s.putBlob(ctx, r)
}

func (s scripted) Attend(ctx context.Context, _ string, rc dispatch.Receiver) error {
	return s.attend(ctx, rc)
}

func receiver(do func(context.Context, dispatch.Cancel) error) dispatchtest.Canceller {
	return dispatchtest.Cancels(do)
}

// What crosses is the fault that was meant: the same for a manager's answer,
// for a worker's, and for the end of a stream.
func TestEveryKindOfFaultCrosses(t *testing.T) {
	t.Parallel()
	for _, kind := range fault.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			sent := fault.New(kind, "say what to do: ümlaut \"quoted\" <b>").WithCode("a_code")
			sent.Field = "tasks[2].role"
			check := func(what string, err error) {
				t.Helper()
				var got *fault.Error
				if !errors.As(err, &got) || got.Kind != kind || got.Code != "a_code" {
					t.Fatalf("%s: got %v, want kind %s and code a_code", what, err, kind)
				}
				if kind == fault.Internal {
					if strings.Contains(got.Error(), "say what to do") {
						t.Errorf("%s: the inside of an internal error crossed: %v", what, got)
					}
					return
				}
				if got.Message != sent.Message || got.Field != sent.Field {
					t.Errorf("%s: got %+v, want %+v", what, got, sent)
				}
			}
			toWorker := make(chan error, 1)
			c := connect(t, scripted{
				leave: func(context.Context, string) error { return sent },
				putBlob: func(context.Context, io.Reader) error {
					return sent
				},
				attend: func(ctx context.Context, rc dispatch.Receiver) error {
					toWorker <- rc.Cancel(ctx, dispatch.Cancel{Held: dispatch.Held{JobID: "j", Fence: 1}})
					return sent
				},
			}, false)
			check("an answer", c.Leave(t.Context(), "s"))
			check("a blob", c.PutBlob(t.Context(), "s", strings.Repeat("0", 64), 1, strings.NewReader("x")))
			check("the end of a stream", c.Attend(t.Context(), "s", receiver(func(context.Context, dispatch.Cancel) error { return sent })))
			check("a worker's answer", <-toWorker)
		})
	}
}

func TestErrorsWithoutAKindAreInternalAndLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	door := wire.Handler(scripted{leave: func(context.Context, string) error { return errors.New("secret detail") }},
		slog.New(slog.NewTextHandler(&log, nil)))
	defer door.Close()
	resp := ask(door, "POST", "/wire/v1/leave", `{"session":"s"}`)
	if resp.Code != http.StatusInternalServerError || strings.Contains(resp.Body.String(), "secret") {
		t.Errorf("answered %d %s", resp.Code, resp.Body)
	}
	if !strings.Contains(log.String(), "secret detail") {
		t.Errorf("the log does not say what broke: %s", log.String())
	}
}

func ask(door http.Handler, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	as(policy.LocalCaller(), door).ServeHTTP(w, r)
	return w
}

func TestOnlyHostsAreLetIn(t *testing.T) {
	t.Parallel()
	door := wire.Handler(scripted{leave: func(context.Context, string) error { return nil }}, quiet())
	defer door.Close()
	for _, kind := range append(policy.Kinds(), policy.Local, "") {
		var h http.Handler = door
		want := http.StatusUnauthorized
		if kind != "" {
			h = as(policy.Caller{Kind: kind, ID: "x"}, door)
			want = http.StatusForbidden
			if (policy.Caller{Kind: kind}).May(policy.Host) {
				want = http.StatusOK
			}
		}
		for path, method := range map[string]string{
			"/wire/v1/leave": "POST", "/wire/v1/commands?session=s": "GET", "/wire/v1/blobs/" + strings.Repeat("0", 64) + "?session=s": "PUT",
		} {
			if want == http.StatusOK && method != "POST" {
				continue
			}
			r := httptest.NewRequest(method, path, strings.NewReader(`{"session":"s"}`))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s %s by %q: %d, want %d", method, path, kind, w.Code, want)
			}
		}
	}
}

func TestBadCallsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	ref := dispatchtest.NewReference()
	door := wire.Handler(ref, quiet())
	t.Cleanup(door.Close)
	long := strings.Repeat(" ", dispatch.MaxBodyBytes+1)
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"no JSON", "POST", "register", `{"wire":`, 422, "malformed_json"},
		{"an empty body", "POST", "lease", ``, 422, "malformed_json"},
		{"two values", "POST", "lease", `{} {}`, 422, "malformed_json"},
		{"null", "POST", "lease", `null`, 422, `"field":"max"`},
		{"an array", "POST", "lease", `[]`, 422, "invalid"},
		{"a wrong type", "POST", "register", `{"worker_id":7}`, 422, `"field":"worker_id"`},
		{"a wrong type inside", "POST", "report", `{"session":"s","items":[{"job_id":"j","fence":"1"}]}`, 422, "fence"},
		{"a fraction", "POST", "lease", `{"session":"s","max":1.5}`, 422, `"field":"max"`},
		{"a huge number", "POST", "lease", `{"session":"s","max":99999999999999999999}`, 422, `"field":"max"`},
		{"a negative number", "POST", "lease", `{"session":"s","max":1,"wait_ns":-1}`, 422, `"field":"wait_ns"`},
		{"a NUL", "POST", "leave", `{"session":"a\u0000b"}`, 422, `"field":"session"`},
		{"bad base64", "POST", "report", `{"session":"s","items":[{"job_id":"j","output":{"stream":1,"data":"%%"}}]}`, 422, "invalid"},
		{"deep nesting", "POST", "finish", `{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 422, "invalid"},
		{"too long", "POST", "finish", long, 413, "too_large"},
		{"another call", "POST", "steal", `{}`, 404, "no_such_call"},
		{"another method", "GET", "lease", ``, 404, "no_such_call"},
		{"a stream without an upgrade", "GET", "commands?session=s", ``, 422, `"field":"Upgrade"`},
		{"a stream without a session", "GET", "commands", ``, 422, `"field":"session"`},
		{"a blob without a session", "PUT", "blobs/" + strings.Repeat("0", 64), `x`, 422, `"field":"session"`},
		{"a blob with a short digest", "PUT", "blobs/00?session=s", `x`, 422, `"field":"sha256"`},
		{"a blob with a path", "PUT", "blobs/..%2f..%2fetc?session=s", `x`, 422, `"field":"sha256"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := ask(door, tc.method, "/wire/v1/"+tc.path, tc.body)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("answered %d %s; want %d and %s", w.Code, w.Body, tc.status, tc.says)
			}
			if w.Header().Get("Content-Type") != "application/problem+json" || !json.Valid(w.Body.Bytes()) {
				t.Errorf("not a problem: %s", w.Body)
			}
		})
	}
}

func TestOtherContentTypesAreRefused(t *testing.T) {
	t.Parallel()
	door := wire.Handler(dispatchtest.NewReference(), quiet())
	defer door.Close()
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", ";"} {
		r := httptest.NewRequest(http.MethodPost, "/wire/v1/leave", strings.NewReader(`{"session":"s"}`))
		r.Header.Set("Content-Type", kind) // what a web page could send without asking
		w := httptest.NewRecorder()
		as(policy.LocalCaller(), door).ServeHTTP(w, r)
		if w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d", kind, w.Code)
		}
	}
}

func TestUnknownFieldsAreTolerated(t *testing.T) {
	t.Parallel()
	door := wire.Handler(dispatchtest.NewReference(), quiet())
	defer door.Close()
	body := `{"wire":1,"worker_id":"w","identity":"i","incarnation":"n","drivers":[{"name":"fake","new":[1]}],"from_the_future":{"a":1}}`
	if w := ask(door, "POST", "/wire/v1/register", body); w.Code != http.StatusOK {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

func TestAPayloadArrivesByteForByte(t *testing.T) {
	t.Parallel()
	want := []dispatch.Lease{
		{Held: dispatch.Held{JobID: "a", Fence: 1}, Payload: json.RawMessage("{ \"code\":\"<b>&\u2028\\u0041 \xff\" ,\n\"n\":1e400 }")},
		{Held: dispatch.Held{JobID: "b", Fence: 2}, Payload: json.RawMessage(`{}`), Title: "ü <&>", Attempt: 3, ProjectID: 1 << 60},
	}
	c := connect(t, scripted{lease: func(context.Context, dispatch.LeaseRequest) ([]dispatch.Lease, error) { return want, nil }}, false)
	got, err := c.Lease(t.Context(), dispatch.LeaseRequest{Session: "s", Max: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestClosingTheDoor(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 2)
	m := scripted{
		lease: func(ctx context.Context, _ dispatch.LeaseRequest) ([]dispatch.Lease, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
		attend: func(ctx context.Context, _ dispatch.Receiver) error {
			entered <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		},
	}
	door := wire.Handler(m, quiet())
	srv := httptest.NewServer(as(policy.LocalCaller(), door))
	defer srv.Close()
	c, err := wire.NewClient(srv.URL, "", wire.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := make(chan error, 2)
	go func() {
		_, err := c.Lease(t.Context(), dispatch.LeaseRequest{Session: "s", Max: 1, Wait: dispatch.MaxWait})
		ended <- err
	}()
	go func() { ended <- c.Attend(t.Context(), "s", receiver(nil)) }()
	<-entered
	<-entered
	door.Close()
	for range 2 {
		if err := <-ended; !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "stopping") {
			t.Errorf("got %v, want the reason", err)
		}
	}
	if err := c.Leave(t.Context(), "s"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a call to a closed door: %v", err)
	}
	door.Close() // once more does no harm
}

func TestLongPollsOutlastTheServersOwnDeadlines(t *testing.T) {
	t.Parallel()
	const short = 500 * time.Millisecond
	m := scripted{lease: func(ctx context.Context, _ dispatch.LeaseRequest) ([]dispatch.Lease, error) {
		select {
		case <-time.After(3 * short / 2):
			return []dispatch.Lease{{Held: dispatch.Held{JobID: "j", Fence: 1}}}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connectThrough(t, m, secure, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctl, by := http.NewResponseController(w), time.Now().Add(short)
					if err := errors.Join(ctl.SetReadDeadline(by), ctl.SetWriteDeadline(by)); err != nil {
						t.Error(err)
					}
					next.ServeHTTP(w, r)
				})
			})
			if ls, err := c.Lease(t.Context(), dispatch.LeaseRequest{Session: "s", Max: 1, Wait: dispatch.MaxWait}); err != nil || len(ls) != 1 {
				t.Errorf("got %v, %v", ls, err)
			}
		})
	}
}
