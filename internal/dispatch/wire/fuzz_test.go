package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
)

const held = `"job_id":"j","fence":1`

func FuzzRegister(f *testing.F) {
	f.Add([]byte(`{"wire":1,"worker_id":"w","identity":"i","incarnation":"n","role":"Employee","models":["m"],"slots":4,"version":"v",
		"drivers":[{"name":"fake","capabilities":{"isolation":"none","images":["*"],"networks":["none"],"CPU":true}}],"holding":[{` + held + `}]}`))
	fuzzMessage[dispatch.Registration](f)
}

func FuzzLease(f *testing.F) {
	f.Add([]byte(`{"session":"s","max":4,"wait_ns":30000000000}`))
	fuzzMessage[dispatch.LeaseRequest](f)
}

func FuzzExtend(f *testing.F) {
	f.Add([]byte(`{"session":"s","held":[{` + held + `},{"job_id":"k"}]}`))
	fuzzMessage[dispatch.ExtendRequest](f)
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"session":"s","items":[{` + held + `,"event":{"n":1,"type":"exec.started","at":"2026-01-02T03:04:05.678Z","data":{"a":[1,2.5e3,"\u00e4"]}}}]}`))
	f.Add([]byte(`{"session":"s","items":[{` + held + `,"output":{"stream":2,"offset":9223372036854775807,"data":"AAH/"}}]}`))
	fuzzMessage[dispatch.ReportRequest](f)
}

func FuzzFinish(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	f.Add([]byte(`{"session":"s","results":[{` + held + `,"success":true,"details":{"x":1},"record":{"job_id":"j","attempt":1,"command":["a"],
		"verdict":"ok","started_at":"2026-01-02T03:04:05Z","usage":{"cpu_ns":5},"snapshot":{"path":"p"},"limits_asked":{"memory_bytes":1}},
		"artifacts":[{"name":"a","sha256":"` + digest + `","bytes":3}],"inline":{"` + digest + `":"YWJj"},"happenings":[{"n":1,"type":"exec.ended"}]}]}`))
	fuzzMessage[dispatch.FinishRequest](f)
}

// fuzzMessage: a message is refused with a fault of the caller's, or it is in
// bounds and survives another crossing unchanged.
func fuzzMessage[M checked](f *testing.F) {
	f.Helper()
	for _, seed := range []string{``, `null`, `{}`, `[]`, `{"session":null}`, `{"session":"\u0000"}`, `{"session":"s"}{}`, strings.Repeat(`{"a":`, 200)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var m M
		err := unmarshal(body, &m)
		if err == nil {
			err = m.Check()
		}
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("not the caller's mistake: %v", err)
			}
			return
		}
		once, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		var again M
		if err := unmarshal(once, &again); err != nil {
			t.Fatalf("%v\n%s", err, once)
		}
		if err := again.Check(); err != nil {
			t.Fatalf("%v\n%s", err, once)
		}
		twice, err := encode(again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v\n%s\n%s", err, once, twice)
		}
	})
}

// watchful is a manager that sees what gets past the door.
type watchful struct {
	dispatch.Manager
	t *testing.T
}

func (w watchful) see(m checked) error {
	if err := m.Check(); err != nil {
		w.t.Errorf("out of bounds past the door: %v", err)
	}
	return nil
}

func (w watchful) Register(_ context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	return dispatch.Welcome{}, w.see(r)
}

func (w watchful) Lease(_ context.Context, r dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	return nil, w.see(r)
}

func (w watchful) Extend(_ context.Context, r dispatch.ExtendRequest) (dispatch.ExtendAnswer, error) {
	return dispatch.ExtendAnswer{}, w.see(r)
}

func (w watchful) Report(_ context.Context, r dispatch.ReportRequest) (dispatch.Refusals, error) {
	return dispatch.Refusals{}, w.see(r)
}

func (w watchful) Finish(_ context.Context, r dispatch.FinishRequest) (dispatch.Refusals, error) {
	return dispatch.Refusals{}, w.see(r)
}

func (w watchful) Tell(_ context.Context, r dispatch.TellRequest) error { return w.see(r) }

func (w watchful) Leave(_ context.Context, session string) error { return w.see(leave{session}) }

func (w watchful) PutBlob(_ context.Context, session, sha256 string, size int64, _ io.Reader) error {
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(sha256) || size < 0 || size > dispatch.MaxBlobBytes {
		w.t.Errorf("a blob %q of %d bytes got past the door", sha256, size)
	}
	return w.see(leave{session})
}

func knock(t *testing.T, method, path, query, kind string, body []byte) {
	t.Helper()
	door := Handler(watchful{t: t}, slog.New(slog.DiscardHandler))
	defer door.Close()
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	door.ServeHTTP(w, r.WithContext(policy.With(t.Context(), policy.LocalCaller())))
	if w.Code >= 500 {
		t.Errorf("%s %q answered %d: %s", method, path, w.Code, w.Body)
	}
}

func FuzzDoor(f *testing.F) {
	for _, name := range []string{"register", "lease", "extend", "report", "finish", "leave", "commands", "blobs/x", "../x", ""} {
		f.Add("POST", "/wire/v1/"+name, "session=s", jsonType, []byte(`{"session":"s"}`))
	}
	f.Add("GET", "/wire/v1/commands", "session=%00;&&", "", []byte(nil))
	f.Fuzz(func(t *testing.T, method, path, query, kind string, body []byte) {
		knock(t, method, path, query, kind, body)
	})
}

func FuzzBlobPath(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	for _, s := range []string{digest, strings.ToUpper(digest), "", "..", "../" + digest, digest + "/", "\x00", digest[:63] + "/", digest + "\n"} {
		f.Add(s, "session=s", []byte("x"))
	}
	f.Fuzz(func(t *testing.T, digest, query string, body []byte) {
		knock(t, http.MethodPut, blobsPath+digest, query, "", body)
	})
}

func FuzzCommand(f *testing.F) {
	f.Add("/cancel", []byte(`{`+held+`,"reason":"asked to"}`))
	f.Add("/end", []byte(`{"problem":{"status":401,"kind":"unauthenticated","code":"unknown_session","detail":"register"}}`))
	f.Add("/end", []byte(`{}`))
	f.Add("/exec", []byte(`{}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		m := newCommanded(receiver(func(_ context.Context, c dispatch.Cancel) error { return c.Check() }), slog.New(slog.DiscardHandler))
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.URL = &url.URL{Path: path}
		var said *fault.Error
		if err := m.obey(r); err != nil && !errors.As(err, &said) {
			t.Errorf("not a fault: %v", err)
		}
		select {
		case err := <-m.ended:
			if err != nil {
				wantPlain(t, err)
			}
		default:
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, jsonType, []byte(`{"leases":[{`+held+`,"payload":"e30=","until":"2026-01-02T03:04:05Z"}]}`))
	f.Add(409, problemType, []byte(`{"status":409,"kind":"conflict","code":"worker_id_taken","detail":"two\nlines","field":"\u001b[31m"}`))
	f.Add(500, problemType, []byte(`{"detail":"\u0085\u007f"}`))
	f.Add(999, "text/html; x=\"", []byte(`<`))
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte) {
		resp := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(body))}
		wantPlain(t, readProblem(resp))
		var ls leases
		if err := readAnswer(bytes.NewReader(body), dispatch.MaxBodyBytes, &ls); err != nil {
			if !fault.Is(err, fault.Unavailable) {
				t.Errorf("got %v", err)
			}
			return
		}
		for i, l := range ls.unwrap() {
			if !bytes.Equal(l.Payload, ls.Leases[i].Payload) {
				t.Error("the payload changed")
			}
		}
	})
}

// wantPlain: what another end said is fit for a log and is of a known kind.
func wantPlain(t *testing.T, err error) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || !slices.Contains(fault.Kinds(), f.Kind) {
		t.Fatalf("not a fault of a known kind: %v", err)
	}
	for _, s := range []string{f.Error(), f.Code, f.Field} {
		if strings.ContainsFunc(s, unicode.IsControl) || len(s) > 3*4096 {
			t.Errorf("not fit for a log: %q", s)
		}
	}
}
