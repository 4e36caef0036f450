package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/run"
)

// TestRunAnswersAsItsSourceSays holds the names and the types of the fields
// that clients of a plain code runner know.
func TestRunAnswersAsItsSourceSays(t *testing.T) {
	t.Parallel()
	d := open(t)
	var got map[string]any
	d.ask("POST", "/run", `{"code":"print('Hello, World!')","language":"python","timeout":null,"files":null}`).into(200, &got)
	want := map[string]any{
		"success": true, "exit_code": 0.0, "stdout": "print('Hello, World!')", "stderr": "", "execution_time": 1.5, "timed_out": false,
		"timeout": 30.0, "artifacts": map[string]any{},
	}
	for name, value := range want {
		if diff := cmp.Diff(value, got[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if id, _ := got["run_id"].(string); len(id) != 36 || got["verdict"] != "ok" || got["driver"] != "fake" || got["image"] != "host" || got["timing"] != nil {
		t.Errorf("got %v", got)
	}
	d.ask("POST", "/api/v1/run?debug=timing", `{"code":"timeout"}`).into(200, &got)
	if got["exit_code"] != -1.0 || got["timed_out"] != true || got["success"] != false || got["timing"] == nil || got["stdout"] != "timeout" {
		t.Errorf("got %v", got)
	}
	d.ask("POST", "/run", `{"code":"signal"}`).into(200, &got)
	if got["exit_code"] != 137.0 || got["success"] != false {
		t.Errorf("got %v", got)
	}
}

func TestArtifactsAreTextOrBase64(t *testing.T) {
	t.Parallel()
	var b httpapi.ResultBody
	open(t).ask("POST", "/run", `{"code":"left"}`).into(200, &b)
	if b.Artifacts["a.txt"] != "text" || b.ArtifactInfo["a.txt"].Encoding != "text" || b.ArtifactInfo["a.txt"].Size != 4 {
		t.Errorf("the text is %q, %+v", b.Artifacts["a.txt"], b.ArtifactInfo["a.txt"])
	}
	if b.Artifacts["b.png"] != "iVBORy8=" && b.ArtifactInfo["b.png"].Encoding != "base64" {
		t.Errorf("the picture is %q, %+v", b.Artifacts["b.png"], b.ArtifactInfo["b.png"])
	}
}

// TestArtifactsOfRunsAreDownloaded also asks for what no run can have left:
// names are looked up, and lead nowhere.
func TestArtifactsOfRunsAreDownloaded(t *testing.T) {
	t.Parallel()
	d := open(t)
	var b httpapi.ResultBody
	d.ask("POST", "/run", `{"code":"left"}`).into(200, &b)
	at := "/api/v1/runs/" + b.RunID + "/artifacts/"
	got := d.ask("GET", at+"b.png", "")
	if want := "\x89PNG\xff"; got.Code != 200 || got.Body != want {
		t.Errorf("got %d %q", got.Code, got.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment; filename=b.png",
		"Etag": `"` + b.ArtifactInfo["b.png"].SHA256 + `"`, "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s is %q", name, got.Header.Get(name))
		}
	}
	if got := d.ask("GET", at+"a.txt", "", "Range", "bytes=1-2"); got.Code != 206 || got.Body != "ex" {
		t.Errorf("a range is %d %q", got.Code, got.Body)
	}
	if got := d.ask("GET", at+"c/d%20%3Ce%3E.html", ""); got.Code != 200 || got.Body != "<p>" {
		t.Errorf("a name with a slash: %d %q", got.Code, got.Body)
	}
	for _, name := range []string{"none", "%2e%2e/x", "..%2f..%2fetc%2fpasswd", "%00", "%2fetc%2fpasswd", strings.Repeat("x", 1000)} {
		if got := d.ask("GET", at+name, ""); got.Code != 404 {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
	if got := d.ask("GET", at+strings.Repeat("x", 3000), ""); got.Code != 422 {
		t.Errorf("an endless name: %d", got.Code)
	}
}

func TestARunIsReadWithAllThatItAsksFor(t *testing.T) {
	t.Parallel()
	d := open(t)
	var b httpapi.ResultBody
	d.ask("POST", "/run", `{"code":"x","language":"Bash","timeout":7,"files":{"a.txt":"1"},"readonly":false,"capture_artifacts":false,"stdin":"in",
		"args":["-v"],"env":{"A":"b"},"cpu_limit":0.5,"memory_limit":"512m","network":"none","driver":"fake","image":"host",
		"limits":{"processes":7,"disk":"1g","open_files":9,"cpu_time":1.5}}`).into(200, &b)
	o, _ := d.last.(run.Order)
	if o.Language != "bash" || o.Timeout != 7*time.Second || o.Files["a.txt"] != "1" || o.ReadOnly || o.Artifacts || o.Stdin != "in" || o.Args[0] != "-v" ||
		o.Env["A"] != "b" || o.Limits.MilliCPU != 500 || o.Limits.Memory != 512<<20 || o.Limits.Processes != 7 || o.Limits.Disk != 1<<30 ||
		o.Limits.OpenFiles != 9 || o.Limits.CPUTime != 1500*time.Millisecond || b.Timeout != 7 {
		t.Errorf("the order is %+v", o)
	}
	d.ask("POST", "/run", `{"code":"x","memory_limit":1048576}`).into(200, &b)
	if o, _ := d.last.(run.Order); o.Limits.Memory != 1<<20 {
		t.Errorf("the order is %+v", o)
	}
}

// TestBadRunsAreRefusedByName sends runs that are wrong in one field, to both
// doors: nothing is stored, nothing is started.
func TestBadRunsAreRefusedByName(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, c := range []struct{ body, field string }{
		{`{}`, "code"},
		{`{"code":""}`, "code"},
		{`{"code":null}`, "code"},
		{`{"code":1}`, "code"},
		{`{"code":"x","languge":"python"}`, "languge"},
		{`{"code":"x","language":"cobol"}`, "language"},
		{`{"code":"x","language":7}`, "language"},
		{`{"code":"x","timeout":0}`, "timeout"},
		{`{"code":"x","timeout":301}`, "timeout"},
		{`{"code":"x","timeout":1.5}`, "timeout"},
		{`{"code":"x","timeout":"30"}`, "timeout"},
		{`{"code":"x","files":["a"]}`, "files"},
		{`{"code":"x","files":{"a":1}}`, "files.a"},
		{`{"code":"x","files":{"../etc/passwd":""}}`, "files[../etc/passwd]"},
		{`{"code":"x","files":{"a\\b":""}}`, `files[a\b]`},
		{`{"code":"x","files":{".hidden":""}}`, "files[.hidden]"},
		{`{"code":"x","files":{"main.py":""}}`, "files[main.py]"},
		{`{"code":"x","readonly":"yes"}`, "readonly"},
		{`{"code":"x","args":"a"}`, "args"},
		{`{"code":"x","args":[1]}`, "args[0]"},
		{`{"code":"x","env":{"A=B":""}}`, "env"},
		{`{"code":"x","cpu_limit":"1"}`, "cpu_limit"},
		{`{"code":"x","cpu_limit":0}`, "cpu_limit"},
		{`{"code":"x","cpu_limit":5}`, "cpu_limit"},
		{`{"code":"x","memory_limit":"much"}`, "memory_limit"},
		{`{"code":"x","memory_limit":0}`, "memory_limit"},
		{`{"code":"x","memory_limit":-1}`, "memory_limit"},
		{`{"code":"x","memory_limit":1.5}`, "memory_limit"},
		{`{"code":"x","memory_limit":true}`, "memory_limit"},
		{`{"code":"x","memory_limit":"2g"}`, "memory_limit"},
		{`{"code":"x","network":"full"}`, "network"},
		{`{"code":"x","limits":{"processes":101}}`, "limits.processes"},
		{`{"code":"x","limits":{"disk":"x"}}`, "limits.disk"},
		{`{"code":"x","limits":{"cpu_time":-1}}`, "limits.cpu_time"},
		{`{"code":"x","limits":{"more":1}}`, "limits.more"},
	} {
		for _, path := range []string{"/run", "/api/v1/runs"} {
			d.untouched(c.body, func() {
				if p := d.ask("POST", path, c.body).problem(422); len(p.Errors) == 0 || p.Errors[0].Location != c.field {
					t.Errorf("%s to %s: the fault is %+v", c.body, path, p)
				}
			})
		}
	}
	d.untouched("a body that is too large", func() {
		d.ask("POST", "/run", `{"code":"`+strings.Repeat("x", 10<<20)+`"}`).problem(413)
	})
	d.untouched("too many", func() {
		many := strings.TrimSuffix(strings.Repeat(`{"code":"x"},`, 1001), ",")
		d.ask("POST", "/api/v1/runs", `{"runs":[`+many+`]}`).problem(422)
	})
	d.untouched("one that is wrong among others", func() {
		d.ask("POST", "/api/v1/runs", `{"runs":[{"code":"x"},{"code":"x","timeout":0}]}`).problem(422)
	})
	if len(d.runs) != 0 {
		t.Errorf("%d runs were made", len(d.runs))
	}
}

func TestNoRoomSaysWhenToComeAgain(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.busy = 7100 * time.Millisecond
	a := d.ask("POST", "/run", `{"code":"x"}`)
	if p := a.problem(429); p.Code != "no_room" || a.Header.Get("Retry-After") != "8" {
		t.Errorf("got %+v after %s", p, a.Header.Get("Retry-After"))
	}
}

func TestRunsAreQueuedListedAndCancelled(t *testing.T) {
	t.Parallel()
	d := open(t)
	var one httpapi.SubmittedBody
	a := d.ask("POST", "/api/v1/runs", `{"code":"first","webhook":"https://example.org"}`)
	a.into(202, &one)
	if a.Header.Get("Location") != "/api/v1/runs/"+one.RunID || *one.Runs[0].Position != 3 || *one.Runs[0].WaitSecs != 2 || *one.Runs[0].Webhook != "https://example.org" {
		t.Errorf("got %s at %s", a.Body, a.Header.Get("Location"))
	}
	var batch httpapi.SubmittedBody
	a = d.ask("POST", "/api/v1/runs", `{"runs":[{"code":"a"},{"code":"b"},{"code":"c"}]}`)
	a.into(202, &batch)
	if len(batch.Runs) != 3 || batch.RunID != "" || a.Header.Get("Location") != "" {
		t.Errorf("got %s", a.Body)
	}
	var seen []string
	for path := "/api/v1/runs?limit=3"; path != ""; {
		var list []httpapi.RunStateBody
		a := d.ask("GET", path, "")
		a.into(200, &list)
		for _, x := range list {
			seen = append(seen, x.RunID)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(a.Header.Get("Link"), "<"), `>; rel="next"`)
	}
	if len(seen) != 4 || seen[3] != one.RunID {
		t.Errorf("listed are %v", seen)
	}
	d.ask("GET", "/api/v1/runs?status=nonsense", "").problem(422)
	d.ask("GET", "/api/v1/runs?cursor=nonsense", "").problem(422)
	d.ask("GET", "/api/v1/runs/nonsense", "").problem(404)
	d.ask("GET", "/api/v1/runs/01a1e0e9-8cb9-7b2b-9c4c-d47e9c957548", "").problem(404)
	var x httpapi.RunStateBody
	d.ask("POST", "/api/v1/runs/"+one.RunID+"/cancel", `{"reason":"enough"}`).into(200, &x)
	if x.Status != run.Cancelled || *x.Reason != "enough" {
		t.Errorf("it is %+v", x)
	}
}

func TestARunIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := open(t)
	var s httpapi.SubmittedBody
	d.ask("POST", "/api/v1/runs", `{"code":"x"}`).into(202, &s)
	done := make(chan answer, 1)
	go func() { done <- d.ask("GET", "/api/v1/runs/"+s.RunID+"?wait=60", "") }()
	x, _ := d.findRun(s.RunID)
	d.end(x)
	var b httpapi.RunStateBody
	(<-done).into(200, &b)
	if b.Status != run.Completed || b.Result == nil || b.Result.Stdout != "x" {
		t.Errorf("it is %+v", b)
	}
	d.ask("GET", "/api/v1/runs/"+s.RunID+"?wait=301", "").problem(422)
}

func TestOutputIsReadFromAnyOffset(t *testing.T) {
	t.Parallel()
	d := open(t)
	var s httpapi.SubmittedBody
	d.ask("POST", "/api/v1/runs", `{"code":"0123456789"}`).into(202, &s)
	path := "/api/v1/runs/" + s.RunID + "/output"
	a := d.ask("GET", path+"?offset=7", "")
	if a.Code != 200 || a.Body != "789" || a.Header.Get("X-Next-Offset") != "10" || a.Header.Get("X-Output-Ended") != "false" {
		t.Errorf("got %+v", a)
	}
	d.ask("GET", path+"?offset=-1", "").problem(422)
	d.ask("GET", path+"?stream=stdin", "").problem(422)
	x, _ := d.findRun(s.RunID)
	d.end(x)
	if a := d.ask("GET", path+"?offset=9&follow=true", ""); a.Body != "9" {
		t.Errorf("got %+v", a)
	}
}

// TestOutputIsFollowedAsEvents reads both streams as they come, and again from
// where a connection was lost.
func TestOutputIsFollowedAsEvents(t *testing.T) {
	t.Parallel()
	d := open(t)
	server := httptest.NewServer(d.api)
	defer server.Close()
	defer d.api.EndStreams()
	var s httpapi.SubmittedBody
	d.ask("POST", "/api/v1/runs", `{"code":"héllo"}`).into(202, &s)
	x, _ := d.findRun(s.RunID)
	d.mu.Lock()
	x.Stderr = []byte{'e', 0xff}
	d.mu.Unlock()
	follow := func(last string, until int) (lines []string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/runs/"+s.RunID+"/output", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		event, id := "", ""
		for in := bufio.NewScanner(resp.Body); in.Scan() && len(lines) < until; {
			name, value, _ := strings.Cut(in.Text(), ": ")
			switch name {
			case "id":
				id = value
			case "event":
				event = value
			case "data":
				var facts map[string]any
				if err := json.Unmarshal([]byte(value), &facts); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, fmt.Sprintf("%s %s %v %v %v", event, id, facts["offset"], facts["data"], facts["encoding"]))
			}
		}
		return lines
	}
	if diff := cmp.Diff([]string{"stdout 6-0-1 0 héllo <nil>", "stderr 6-2-1 0 Zf8= base64"}, follow("", 2)); diff != "" {
		t.Error(diff)
	}
	d.end(x)
	for _, last := range []string{"3-1", "3-1-1"} {
		if diff := cmp.Diff([]string{"stdout 6-1-1 3 llo <nil>", "stderr 6-2-1 1 /w== base64", "end 6-2-1 <nil> <nil> <nil>"}, follow(last, 9)); diff != "" {
			t.Error(diff)
		}
	}
	// What was read of a try that was lost is told apart from this one.
	if diff := cmp.Diff([]string{"restart 0-0-1 <nil> <nil> <nil>", "stdout 6-0-1 0 héllo <nil>"}, follow("3-1-7", 2)); diff != "" {
		t.Error(diff)
	}
	for _, last := range []string{"x", "1", "1-", "1-2-3-4", "-1-2", "1-2-x", "1--2"} {
		d.ask("GET", "/api/v1/runs/"+s.RunID+"/output", "", "Accept", "text/event-stream", "Last-Event-ID", last).problem(422)
	}
}

// TestAPartOfTheOutputDoesNotLookLikeTheWhole follows one stream of a run that
// is begun again, and one when the server stops.
func TestAPartOfTheOutputDoesNotLookLikeTheWhole(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(d door, x *fakeRun){
		"another try": func(d door, x *fakeRun) {
			d.mu.Lock()
			x.Attempt++
			d.mu.Unlock()
			d.end(x)
		},
		"a stop": func(d door, _ *fakeRun) { d.api.EndStreams() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			server := httptest.NewServer(d.api)
			defer server.Close()
			defer d.api.EndStreams()
			var s httpapi.SubmittedBody
			d.ask("POST", "/api/v1/runs", `{"code":"hello"}`).into(202, &s)
			x, _ := d.findRun(s.RunID)
			resp, err := server.Client().Get(server.URL + "/api/v1/runs/" + s.RunID + "/output?follow=true")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			first := make([]byte, 5)
			if _, err := io.ReadFull(resp.Body, first); err != nil || resp.Header.Get("X-Attempt") != "1" {
				t.Fatal(err, resp.Header)
			}
			harm(d, x)
			if rest, err := io.ReadAll(resp.Body); err == nil || len(rest) > 0 {
				t.Errorf("%q follows %q, and the answer ends well", rest, first)
			}
		})
	}
}

func TestThePoolAndTheLanguagesAreShown(t *testing.T) {
	t.Parallel()
	d := open(t)
	var pool []httpapi.PoolBody
	d.ask("GET", "/api/v1/pool", "").into(200, &pool)
	var health httpapi.HealthBody
	d.ask("GET", "/health", "").into(200, &health)
	if len(pool) != 1 || pool[0].Hits != 7 || pool[0].Worker != "w" || len(health.Pool) != 1 || health.DockerVersion != nil {
		t.Errorf("the pool is %+v, the health %+v", pool, health)
	}
	var languages []httpapi.LanguageBody
	d.ask("GET", "/api/v1/languages", "").into(200, &languages)
	if len(languages) != 2 || !languages[0].Active || languages[1].Active || languages[1].Reason == "" {
		t.Errorf("the languages are %+v", languages)
	}
	var root map[string]any
	d.ask("GET", "/", "").into(200, &root)
	if root["name"] != "Aurea Sandbox Orchestrator" || root["version"] != "1.2.3" || root["description"] == "" {
		t.Errorf("the root is %v", root)
	}
}
