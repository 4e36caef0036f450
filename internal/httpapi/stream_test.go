package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// serve opens a door on a real connection.
func serve(t *testing.T) (door, *httptest.Server) {
	t.Helper()
	d := open(t)
	s := httptest.NewServer(d.api)
	t.Cleanup(func() {
		d.api.EndStreams()
		s.Client().CloseIdleConnections()
		s.Close()
		d.api.Close()
	})
	return d, s
}

// reader reads one stream of server-sent events.
type reader struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

func follow(t *testing.T, s *httptest.Server, path string, headers ...string) reader {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("answers %d, %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
	var once bool
	rd := reader{t: t, lines: bufio.NewScanner(res.Body), close: func() {
		if !once {
			once = true
			cancel(io.EOF)
			_ = res.Body.Close()
		}
	}}
	rd.lines.Buffer(nil, 1<<20)
	t.Cleanup(rd.close)
	return rd
}

// block returns the fields of the next block of the stream, nil at its end.
func (r reader) block() map[string]string {
	r.t.Helper()
	fields := map[string]string{}
	for r.lines.Scan() {
		line := r.lines.Text()
		if line == "" {
			return fields
		}
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimPrefix(value, " ")
	}
	return nil
}

// next returns the next event.
func (r reader) next() event.Event {
	r.t.Helper()
	for {
		b := r.block()
		if b == nil {
			r.t.Fatal("the stream has ended")
		}
		if b["data"] == "" {
			continue
		}
		var e event.Event
		if err := json.Unmarshal([]byte(b["data"]), &e); err != nil {
			r.t.Fatal(err)
		}
		if b["id"] != strconv.FormatInt(e.Seq, 10) || b["event"] != string(e.Type) {
			r.t.Fatalf("block %v", b)
		}
		return e
	}
}

func happened(n int, kind event.Type) event.Event {
	return event.Event{Type: kind, Entity: "job", EntityID: strconv.Itoa(n), JobID: "j" + strconv.Itoa(n%3), Data: json.RawMessage(`{"n":` + strconv.Itoa(n) + "\n}")}
}

func TestFollowFromNow(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	d.say(happened(1, event.JobCreated))
	r := follow(t, s, "/events")
	first := r.block()
	if _, isComment := first[""]; !isComment || first["id"] != "1" || first["data"] != "" {
		t.Fatalf("begins with %v", first)
	}
	d.say(happened(2, event.JobStarted))
	if e := r.next(); e.Seq != 2 || e.Type != event.JobStarted || string(e.Data) != `{"n":2}` {
		t.Fatalf("%+v", e)
	}
}

// TestResume is the story of a reader that loses its connection again and
// again while events go on: it sees each once, in order.
func TestResume(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	const all = 700
	written := make(chan struct{})
	go func() {
		defer close(written)
		for n := 1; n <= all; n++ {
			d.say(happened(n, event.JobStream))
		}
	}()
	last, connections := int64(0), 0
	for last < all {
		connections++
		header := []string{"Last-Event-ID", strconv.FormatInt(last, 10)}
		path := "/api/v1/events"
		if connections == 1 {
			header, path = nil, "/api/v1/events?after=0"
		}
		r := follow(t, s, path, header...)
		for range 1 + connections*37 {
			e := r.next()
			if e.Seq != last+1 {
				t.Fatalf("after %d comes %d", last, e.Seq)
			}
			if last = e.Seq; last == all {
				break
			}
		}
		r.close()
	}
	<-written
	if connections < 3 {
		t.Fatalf("only %d connections", connections)
	}
}

// TestSlowReader does not read while more happens than any buffer holds.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	r := follow(t, s, "/events")
	const all = 3000
	filler := json.RawMessage(`"` + strings.Repeat("x", 4000) + `"`)
	for range all {
		d.say(event.Event{Type: event.JobStream, Data: filler})
	}
	for n := range int64(all) {
		if e := r.next(); e.Seq != n+1 || len(e.Data) != len(filler) {
			t.Fatalf("event %d is %d, with %d bytes", n+1, e.Seq, len(e.Data))
		}
	}
}

func TestFilteredFollowing(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	for n := 1; n <= 450; n++ { // several pages, most of which the filter leaves out
		kind := event.JobStream
		if n%200 == 0 {
			kind = event.JobCompleted
		}
		d.say(happened(n, kind))
	}
	r := follow(t, s, "/events?after=0&type=job.completed,job.failed")
	if a, b := r.next().Seq, r.next().Seq; a != 200 || b != 400 {
		t.Fatalf("%d, %d", a, b)
	}
	d.say(happened(451, event.JobStream))
	d.say(happened(452, event.JobFailed))
	if e := r.next(); e.Seq != 452 {
		t.Fatalf("%+v", e)
	}
}

func TestEventLists(t *testing.T) {
	t.Parallel()
	d := open(t)
	id := d.submit(1)[0]
	for n := range 5 {
		d.say(event.Event{Type: event.JobStream, Entity: "job", EntityID: id, JobID: id, ProjectID: 7, RootID: fmt.Sprint("r", n%2)})
	}
	list := func(path string, headers ...string) (seqs []int64, link string) {
		t.Helper()
		a := d.ask("GET", path, "", headers...)
		var events []event.Event
		a.into(200, &events)
		for _, e := range events {
			seqs = append(seqs, e.Seq)
		}
		return seqs, a.Header.Get("Link")
	}
	for path, want := range map[string][]int64{
		"/events":                                {1, 2, 3, 4, 5, 6, 7},
		"/events?after=5":                        {6, 7},
		"/events?type=job.created":               {1, 2},
		"/events?job_id=" + id:                   {2, 3, 4, 5, 6, 7},
		"/events?project_id=7&root_job_id=r1":    {4, 6},
		"/events?entity_type=worker,manager":     nil,
		"/events?entity_id=" + id + ",x&after=6": {7},
	} {
		if got, link := list(path, "Accept", "application/json"); !cmp.Equal(got, want) || link != "" {
			t.Errorf("%s: %v %s, want %v", path, got, link, want)
		}
	}
	got, link := list("/jobs/"+id+"/events?limit=4", "Accept", "*/*")
	if !cmp.Equal(got, []int64{2, 3, 4, 5}) || link != "</jobs/"+id+`/events?after=5&limit=4>; rel="next"` {
		t.Errorf("%v %s", got, link)
	}
	d.ask("GET", "/jobs/0198e1a4-0000-7000-8000-000000000000/events", "").problem(404)
	for query, where := range map[string]string{
		"after=-1": "query.after", "after=x": "query.after", "type=%00": "query.type", "type=,": "query.type", "project_id=-1": "query.project_id",
		"entity_id=" + strings.Repeat("a,", 51): "query.entity_id", "job_id=%0a": "query.job_id", "typ=x": "query.typ",
	} {
		if p := d.ask("GET", "/events?"+query, "").problem(422); p.Errors[0].Location != where {
			t.Errorf("%s: %+v", query, p)
		}
	}
	if p := d.ask("GET", "/events", "", "Last-Event-ID", "nonsense").problem(422); p.Errors[0].Location != "header.Last-Event-ID" {
		t.Errorf("%+v", p)
	}
}

func TestJobEventsCanBeFollowed(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	id := d.submit(1)[0]
	r := follow(t, s, "/jobs/"+id+"/events", "Accept", "text/event-stream")
	if e := r.next(); e.Type != event.JobCreated || e.JobID != id {
		t.Fatalf("%+v", e)
	}
	d.ask("POST", "/jobs/"+id+"/claim", `"w"`)
	if e := r.next(); e.Type != event.JobClaimed {
		t.Fatalf("%+v", e)
	}
}

func TestStreamsEndOnShutdown(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	id := d.submit(1)[0]
	r := follow(t, s, "/events")
	r.block()
	logs, err := s.Client().Get(s.URL + "/jobs/" + id + "/logs?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = logs.Body.Close() }()
	d.api.EndStreams()
	d.api.EndStreams()
	if b := r.block(); b != nil {
		t.Fatalf("goes on with %v", b)
	}
	if rest, err := io.ReadAll(logs.Body); err != nil || len(rest) != 0 {
		t.Fatalf("%q %v", rest, err)
	}
}

func TestHeadOfAStreamEnds(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	id := d.submit(1)[0]
	for _, path := range []string{"/events", "/jobs/" + id + "/logs?follow=true"} {
		res, err := s.Client().Head(s.URL + path)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %v %v", path, res, err)
		}
		_ = res.Body.Close()
	}
	s.Close() // waits for the handlers
}

// pipe is an answer that a test reads while it is written.
type pipe struct {
	header http.Header
	*io.PipeWriter
}

func (p pipe) Header() http.Header { return p.header }
func (p pipe) WriteHeader(int)     {}

func TestQuietStreamsStayAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, err := httpapi.New(httpapi.Config{Manager: newFake(), Loopback: true})
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		done := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			defer close(done)
			api.ServeHTTP(pipe{http.Header{}, w}, httptest.NewRequest("GET", "http://localhost/events", nil).WithContext(ctx))
		}()
		lines := bufio.NewScanner(r)
		rd := reader{t: t, lines: lines}
		rd.block()
		began := time.Now()
		for i := 1; i <= 3; i++ {
			if b := rd.block(); b[""] != "keepalive" || time.Since(began) != time.Duration(i)*15*time.Second {
				t.Fatalf("after %s: %v", time.Since(began), b)
			}
		}
		cancel(io.EOF)
		_ = r.Close()
		<-done
	})
}

func TestLogs(t *testing.T) {
	t.Parallel()
	d, s := serve(t)
	id := d.submit(1)[0]
	d.write(sandbox.Stdout, "hello, ")
	d.write(sandbox.Stderr, "oops")
	get := func(query string) (string, string, string) {
		a := d.ask("GET", "/jobs/"+id+"/logs"+query, "")
		if a.Code != 200 || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Fatalf("%d %v", a.Code, a.Header)
		}
		return a.Body, a.Header.Get("X-Next-Offset"), a.Header.Get("X-Log-Ended")
	}
	for query, want := range map[string][3]string{
		"": {"hello, ", "7", "false"}, "?offset=3": {"lo, ", "7", "false"}, "?stream=stderr": {"oops", "4", "false"}, "?offset=99": {"", "99", "false"},
	} {
		if body, next, ended := get(query); [3]string{body, next, ended} != want {
			t.Errorf("%q: %q %s %s", query, body, next, ended)
		}
	}
	res, err := s.Client().Get(s.URL + "/jobs/" + id + "/logs?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	head := make([]byte, 7)
	if _, err := io.ReadFull(res.Body, head); err != nil || string(head) != "hello, " {
		t.Fatalf("%q %v", head, err)
	}
	d.write(sandbox.Stdout, "world; ")
	if _, err := io.ReadFull(res.Body, head); err != nil || string(head) != "world; " {
		t.Fatalf("%q %v", head, err)
	}
	d.tryAgain()
	d.write(sandbox.Stdout, "once more")
	if _, err := io.ReadFull(res.Body, head); err != nil || string(head) != "once mo" {
		t.Fatalf("%q %v", head, err)
	}
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.say(happened(1, event.JobCompleted)) // the end of a job is an event
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != "re" {
		t.Fatalf("%q %v", rest, err)
	}
	if _, next, ended := get(""); next != "9" || ended != "true" {
		t.Fatalf("%s %s", next, ended)
	}
	for query, where := range map[string]string{"stream=both": "query.stream", "offset=-1": "query.offset", "follow=maybe": "query.follow"} {
		if p := d.ask("GET", "/jobs/"+id+"/logs?"+query, "").problem(422); p.Errors[0].Location != where {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

func TestDownloads(t *testing.T) {
	t.Parallel()
	d := open(t)
	id := d.submit(1)[0]
	d.blobs = map[string][]byte{"stdout.log": []byte("hi"), "artifacts/a b/<x>\".html": []byte("<script>"), "snapshot": []byte("0123456789")}
	var list []httpapi.ArtifactBody
	d.ask("GET", "/jobs/"+id+"/artifacts?attempt=2", "").into(200, &list)
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	for _, f := range list {
		a := d.ask("GET", f.URL, "")
		if a.Code != 200 || a.Body != string(d.blobs[f.Name]) {
			t.Errorf("%s: %d %q", f.URL, a.Code, a.Body)
		}
		if h := a.Header; !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || strings.Contains(h.Get("Content-Type"), "html") {
			t.Errorf("%s: %v", f.URL, h)
		}
	}
	for _, name := range []string{"nothing", "..%2f..%2fetc%2fpasswd", "%00", "a%5cb"} {
		d.ask("GET", "/jobs/"+id+"/artifacts/"+name, "").problem(404)
	}
	a := d.ask("GET", "/jobs/"+id+"/snapshot", "", "Range", "bytes=2-4")
	if a.Code != 206 || a.Body != "234" || a.Header.Get("Content-Type") != "application/x-tar" || a.Header.Get("ETag") != `"5a95"` {
		t.Errorf("%d %q %v", a.Code, a.Body, a.Header)
	}
	if a := d.ask("GET", "/api/v1/jobs/"+id+"/snapshot", "", "If-None-Match", `"5a95"`); a.Code != 304 {
		t.Errorf("%d", a.Code)
	}
	var record map[string]any
	d.ask("GET", "/jobs/"+id+"/evidence?attempt=3", "").into(200, &record)
	if record["attempt"] != 3.0 || record["driver"] != "fake" || record["job_id"] != id {
		t.Errorf("%v", record)
	}
	if p := d.ask("GET", "/jobs/"+id+"/evidence?attempt=-1", "").problem(422); p.Errors[0].Location != "query.attempt" {
		t.Errorf("%+v", p)
	}
}

// A stream that has ended is not held against its caller.
func TestEndedStreamsAreForgotten(t *testing.T) {
	t.Parallel()
	d := open(t)
	for range 600 {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/events", nil)
		r.Host = "localhost"
		d.api.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("answers %d", w.Code)
		}
	}
}
