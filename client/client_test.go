package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client of a server that answers with h.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	c, err := New(srv.URL, Options{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); srv.CloseClientConnections(); srv.Close() })
	return c
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func TestNewRefusesWhatIsNoServer(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"localhost:8000", "ftp://h", "http://", "http://h?x=1", "\x00"} {
		if _, err := New(s, Options{}); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	if c, err := New("", Options{}); err != nil || c.Server() != DefaultServer {
		t.Errorf("%v, %v", c, err)
	}
}

func TestSubmitRepeatsItselfUnderOneKey(t *testing.T) {
	t.Parallel()
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/prds" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("%s %s %q", r.Method, r.URL, r.Header)
		}
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) < 3 {
			answer(w, http.StatusServiceUnavailable, Problem{Detail: "away"})
			return
		}
		var prd PRD
		if err := json.NewDecoder(r.Body).Decode(&prd); err != nil || len(prd.Tasks) != 1 {
			t.Errorf("%v %+v", err, prd)
		}
		answer(w, http.StatusCreated, Submission{RootJobID: "r", JobIDs: []string{"a"}})
	})
	s, err := c.SubmitPRD(t.Context(), PRD{Title: "T", Tasks: []Task{{Role: "Employee"}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if s.RootJobID != "r" || len(keys) != 3 || keys[0] == "" || keys[0] != keys[2] {
		t.Errorf("%+v after %q", s, keys)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		kind   string
		body   string
		want   string
		code   string
	}{
		"ours":          {422, "application/problem+json", `{"detail":"tasks[0].role: is empty","code":"invalid","status":1}`, "tasks[0].role: is empty", "invalid"},
		"a proxy's":     {502, "text/html", "<html>", "the server answered 502 Bad Gateway", ""},
		"broken JSON":   {500, "application/json", "{", "the server answered 500", ""},
		"a redirection": {302, "text/plain", "", "the server answered 302 Found", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.Header().Set("Location", "http://192.0.2.1/")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			_, err := c.Job(t.Context(), "x")
			var p *Problem
			if !errors.As(err, &p) || !strings.HasPrefix(p.Error(), tc.want) || p.Status != tc.status || p.Code != tc.code {
				t.Errorf("%#v", err)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	c, err := New(srv.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Job(t.Context(), "x")
	var u *Unreachable
	if !errors.As(err, &u) || !strings.HasPrefix(err.Error(), "cannot reach "+srv.URL+": ") || strings.Count(err.Error(), srv.URL) != 1 {
		t.Errorf("%v", err)
	}
}

func TestNamesAreEscaped(t *testing.T) {
	t.Parallel()
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath(); answer(w, 200, Job{}) })
	if _, err := c.Job(t.Context(), "../a/b?c"); err != nil {
		t.Fatal(err)
	}
	if got != "/jobs/..%2Fa%2Fb%3Fc" {
		t.Error(got)
	}
	r, err := c.Artifact(t.Context(), "x", "artifacts/a b#.txt")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if got != "/jobs/x/artifacts/artifacts/a%20b%23.txt" {
		t.Error(got)
	}
}

func TestJobsFollowsPages(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		page, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		if r.URL.Query().Get("status") != "QUEUED" {
			t.Errorf("query %q", r.URL.RawQuery)
		}
		if page < 2 {
			w.Header().Set("Link", fmt.Sprintf(`</jobs?cursor=%d&status=QUEUED>; rel="next"`, page+1))
		}
		answer(w, 200, []Job{{ID: fmt.Sprint(page, "a")}, {ID: fmt.Sprint(page, "b")}})
	})
	var ids []string
	for j, err := range c.Jobs(t.Context(), JobFilter{Status: Queued}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, j.ID)
	}
	if diff := cmp.Diff([]string{"0a", "0b", "1a", "1b", "2a", "2b"}, ids); diff != "" {
		t.Error(diff)
	}
	asked.Store(0)
	for range c.Jobs(t.Context(), JobFilter{Status: Queued}) {
		break
	}
	if asked.Load() != 1 {
		t.Errorf("a loop that wants one job asks for %d pages", asked.Load())
	}
}

func send(w http.ResponseWriter, seqs ...int64) {
	for _, n := range seqs {
		_, _ = fmt.Fprintf(w, "id: %d\nevent: job.created\ndata: {\"seq\":%d,\"type\":\"job.created\"}\n\n", n, n)
	}
	_ = http.NewResponseController(w).Flush()
}

// A server that dies again and again must cost the follower nothing.
func TestFollowComesBackWhereItWas(t *testing.T) {
	t.Parallel()
	var cursors []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cursors = append(cursors, r.Header.Get("Last-Event-Id"))
		switch len(cursors) {
		case 1:
			_, _ = io.WriteString(w, ": keepalive\nretry: 1000\nid: 3\n\n")
			send(w, 4, 5)
			panic(http.ErrAbortHandler)
		case 2:
			answer(w, http.StatusServiceUnavailable, Problem{})
		case 3:
			send(w, 5, 6) // 5 is doubled and must not come twice
		default:
			send(w, 7)
			<-r.Context().Done()
		}
	})
	var seqs []int64
	for e, err := range c.Follow(t.Context(), EventFilter{}, Now) {
		if err != nil {
			t.Fatal(err)
		}
		if seqs = append(seqs, e.Seq); e.Seq == 7 {
			break
		}
	}
	if diff := cmp.Diff([]int64{4, 5, 6, 7}, seqs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"", "5", "5", "6"}, cursors); diff != "" {
		t.Error(diff)
	}
}

func TestFollowEndsWithWhatCannotBeMended(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusUnauthorized, Problem{Detail: "no key"})
	})
	n := 0
	for _, err := range c.Follow(t.Context(), EventFilter{}, 0) {
		var p *Problem
		if n++; !errors.As(err, &p) {
			t.Errorf("%v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d turns", n)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { send(w, 1); <-r.Context().Done() })
	for _, err := range c.Follow(ctx, EventFilter{}, 0) {
		if err != nil {
			t.Error(err)
		}
		cancel(context.Canceled)
	}
}

func TestSilenceIsABreak(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		defer func() { _ = pw.Close() }()
		fired := make(chan struct{})
		quiet := time.AfterFunc(silence, func() { close(fired) })
		frames := newFrameReader(lively{pr, quiet})
		go func() {
			<-time.After(silence - time.Second)
			_, _ = io.WriteString(pw, ": still here\n\nid: 1\ndata: x\n\n")
		}()
		if _, err := frames.next(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-fired
		if d := time.Since(start); d != silence {
			t.Errorf("gave up after %s", d)
		}
	})
}

func TestLogsFollow(t *testing.T) {
	t.Parallel()
	const text = "one two three four"
	turn := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/logs") {
			j := Job{Status: InProgress, Attempt: 1}
			if turn >= 3 {
				j.Status = Completed
			}
			answer(w, 200, j)
			return
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if r.URL.Query().Get("follow") != "true" {
			_, _ = io.WriteString(w, text[from:])
			return
		}
		switch turn++; turn {
		case 1:
			_, _ = io.WriteString(w, text[from:from+5])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			_, _ = io.WriteString(w, text[from:from+3]) // a server that stops in good order
		default:
			_, _ = io.WriteString(w, text[from:from+1])
		}
	})
	var b strings.Builder
	next, err := c.Logs(t.Context(), "x", LogsOptions{Follow: true}, &b)
	if err != nil || b.String() != text || next != int64(len(text)) {
		t.Errorf("%q, %d, %v", b.String(), next, err)
	}
}

func TestLogsStopsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") })
	broken := errors.New("broken pipe")
	if _, err := c.Logs(t.Context(), "x", LogsOptions{Follow: true}, brokenWriter{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

func TestFrames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want []frame
	}{
		"plain":           {"id: 1\nevent: a\ndata: x\n\n", []frame{{"1", "a", "x"}}},
		"three line ends": {"data: a\r\n\r\ndata: b\r\rdata: c\n\n", []frame{{data: "a"}, {data: "b"}, {data: "c"}}},
		"many data lines": {"data: a\ndata:b\ndata\n\n", []frame{{data: "a\nb\n"}}},
		"comments only":   {": hi\n\n: ho\n\n", nil},
		"cut off":         {"data: a\n\ndata: b\n", []frame{{data: "a"}}},
		"unknown fields":  {"retry: 3\nfoo: bar\n\ndata: z\n\n", []frame{{data: "z"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []frame
			r := newFrameReader(strings.NewReader(tc.in))
			for {
				f, err := r.next()
				if err != nil {
					break
				}
				got = append(got, f)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(frame{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzFrames(f *testing.F) {
	f.Add("id: 1\nevent: a\ndata: x\n\n")
	f.Add("data: a\r\n\r\ndata: b\r\r")
	f.Add(":\n\n\x00data\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		r := newFrameReader(strings.NewReader(in))
		total := 0
		for {
			m, err := r.next()
			if err != nil {
				break
			}
			if strings.ContainsAny(m.id+m.event, "\r\n") || strings.Contains(m.data, "\r") {
				t.Fatalf("%+v", m)
			}
			total += len(m.data) + len(m.id) + len(m.event)
		}
		if total > len(in) {
			t.Fatal("more came out than went in")
		}
	})
}

func FuzzLink(f *testing.F) {
	f.Add(`</jobs?cursor=1>; rel="next"`)
	f.Add(`<>; rel="next"`)
	f.Add(`<http://%zz>; rel="next"`)
	f.Fuzz(func(_ *testing.T, in string) { nextQuery(http.Header{"Link": {in}}) })
}
